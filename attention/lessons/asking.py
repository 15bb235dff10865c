"""What a browser is told of a lesson: until somebody has answered, nothing that gives the answer away."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attention.errors import FileError, MissingError
from attention.formula.cell import Cell
from attention.lessons.answers import Seen, worked_out
from attention.lessons.kinds import KINDS, Guess, reply_to
from attention.lessons.lesson import SAID, Lesson, Part
from attention.lessons.small_tables import said, table
from attention.printed import shown
from attention.tokens import label

if TYPE_CHECKING:
    from attention.formula.trace import Trace

TRIES = 2


def accepted(lesson: Lesson, seen: Seen, sent: object) -> Guess | None:
    """An answer from what a browser sends; None where it answers something else."""
    guess, options = KINDS[lesson.kind].reads(sent), len(_keys(lesson, seen))
    match lesson.kind:
        case "choice":
            fits = guess in lesson.options
        case "key":
            fits = isinstance(guess, int) and guess < options
        case "order":
            fits = isinstance(guess, tuple) and sorted(guess) == list(range(options))
        case "row":
            fits = isinstance(guess, tuple) and len(guess) == options
        case "cell" | "number":
            fits = True
        case kind:
            raise ValueError(f"no answer is accepted to a question of the kind {kind!r}: say when it fits.")
    return guess if fits else None


def checked(lesson: Lesson, seen: Seen, guesses: Sequence[Guess]) -> tuple[bool, ...]:
    """Which of the answers are right."""
    truth = _truth(lesson, seen)
    return tuple(KINDS[lesson.kind].right(guess, truth, lesson.tolerance) for guess in guesses)


def _truth(lesson: Lesson, seen: Seen) -> Guess:
    """What is right.

    Raises:
        AttentionError: the trace has not what is asked, or it is no answer to a question of this kind.
    """
    truth = worked_out(lesson.answer, seen)
    if accepted(lesson, seen, truth) is None:
        raise FileError(
            f"What is right must be an answer to a question of the kind {lesson.kind}; {lesson.answer[:80]} gives {str(truth)[:40]!r}: "
            "choose another kind, or another answer."
        )
    return truth


def told(lesson: Lesson, seen: Seen, guesses: Sequence[Guess]) -> dict[str, Any]:
    """The message of a lesson after some answers: what is drawn, asked and replied.

    What is true is in it when an answer was right, or when there were `TRIES`.

    Raises:
        AttentionError: the trace has not what the lesson shows or asks.
    """
    truth, right = _truth(lesson, seen), checked(lesson, seen, guesses)
    done = any(right) or len(guesses) >= TRIES
    message: dict[str, Any] = {
        "kind": lesson.kind, "question": lesson.question, "options": lesson.options, "keys": _keys(lesson, seen),
        "stage": "done" if done else "again" if guesses else "ask", "right": any(right),
        "reply": "", "guess": guesses[-1] if guesses else None, "truth": None, "said": "", "figures": _figures(lesson, seen, done),
    }  # fmt: skip
    if guesses:
        message["reply"] = reply_to(lesson.kind, guesses[-1], truth, right[-1], lesson.replies)
    if done:
        if not right[-1]:
            message["reply"] += f" {reply_to(lesson.kind, truth, truth, True, lesson.replies)}"
        names, shown_last = message["keys"], message["figures"][-1]
        message |= {
            "truth": truth, "said": _said(lesson, truth, names, shown_last), "guessed": _said(lesson, guesses[-1], names, shown_last),
        }  # fmt: skip
        for figure in message["figures"]:
            figure["marks"] = _marks(lesson, figure["step"], truth, guesses[-1])
    plain: dict[str, Any] = json.loads(json.dumps(message, allow_nan=False))  # lists for tuples, as a browser reads it
    return plain


def cell_of(lesson: Lesson, seen: Seen) -> Cell | None:
    """The number whose arithmetic is opened in the end, if the lesson names one."""
    part, truth = lesson.explain, _truth(lesson, seen)
    if part is None:
        return None
    row, column = _place(lesson, part, truth)
    return Cell(seen.layer, part.step, seen.head, row, column)


def _place(lesson: Lesson, part: Part, truth: Guess) -> tuple[int, int]:
    if lesson.kind == "cell" and isinstance(truth, tuple):
        return int(truth[0]), int(truth[1])
    column = truth if lesson.kind == "key" and part.column is None else part.column
    return part.row or 0, int(column or 0)  # type: ignore[arg-type]  # a key is a number


def _figures(lesson: Lesson, seen: Seen, done: bool) -> list[dict[str, Any]]:
    def drawn(trace: Trace, kept_back: Sequence[Part], named: str = "") -> list[dict[str, Any]]:
        layer = trace.layer(seen.layer)
        return [
            said(trace, part, kept_back, named)
            if part.step == SAID
            else table(layer, seen.head, part, kept_back, named)
            for part in lesson.show
        ]

    if not lesson.turn:
        return drawn(seen.before, () if done else lesson.hide)
    before = drawn(seen.before, ())
    return before + drawn(seen.after, (), lesson.turned) if done else before


def _keys(lesson: Lesson, seen: Seen) -> list[str]:
    """The names of what there is to pick from, to order or to sketch."""
    if lesson.kind not in ("key", "order", "row"):
        return []
    tokens = seen.after.layer(seen.layer).key_tokens
    names = [label(token, 12, escape=False) for token in tokens]
    return names if len(set(names)) == len(names) else [f"{place} {name}" for place, name in enumerate(names)]


def _marks(lesson: Lesson, step: str, truth: Guess, guess: Guess) -> list[list[Any]]:
    """The cells that are framed in the end: [row, column, whose]."""
    part = lesson.explain
    if part is None or part.step != step:
        return []
    marks: list[list[Any]] = []
    if lesson.kind in ("key", "cell") and guess != truth:
        marks.append([*_place(lesson, Part(step, part.row), guess), "guess"])
    return [*marks, [*_place(lesson, part, truth), "truth"]]


def _said(lesson: Lesson, answer: Guess, names: Sequence[str], figure: Mapping[str, Any]) -> str:
    """An answer in words; a cell is one of the map that was picked from."""
    if isinstance(answer, str):
        return answer
    if not isinstance(answer, tuple):
        if lesson.kind == "key":
            name = _name(names, int(answer))
            return f"“{name.removeprefix(f'{answer} ')}” (key {answer})"
        return shown(answer)
    if lesson.kind == "cell":
        (down, across), row, column = figure["sides"], int(answer[0]) - figure["first"], int(answer[1])
        place = f"{down} {answer[0]}, {across} {column}"
        if not (0 <= row < len(figure["rows"]) and column < len(figure["columns"])):
            return place
        return f"“{figure['rows'][row]}” → “{figure['columns'][column]}” ({place})"
    if lesson.kind == "order":
        return ", ".join(_name(names, int(one)) for one in answer)
    return ", ".join(f"{one:.2f}" for one in answer)


def _name(names: Sequence[str], place: int) -> str:
    if not 0 <= place < len(names):
        raise MissingError(f"Keys count from 0 to {len(names) - 1}; got {place}: choose one of these.")
    return names[place]
