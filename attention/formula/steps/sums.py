"""Cells of two matrices, added."""

from __future__ import annotations

import math
from collections.abc import Mapping

from attention import printed
from attention.formula.steps.step import Step, StepWork
from attention.formula.work import E_co
from attention.printed import Arithmetic, Printed, factor


def added(step: Step, work: StepWork[E_co], words: str, alone: Mapping[str, str], given: frozenset[str]) -> E_co:
    """Two cells, added; where there is one of them only, it is taken over.

    Args:
        step: whose cell it is.
        work: the cell.
        words: of the sum.
        alone: of a term that stands alone, by its name.
        given: the terms that are parameters, and no steps.
    """
    row, column = work.cell.row, work.cell.column
    names = [name for _, name in work.layer.factors(step)]
    if not names:
        return work.as_recorded()
    values = [work.number_at(name, row, column) for name in names]
    symbols = [work.symbol(name, row, column) for name in names]
    came_from = tuple(work.cell_of(name, row, column) for name in names if name not in given)
    if len(names) == 1:
        return work.copied(names[0], row, column, alone.get(names[0], step.unknown), f"the token's {names[0]} alone")
    if -math.inf in values and names[values.index(-math.inf)] in given:
        text = f"The bias of this pair is −∞: it hides key {column} from query {row}, as a mask would."
        return work.stated(-math.inf, text, "hidden by the bias", came_from, (" + ".join(symbols), r"-\infty"))

    def line(digits: int) -> Printed:
        return printed.total([factor(value, digits) for value in values])

    return work.made(Arithmetic(" + ".join(symbols), [line], [line], words, values), came_from)
