"""What a task declares: what is asked, what the rule says matters, the model that learns it, and those that cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.formula.knobs import Knob
from attention.training.design import Design

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from attention.training.network import Batch

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Control(NamedTuple):
    """A model that is the same but for one thing, and what that thing does, in a sentence."""

    sentence: str
    changes: Mapping[str, Any]


class Example(NamedTuple):
    """A person's own text as the task reads it.

    Attributes:
        ids: one sequence, as `Task.draw` draws many.
        tokens: what attends; `memory` what is attended to, empty where that is the same.
        answers: what each answer is called.
        notes: what a person must know of it.
    """

    ids: Tensor
    tokens: tuple[str, ...]
    memory: tuple[str, ...]
    answers: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """One thing to learn.

    Attributes:
        name: as in links.
        title: as a person reads it.
        sentence: what is asked, and what to look for.
        design: the model.
        ids: draws sequences, [count position]; `posed` makes of them what is asked, and which cells are gold.
        read: a person's text as one sequence.
        sample: what is shown where nobody has typed anything.
        hint: what can be typed.
        steps, rate, batch: how it is learned.
        controls: by name, those that must fail, or succeed in another way.
        sliders: the fields of `design` that can be turned, as knobs with their safe ranges.
        reads: a text of a person that it reads; `refuses` some that it does not.
        next: whether an answer is what comes next, and not what belongs to its place.
        reaches: the accuracy and the score that at least 19 of 20 seeds reach.
    """

    name: str
    title: str
    sentence: str
    design: Design
    ids: Callable[[int, Generator, Design], Tensor]
    posed: Callable[[Tensor, Design], Batch]
    read: Callable[[str, Design], Example]
    sample: Callable[[Design], str]
    hint: str
    steps: int
    rate: float
    reaches: tuple[float, float]
    batch: int = 32
    controls: Mapping[str, Control] = field(default_factory=dict)
    sliders: tuple[Knob, ...] = ()
    reads: str = ""
    refuses: tuple[str, ...] = ()
    next: bool = False

    def draw(self, count: int, generator: Generator, design: Design) -> Batch:
        """So many sequences to learn from."""
        return self.posed(self.ids(count, generator, design), design)
