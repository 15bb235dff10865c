"""The explanation of a cell that is the sum of two cells."""

from __future__ import annotations

import math
from collections.abc import Mapping

from attention import printed
from attention.core.explainer import E_co
from attention.core.step import Step, StepContext
from attention.printed import Arithmetic, Printed, bracketed


def added(
    step: Step, work: StepContext[E_co], words: str, single_term: Mapping[str, str], parameters: frozenset[str]
) -> E_co:
    """The sum of two cells; a copy if the layer has only one of them.

    Args:
        step: the step of the cell.
        work: the context of the cell.
        words: the explanation of the sum.
        single_term: the explanation if a term is the only one, by its name.
        parameters: the terms that are parameters, not steps.
    """
    row, column = work.cell.row, work.cell.column
    names = [name for _, name in work.layer.factors(step)]
    if not names:
        return work.as_recorded()
    values = [work.number_at(name, row, column) for name in names]
    symbols = [work.element_tex(name, row, column) for name in names]
    came_from = tuple(work.cell_of(name, row, column) for name in names if name not in parameters)
    if len(names) == 1:
        return work.from_copy(
            names[0], row, column, single_term.get(names[0], step.unknown), f"the token's {names[0]} alone"
        )
    if -math.inf in values and names[values.index(-math.inf)] in parameters:
        text = f"The bias of this pair is −∞: it hides key {column} from query {row} like a mask."
        return work.from_claim(-math.inf, text, "hidden by the bias", came_from, (" + ".join(symbols), r"-\infty"))

    def line(digits: int) -> Printed:
        return printed.sum_of([bracketed(value, digits) for value in values])

    return work.from_arithmetic(Arithmetic(" + ".join(symbols), [line], [line], words, values), came_from)
