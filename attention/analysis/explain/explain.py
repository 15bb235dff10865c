"""The explanation of one cell: the arithmetic behind its number, with the numbers filled in."""

from __future__ import annotations

import re
from dataclasses import replace

from attention.analysis.explain.arithmetic import Explanation
from attention.analysis.explain.merged_tokens import explain_merged
from attention.analysis.explain.working import ExplanationBuilder
from attention.core.cell import Cell
from attention.core.edit_kinds import explain_edit
from attention.core.layer import Layer
from attention.core.steps import find_step
from attention.core.trace import Trace
from attention.errors import check_index
from attention.tokens import Patch, place_label, shows_several_pictures

_POSITION = re.compile(r"\b(query|key) (\d+)\b")


def explain(trace: Trace, step: str, layer: int = 0, head: int = 0, q: int = 0, k: int = 0) -> Explanation:
    """The arithmetic behind the number in row `q` and column `k` of a step.

    In maps of scores and weights the row is query_pos and the column key_pos; in other steps they follow the step's axes,
    such as key_pos and d_v for `value`. The number is given as recorded if its inputs are not available, or if the arithmetic
    does not reproduce it: `ExplanationBuilder` checks every statement. A patch of a picture is named with its place.

    Raises:
        MissingError: the trace has no such layer, step, head or cell.
    """
    definition, source = find_step(step), trace.layer(layer)
    matrix = source.matrix(step, head)
    for axis, index, size in ((definition.row_axis, q, matrix.shape[0]), (definition.column_axis, k, matrix.shape[1])):
        check_index(f"{axis} of {step}", index, size, "counts")
    value = float(matrix[q, k]) + 0.0  # −0 is 0
    work = ExplanationBuilder(
        source.for_head(head) if definition.per_head else source, definition, Cell(layer, step, head, q, k), value
    )
    explanation = _explained(work, source)
    words = _with_places(explanation.words, source)
    return explanation if words == explanation.words else replace(explanation, words=words)


def _explained(work: ExplanationBuilder, source: Layer) -> Explanation:
    """The explanation as the source of the numbers allows it."""
    if source.wrapped is not source:
        return explain_merged(work)
    if source.formula is None and work.step.by_formula:
        return work.as_recorded()
    if source.formula is not None and (explanation := explain_edit(work)) is not None:
        return explanation
    if work.step.name in source.provenance:  # the source changed the step further, which not all of its numbers reveal
        return work.as_recorded()
    return work.step.explain(work)


def _with_places(words: str, layer: Layer) -> str:
    """The words, with the place of each patch that they count: "key 80 (patch row 5, column 9)"."""

    def name(match: re.Match[str]) -> str:
        tokens, position = layer.labels_of(f"{match[1]}_pos") or (), int(match[2])
        token = tokens[position] if position < len(tokens) else ""
        if not isinstance(token, Patch):
            return match[0]
        return f"{match[0]} ({place_label(token, shows_several_pictures(tokens))})"

    return _POSITION.sub(name, words)
