"""The declaration of a task: its sequences and answers, the gold cells, the model that learns it, and its controls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.base.knobs import Knob
from attention.training.design import Design

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from attention.trace.trace import SeenPicture
    from attention.training.network import Batch

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Control(NamedTuple):
    """A model that differs in one respect, and the effect of that in a sentence."""

    sentence: str
    changes: Mapping[str, Any]


class Example(NamedTuple):
    """A user's text as the task reads it.

    Attributes:
        ids: one sequence, as `Task.ids` draws them.
        tokens: the query tokens.
        memory: the key tokens; empty if they are the query tokens.
        answers: the name of each answer.
        notes: remarks for the user.
        pictures: what the model sees; the patches among the tokens belong to them.
    """

    ids: Tensor
    tokens: tuple[str, ...]
    memory: tuple[str, ...]
    answers: tuple[str, ...]
    notes: tuple[str, ...] = ()
    pictures: tuple[SeenPicture, ...] = ()


@dataclass(frozen=True)
class Task:
    """A task to learn.

    Attributes:
        name: its name in links.
        title: for pages.
        sentence: the task, and what to look for.
        design: the model.
        ids: draws sequences, [count position].
        posed: a batch from these ids, with answers and gold cells.
        read: parses a user's text as one sequence.
        sample: the text that is shown by default.
        hint: the kind of text that can be typed.
        steps: number of batches.
        rate: the largest learning rate.
        batch: sequences in a batch.
        controls: by name, the models that must fail, or succeed in another way.
        sliders: the fields of `design` that users can change, as knobs with safe ranges.
        reads: an example of a valid text.
        refuses: examples of invalid texts.
        next: whether answers are the next token, rather than the token of their position.
        reaches: accuracy and score that at least 19 of 20 seeds reach.
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
        """A batch of `count` random sequences."""
        return self.posed(self.ids(count, generator, design), design)
