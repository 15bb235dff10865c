"""A lesson: a state, one question about it, and a reply to every answer. `markdown` reads and writes it as Markdown.

`KINDS` declares every kind of question: the form of an answer, when it is right, and the ways in which it can be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from attention.base.errors import FileError
from attention.formula.steps import find_step

MAX_WORDS = 60
"""The most words in a lesson's text: enough for one idea."""
PREDICTION = "said"
"""The name of a model's prediction, where a part names a step."""

Answer: TypeAlias = "int | float | str | tuple[int, ...] | tuple[float, ...]"
"""A key, a number, an option, a cell or an order, a row."""

_Replies: TypeAlias = Sequence[tuple[str, str]]
"""Pairs of a condition and a reply: "right", a way of being wrong, or a specific answer; the first match applies."""

_MOST = 64  # items in one answer
_LARGEST = 1e300  # the largest number; an integer may exceed any float
_NEAR_ONE = 0.101  # the tolerance of the sum 1 of a sketched row
_FLAT = 0.06  # the largest difference between the bars of a flat row


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
        options: the options, if the kind has no fixed ones.
        answer: the right answer, as an expression that `answers.evaluate` evaluates.
        tolerance: the accepted error of a number.
        explain: the cell whose arithmetic is opened at the end.
        replies: to the right answer and to each way of being wrong; the first match applies.
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


@dataclass(frozen=True)
class _Kind:
    """One kind of question.

    Attributes:
        parse: parses an answer from the browser; None if it is malformed.
        is_right: whether an answer is right; takes the answer, the truth and the tolerance.
        mistakes: predicates for ways of being wrong, by their names in a lesson's replies; each takes the answer and the truth.
        options: the fixed options, if the kind has any.
        default_replies: default replies, so that no wrong answer is left without a hint.
    """

    parse: Callable[[Any], Answer | None]
    is_right: Callable[[Any, Any, float], bool]
    mistakes: Mapping[str, Callable[[Any, Any], bool]] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    default_replies: _Replies = ()


def _natural(sent: Any) -> int | None:
    return sent if isinstance(sent, int) and not isinstance(sent, bool) and 0 <= sent < 10**6 else None


def _number(sent: Any) -> float | None:
    fits = isinstance(sent, int | float) and not isinstance(sent, bool) and abs(sent) < _LARGEST
    return float(sent) if fits else None


def _text(sent: Any) -> str | None:
    return sent[:200] if isinstance(sent, str) else None


def _items(sent: Any, parse: Callable[[Any], Any]) -> tuple[Any, ...] | None:
    items = tuple(map(parse, sent)) if isinstance(sent, list | tuple) and 0 < len(sent) <= _MOST else (None,)
    return None if None in items else items


def _cell(sent: Any) -> tuple[int, ...] | None:
    items = _items(sent, _natural)
    return items if items is not None and len(items) == 2 else None


def _same(guess: Any, truth: Any, _: float) -> bool:
    return bool(guess == truth)


def _peak(row: Sequence[float]) -> int:
    return max(range(len(row)), key=row.__getitem__)


def _always(*_: Any) -> bool:
    return True


KINDS: dict[str, _Kind] = {
    "cell": _Kind(_cell, _same, {
        "swapped": lambda guess, truth: guess == truth[::-1],
        "row": lambda guess, truth: guess[0] == truth[0],
        "column": lambda guess, truth: guess[1] == truth[1],
        "elsewhere": _always,
    }, default_replies=(
        ("swapped", "Row and column are swapped: rows are queries (attend), columns are keys (are attended to)."),
        ("row", "The row is right. Now look for the column."),
        ("column", "The column is right. Now look for the row."),
        ("elsewhere", "Both row and column are different: read the names beside the map and above it."),
    )),
    "key": _Kind(_natural, _same, {
        "before": lambda guess, truth: guess < truth,
        "after": lambda guess, truth: guess > truth,
    }, default_replies=(
        ("before", "The right key comes later in the text."),
        ("after", "The right key comes earlier in the text."),
    )),
    "choice": _Kind(_text, _same, options=("more", "less", "the same"), default_replies=(
        ("more", "It does not increase: think of the numbers that it depends on, and of the others in its row."),
        ("less", "It does not decrease: think of the numbers that it depends on, and of the others in its row."),
        ("the same", "Something that it depends on changes: follow the formula step by step."),
    )),
    "order": _Kind(lambda sent: _items(sent, _natural), _same, {
        "backwards": lambda guess, truth: guess == truth[::-1],
        "first": lambda guess, truth: guess[0] != truth[0],
        "later": _always,
    }, default_replies=(
        ("backwards", "This order begins with the smallest. The largest comes first."),
        ("first", "Another key has the largest number."),
        ("later", "The first is right. Continue downwards from there."),
    )),
    "number": _Kind(_number, lambda guess, truth, far: abs(guess - truth) <= far + 1e-9, {
        "too small": lambda guess, truth: guess < truth,
        "too large": lambda guess, truth: guess > truth,
    }, default_replies=(
        ("too small", "The right number is larger."),
        ("too large", "The right number is smaller."),
    )),
    "row": _Kind(
        lambda sent: _items(sent, _number),
        lambda guess, truth, far: len(guess) == len(truth)
        and all(abs(guessed - true) <= far + 1e-9 for guessed, true in zip(guess, truth, strict=True)),
        {
            "not one": lambda guess, _: abs(sum(guess) - 1) > _NEAR_ONE,
            "flat": lambda guess, _: max(guess) - min(guess) < _FLAT,
            "peak": lambda guess, truth: len(guess) != len(truth) or _peak(guess) != _peak(truth),
            "elsewhere": _always,
        },
        default_replies=(
            ("not one", "The numbers of this row must sum to 1; the sum of yours is below the bars."),
            ("flat", "This sketch gives every key the same."),
            ("peak", "Another key has the largest number."),
            ("elsewhere", "The largest number is in the right place. Now adjust the others."),
        ),
    ),
}  # fmt: skip
"""By name: click a cell, pick a key, choose more or less or the same, order the keys, enter a number, sketch a row.

A reply to a wrong key may also name its position, and a reply to a wrong number or option the answer itself.
"""


def select_reply(kind: str, guess: Answer, truth: Answer, right: bool, replies: _Replies) -> str:
    """The reply to an answer: the first match in the lesson's replies, or else the default reply; empty if none matches."""
    predicates, guess_text = KINDS[kind].mistakes, f"{guess:g}" if isinstance(guess, float) else str(guess)
    for condition, words in (*replies, *KINDS[kind].default_replies):
        if condition == "right" or right:
            matches = right and condition == "right"
        else:
            matches = condition == guess_text or (condition in predicates and predicates[condition](guess, truth))
        if matches:
            return words
    return ""
