"""The plan of a training as a value: a task, a seed, and changes of the defaults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from attention.base.errors import ConfigError
from attention.training.design import Design
from attention.training.task import Example, Task
from attention.training.tasks import TASKS

FRAMES = 25  # between the first and the last step
MOST_STEPS = 1000
SEEDS = 2**32 - 1


@dataclass(frozen=True)
class Plan:
    """A training. Equal plans give equal digits.

    Attributes:
        name: name of the task.
        seed: of the initial parameters and of all batches.
        steps: number of batches; 0: the default of the task.
        control: the name of one of the task's controls; empty: the model that can learn the task.
        turned: changed fields of the task's design by name, within the ranges of the task's `sliders`.

    Raises:
        ConfigError: there is no such task or control, or a number is out of range.
    """

    name: str
    seed: int = 0
    steps: int = 0
    control: str = ""
    turned: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.name not in TASKS:
            raise ConfigError(f"task is one of {', '.join(TASKS)}; got {self.name!r}: choose one of them.")
        if self.control and self.control not in self.task.controls:
            controls = ", ".join(self.task.controls) or "none"
            raise ConfigError(
                f"The controls of {self.name} are: {controls}; got {self.control!r}: choose one, or leave it empty."
            )
        for name, value, low, high in (("seed", self.seed, 0, SEEDS), ("steps", self.steps, 0, MOST_STEPS)):
            if not low <= value <= high:
                raise ConfigError(f"{name} is a whole number from {low} to {high:,}; got {value!r}: choose one.")
        object.__setattr__(self, "steps", self.steps or self.task.steps)
        sliders = {slider.key: slider for slider in self.task.sliders}
        for key, value in self.turned:
            if key not in sliders or not sliders[key].range.accepts(value):
                expected = (
                    "; ".join(f"{slider.key} is {slider.range.expected}" for slider in sliders.values())
                    or "nothing can be changed"
                )
                raise ConfigError(f"Of the task {self.name}, {expected}; got {key} {value!r}: choose one.")

    @property
    def task(self) -> Task:
        """The task of the plan."""
        return TASKS[self.name]

    @property
    def rate(self) -> float:
        """The largest learning rate."""
        return self.task.rate

    @property
    def design(self) -> Design:
        """The model that is trained."""
        changes: dict[str, Any] = dict(self.turned)
        if self.control:
            changes |= self.task.controls[self.control].changes
        return replace(self.task.design, **changes)

    def example(self, text: str) -> Example:
        """The input of the model: the user's `text`, or else a sample of the task with the right length.

        Raises:
            TextError: the text does not fit the task.
        """
        return self.task.read(text if text.strip() else self.task.sample(self.design), self.design)

    @property
    def every(self) -> int:
        """The number of steps between two frames of the film."""
        return max(1, self.steps // FRAMES)
