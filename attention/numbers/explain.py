"""One cell of one step: the arithmetic that made it, with the numbers in it."""

from __future__ import annotations

from attention.errors import check_index
from attention.formula.cell import Cell
from attention.formula.patching import explained
from attention.formula.steps import find_step
from attention.formula.trace import Trace
from attention.numbers.arithmetic import Explanation
from attention.numbers.together import together
from attention.numbers.working import Working


def explain(trace: Trace, step: str, layer: int = 0, head: int = 0, q: int = 0, k: int = 0) -> Explanation:
    """The arithmetic behind the number in row `q` and column `k` of a step.

    For the maps of scores and weights the row is query_pos and the column key_pos; for the others
    they are whatever the step's axes say, such as key_pos and d_v for `value`. Where the source does not have what made the
    number, or what would be stated of it does not give it, the number is as recorded: `Working` compares every statement.

    Raises:
        MissingError: the trace has no such layer, step, head or cell.
    """
    found, chosen = find_step(step), trace.layer(layer)
    matrix = chosen.matrix(step, head)
    for axis, index, size in ((found.row_axis, q, matrix.shape[0]), (found.column_axis, k, matrix.shape[1])):
        check_index(f"{axis} of {step}", index, size, "counts")
    value = float(matrix[q, k]) + 0.0  # −0 is 0
    work = Working(chosen.of(head) if found.per_head else chosen, found, Cell(layer, step, head, q, k), value)
    if chosen.inner is not chosen:
        return together(work)
    if chosen.formula is None and found.by_formula:
        return work.as_recorded()
    if chosen.formula is not None and (told := explained(work)) is not None:
        return told
    if step in chosen.told:  # something more was done to the step, which some of its numbers do not show
        return work.as_recorded()
    return found.explain(work)
