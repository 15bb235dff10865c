"""A weight of words: the weights of their pieces, put together."""

from __future__ import annotations

import math

from attention.formula.merging import MergedLayer
from attention.numbers.arithmetic import Explanation
from attention.numbers.working import Working
from attention.printed import Arithmetic, Printed, factor, largest, number, quotient, rest, total


def together(work: Working) -> Explanation:
    """The weights of the pieces, summed over those of the key and averaged over those of the query, or divided by what is left."""
    layer, cell = work.layer, work.cell
    assert isinstance(layer, MergedLayer)
    rows, columns = layer.queries.spans[cell.row], layer.keys.spans[cell.column]
    (pieces,) = layer.origin.part("weights", heads=slice(cell.head, cell.head + 1), rows=slice(*rows))
    values = pieces[0, :, slice(*columns)].double().flatten().tolist()
    left = math.fsum(float(pieces[0, :, slice(*span)].double().sum()) for span in layer.keys.spans)
    below = left if layer.renormalised else float(rows[1] - rows[0])
    few, above = largest(values), math.fsum(values)
    others = math.fsum(value for i, value in enumerate(values) if i not in set(few))

    def summands(digits: int) -> list[Printed]:
        more = [rest(others, len(values) - len(few), digits)] if len(few) < len(values) else []
        return [*(factor(values[i], digits) for i in few), *more]

    def line(digits: int) -> Printed:
        return quotient(total(summands(digits), per_line=99), number(below, digits))

    def short(digits: int) -> Printed:
        return quotient(number(above, digits), number(below, digits))

    words = f"{_count(columns)} of the key, {_count(rows)} of the query: their weights, summed over the key"
    words += (
        ", divided by what these queries give to all tokens that are shown."
        if layer.renormalised
        else ", averaged over the query."
    )
    tex = r"\frac{\sum_{i,j} A_{ij}}{" + (r"\sum_{i,l} A_{il}" if layer.renormalised else "n") + "}"
    return work.made(Arithmetic(tex, [line, short], [short], words, [above, below], "quotient"))


def _count(span: tuple[int, int]) -> str:
    return "1 piece" if span[1] - span[0] == 1 else f"{span[1] - span[0]} pieces"
