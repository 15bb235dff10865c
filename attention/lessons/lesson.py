"""A lesson: a state, one question about it, and a reply to every answer. `files` reads and writes it as Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qsl

from attention.errors import FileError
from attention.formula.name_aliases import current_name
from attention.formula.steps import find_step
from attention.sources.link_aliases import with_current_keys

MOST_WORDS = 60
"""Of a lesson's text: one idea."""

SAID = "said"
"""What stands in the place of a step for what a model says next."""


class Part(NamedTuple):
    """Some cells of a step: all of them, a row, or one; or what a model says next."""

    step: str
    row: int | None = None
    column: int | None = None

    @classmethod
    def read(cls, text: str) -> Part:
        """From "weights", "weights 3" or "weights 3 2".

        Raises:
            AttentionError: there is no such step, or something else stands beside it.
        """
        step, *places = text.split()
        step = current_name(step)
        if step != SAID:
            find_step(step)
        if len(places) > 2 or not all(_is_place(place) for place in places):
            raise FileError(
                f"A part is a step, and its row and column where it is less, such as weights 3 2; got {text[:80]!r}."
            )
        return cls(step, *map(int, places))

    @property
    def written(self) -> str:
        """It as it is read."""
        return " ".join(str(one) for one in self if one is not None)


@dataclass(frozen=True)
class Lesson:
    """One idea, one changed knob, one question.

    Attributes:
        name: what it is called in a link.
        title: what it is about.
        text: what is read before the question, at most `MOST_WORDS`.
        state: where its numbers come from, as a link says it.
        turn: the one knob that is turned when the answer is shown, as in a link; `turned` says it in words.
        show: what is drawn; `hide` what of that is kept back until somebody has answered.
        kind: of the question, one of `kinds.KINDS`.
        question: what is asked.
        options: what there is to choose from, where the kind has no options of its own.
        answer: what is right, as an expression that `answers.worked_out` works out.
        tolerance: how far off a number may be.
        explain: the number whose arithmetic is opened in the end.
        replies: to what is right, and to every kind of wrong answer; the first that fits is said.
        next: the name of the lesson after it; empty after the last.
    """

    name: str
    title: str
    text: str
    state: str
    show: tuple[Part, ...]
    kind: str
    question: str
    answer: str
    replies: tuple[tuple[str, str], ...]
    turn: str = ""
    turned: str = ""
    hide: tuple[Part, ...] = ()
    options: tuple[str, ...] = ()
    tolerance: float = 0.0
    explain: Part | None = None
    next: str = ""

    @property
    def link(self) -> dict[str, str]:
        """Its state by key, before the knob is turned."""
        return _texts(self.state)

    @property
    def link_turned(self) -> dict[str, str]:
        """Its state by key, after that."""
        return self.link | _texts(self.turn)

    @property
    def place(self) -> tuple[int, int]:
        """The layer and the head of its state.

        Raises:
            FileError: the state says none that can be.
        """
        layer, head = (self.link.get(key, "0") for key in ("layer", "head"))
        if not (_is_place(layer) and _is_place(head)):
            raise FileError(f"A state's layer and head are whole numbers; got {layer[:20]!r} and {head[:20]!r}.")
        return int(layer), int(head)


def _texts(query: str) -> dict[str, str]:
    return with_current_keys(dict(parse_qsl(query, keep_blank_values=True))).texts


def _is_place(text: str) -> bool:
    return text.isdecimal() and len(text) <= 6
