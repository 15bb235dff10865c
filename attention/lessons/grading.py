"""Grading a lesson, and the message to the browser: it contains nothing that reveals the answer before the attempts are over."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attention.base.errors import FileError, MissingError, PictureError
from attention.base.printed import format_number
from attention.base.tokens import label
from attention.formula.names import KEY, QUERY, WEIGHTS, Cell
from attention.formula.steps import Step, find_step
from attention.lessons.answers import QuestionContext, evaluate
from attention.lessons.lesson import KINDS, PREDICTION, Answer, Lesson, Part, select_reply
from attention.pictures.layout import short_axis_name
from attention.pictures.marks import HIDDEN_COLOR
from attention.pictures.over_picture import TokenGrid, image_source
from attention.pictures.scales import color_at, scale_range

if TYPE_CHECKING:
    from torch import Tensor

    from attention.trace.layer import Layer
    from attention.trace.trace import SeenPicture, Trace


MAX_SIDE = 32
"""The most rows and columns of a small map; a phone shows no more."""

_MAX_ATTEMPTS = 2
_LONGEST = 10  # characters of a name
_SAID = 5  # predicted tokens


def _step_table(
    lesson: Lesson, context: QuestionContext, trace: Trace, part: Part, withheld: Collection[Part], caption: str
) -> dict[str, Any]:
    """A part of a step as rows of cells, each [text, exact number, background, text colour], or None if withheld.

    The colour range covers the visible cells only, so that the colours reveal nothing about the rest; queries and keys beside each other
    share one. A single row whose columns are the patches of a picture also has the picture, over which the page draws them.
    """
    step, layer, head = find_step(part.step), trace.layer(context.layer), context.head
    matrix = layer.matrix(part.step, head)
    if part.row is not None and part.row >= matrix.shape[0]:
        raise MissingError(f"{part.step} has rows 0 to {matrix.shape[0] - 1}; got {part.row}: choose one of these.")
    rows = range(matrix.shape[0]) if part.row is None else range(part.row, part.row + 1)
    if max(len(rows), matrix.shape[1]) > MAX_SIDE:
        raise PictureError(
            f"A lesson's map has at most {MAX_SIDE} rows and columns; {part.step} has {len(rows)} × {matrix.shape[1]}: "
            "shorten the text, show one row, or choose another step."
        )
    hidden = layer.mask if step.masked else None
    open_cells = _open_cells(matrix, part, withheld)
    compared = [other for other in lesson.show if {other.step, part.step} == {QUERY, KEY}]
    others = [_open_cells(layer.matrix(other.step, head), other, withheld) for other in compared]
    finite = [number for cells in (open_cells, *others) for number in cells.values() if math.isfinite(number)]
    ends = scale_range(step, (min(finite), max(finite)) if finite else None, "fixed")

    def cell(q: int, k: int) -> tuple[str, str, str] | None:
        if (q, k) not in open_cells:
            return None
        number = open_cells[q, k]
        if hidden is not None and not hidden[q, k]:
            return ("−∞" if number else "0", "hidden by the mask", HIDDEN_COLOR)
        return _colored(number, step, (number - ends[0]) / ((ends[1] - ends[0]) or 1))

    return {
        "picture": None if part.row is None else _picture(layer.labels_of(step.column_axis) or (), trace.pictures),
        "title": f"{step.symbol}  {part.step}{', ' if caption else ''}{caption}",
        "step": part.step,
        "sides": (short_axis_name(step.row_axis), short_axis_name(step.column_axis)),
        "first": rows[0],
        "rows": _names(layer, step.row_axis, rows),
        "columns": _names(layer, step.column_axis, range(matrix.shape[1])),
        "cells": [[cell(q, k) for k in range(matrix.shape[1])] for q in rows],
    }


def _picture(tokens: Sequence[str], pictures: Sequence[SeenPicture]) -> dict[str, Any] | None:
    """The picture under the columns of a table, and the column of each patch [row column]; None unless there is exactly one."""
    grid = TokenGrid.of(tokens, with_others=False)
    if grid is None or len(grid.pictures) != 1 or not pictures:
        return None
    (placed,) = grid.pictures
    height, width = placed.patch_size
    source = image_source(
        pictures[placed.picture], round(placed.rows * height), round(placed.columns * width), exact=False
    )
    return {"source": source, "columns": grid.positions[placed.area].tolist()}


def _prediction_table(trace: Trace, part: Part, withheld: Collection[Part], caption: str) -> dict[str, Any]:
    """The prediction at the row of the part, or the last one, as a row: the likeliest tokens with their probabilities, both withheld together."""
    if not trace.predictions:
        raise MissingError("The state asks the model for no prediction: put predict= into the state.")
    by_position = {prediction.position: prediction for prediction in trace.predictions}
    is_withheld = any(hidden_part.step == PREDICTION for hidden_part in withheld)
    prediction = by_position.get(max(by_position) if part.row is None else part.row)
    if prediction is None:
        raise MissingError(
            f"The model predicts at {', '.join(map(str, by_position))}; got {part.row}: choose one of these."
        )
    step = find_step(WEIGHTS)  # a probability, in the same colours

    return {
        "picture": None,
        "title": f"prediction{', ' if caption else ''}{caption}",
        "step": PREDICTION,
        "sides": ("token position", "token"),
        "first": prediction.position,
        "rows": [label(prediction.before, _LONGEST, escape=False)],
        "columns": [
            "?" if is_withheld else label(token.strip("·"), _LONGEST, escape=False)
            for token in prediction.tokens[:_SAID]
        ],
        "cells": [[None if is_withheld else _colored(p, step, p) for p in prediction.probabilities[:_SAID]]],
    }


def _open_cells(matrix: Tensor, part: Part, withheld: Collection[Part]) -> dict[tuple[int, int], float]:
    hidden = [(other.row, other.column) for other in withheld if other.step == part.step]
    return {
        (q, k): float(matrix[q, k])
        for q in (range(matrix.shape[0]) if part.row is None else (part.row,))
        for k in range(matrix.shape[1])
        if not any(row in (None, q) and column in (None, k) for row, column in hidden)
    }


def _names(layer: Layer, axis: str, indices: Sequence[int]) -> list[str]:
    tokens = layer.labels_of(axis)
    return [str(index) if tokens is None else label(tokens[index], _LONGEST, escape=False) for index in indices]


def _short(number: float, step: Step) -> str:
    if step.kind == "probability":
        return f"{number:.2f}"
    text = f"{number:.0f}" if number == round(number) else f"{number:.1f}"
    return (text if float(text) else text.lstrip("-")).replace("-", "−")


def _colored(number: float, step: Step, fraction: float) -> tuple[str, str, str]:
    """The cell of a number, whose colour is at this fraction of the scale."""
    return _short(number, step), format_number(number), color_at(step, fraction)


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

    It contains the right answer once an answer was right, or after `_MAX_ATTEMPTS` answers.

    Raises:
        AttentionError: the trace lacks a step or cell that the lesson shows or asks about.
    """
    truth = _truth(lesson, context)
    right = [KINDS[lesson.kind].is_right(guess, truth, lesson.tolerance) for guess in guesses]
    done = any(right) or len(guesses) >= _MAX_ATTEMPTS
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
    plain: dict[str, Any] = json.loads(json.dumps(message, allow_nan=False))  # with lists, as the browser gets it
    return plain


def explained_cell(lesson: Lesson, context: QuestionContext) -> Cell | None:
    """The cell whose arithmetic is opened at the end, if the lesson names one."""
    if (part := lesson.explain) is None:
        return None
    return Cell(context.layer, part.step, context.head, *_row_and_column(lesson, part, _truth(lesson, context)))


def _row_and_column(lesson: Lesson, part: Part, truth: Answer) -> tuple[int, int]:
    if lesson.kind == "cell" and isinstance(truth, tuple):
        return int(truth[0]), int(truth[1])
    column = truth if lesson.kind == "key" and part.column is None else part.column
    return part.row or 0, int(column or 0)  # type: ignore[arg-type]  # a key is a number


def _figures(lesson: Lesson, context: QuestionContext, done: bool) -> list[dict[str, Any]]:
    def tables(trace: Trace, hidden: Sequence[Part], caption: str = "") -> list[dict[str, Any]]:
        return [
            _prediction_table(trace, part, hidden, caption)
            if part.step == PREDICTION
            else _step_table(lesson, context, trace, part, hidden, caption)
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
