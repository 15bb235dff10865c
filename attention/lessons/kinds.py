"""Every kind of question once: what an answer is, when it is right, and in which ways it can be wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Guess: TypeAlias = "int | float | str | tuple[int, ...] | tuple[float, ...]"
"""A key, a number, an option, a cell or an order, a row."""

Replies: TypeAlias = Sequence[tuple[str, str]]
"""What is said to what: to "right", to a way of being wrong, or to an answer itself; the first that fits."""

_MOST = 64  # places of one answer
_LARGEST = 1e300  # of a number; a whole one may be larger than any float
_NEAR_ONE = 0.101  # what a sketched row may miss of the sum 1
_FLAT = 0.06  # between the bars of a row that prefers none


@dataclass(frozen=True)
class Kind:
    """One kind of question.

    Attributes:
        reads: an answer from what a browser sends; None where it is none.
        right: whether it is right: the answer, what is true, the tolerance.
        wrong: by its name in a lesson's replies, one way to be wrong: the answer, what is true.
        options: what there is to choose from, where that is always the same.
        usual: what is said where a lesson has no reply of its own: nobody is only told "wrong".
    """

    reads: Callable[[Any], Guess | None]
    right: Callable[[Any, Any, float], bool]
    wrong: Mapping[str, Callable[[Any, Any], bool]] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    usual: Replies = ()


def _whole(sent: Any) -> int | None:
    return sent if isinstance(sent, int) and not isinstance(sent, bool) and 0 <= sent < 10**6 else None


def _number(sent: Any) -> float | None:
    fits = isinstance(sent, int | float) and not isinstance(sent, bool) and abs(sent) < _LARGEST
    return float(sent) if fits else None


def _text(sent: Any) -> str | None:
    return sent[:200] if isinstance(sent, str) else None


def _several(sent: Any, one: Callable[[Any], Any]) -> tuple[Any, ...] | None:
    found = tuple(map(one, sent)) if isinstance(sent, list | tuple) and 0 < len(sent) <= _MOST else (None,)
    return None if None in found else found


def _cell(sent: Any) -> tuple[int, ...] | None:
    found = _several(sent, _whole)
    return found if found is not None and len(found) == 2 else None


def _same(guess: Any, truth: Any, _: float) -> bool:
    return bool(guess == truth)


def _peak(row: Sequence[float]) -> int:
    return max(range(len(row)), key=row.__getitem__)


def _always(*_: Any) -> bool:
    return True


KINDS: dict[str, Kind] = {
    "cell": Kind(_cell, _same, {
        "swapped": lambda guess, truth: guess == truth[::-1],
        "row": lambda guess, truth: guess[0] == truth[0],
        "column": lambda guess, truth: guess[1] == truth[1],
        "elsewhere": _always,
    }, usual=(
        ("swapped", "Row and column are swapped: rows attend, columns are attended to."),
        ("row", "The row is right. Now look for the column."),
        ("column", "The column is right. Now look for the row."),
        ("elsewhere", "Another row, and another column: read the names beside the map and above it."),
    )),
    "key": Kind(_whole, _same, {
        "before": lambda guess, truth: guess < truth,
        "after": lambda guess, truth: guess > truth,
    }, usual=(
        ("before", "The one that is asked for comes later in the text."),
        ("after", "The one that is asked for comes earlier in the text."),
    )),
    "choice": Kind(_text, _same, options=("more", "less", "the same"), usual=(
        ("more", "It does not become more: think of the numbers that it depends on, and of the others in its row."),
        ("less", "It does not become less: think of the numbers that it depends on, and of the others in its row."),
        ("the same", "Something that it depends on changes: follow the formula step by step."),
    )),
    "order": Kind(lambda sent: _several(sent, _whole), _same, {
        "backwards": lambda guess, truth: guess == truth[::-1],
        "first": lambda guess, truth: guess[0] != truth[0],
        "later": _always,
    }, usual=(
        ("backwards", "That begins with the smallest. The largest comes first."),
        ("first", "Another one is the largest of all."),
        ("later", "The first is right. Go on down from there."),
    )),
    "number": Kind(_number, lambda guess, truth, far: abs(guess - truth) <= far + 1e-9, {
        "too small": lambda guess, truth: guess < truth,
        "too large": lambda guess, truth: guess > truth,
    }, usual=(
        ("too small", "It is more than that."),
        ("too large", "It is less than that."),
    )),
    "row": Kind(
        lambda sent: _several(sent, _number),
        lambda guess, truth, far: len(guess) == len(truth)
        and all(abs(one - other) <= far + 1e-9 for one, other in zip(guess, truth, strict=True)),
        {
            "not one": lambda guess, _: abs(sum(guess) - 1) > _NEAR_ONE,
            "flat": lambda guess, _: max(guess) - min(guess) < _FLAT,
            "peak": lambda guess, truth: len(guess) != len(truth) or _peak(guess) != _peak(truth),
            "elsewhere": _always,
        },
        usual=(
            ("not one", "The numbers of such a row sum to 1; below the bars stands what yours sum to."),
            ("flat", "That gives every key the same."),
            ("peak", "Another key has the largest one."),
            ("elsewhere", "The largest is where it belongs. Now the others."),
        ),
    ),
}  # fmt: skip
"""By name: click a cell, pick a key, more or less or the same, put keys in order, a number, sketch one row.

A wrong key may also be named by its place, a wrong number or option by itself.
"""


def reply_to(kind: str, guess: Guess, truth: Guess, right: bool, replies: Replies) -> str:
    """What a lesson says to an answer: the first of its replies that fits, or the usual one; empty where none does."""
    ways, written = KINDS[kind].wrong, f"{guess:g}" if isinstance(guess, float) else str(guess)
    for to, words in (*replies, *KINDS[kind].usual):
        if to == "right" or right:
            fits = right and to == "right"
        else:
            fits = to == written or (to in ways and ways[to](guess, truth))
        if fits:
            return words
    return ""
