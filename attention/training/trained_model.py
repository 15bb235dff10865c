"""The beginning of the copied program for a trained model: the source code of the functions that train it, and the training."""

from __future__ import annotations

import inspect
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol

from attention.formula.names import KEY, MEMORY, QUERY, VALUE
from attention.program.literals import Snippet
from attention.program.loaded_model import OTHER_IS_PATCHED, PatchedSnippet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from attention.patching.intervention import Intervention
    from attention.trace.trace import Trace
    from attention.training.plan import Plan
    from attention.training.task import Example


class State(Protocol):
    """The properties of a `Trained` that the program needs."""

    @property
    def plan(self) -> Plan:
        """The training plan."""

    @property
    def step(self) -> int:
        """The training step that is shown."""

    @property
    def example(self) -> Example:
        """The input."""

    @property
    def interventions(self) -> tuple[Intervention, ...]:
        """The interventions on heads inside the model."""

    @property
    def other(self) -> State | None:
        """The other run, from which interventions patch."""


_HEAD = (
    "from __future__ import annotations",
    "from dataclasses import dataclass",
    "from typing import NamedTuple",
)
_PROJECTIONS = ("w_q", "w_k", "w_v")
_SIDES = (QUERY, KEY, VALUE)


def trained(source: State, trace: Trace, index: int) -> Snippet:
    """The beginning for one layer of a trained model: its training, and the inputs of its attention."""
    from attention.training import design, learning, network

    layer, names = trace.layer(index).wrapped, source.plan.design.attention_layers
    patches = PatchedSnippet(
        source.interventions,
        trace,
        index,
        range(len(names)),
        lambda position: f'name == "{names[position]}"',
        lambda run, position, step: f'{run}["{names[position]}"]["{step}"][0]',
    )
    roots: list[Callable[..., Any] | type] = [design.Design, network.Batch]
    states = (source, source.other) if source.other and patches.needs_run("other") else (source,)
    for state in states:
        roots += [state.plan.task.ids, state.plan.task.posed]
    roots += [
        network.initial_parameters,
        network.named_parameters,
        network.position_bias,
        network.forward,
        learning.learn,
    ]
    lines = [
        *_HEAD,
        "",
        "torch.set_num_threads(1)  # several threads would sum in another order",
        "",
        *source_lines(roots),
    ]
    lines += [*_hook_lines(patches, names), "", *_run_lines(patches, source)]
    lines += [
        f'entered = recorded["{layer.name}"]  # {layer.name}',
        'x = entered["input"][0]  # after the layer norm',
        *(['x2 = entered["values"][0]'] if layer.has(MEMORY) else []),
        f"query, key, value = (entered[name][0] for name in {_SIDES!r})  # times W_Q, W_K, W_V",
        f'w_o = p["{layer.name} w_o"].unflatten(0, ({layer.n_heads}, -1))',
    ]
    if layer.has("bias"):
        lines += [f'bias = position_bias(p, "{layer.name}", len(tokens), len(tokens))']
    lines += patches.patch_layer(index)
    return Snippet("a tiny model, which this program trains", tuple(lines), _PROJECTIONS, patches.patched_layers)


def _hook_lines(patches: PatchedSnippet, names: Sequence[str]) -> list[str]:
    """The hook that patches heads; empty if no head is patched."""
    if not patches:
        return []
    functions = ", ".join(f'"{names[layer]}": layer_{layer}' for layer in patches.patched_layers)
    return [
        "",
        f"patched = {{{functions}}}",
        "",
        "def patch(name, query, key, value, bias, visible):",
        *patches.patch_inputs(),
        "    output, steps = attend(name, query, key, value, bias, visible)",
        "    patched_weights, patched_head_output = None, None",
        *patches.patch_running_layers(),
        "    if name in patched:",
        "        output = patched[name](query[0], key[0], value[0], bias, None, patched_weights, patched_head_output)[None]",
        "    return output, steps",
    ]


def _run_lines(patches: PatchedSnippet, source: State) -> list[str]:
    """The trainings and the runs: those of the other state and of the unchanged model if they are needed, and finally this one."""
    lines, other = list[str](), source.other if patches.needs_run("other") else None
    if other is not None:
        if other.interventions:
            lines += [OTHER_IS_PATCHED]
        lines += [*_training_lines(other), *_forward_lines("other", other), ""]
    if other is None or (other.plan, other.step) != (source.plan, source.step):
        lines += _training_lines(source)
    lines += _forward_lines("unchanged", source) if patches.needs_run("unchanged") else []
    return lines + _forward_lines("recorded", source, ", attention=patch" if patches else "")


def _training_lines(source: State) -> list[str]:
    """Lines that train a model up to its step."""
    plan, task = source.plan, source.plan.task
    return [
        f"design = {plan.design!r}",
        f"row = initial_parameters(design, {plan.seed})",
        f"draw = lambda count, generator: {task.posed.__name__}({task.ids.__name__}(count, generator, design), design)",
        f"for step in learn(row, design, draw, {plan.steps}, {plan.rate!r}, {task.batch}, {plan.seed}):",
        f"    if step == {source.step}:",
        "        break",
        "p = named_parameters(row, design)",
    ]


def _forward_lines(name: str, source: State, how: str = "") -> list[str]:
    """Lines that run one forward pass and assign its recorded tensors to `name`."""
    posed, ids = source.plan.task.posed.__name__, source.example.ids.tolist()
    return [
        "with torch.no_grad():",
        f"    _, {name} = forward(p, design, {posed}(torch.tensor({ids}), design){how})",
    ]


def source_lines(roots: list[Callable[..., Any] | type]) -> Iterator[str]:
    """The source code of functions and classes, preceded by that of all project functions and constants that they use."""
    collected: dict[str, list[str]] = {}
    for root in roots:
        _gather(root.__name__, root, collected)
    for lines in collected.values():
        yield from lines


def _gather(name: str, value: Any, collected: dict[str, list[str]]) -> None:
    if name in collected:
        return
    if not isinstance(value, FunctionType | type):
        collected[name] = [f"{name} = {value!a}"]
        return
    if isinstance(value, FunctionType):
        default_names = [default.__name__ for default in value.__defaults__ or () if isinstance(default, FunctionType)]
        for dependency in (*default_names, *_global_names(value.__code__)):
            dependency_value = value.__globals__.get(dependency)
            if _is_ours(dependency_value) or isinstance(dependency_value, tuple | str | int | float):
                _gather(dependency, dependency_value, collected)
    lines = inspect.getsource(value).rstrip().split("\n")
    collected[name] = ["", *(line for line in lines if not line.lstrip().startswith(("import ", "from attention")))]


def _global_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _global_names(inner)


def _is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith("attention.")
