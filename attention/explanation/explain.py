"""The explanation of one cell: the arithmetic behind its number, also where subword tokens were merged."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from attention.base.errors import check_index
from attention.base.printed import Arithmetic, Printed, Summands, bracketed, number, quotient, sum_of
from attention.base.tokens import Patch, place_label, shows_several_pictures
from attention.explanation.explanation import Explanation, ExplanationBuilder
from attention.explanation.subwords import MergedLayer
from attention.formula.edit_kinds import explain_edit
from attention.formula.names import WEIGHTS, Cell
from attention.formula.steps import find_step
from attention.trace.layer import Layer
from attention.trace.trace import Trace

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
        return _explain_merged(work)
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


def _explain_merged(work: ExplanationBuilder) -> Explanation:
    """The subword weights, summed over the key's tokens and averaged over the query's, or divided by their total."""
    layer, cell = work.layer, work.cell
    assert isinstance(layer, MergedLayer)
    rows, columns = layer.queries.spans[cell.row], layer.keys.spans[cell.column]
    (pieces,) = layer.original.blocks(WEIGHTS, heads=slice(cell.head, cell.head + 1), rows=slice(*rows))
    values = pieces[0, :, slice(*columns)].double().flatten().tolist()
    left = math.fsum(float(pieces[0, :, slice(*span)].double().sum()) for span in layer.keys.spans)
    if layer.renormalised and not left:
        words = "These queries give no weight to any visible token, so there is nothing to normalize."
        return work.from_claim(0.0, words, "no visible token gets any weight")
    below = left if layer.renormalised else float(rows[1] - rows[0])
    parts, above = Summands(values), math.fsum(values)

    def line(digits: int) -> Printed:
        summands = parts.printed(lambda i: bracketed(values[i], digits), digits)
        return quotient(sum_of(summands, per_line=99), number(below, digits))

    def short(digits: int) -> Printed:
        return quotient(number(above, digits), number(below, digits))

    words = f"{_count(columns)} of the key, {_count(rows)} of the query: the weights are summed over the key"
    words += (
        ", and divided by the total that these queries give to visible tokens."
        if layer.renormalised
        else ", and averaged over the query."
    )
    tex = r"\frac{\sum_{i,j} A_{ij}}{" + (r"\sum_{i,l} A_{il}" if layer.renormalised else "n") + "}"
    return work.from_arithmetic(Arithmetic(tex, [line, short], [short], words, [above, below], "quotient"))


def _count(span: tuple[int, int]) -> str:
    return "1 piece" if span[1] - span[0] == 1 else f"{span[1] - span[0]} pieces"
