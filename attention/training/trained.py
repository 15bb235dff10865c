"""Source "trained": a tiny model that learned one task, at any step of its training; its knobs, and its copied program.

The ranges of the knobs depend on the task. The program begins with the source code of the functions that train the model.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from attention.base.errors import ConfigError, TextError
from attention.base.knobs import Choice, Integer, Knob, Range, Text
from attention.formula import config
from attention.formula.names import KEY, MEMORY, QUERY, VALUE
from attention.formula.override import Override
from attention.patching.intervention import Intervention, as_interventions, parse_codes
from attention.program.literals import Snippet
from attention.program.loaded_model import OTHER_IS_PATCHED, PatchedSnippet
from attention.sources import Intervenable
from attention.sources.layer_knobs import FROZEN, INTERVENTIONS, OTHER, PREFIX_LEN, read_override
from attention.sources.reader import Reader, SourceKind
from attention.trace.trace import Trace
from attention.training.task import Batch, Design, Task
from attention.training.tasks import CONTROLS, MAX_TEXT_LENGTH, MOST_STEPS, SLIDER_KEYS, TASKS, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from attention.formula.edit_kinds import LayerSize
    from attention.patching.forward import Activations, PatchedForward
    from attention.trace.model_run import HeadMatrices, ModelRun
    from attention.training.learning import Snapshot
    from attention.training.task import Example


@dataclass(frozen=True)
class Trained(Intervenable):
    """A tiny model that learned one task, at any step of its training.

    The model is trained at its first use, in a few seconds, once for all users. The same values give the same
    digits on every machine.

    Attributes:
        task: one of `attention.training.TASKS`: reverse, copy, lookup, sort, induction, dates, shapes.
        seed: seed of the initial parameters and of all batches.
        steps: the number of training batches; None: the default of the task.
        at: the training step to show; None: the last.
        text: the input, in the form of the task; empty: an example.
        config: overrides of the formula of every layer in the trace; the model itself does not change.
        control: a control of the task, which is the same model with one difference; empty: none.
        length: the number of letters, entries, positions, or patches in a row of a picture; None: the default of the task.
        offset: how many positions offset a copied letter is; None: the default of the task.
        interventions: the interventions on heads inside the model; later layers see their effect.
        frozen: frozen attention: the layers after the first intervention use the weights of the unchanged model and the values of the
            changed one.
        other: the other run of activation patching: a model with the same layers and as many tokens, at another step, with another seed
            or text.
    """

    task: str
    seed: int = 0
    steps: int | None = None
    at: int | None = None
    text: str = ""
    config: Override = Override()
    control: str = ""
    length: int | None = None
    offset: int | None = None
    interventions: tuple[Intervention, ...] = ()
    frozen: bool = False
    other: Trained | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "interventions", as_interventions(self.interventions))

    @property
    def plan(self) -> Plan:
        """The training plan.

        Raises:
            ConfigError: the task or control does not exist, or a number is out of range.
        """
        sliders = tuple((key, value) for key in SLIDER_KEYS if (value := getattr(self, key)) is not None)
        return Plan(self.task, self.seed, self.steps or 0, self.control, sliders)

    @property
    def example(self) -> Example:
        """The input.

        Raises:
            TextError: the text does not have the form of the task.
        """
        return self.plan.example(self.text)

    @property
    def step(self) -> int:
        """The training step to show."""
        return self.plan.steps if self.at is None else self.at

    def snapshot(self) -> Snapshot:
        """The model at the step `at`, trained now if no other user has trained it.

        Raises:
            ConfigError: the step does not exist, or the training was not finished.
        """
        from attention.training.jobs import get_film, untrained

        plan, step = self.plan, self.step
        if not 0 <= step <= plan.steps:
            raise ConfigError(f"at is a training step from 0 to {plan.steps}; got {step!r}: choose one of these.")
        if step == 0:
            return untrained(plan)
        snapshots = get_film(plan, step).wait()
        return next(snapshot for snapshot in snapshots if snapshot.step == step)

    def prepare(self) -> None:
        """Trains the model, unless it is trained already.

        Raises:
            ConfigError: as for `snapshot`.
        """
        _ = self.snapshot()

    def trace(self) -> Trace:
        """One layer for each attention layer, in the order in which they run.

        Raises:
            ConfigError: as for `plan` and `snapshot`.
            TextError: as for `example`.
        """
        from attention.training import trained_trace

        forward = self.patched_forward()
        trace = trained_trace.build_trace(self.plan, self.snapshot(), self.example, forward, self.frozen)
        return replace(trace, model_run=self.run()).with_config(self.config)

    def run(self) -> ModelRun:
        """The run of the model, without the trace."""
        from attention.training import trained_trace

        return trained_trace.TrainedRun(self.base)

    def head_matrices(self) -> HeadMatrices:
        """The matrices of every head of the model, whatever its input and interventions."""
        return self.run().head_matrices()

    def patched_forward(self) -> PatchedForward:
        """The patched forward pass, with the activations of the unchanged model and of the other run that it needs.

        Raises:
            ConfigError: the model, or the other run, does not have a head or layer that an intervention names.
        """
        from attention.patching.forward import PatchedForward, check, prepare_pass
        from attention.sources.repeated_run import refuse_sites

        refuse_sites("A trained model", self.interventions)
        check(self.interventions, self._extents)

        def unchanged(wanted: Mapping[int, bool]) -> Mapping[int, Activations]:
            return self.without_interventions._captured(PatchedForward(requested=wanted))

        def patched_from_other(wanted: Mapping[int, bool]) -> Mapping[int, Activations]:
            other = self._other()
            forward = other.patched_forward()
            forward.requested = wanted
            return other._captured(forward)

        order = range(len(self._extents))
        return prepare_pass(self.interventions, order, unchanged if self.frozen else None, patched_from_other)

    def _captured(self, forward: PatchedForward) -> Mapping[int, Activations]:
        """The activations of this model that another run needs."""
        from attention.training import trained_trace

        trained_trace.forward_pass(self.plan, self.snapshot(), self.example, forward)
        return forward.captured

    @property
    def _extents(self) -> tuple[LayerSize, ...]:
        from attention.formula.edit_kinds import LayerSize

        example, design = self.example, self.plan.design
        queries, memory = len(example.tokens), len(example.memory)
        return tuple(
            LayerSize(name, design.heads_of(name), memory if name.startswith("encoder") else queries, memory or queries)
            for name in design.attention_layers
        )

    def _other(self) -> Trained:
        from attention.patching.forward import check_lengths, check_other_state

        problem = ""
        if self.other is not None:
            ours, theirs = ([extent[:2] for extent in state._extents] for state in (self, self.other))
            if self.other.other is not None:
                problem = "takes from a third"
            elif ours != theirs:
                problem = f"has other layers ({', '.join(self.other.plan.design.attention_layers)})"
        other = check_other_state("Trained", self.other, problem)
        check_lengths(self._lengths, other._lengths)
        return other

    @property
    def _lengths(self) -> list[int]:
        return [len(tokens) for tokens in (self.example.memory, self.example.tokens) if tokens]

    @property
    def input_text(self) -> str:
        """The input text: the example of the task if `text` is empty."""
        return self.text if self.text.strip() else self.plan.task.sample(self.plan.design)

    def find_token(self, text: str) -> tuple[int, str]:
        """The id of the answer that a text stands for, and its readable form.

        Raises:
            TextError: the answer does not exist.
        """
        answers = self.example.answers
        if text not in answers:
            raise TextError(f"The model answers one of {', '.join(answers)}; got {text[:40]!r}: choose one.")
        return answers.index(text), text

    def memory_bytes(self) -> int:
        """The bytes that the steps take while they are computed, counted in advance."""
        return 2**20

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """The beginning of a Python program that computes the trace: it trains the model."""
        return _snippet(self, trace, layer)


_HEAD = ("from __future__ import annotations", "from dataclasses import dataclass", "from typing import NamedTuple")
_PROJECTIONS = ("w_q", "w_k", "w_v")
_SIDES = (QUERY, KEY, VALUE)


def _snippet(source: Trained, trace: Trace, index: int) -> Snippet:
    """The beginning for one layer of a trained model: its training, and the inputs of its attention."""
    from attention.training import learning, network

    layer, names = trace.layer(index).wrapped, source.plan.design.attention_layers
    patches = PatchedSnippet(
        source.interventions,
        trace,
        index,
        range(len(names)),
        lambda position: f'name == "{names[position]}"',
        lambda run, position, step: f'{run}["{names[position]}"]["{step}"][0]',
    )
    roots: list[Callable[..., Any] | type] = [Design, Batch]
    states = (source, source.other) if source.other and patches.needs_run("other") else (source,)
    for state in states:
        roots += [state.plan.task.ids, state.plan.task.posed]
    roots += [network.initial_parameters, network.named_parameters, network.position_bias, network.forward]
    roots.append(learning.learn)
    one_thread = "torch.set_num_threads(1)  # several threads would sum in another order"
    lines = [*_HEAD, "", one_thread, "", *_source_lines(roots)]
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


def _run_lines(patches: PatchedSnippet, source: Trained) -> list[str]:
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


def _training_lines(source: Trained) -> list[str]:
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


def _forward_lines(name: str, source: Trained, how: str = "") -> list[str]:
    """Lines that run one forward pass and assign its recorded tensors to `name`."""
    posed, ids = source.plan.task.posed.__name__, source.example.ids.tolist()
    return ["with torch.no_grad():", f"    _, {name} = forward(p, design, {posed}(torch.tensor({ids}), design){how})"]


def _source_lines(roots: list[Callable[..., Any] | type]) -> Iterator[str]:
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


_NAME = "trained"
# fmt: off
TASK = Knob(
    "task", "reverse", Choice(tuple(TASKS), tuple(task.title for task in TASKS.values())), "Task",
    "The task that a tiny model learns, in a few seconds. The page Train shows the model while it learns.", (_NAME,))
TASK_INPUT = Knob(
    "input", "", Text(MAX_TEXT_LENGTH), "Your input", "The input of the trained model, in the form of its task. Empty: an example.", (_NAME,))
_CONTROL = Knob("control", "", Choice(("", *CONTROLS)), "Control", "The same model with one difference.", (_NAME,), section="More knobs")
_TRAINING_STEPS = Knob(
    "steps", None, Integer(1, MOST_STEPS, optional=True), "Steps", "The number of training batches.", (_NAME,),
    placeholder="as many as it needs")
SLIDERS = {
    "length": Knob("length", None, Integer(1, 64, optional=True), "Length", sources=(_NAME,), section="More knobs"),
    "offset": Knob("offset", None, Integer(1, 64, optional=True), "k", sources=(_NAME,), section="More knobs"),
}
_AT_STEP = Knob(
    "at", None, Integer(0, MOST_STEPS, optional=True), "At step", "The model after this many training steps. Empty: the last step.",
    (_NAME,), placeholder="the last")
_SEED = next(knob for knob in config.KNOBS if knob.key == "seed")
# fmt: on


def read(reader: Reader) -> Trained:
    """A tiny model. Its task and its number of steps decide which controls and sliders exist, and the range of `at`."""
    task = TASKS[reader.knob(TASK)]
    text = reader.knob(replace(TASK_INPUT, help=f"It reads {task.hint}. Empty: an example.", placeholder=task.hint))
    seed = reader.knob(_SEED)
    steps = reader.knob(replace(_TRAINING_STEPS, placeholder=str(task.steps)))
    plan = Plan(task.name, steps=steps or 0)  # for the range and the increment of `at`
    at = reader.knob(_AT_STEP, Integer(0, plan.steps, optional=True, step=plan.every))
    control = reader.knob(_CONTROL, Choice(("", *task.controls), ("none", *task.controls)))
    sliders = {key: reader.knob(*_slider_for_task(task, key)) for key in SLIDERS}
    available = {key: value for key, value in sliders.items() if key in {slider.key for slider in task.sliders}}
    trained = Trained(task.name, seed, steps, at, text, control=control, **available)
    interventions, other = parse_codes(reader.knob(INTERVENTIONS)), reader.knob(OTHER)
    _ = reader.knob(PREFIX_LEN)  # only the page uses it
    return replace(
        trained,
        config=read_override(reader, KIND),
        interventions=interventions,
        frozen=reader.knob(FROZEN),
        other=replace(trained, text=other) if other.strip() else None,
    )


def _slider_for_task(task: Task, key: str) -> tuple[Knob, Range, str]:
    """The slider of a task: the knob, its range, and the fixed value that is displayed where the task does not have the slider."""
    slider = next((knob for knob in task.sliders if knob.key == key), None)
    if slider is None:
        return SLIDERS[key], SLIDERS[key].range, "not in this task"
    assert isinstance(slider.range, Integer)
    return (
        replace(SLIDERS[key], label=slider.label, help=slider.help, placeholder=str(slider.default)),
        replace(slider.range, optional=True),
        "",
    )


_KNOBS = (TASK, TASK_INPUT, _AT_STEP, _CONTROL, _TRAINING_STEPS, *SLIDERS.values())
_SHARED = ("interventions", "frozen", "other", "prefix_len", "seed")
KIND = SourceKind(
    _NAME, read, noun="trained model", knobs=_KNOBS, shared=_SHARED, has_formula=True, text=TASK_INPUT.key
)
