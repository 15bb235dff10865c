"""Single cells of a head's scores or weights that are set."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from attention.formula.by_hand import ByHand, SetCell
from attention.formula.names import MASKED_SCORES, SCORES, WEIGHTS
from attention.formula.patching.kind import NUMBER, Change, Checks, Extent, Kind, counts, number
from attention.formula.ranges import Real, Whole
from attention.printed import Arithmetic, Printed, product, total

if TYPE_CHECKING:
    from attention.formula.axes import Scores
    from attention.formula.formula import Formula
    from attention.formula.steps.step import Steps, StepWork
    from attention.formula.work import E_co

_INDEX = Whole(0, 10**6)  # of a position
_SET = {MASKED_SCORES: (SCORES, "before the softmax"), WEIGHTS: (WEIGHTS, "after the softmax")}
"""Where a cell is set: what a `SetCell` calls the step, and when that is."""


def _cells(value: object) -> bool:
    cells = value if isinstance(value, tuple | list) else (None,)
    return all(isinstance(one, tuple | list) and 4 <= len(one) <= 5 and _cell(*one) for one in cells)


def _cell(step: object, query: object, key: object, value: object, rescaled: object = False) -> bool:
    within = Real(0, 1) if step == WEIGHTS else Real(-1e30, 1e30)
    fits = _INDEX.takes(query) and _INDEX.takes(key) and within.takes(value) and isinstance(rescaled, bool)
    return step in (SCORES, WEIGHTS) and fits


_CHECKS: Checks = {
    "cells": (_cells, "cells such as (step, query, key, value), of scores or weights, a weight from 0 to 1"),
}


@dataclass(frozen=True)
class Cells(Kind):
    """A score as it enters the softmax, or a weight after it."""

    name: str = "Set a cell"
    term: str = "attention knockout"
    fields: tuple[str, ...] = ("cells",)
    pattern: str = rf"([sw])(\d{{1,6}}),(\d{{1,6}})=({NUMBER})(r?)"
    examples: tuple[str, ...] = ("s2,1=2", "s1,0=-3", "w3,0=0.75r", "w2,1=0.25")
    checks: Checks = field(default_factory=lambda: _CHECKS, compare=False)

    def read(self, found: re.Match[str]) -> dict[str, Any]:
        """One cell."""
        step = SCORES if found[1] == "s" else WEIGHTS
        return {"cells": (SetCell(step, int(found[2]), int(found[3]), float(found[4]), bool(found[5])),)}

    def write(self, one: Change) -> str:
        """w3,0=0.75r."""
        (cell,) = one.cells
        return f"{cell.step[0]}{cell.query},{cell.key}={number(cell.value)}{'r' * cell.rescaled}"

    def words(self, one: Change) -> str:
        """Which cell, and what it becomes."""
        (cell,) = one.cells
        where = f"of query {cell.query} for key {cell.key} set to {cell.value:g}"
        if cell.step == SCORES:
            return f"the score {where}, before the softmax"
        rest = "the rest of its row is" if cell.rescaled else "its row is not"
        return f"the weight {where}, after the softmax; {rest} rescaled"

    def check(self, one: Change, layer: Extent) -> None:
        """Looks whether there are such rows and columns."""
        for cell in one.cells:
            counts(f"queries of {layer.name}", cell.query, layer.queries)
            counts(f"keys of {layer.name}", cell.key, layer.keys)

    def turn(self, formula: Formula, one: Change) -> Formula:
        """Its cells after those that are there."""
        return replace(formula, by_hand=replace(formula.by_hand, cells=(*formula.by_hand.cells, *one.cells)))

    def compute(
        self, hand: ByHand, layer: Steps, step: str, heads: slice, rows: slice, make: Callable[[], Scores]
    ) -> Scores:
        """The block with its cells set; the rest of a row rescaled where one of them says so."""
        made, first = make(), rows.start or 0
        there = [one for one in _of(hand, step) if 0 <= one.query - first < made.shape[-2]]
        if not there:
            return made
        made = made.clone()
        for query in {one.query for one in there}:
            row, cells = made[..., query - first, :], [one for one in there if one.query == query]
            total_, others = row.sum(dim=-1, keepdim=True), row.clone()
            for cell in cells:
                others[..., cell.key] = 0
            if step == WEIGHTS and any(cell.rescaled for cell in cells):
                left = (total_ - sum({cell.key: cell.value for cell in cells}.values())).clamp_min(0)
                row.mul_(left / others.sum(dim=-1, keepdim=True).clamp_min(1e-30))
            for cell in cells:
                row[..., cell.key] = cell.value
        return made

    def explain(self, work: StepWork[E_co]) -> E_co | None:
        """That it was set, or what the others of its row became."""
        cells = [one for one in _of(work.formula.by_hand, work.cell.step) if one.query == work.cell.row]
        values = {one.key: one.value for one in cells}
        if work.cell.column in values:
            return work.stated(values[work.cell.column], f"Set by hand, {_SET[work.cell.step][1]}.", "set by hand")
        if work.cell.step == WEIGHTS and any(one.rescaled for one in cells):
            return _rescaled(work, values)
        return None

    def python(self, hand: ByHand, step: str, lines: list[str]) -> list[str]:
        """The same."""
        there = _of(hand, step)
        lines = [*lines, f"{step} = {step}.clone()"] if there else lines
        for query in dict.fromkeys(one.query for one in there):
            of_row = {one.key: one.value for one in there if one.query == query}
            if step == WEIGHTS and any(one.rescaled for one in there if one.query == query):
                lines += [
                    f"rest = {step}[:, {query}].clone()  # the rest of this row is rescaled",
                    f"rest[:, {list(of_row)}] = 0",
                    f"left = ({step}[:, {query}].sum(-1, keepdim=True) - {sum(of_row.values())!r}).clamp_min(0)",
                    f"{step}[:, {query}] *= left / rest.sum(-1, keepdim=True).clamp_min(1e-30)",
                ]
            lines += [f"{step}[:, {query}, {key}] = {value!r}  # set by hand" for key, value in of_row.items()]
        return lines


def _of(hand: ByHand, step: str) -> list[SetCell]:
    """The cells that are set in a step."""
    return [one for one in hand.cells if step in _SET and one.step == _SET[step][0]]


def _rescaled(work: StepWork[E_co], values: dict[int, float]) -> E_co:
    """A weight beside one that was set: what the softmax gave, times what is left for the rest of its row."""
    row, column, hand = work.cell.row, work.cell.column, work.formula.by_hand
    others = tuple(one for one in hand.cells if one.step != WEIGHTS)
    before = work.layer.remade(replace(work.formula, by_hand=replace(hand, cells=others)))
    head = slice(work.cell.head, work.cell.head + 1)
    weights = before.part(WEIGHTS, heads=head, rows=slice(row, row + 1))[0][0, 0].double()
    rest = sum(float(one) for key, one in enumerate(weights) if key not in values)
    factors = float(weights[column]), max(0.0, float(weights.sum()) - sum(values.values())) / max(rest, 1e-30)

    def line(digits: int) -> Printed:
        return total([product(*factors, digits)])

    words = (
        "Another weight of this row was set by hand: what the softmax gave, times what is left for the rest of the row."
    )
    came_from = (work.cell_of(MASKED_SCORES, row, column),)
    return work.made(Arithmetic("", [line], [line], words, [factors[0] * factors[1]]), came_from)
