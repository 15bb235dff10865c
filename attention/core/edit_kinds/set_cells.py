"""Setting single cells of the scores or weights of a head (attention knockout)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from attention.core.edit_kinds.edit import (
    NUMBER_PATTERN,
    Checks,
    InterventionFields,
    InterventionKind,
    LayerSize,
    check_index,
    format_number,
)
from attention.core.head_edits import HeadEdits, SetCell
from attention.core.names import MASKED_SCORES, SCORES, WEIGHTS
from attention.params.ranges import Integer, Real
from attention.printed import Arithmetic, Printed, product, sum_of

if TYPE_CHECKING:
    from attention.core.explainer import E_co
    from attention.core.formula import Formula
    from attention.core.step import LayerView, StepContext
    from attention.core.tensor_types import Scores

_POSITION = Integer(0, 10**6)
_SETTABLE = {MASKED_SCORES: (SCORES, "before the softmax"), WEIGHTS: (WEIGHTS, "after the softmax")}
"""For each map with editable cells: the step of a `SetCell`, and the place in words."""


def _are_cells(value: object) -> bool:
    cells = value if isinstance(value, tuple | list) else (None,)
    return all(isinstance(cell, tuple | list) and 4 <= len(cell) <= 5 and _is_cell(*cell) for cell in cells)


def _is_cell(step: object, query: object, key: object, value: object, rescaled: object = False) -> bool:
    allowed = Real(0, 1) if step == WEIGHTS else Real(-1e30, 1e30)
    fits = _POSITION.accepts(query) and _POSITION.accepts(key) and allowed.accepts(value) and isinstance(rescaled, bool)
    return step in (SCORES, WEIGHTS) and fits


_CHECKS: Checks = {
    "cells": (_are_cells, "cells such as (step, query, key, value), of scores or weights, a weight from 0 to 1"),
}


@dataclass(frozen=True)
class CellEdits(InterventionKind):
    """Sets a score before the normalizer, or a weight after it."""

    name: str = "Set a cell"
    term: str = "attention knockout"
    fields: tuple[str, ...] = ("cells",)
    pattern: str = rf"([sw])(\d{{1,6}}),(\d{{1,6}})=({NUMBER_PATTERN})(r?)"
    examples: tuple[str, ...] = ("s2,1=2", "s1,0=-3", "w3,0=0.75r", "w2,1=0.25")
    checks: Checks = field(default_factory=lambda: _CHECKS, compare=False)

    def parse(self, match: re.Match[str]) -> dict[str, Any]:
        """The cell."""
        step = SCORES if match[1] == "s" else WEIGHTS
        return {"cells": (SetCell(step, int(match[2]), int(match[3]), float(match[4]), bool(match[5])),)}

    def format(self, change: InterventionFields) -> str:
        """The code, such as w3,0=0.75r."""
        (cell,) = change.cells
        return f"{cell.step[0]}{cell.query},{cell.key}={format_number(cell.value)}{'r' * cell.rescaled}"

    def words(self, change: InterventionFields) -> str:
        """The cell and its new value in words."""
        (cell,) = change.cells
        cell_words = f"of query {cell.query} for key {cell.key} set to {cell.value:g}"
        if cell.step == SCORES:
            return f"the score {cell_words}, before the softmax"
        rest = "the rest of its row is" if cell.rescaled else "its row is not"
        return f"the weight {cell_words}, after the softmax; {rest} rescaled"

    def check(self, change: InterventionFields, layer: LayerSize) -> None:
        """Raise ConfigError if the layer does not have these queries and keys."""
        for cell in change.cells:
            check_index(f"queries of {layer.name}", cell.query, layer.n_queries)
            check_index(f"keys of {layer.name}", cell.key, layer.n_keys)

    def edit_formula(self, formula: Formula, change: InterventionFields) -> Formula:
        """The formula with these cells after the existing ones."""
        return replace(
            formula, head_edits=replace(formula.head_edits, cells=(*formula.head_edits.cells, *change.cells))
        )

    def compute(
        self, edits: HeadEdits, layer: LayerView, step: str, heads: slice, rows: slice, make: Callable[[], Scores]
    ) -> Scores:
        """The block with its cells set; the rest of a row is rescaled if one of its cells asks for it."""
        block, first = make(), rows.start or 0
        edited = [cell for cell in _cells_of(edits, step) if 0 <= cell.query - first < block.shape[-2]]
        if not edited:
            return block
        block = block.clone()
        for query in {cell.query for cell in edited}:
            row, cells = block[..., query - first, :], [cell for cell in edited if cell.query == query]
            row_sum, others = row.sum(dim=-1, keepdim=True), row.clone()
            for cell in cells:
                others[..., cell.key] = 0
            if step == WEIGHTS and any(cell.rescaled for cell in cells):
                remaining = (row_sum - sum({cell.key: cell.value for cell in cells}.values())).clamp_min(0)
                row.mul_(remaining / others.sum(dim=-1, keepdim=True).clamp_min(1e-30))
            for cell in cells:
                row[..., cell.key] = cell.value
        return block

    def explain(self, work: StepContext[E_co]) -> E_co | None:
        """The explanation of a set cell, or of a rescaled weight in its row."""
        cells = [cell for cell in _cells_of(work.formula.head_edits, work.cell.step) if cell.query == work.cell.row]
        values = {cell.key: cell.value for cell in cells}
        if work.cell.column in values:
            return work.from_claim(
                values[work.cell.column], f"Set by hand, {_SETTABLE[work.cell.step][1]}.", "set by hand"
            )
        if work.cell.step == WEIGHTS and any(cell.rescaled for cell in cells):
            return _explain_rescaled(work, values)
        return None

    def python(self, edits: HeadEdits, step: str, lines: list[str]) -> list[str]:
        """Lines that set the cells."""
        edited = _cells_of(edits, step)
        lines = [*lines, f"{step} = {step}.clone()"] if edited else lines
        for query in dict.fromkeys(cell.query for cell in edited):
            values = {cell.key: cell.value for cell in edited if cell.query == query}
            if step == WEIGHTS and any(cell.rescaled for cell in edited if cell.query == query):
                lines += [
                    f"rest = {step}[:, {query}].clone()  # the rest of this row is rescaled",
                    f"rest[:, {list(values)}] = 0",
                    f"left = ({step}[:, {query}].sum(-1, keepdim=True) - {sum(values.values())!r}).clamp_min(0)",
                    f"{step}[:, {query}] *= left / rest.sum(-1, keepdim=True).clamp_min(1e-30)",
                ]
            lines += [f"{step}[:, {query}, {key}] = {value!r}  # set by hand" for key, value in values.items()]
        return lines


def _cells_of(edits: HeadEdits, step: str) -> list[SetCell]:
    """The edited cells of a step."""
    return [cell for cell in edits.cells if step in _SETTABLE and cell.step == _SETTABLE[step][0]]


def _explain_rescaled(work: StepContext[E_co], values: dict[int, float]) -> E_co:
    """The explanation of a rescaled weight: the weight before the edit, times the factor of the rest of its row."""
    row, column, edits = work.cell.row, work.cell.column, work.formula.head_edits
    score_cells = tuple(cell for cell in edits.cells if cell.step != WEIGHTS)
    before = work.layer.with_formula(replace(work.formula, head_edits=replace(edits, cells=score_cells)))
    head = slice(work.cell.head, work.cell.head + 1)
    weights = before.blocks(WEIGHTS, heads=head, rows=slice(row, row + 1))[0][0, 0].double()
    other_sum = sum(float(weight) for key, weight in enumerate(weights) if key not in values)
    factors = float(weights[column]), max(0.0, float(weights.sum()) - sum(values.values())) / max(other_sum, 1e-30)

    def line(digits: int) -> Printed:
        return sum_of([product(*factors, digits)])

    words = "Another weight of this row was set by hand: the computed weight, times the factor that rescales the rest of the row."
    came_from = (work.cell_of(MASKED_SCORES, row, column),)
    return work.from_arithmetic(Arithmetic("", [line], [line], words, [factors[0] * factors[1]]), came_from)
