"""How the source "trained" is read: its knobs, whose ranges depend on the task, and the model that they describe."""

from __future__ import annotations

from dataclasses import replace

from attention.core import config
from attention.params.knob import Knob
from attention.params.ranges import Choice, Integer, Range, Text
from attention.patching.intervention import parse_codes
from attention.sources.kinds.shared_knobs import FROZEN, INTERVENTIONS, OTHER, PREFIX_LEN
from attention.sources.kinds.source_kind import SourceKind
from attention.sources.layer_knobs import read_override
from attention.sources.reader import ParameterReader
from attention.sources.trained import Trained
from attention.training.plan import MOST_STEPS, Plan
from attention.training.tasks import CONTROLS, MAX_TEXT_LENGTH, TASKS
from attention.training.tasks.task import Task

NAME = "trained"
# fmt: off
TASK = Knob(
    "task", "reverse", Choice(tuple(TASKS), tuple(task.title for task in TASKS.values())), "Task",
    "The task that a tiny model learns, in a few seconds. The page Training shows the model while it learns.", (NAME,))
TASK_INPUT = Knob(
    "input", "", Text(MAX_TEXT_LENGTH), "Your input", "The input of the trained model, in the form of its task. Empty: an example.", (NAME,))
CONTROL = Knob("control", "", Choice(("", *CONTROLS)), "Control", "The same model with one difference.", (NAME,), section="More knobs")
TRAINING_STEPS = Knob(
    "steps", None, Integer(1, MOST_STEPS, optional=True), "Steps", "The number of training batches.", (NAME,),
    placeholder="as many as it needs")
SLIDERS = {
    "length": Knob("length", None, Integer(1, 64, optional=True), "Length", sources=(NAME,), section="More knobs"),
    "offset": Knob("offset", None, Integer(1, 64, optional=True), "k", sources=(NAME,), section="More knobs"),
}
AT_STEP = Knob(
    "at", None, Integer(0, MOST_STEPS, optional=True), "At step", "The model after this many training steps. Empty: the last step.",
    (NAME,), placeholder="the last")
SEED = next(knob for knob in config.KNOBS if knob.key == "seed")
# fmt: on


def control_range(task: Task) -> Choice:
    """The controls of a task."""
    return Choice(("", *task.controls), ("none", *task.controls))


def slider_for_task(task: Task, key: str) -> tuple[Knob, Range, str]:
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


def read(reader: ParameterReader) -> Trained:
    """A tiny model. Its task and its number of steps decide which controls and sliders exist, and the range of `at`."""
    task = TASKS[reader.knob(TASK)]
    text = reader.knob(replace(TASK_INPUT, help=f"It reads {task.hint}. Empty: an example.", placeholder=task.hint))
    seed = reader.knob(SEED)
    steps = reader.knob(replace(TRAINING_STEPS, placeholder=str(task.steps)))
    plan = Plan(task.name, steps=steps or 0)  # for the range and the increment of `at`
    at = reader.knob(AT_STEP, Integer(0, plan.steps, optional=True, step=plan.every))
    control = reader.knob(CONTROL, control_range(task))
    sliders = {key: reader.knob(*slider_for_task(task, key)) for key in SLIDERS}
    available = {key: value for key, value in sliders.items() if key in {slider.key for slider in task.sliders}}
    trained = Trained(task.name, seed, steps, at, text, control=control, **available)
    interventions, other = parse_codes(reader.knob(INTERVENTIONS)), reader.knob(OTHER)
    _ = reader.knob(PREFIX_LEN)  # only the page uses it
    return replace(
        trained,
        config=read_override(reader, NAME),
        interventions=interventions,
        frozen=reader.knob(FROZEN),
        other=replace(trained, text=other) if other.strip() else None,
    )


KIND = SourceKind(NAME, read, noun="trained model")
