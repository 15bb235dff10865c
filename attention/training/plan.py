"""What is trained, as a value: a task, a seed, and what is other than usual."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from attention.errors import ConfigError
from attention.training.design import Design
from attention.training.tasks import TASKS
from attention.training.tasks.task import Example, Task

FRAMES = 25  # pictures between the first and the last
MOST_STEPS = 1000
SEEDS = 2**32 - 1


@dataclass(frozen=True)
class Plan:
    """One training. Equal plans give equal digits.

    Attributes:
        name: of the task.
        seed: of the initial parameters and of all batches.
        steps: None: as many as the task says.
        control: the name of one of the task's controls; empty: the model that can learn it.
        turned: fields of the task's design that are other than usual, by name, within the task's `sliders`.

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
            there = ", ".join(self.task.controls) or "none"
            raise ConfigError(
                f"The controls of {self.name} are: {there}; got {self.control!r}: choose one, or leave it empty."
            )
        for what, value, low, high in (("seed", self.seed, 0, SEEDS), ("steps", self.steps, 0, MOST_STEPS)):
            if not low <= value <= high:
                raise ConfigError(f"{what} is a whole number from {low} to {high:,}; got {value!r}: choose one.")
        object.__setattr__(self, "steps", self.steps or self.task.steps)
        sliders = {one.key: one for one in self.task.sliders}
        for key, value in self.turned:
            if key not in sliders or not sliders[key].range.takes(value):
                may = (
                    "; ".join(f"{one.key} is {one.range.expected}" for one in sliders.values())
                    or "nothing can be turned"
                )
                raise ConfigError(f"Of the task {self.name}, {may}; got {key} {value!r}: choose one.")

    @property
    def task(self) -> Task:
        """The task."""
        return TASKS[self.name]

    @property
    def rate(self) -> float:
        """The learning rate at its highest."""
        return self.task.rate

    @property
    def design(self) -> Design:
        """The model that is trained."""
        changes: dict[str, Any] = dict(self.turned)
        if self.control:
            changes |= self.task.controls[self.control].changes
        return replace(self.task.design, **changes)

    def example(self, text: str) -> Example:
        """What the model reads: a person's `text`, or where there is none an example of the task, as long as it must be.

        Raises:
            TextError: the task does not take this text.
        """
        return self.task.read(text if text.strip() else self.task.sample(self.design), self.design)

    @property
    def every(self) -> int:
        """How many steps lie between two pictures of the film."""
        return max(1, self.steps // FRAMES)
