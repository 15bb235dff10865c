"""How the Python of a trained model begins: the very functions that train it here, and the training itself."""

from __future__ import annotations

import inspect
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol

from attention.formula.names import KEY, MEMORY, QUERY, VALUE
from attention.sources import Snippet
from attention.sources.changed_snippet import CHANGED_ITSELF, Changed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from attention.formula.intervention import Intervention
    from attention.formula.trace import Trace
    from attention.training.plan import Plan
    from attention.training.tasks.task import Example


class State(Protocol):
    """What the Python of a trained model is written from: a `Trained`."""

    @property
    def plan(self) -> Plan:
        """What is trained."""

    @property
    def step(self) -> int:
        """The step at which it is shown."""

    @property
    def example(self) -> Example:
        """What it reads."""

    @property
    def interventions(self) -> tuple[Intervention, ...]:
        """What is changed of heads inside the model."""

    @property
    def other(self) -> State | None:
        """The state that an intervention takes something from."""


_HEAD = (
    "from __future__ import annotations",
    "from dataclasses import dataclass",
    "from typing import NamedTuple",
)
_PROJECTIONS = ("w_q", "w_k", "w_v")
_SIDES = (QUERY, KEY, VALUE)


def trained(source: State, trace: Trace, index: int) -> Snippet:
    """The beginning for one layer of a trained model: what trains it, and what enters its attention."""
    from attention.training import design, learning, network

    layer, names = trace.layer(index).inner, source.plan.design.names
    changed = Changed(
        source.interventions,
        trace,
        index,
        range(len(names)),
        lambda at: f'name == "{names[at]}"',
        lambda run, at, step: f'{run}["{names[at]}"]["{step}"][0]',
    )
    roots: list[Callable[..., Any] | type] = [design.Design, network.Batch]
    states = (source, source.other) if source.other and changed.needs("other") else (source,)
    for state in states:
        roots += [state.plan.task.ids, state.plan.task.posed]
    roots += [network.initial, network.named, network.bias_of, network.forward, learning.learn]
    lines = [*_HEAD, "", "torch.set_num_threads(1)  # more add up in another order", "", *copied(roots)]
    lines += [*_hook(changed, names), "", *_running(changed, source)]
    lines += [
        f'entered = kept["{layer.name}"]  # {layer.name}',
        'x = entered["input"][0]  # after the layer norm',
        *(['x2 = entered["values"][0]'] if layer.has(MEMORY) else []),
        f"query, key, value = (entered[name][0] for name in {_SIDES!r})  # times W_Q, W_K, W_V",
        f'w_o = p["{layer.name} w_o"].unflatten(0, ({layer.n_heads}, -1))',
    ]
    if layer.has("bias"):
        lines += [f'bias = bias_of(p, "{layer.name}", len(tokens), len(tokens))']
    lines += changed.taken(index)
    return Snippet("a tiny model, trained here again", tuple(lines), _PROJECTIONS, changed.inside)


def _hook(changed: Changed, names: Sequence[str]) -> list[str]:
    """What heads do where some are changed; nothing where none is."""
    if not changed:
        return []
    inside = ", ".join(f'"{names[at]}": layer_{at}' for at in changed.inside)
    return [
        "",
        f"changed = {{{inside}}}",
        "",
        "def change(name, query, key, value, bias, seen):",
        *changed.entering(),
        "    output, made = attend(name, query, key, value, bias, seen)",
        "    patched_weights, patched_head_output = None, None",
        *changed.taking(),
        "    if name in changed:",
        "        output = changed[name](query[0], key[0], value[0], bias, None, patched_weights, patched_head_output)[None]",
        "    return output, made",
    ]


def _running(changed: Changed, source: State) -> list[str]:
    """The trainings and the runs: of the other state and of the unchanged model where these are needed, and last this one."""
    lines, other = list[str](), source.other if changed.needs("other") else None
    if other is not None:
        if other.interventions:
            lines += [CHANGED_ITSELF]
        lines += [*_learning(other), *_run("other", other), ""]
    if other is None or (other.plan, other.step) != (source.plan, source.step):
        lines += _learning(source)
    lines += _run("unchanged", source) if changed.needs("unchanged") else []
    return lines + _run("kept", source, ", how=change" if changed else "")


def _learning(source: State) -> list[str]:
    """Trains a model up to its step."""
    plan, task = source.plan, source.plan.task
    return [
        f"design = {plan.design!r}",
        f"row = initial(design, {plan.seed})",
        f"draw = lambda count, own: {task.posed.__name__}({task.ids.__name__}(count, own, design), design)",
        f"for step in learn(row, design, draw, {plan.steps}, {plan.rate!r}, {task.batch}, {plan.seed}):",
        f"    if step == {source.step}:",
        "        break",
        "p = named(row, design)",
    ]


def _run(name: str, source: State, how: str = "") -> list[str]:
    """One forward pass, what is kept of it by that name."""
    posed, ids = source.plan.task.posed.__name__, source.example.ids.tolist()
    return [
        "with torch.no_grad():",
        f"    _, {name} = forward(p, design, {posed}(torch.tensor({ids}), design){how})",
    ]


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
