"""A lesson: a small Markdown file with a state, one question about it, and a reply to every answer.

The file begins with lines of `key: value` between two lines of dashes; then come the text, and the replies as a list,
each after what it replies to, see `kinds`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

from attention.errors import FileError
from attention.formula.steps import find_step
from attention.lessons.kinds import KINDS

MOST_WORDS = 60
"""Of a lesson's text: one idea."""

_NEEDED = ("title", "state", "show", "kind", "question", "answer")
_KNOWN = (*_NEEDED, "turn", "turned", "hide", "options", "tolerance", "explain", "next")
_FOLDER = Path(__file__).parent / "path"


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
        if step != SAID:
            find_step(step)
        if len(places) > 2 or not all(place.isdecimal() for place in places):
            raise FileError(
                f"A part is a step, and its row and column where it is less, such as weights 3 2; got {text!r}."
            )
        return cls(step, *map(int, places))


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
        return dict(parse_qsl(self.state, keep_blank_values=True))

    @property
    def link_turned(self) -> dict[str, str]:
        """Its state by key, after that."""
        return self.link | dict(parse_qsl(self.turn, keep_blank_values=True))


def read(name: str, text: str) -> Lesson:
    """The lesson of a Markdown file.

    Raises:
        FileError: something is missing in it, or is not what it must be.
    """
    dashes, front, body = (*text.replace("\r\n", "\n").split("---\n", 2), "", "")[:3]
    fields = dict(_field(name, line) for line in front.splitlines() if line.strip())
    if dashes.strip() or (missing := [key for key in _NEEDED if not fields.get(key)]):
        raise FileError(
            f"The lesson {name!r} begins with lines such as “title: One score” between two lines of ---; "
            f"it lacks {', '.join(missing if not dashes.strip() else ['these'])}: add that."
        )
    if (kind := KINDS.get(fields["kind"])) is None:
        raise FileError(
            f"The kind of the lesson {name!r} is one of {', '.join(KINDS)}; got {fields['kind']!r}: choose one."
        )
    lines = [line.strip() for line in body.splitlines()]
    replies = tuple(_reply(name, line) for line in lines if line.startswith("- "))
    words = " ".join(line for line in lines if line and not line.startswith("- "))
    if len(words.split()) > MOST_WORDS:
        raise FileError(
            f"The text of the lesson {name!r} has at most {MOST_WORDS} words; got {len(words.split())}: say less."
        )
    try:
        tolerance = float(fields.get("tolerance", "0"))
    except ValueError:
        raise FileError(
            f"The tolerance of the lesson {name!r} is a number; got {fields['tolerance']!r}: write one."
        ) from None
    plain = {key: fields.get(key, "") for key in ("title", "state", "turn", "turned", "question", "answer", "next")}
    return Lesson(
        name=name, text=words, kind=fields["kind"], show=_parts(fields["show"]), hide=_parts(fields.get("hide", "")),
        explain=next(iter(_parts(fields.get("explain", ""))), None), tolerance=tolerance, replies=replies,
        options=_listed(fields.get("options", ""), "|") or kind.options, **plain,
    )  # fmt: skip


def _field(name: str, line: str) -> tuple[str, str]:
    key, colon, value = line.partition(":")
    if not colon or key.strip() not in _KNOWN:
        raise FileError(
            f"A line of the lesson {name!r} is one of {', '.join(_KNOWN)}, a colon and a value; got {line!r}."
        )
    return key.strip(), value.strip()


def _reply(name: str, line: str) -> tuple[str, str]:
    to, colon, words = line.removeprefix("- ").partition(":")
    if not colon or not words.strip():
        raise FileError(f"A reply of the lesson {name!r} is what it replies to, a colon and a sentence; got {line!r}.")
    return to.strip(), words.strip()


def _parts(text: str) -> tuple[Part, ...]:
    return tuple(Part.read(one) for one in _listed(text, ";"))


def _listed(text: str, between: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(between) if one.strip())


def in_order(lessons: Iterable[Lesson]) -> tuple[Lesson, ...]:
    """Lessons one after the other: the first is nobody's next.

    Raises:
        FileError: they are no path.
    """
    by_name = {one.name: one for one in lessons}
    nexts = [one.next for one in by_name.values() if one.next]
    firsts = [name for name in by_name if name not in nexts]
    found: list[Lesson] = []
    name = firsts[0] if len(firsts) == 1 else ""
    while name in by_name and by_name[name] not in found:
        found.append(by_name[name])
        name = found[-1].next
    if not found or name or len(found) != len(by_name):
        raise FileError("Each lesson but the last names the next one, and one is the first: they make no path here.")
    return tuple(found)


@cache
def path() -> dict[str, Lesson]:
    """The lessons from one row of scores to a head of a real model, by name, in their order."""
    files = sorted(_FOLDER.glob("*.md"))
    lessons = in_order(read(file.stem.partition("-")[2], file.read_text(encoding="utf-8")) for file in files)
    return {one.name: one for one in lessons}
