"""Small maps of a lesson, as plain values: coloured cells with their numbers, some of them kept back."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from attention.errors import MissingError, PictureError
from attention.formula.names import WEIGHTS
from attention.formula.steps import Step, find_step
from attention.lessons.lesson import SAID, Part
from attention.pictures.drawing import HIDDEN
from attention.pictures.layout import short
from attention.pictures.scales import ramp, range_of
from attention.printed import shown
from attention.tokens import label

if TYPE_CHECKING:
    from attention.formula.layer import Layer
    from attention.formula.trace import Trace

MOST = 32
"""Rows and columns of a small map; a phone shows no more."""

_LONGEST = 10  # characters of a name
_SAID = 5  # of the likeliest tokens
_DARK = 140  # of 255: a ground below it takes white letters


def table(layer: Layer, head: int, part: Part, kept_back: Collection[Part], named: str = "") -> dict[str, Any]:
    """A part of a step as rows of cells, each [text, exact number, ground, ink], or None where it is kept back.

    The colours run over what is shown alone, so that they tell nothing of the rest.

    Raises:
        PictureError: it has more than `MOST` rows or columns.
        MissingError: the layer has no such step, row or column.
    """
    step = find_step(part.step)
    matrix = layer.matrix(part.step, head)
    if part.row is not None and part.row >= matrix.shape[0]:
        raise MissingError(f"{part.step} has rows 0 to {matrix.shape[0] - 1}; got {part.row}: choose one of these.")
    rows = range(matrix.shape[0]) if part.row is None else range(part.row, part.row + 1)
    if max(len(rows), matrix.shape[1]) > MOST:
        raise PictureError(
            f"A lesson's map has at most {MOST} rows and columns; {part.step} has {len(rows)} × {matrix.shape[1]}: "
            "shorten the text, show one row, or choose another step."
        )
    hidden = layer.mask if step.masked else None
    open_cells = {
        (q, k): float(matrix[q, k])
        for q in rows
        for k in range(matrix.shape[1])
        if not any(_within(q, k, step, one) for one in kept_back)
    }
    finite = [one for one in open_cells.values() if math.isfinite(one)]
    ends = range_of(step, (min(finite), max(finite)) if finite else None, "fixed")

    def cell(q: int, k: int) -> tuple[str, str, str, str] | None:
        if (q, k) not in open_cells:
            return None
        number = open_cells[q, k]
        if hidden is not None and not hidden[q, k]:
            return ("−∞" if number else "0", "hidden by the mask", HIDDEN, "#000000")
        ground = ramp(step, (number - ends[0]) / ((ends[1] - ends[0]) or 1))
        return (_short(number, step), shown(number), ground, _ink(ground))

    return {
        "title": f"{step.symbol}  {part.step}{', ' if named else ''}{named}",
        "step": part.step,
        "sides": (short(step.row_axis), short(step.column_axis)),
        "first": rows[0],
        "rows": _names(layer, step.row_axis, rows),
        "columns": _names(layer, step.column_axis, range(matrix.shape[1])),
        "cells": [[cell(q, k) for k in range(matrix.shape[1])] for q in rows],
    }


def said(trace: Trace, part: Part, kept_back: Collection[Part], named: str = "") -> dict[str, Any]:
    """What a model says next, as a row: its likeliest tokens with their probabilities; the tokens are kept back with them.

    It is read at the row of the part, or at the last place at which somebody asked.

    Raises:
        MissingError: nobody asked it, or not there.
    """
    if not trace.predictions:
        raise MissingError("Nobody asked the model what it says: put predict= into the state.")
    there, back = {one.position: one for one in trace.predictions}, any(one.step == SAID for one in kept_back)
    says = there.get(max(there) if part.row is None else part.row)
    if says is None:
        raise MissingError(f"The model is asked at {', '.join(map(str, there))}; got {part.row}: choose one of these.")
    step = find_step(WEIGHTS)  # a probability, in the same colours

    def cell(share: float) -> tuple[str, str, str, str]:
        ground = ramp(step, share)
        return (_short(share, step), shown(share), ground, _ink(ground))

    return {
        "title": f"what it says next{', ' if named else ''}{named}",
        "step": SAID,
        "sides": ("place", "token"),
        "first": says.position,
        "rows": [label(says.before, _LONGEST, escape=False)],
        "columns": ["?" if back else label(token.strip("·"), _LONGEST, escape=False) for token in says.tokens[:_SAID]],
        "cells": [[None if back else cell(share) for share in says.probabilities[:_SAID]]],
    }


def _within(q: int, k: int, step: Step, part: Part) -> bool:
    return part.step == step.name and part.row in (None, q) and part.column in (None, k)


def _names(layer: Layer, axis: str, places: Sequence[int]) -> list[str]:
    tokens = layer.labels_of(axis)
    return [str(place) if tokens is None else label(tokens[place], _LONGEST, escape=False) for place in places]


def _short(number: float, step: Step) -> str:
    """A number for a narrow cell."""
    if step.kind == "probability":
        return f"{number:.2f}"
    text = f"{number:.0f}" if number == round(number) else f"{number:.1f}"
    return (text if float(text) else text.lstrip("-")).replace("-", "−")


def _ink(ground: str) -> str:
    red, green, blue = (int(ground[at : at + 2], 16) for at in (1, 3, 5))
    return "#ffffff" if 0.299 * red + 0.587 * green + 0.114 * blue < _DARK else "#000000"
