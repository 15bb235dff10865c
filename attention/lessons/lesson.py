"""A lesson: a state, one question about it, and a reply to every answer. `markdown` reads and writes it as Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qsl

from attention.core.steps import find_step
from attention.errors import FileError

MAX_WORDS = 60
"""The most words in a lesson's text: enough for one idea."""

PREDICTION = "said"
"""The name of a model's prediction, where a part names a step."""


class Part(NamedTuple):
    """Some cells of a step: all of them, a row, or a single cell; or the model's prediction."""

    step: str
    row: int | None = None
    column: int | None = None

    @classmethod
    def parse(cls, text: str) -> Part:
        """A part from "weights", "weights 3" or "weights 3 2".

        Raises:
            AttentionError: there is no such step, or the rest is no row and column.
        """
        step, *indices = text.split()
        if step != PREDICTION:
            find_step(step)
        if len(indices) > 2 or not all(_is_index(index) for index in indices):
            raise FileError(
                f"A part is a step, optionally followed by a row and a column, such as weights 3 2; got {text[:80]!r}."
            )
        return cls(step, *map(int, indices))

    @property
    def text(self) -> str:
        """The part as text, the inverse of `read`."""
        return " ".join(str(item) for item in self if item is not None)


@dataclass(frozen=True)
class Lesson:
    """One idea, one changed setting, one question.

    Attributes:
        name: the name in a link.
        title: the topic.
        text: shown before the question, at most `MAX_WORDS` words.
        state: the source of its numbers, as in a link.
        turn: the setting that changes when the answer is shown, as in a link; `turned` describes it in words.
        show: the parts on display; `hide` are those hidden until the question is answered.
        kind: the kind of question, a key of `question_kinds.KINDS`.
        question: the question.
        options: the options, if the kind has no fixed ones.
        answer: the right answer, as an expression that `answers.evaluate` evaluates.
        tolerance: the accepted error of a number.
        explain: the cell whose arithmetic is opened at the end.
        replies: to the right answer and to each way of being wrong; the first match applies.
        next: the name of the next lesson; empty for the last.
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
    def query_before(self) -> dict[str, str]:
        """The state by key, before the change."""
        return _texts(self.state)

    @property
    def query_after(self) -> dict[str, str]:
        """The state by key, after the change."""
        return self.query_before | _texts(self.turn)

    @property
    def layer_and_head(self) -> tuple[int, int]:
        """The layer and the head of the state.

        Raises:
            FileError: the state's layer or head is no valid index.
        """
        layer, head = (self.query_before.get(key, "0") for key in ("layer", "head"))
        if not (_is_index(layer) and _is_index(head)):
            raise FileError(f"A state's layer and head are whole numbers; got {layer[:20]!r} and {head[:20]!r}.")
        return int(layer), int(head)


def _texts(query: str) -> dict[str, str]:
    return dict(parse_qsl(query, keep_blank_values=True))


def _is_index(text: str) -> bool:
    return text.isdecimal() and len(text) <= 6
