"""How the Python of a trained model begins: the very functions that train it here, and the training itself."""

from __future__ import annotations

import inspect
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from attention.sources import Snippet
from attention.sources.trained_trace import silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from attention.formula.layer import Layer
    from attention.sources.trained import Trained

_HEAD = (
    "from __future__ import annotations",
    "from dataclasses import dataclass",
    "from typing import NamedTuple",
)
_PROJECTIONS = ("w_q", "w_k", "w_v")


def trained(source: Trained, layer: Layer) -> Snippet:
    """The beginning for one layer of a trained model: what trains it, and what enters its attention."""
    from attention.training import design, learning, network

    plan, example = source.plan, source.example
    at = plan.steps if source.at is None else source.at
    task, name, heads = plan.task, layer.name, plan.design.heads_of(layer.name)
    silenced, posed = silent(plan, source.interventions), task.posed.__name__
    off = f", silent={sorted(silenced)!r}" if silenced else ""
    roots: list[Callable[..., Any] | type] = [design.Design, network.Batch, task.ids, task.posed]
    roots += [network.initial, network.named, network.bias_of, network.forward, learning.learn]
    lines = [*_HEAD, "", "torch.set_num_threads(1)  # more add up in another order", "", *copied(roots)]
    lines += [
        "",
        f"design = {plan.design!r}",
        f"row = initial(design, {plan.seed})",
        "draw = lambda count, own: " + f"{posed}({task.ids.__name__}(count, own, design), design)",
        f"for step in learn(row, design, draw, {plan.steps}, {plan.rate!r}, {task.batch}, {plan.seed}):",
        f"    if step == {at}:",
        "        break",
        "p = named(row, design)",
        "with torch.no_grad():",
        f"    _, kept = forward(p, design, {posed}(torch.tensor({example.ids.tolist()}), design){off})",
        f'entered = kept["{name}"]  # {name}',
        'x = entered["input"][0]  # after the layer norm',
    ]
    cut = f".unflatten(1, ({heads}, -1)).transpose(0, 1)"
    lines += [f'{w} = p["{name} {w}"]{cut}' for w in _PROJECTIONS]
    lines += [f'w_o = p["{name} w_o"].unflatten(0, ({heads}, -1))']
    if layer.has("bias"):
        lines += [f'bias = bias_of(p, "{name}", len(tokens), len(tokens))']
    if layer.has("memory"):
        lines += ['x2 = entered["values"][0]']
    index = plan.design.names.index(name)
    if silenced is None and any(one.layer is None or one.layer < index for one in source.interventions):
        lines += [
            'given = np.load("attention.npz")  # exported beside this code: what was changed before is in these numbers'
        ]
        lines += [f'{made} = torch.from_numpy(given["L{index}.{made}"])' for made in ("query", "key", "value")]
        return Snippet("a tiny model, trained here again", tuple(lines), _PROJECTIONS)
    if "key" in layer.told:  # keys and values come from other rows
        lines += ['keys = entered["keys"][0]']
        sides = (("query", "x", "w_q"), ("key", "keys", "w_k"), ("value", "x2", "w_v"))
        lines += [f"{made} = ({rows}.double() @ {w}.double()).float()" for made, rows, w in sides]
        return Snippet("a tiny model, trained here again", tuple(lines), _PROJECTIONS)
    return Snippet("a tiny model, trained here again", tuple(lines))


def copied(roots: list[Callable[..., Any] | type]) -> Iterator[str]:
    """The source of functions and classes, after that of all functions and numbers of ours that they use."""
    found: dict[str, list[str]] = {}
    for root in roots:
        _gather(root.__name__, root, found)
    for lines in found.values():
        yield from lines


def _gather(name: str, thing: Any, found: dict[str, list[str]]) -> None:
    if name in found:
        return
    if not isinstance(thing, FunctionType | type):
        found[name] = [f"{name} = {thing!a}"]
        return
    if isinstance(thing, FunctionType):
        used_by_default = [one.__name__ for one in thing.__defaults__ or () if isinstance(one, FunctionType)]
        for used in (*used_by_default, *_names(thing.__code__)):
            other = thing.__globals__.get(used)
            if _ours(other) or isinstance(other, tuple | str | int | float):
                _gather(used, other, found)
    lines = inspect.getsource(thing).rstrip().split("\n")
    found[name] = ["", *(line for line in lines if not line.lstrip().startswith(("import ", "from attention")))]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _ours(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith("attention.")
