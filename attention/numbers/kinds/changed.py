"""Numbers of a head that was changed inside its model: taken from elsewhere, set by hand, kept in part."""

from __future__ import annotations

from dataclasses import replace

from attention.formula.by_hand import ByHand
from attention.numbers.arithmetic import Explanation
from attention.numbers.working import Working
from attention.printed import Arithmetic, Printed, product, total

_SET = {"masked_scores": ("scores", "before the softmax"), "weights": ("weights", "after the softmax")}


def by_hand(work: Working) -> Explanation | None:
    """What is stated of a number that a hand has put there; None where the formula made it as always."""
    hand = work.layer.formula.by_hand if work.layer.formula is not None else ByHand()
    row, column = work.cell.row, work.cell.column
    step, when = _SET.get(work.step.name, ("", ""))
    cells = [cell for cell in hand.cells if (cell.step, cell.query) == (step, row)]
    values = {cell.key: cell.value for cell in cells}
    if column in values:
        return work.stated(values[column], f"Set by hand, {when}.", "set by hand")
    if step == "weights" and any(cell.rescaled for cell in cells):
        return _rescaled(work, hand)
    whose = dict(hand.taken).get(work.step.name, "")
    if whose and work.step.name != "head_output":
        words = f"Taken from {whose}: nothing of this run made it (activation patching)."
        # Queries, keys and values are recorded as they were taken: there is nothing to compare them with.
        there = work.number_at("taken_weights", row, column) if work.step.name == "weights" else work.value
        return work.stated(there, words, f"from {whose}")
    return None


def kept(work: Working) -> Explanation:
    """What goes on of a head's output: Z, that of another run, or Z with less of it."""
    row, column, hand = work.cell.row, work.cell.column, work.formula.by_hand
    came_from = (work.cell_of("head_output", row, column),)
    whole = work.layer["taken_output"][work.cell.head] if hand.takes("head_output") else None
    if not hand.silence:
        if whole is not None:
            whose = dict(hand.taken)["head_output"]
            words = f"Taken from {whose}, before W_O (activation patching)."
            return work.stated(float(whole[row, column]), words, f"from {whose}")
        words = "This head is not changed: its output goes on as it is."
        return work.copied("head_output", row, column, words, "goes on as it is")
    z = work.layer.matrix("head_output", work.cell.head) if whole is None else whole
    factors = [(1 - hand.strength, float(z[row, column]))]
    words = "The head is silenced: what is left of its output"
    if hand.silence == "mean":
        factors += [(hand.strength, float(z[:, column].double().mean()))]
        words = "The head's output replaced by its mean over positions: what is left of both"

    def line(digits: int) -> Printed:
        return total([product(*pair, digits) for pair in factors])

    values = [a * b for a, b in factors]
    return work.made(Arithmetic("", [line], [line], f"{words}; W_O's bias stays.", values), came_from)


def _rescaled(work: Working, hand: ByHand) -> Explanation:
    """A weight beside one that was set: what the softmax gave, times what is left for the rest of its row."""
    row, column = work.cell.row, work.cell.column
    cells = {cell.key: cell.value for cell in hand.cells if (cell.step, cell.query) == ("weights", row)}
    others = tuple(cell for cell in hand.cells if cell.step != "weights")
    before = replace(work.layer, formula=replace(work.formula, by_hand=replace(hand, cells=others)))
    head = slice(work.cell.head, work.cell.head + 1)
    weights = before.part("weights", heads=head, rows=slice(row, row + 1))[0][0, 0].double()
    rest = sum(float(one) for key, one in enumerate(weights) if key not in cells)
    factors = float(weights[column]), max(0.0, float(weights.sum()) - sum(cells.values())) / max(rest, 1e-30)

    def line(digits: int) -> Printed:
        return total([product(*factors, digits)])

    words = (
        "Another weight of this row was set by hand: what the softmax gave, times what is left for the rest of the row."
    )
    came_from = tuple(work.cell_of(name, row, column) for _, name in work.layer.factors(work.step))
    return work.made(Arithmetic("", [line], [line], words, [factors[0] * factors[1]]), came_from)
