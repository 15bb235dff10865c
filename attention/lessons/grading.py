"""Grading a lesson, and the message to the browser: it contains nothing that reveals the answer before the attempts are over."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attention.base.errors import FileError, MissingError
from attention.base.printed import format_number
from attention.base.tokens import label
from attention.formula.names import Cell
from attention.lessons.answers import QuestionContext, evaluate
from attention.lessons.lesson import KINDS, PREDICTION, Answer, Lesson, Part, select_reply
from attention.lessons.small_tables import prediction_table, step_table

if TYPE_CHECKING:
    from attention.trace.trace import Trace

MAX_ATTEMPTS = 2


def parse_answer(lesson: Lesson, context: QuestionContext, answer: object) -> Answer | None:
    """The browser's answer as a value of the lesson's kind; None if it is malformed or impossible."""
    guess, options = KINDS[lesson.kind].parse(answer), len(_keys(lesson, context))
    match lesson.kind:
        case "choice":
            valid = guess in lesson.options
        case "key":
            valid = isinstance(guess, int) and guess < options
        case "order":
            valid = isinstance(guess, tuple) and sorted(guess) == list(range(options))
        case "row":
            valid = isinstance(guess, tuple) and len(guess) == options
        case "cell" | "number":
            valid = True
        case kind:
            raise ValueError(f"no answer is accepted to a question of the kind {kind!r}: say when it fits.")
    return guess if valid else None


def grade(lesson: Lesson, context: QuestionContext, guesses: Sequence[Answer]) -> tuple[bool, ...]:
    """Whether each of the answers is right."""
    truth = _truth(lesson, context)
    return tuple(KINDS[lesson.kind].is_right(guess, truth, lesson.tolerance) for guess in guesses)


def _truth(lesson: Lesson, context: QuestionContext) -> Answer:
    truth = evaluate(lesson.answer, context)
    if parse_answer(lesson, context, truth) is None:
        raise FileError(
            f"The right answer must suit a question of the kind {lesson.kind}; {lesson.answer[:80]} gives {str(truth)[:40]!r}: "
            "choose another kind, or another answer."
        )
    return truth


def lesson_message(lesson: Lesson, context: QuestionContext, guesses: Sequence[Answer]) -> dict[str, Any]:
    """The message of a lesson after some answers: its maps, its question and the reply.

    It contains the right answer once an answer was right, or after `MAX_ATTEMPTS` answers.

    Raises:
        AttentionError: the trace lacks a step or cell that the lesson shows or asks about.
    """
    truth, right = _truth(lesson, context), grade(lesson, context, guesses)
    done = any(right) or len(guesses) >= MAX_ATTEMPTS
    message: dict[str, Any] = {
        "kind": lesson.kind, "question": lesson.question, "options": lesson.options, "keys": _keys(lesson, context),
        "stage": "done" if done else "again" if guesses else "ask", "right": any(right),
        "reply": "", "guess": guesses[-1] if guesses else None, "truth": None, "truth_text": "", "figures": _figures(lesson, context, done),
    }  # fmt: skip
    if guesses:
        message["reply"] = select_reply(lesson.kind, guesses[-1], truth, right[-1], lesson.replies)
    if done:
        if not right[-1]:
            message["reply"] += f" {select_reply(lesson.kind, truth, truth, True, lesson.replies)}"
        names, last_figure = message["keys"], message["figures"][-1]
        message |= {
            "truth": truth, "truth_text": _in_words(lesson, truth, names, last_figure), "guess_text": _in_words(lesson, guesses[-1], names, last_figure),
        }  # fmt: skip
        for figure in message["figures"]:
            figure["marks"] = _marks(lesson, figure["step"], truth, guesses[-1])
    plain: dict[str, Any] = json.loads(
        json.dumps(message, allow_nan=False)
    )  # with lists for tuples, as the browser gets it
    return plain


def explained_cell(lesson: Lesson, context: QuestionContext) -> Cell | None:
    """The cell whose arithmetic is opened at the end, if the lesson names one."""
    part, truth = lesson.explain, _truth(lesson, context)
    if part is None:
        return None
    row, column = _row_and_column(lesson, part, truth)
    return Cell(context.layer, part.step, context.head, row, column)


def _row_and_column(lesson: Lesson, part: Part, truth: Answer) -> tuple[int, int]:
    if lesson.kind == "cell" and isinstance(truth, tuple):
        return int(truth[0]), int(truth[1])
    column = truth if lesson.kind == "key" and part.column is None else part.column
    return part.row or 0, int(column or 0)  # type: ignore[arg-type]  # a key is a number


def _figures(lesson: Lesson, context: QuestionContext, done: bool) -> list[dict[str, Any]]:
    def tables(trace: Trace, hidden: Sequence[Part], caption: str = "") -> list[dict[str, Any]]:
        layer = trace.layer(context.layer)
        return [
            prediction_table(trace, part, hidden, caption)
            if part.step == PREDICTION
            else step_table(layer, context.head, part, hidden, caption, trace.pictures, lesson.show)
            for part in lesson.show
        ]

    if not lesson.turn:
        return tables(context.before, () if done else lesson.hide)
    before = tables(context.before, ())
    return before + tables(context.after, (), lesson.turned) if done else before


def _keys(lesson: Lesson, context: QuestionContext) -> list[str]:
    """The names of the keys to pick, to order or to sketch; empty for other kinds."""
    if lesson.kind not in ("key", "order", "row"):
        return []
    tokens = context.after.layer(context.layer).key_tokens
    names = [label(token, 12, escape=False) for token in tokens]
    return names if len(set(names)) == len(names) else [f"{position} {name}" for position, name in enumerate(names)]


def _marks(lesson: Lesson, step: str, truth: Answer, guess: Answer) -> list[list[Any]]:
    """The cells that are framed at the end: [row, column, "guess" or "truth"]."""
    part = lesson.explain
    if part is None or part.step != step:
        return []
    marks: list[list[Any]] = []
    if lesson.kind in ("key", "cell") and guess != truth:
        marks.append([*_row_and_column(lesson, Part(step, part.row), guess), "guess"])
    return [*marks, [*_row_and_column(lesson, part, truth), "truth"]]


def _in_words(lesson: Lesson, answer: Answer, names: Sequence[str], figure: Mapping[str, Any]) -> str:
    """An answer in words; a cell belongs to the last map."""
    if isinstance(answer, str):
        return answer
    if not isinstance(answer, tuple):
        if lesson.kind == "key":
            name = _name(names, int(answer))
            return f"“{name.removeprefix(f'{answer} ')}” (key {answer})"
        return format_number(answer)
    if lesson.kind == "cell":
        (down, across), row, column = figure["sides"], int(answer[0]) - figure["first"], int(answer[1])
        place = f"{down} {answer[0]}, {across} {column}"
        if not (0 <= row < len(figure["rows"]) and column < len(figure["columns"])):
            return place
        return f"“{figure['rows'][row]}” → “{figure['columns'][column]}” ({place})"
    if lesson.kind == "order":
        return ", ".join(_name(names, int(key)) for key in answer)
    return ", ".join(f"{number:.2f}" for number in answer)


def _name(names: Sequence[str], index: int) -> str:
    if not 0 <= index < len(names):
        raise MissingError(f"Keys count from 0 to {len(names) - 1}; got {index}: choose one of these.")
    return names[index]
