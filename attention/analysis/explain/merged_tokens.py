"""The weight between words: the weights of their subword tokens, merged."""

from __future__ import annotations

import math

from attention.analysis.explain.arithmetic import Explanation
from attention.analysis.explain.working import ExplanationBuilder
from attention.analysis.subwords import MergedLayer
from attention.core.names import WEIGHTS
from attention.printed import Arithmetic, Printed, Summands, bracketed, number, quotient, sum_of


def explain_merged(work: ExplanationBuilder) -> Explanation:
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
