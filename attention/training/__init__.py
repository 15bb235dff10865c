"""Training of tiny transformers, with snapshots to watch, and the source of their traces."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from attention.training.tasks import TASKS, Plan
from attention.training.trained import Trained

if TYPE_CHECKING:
    from attention.training.learning import Snapshot

__all__ = ["TASKS", "Plan", "Trained", "train"]


def train(
    task: str,
    seed: int = 0,
    steps: int = 0,
    control: str = "",
    *,
    every: int = 0,
    seconds: float | None = None,
    **turned: int,
) -> Generator[Snapshot]:
    """Snapshots of a tiny model in training: step, seconds, loss, accuracy, score, parameters. Closing the generator stops it.

    It uses one thread of torch and its own random generators, so two trainings at once give the same digits as one alone.

    Args:
        task: one of `TASKS`.
        seed: of the initial parameters and of all batches.
        steps: the number of batches; 0: the default of the task.
        control: one of the task's controls; empty: the model that can learn the task.
        every: steps between two snapshots; 0: a twentieth of all. The first and the last step always have one.
        seconds: of work (processor time) after which it stops; None: 60.
        turned: values of the task's sliders, such as `length`.

    Raises:
        ConfigError: there is no such task or control, or a number is out of range.
    """
    from attention.training.learning import snapshots

    return snapshots(Plan(task, seed, steps, control, tuple(sorted(turned.items()))), every, (), seconds)
