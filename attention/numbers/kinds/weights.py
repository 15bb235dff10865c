"""What a query makes of its scores: hidden ones, shares of 1, weights that are dropped."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

from attention.formula.cell import Cell
from attention.formula.shares import SHARES
from attention.formula.shares.share import Row
from attention.formula.steps import is_step
from attention.numbers.arithmetic import Explanation
from attention.numbers.working import Working
from attention.printed import Arithmetic, Printed, number, quotient, shown


def hidden(work: Working) -> Explanation:
    """A score that stays as it is, or is hidden."""
    row, column = work.cell.row, work.cell.column
    before = next((name for _, name in work.layer.factors(work.step) if is_step(name)), "")
    if not before:
        return work.as_recorded("The masked score as the source recorded it; what made it is not known.")
    hider = _hider(work, column)
    if hider == "mask":
        words = (
            f"The mask hides key {column} from query {row}: its score becomes −∞, so that its weight will be exactly 0."
        )
        came_from = (work.cell_of(before, row, column),)
        return work.stated(-math.inf, words, "hidden by the mask", came_from, (r"-\infty \quad \text{(hidden)}",))
    words = f"Nothing hides key {column} from query {row}: its score stays as it is."
    if work.value == -math.inf:
        words = f"The score is −∞ already, and stays −∞: key {column} is hidden from query {row}."
        if hider:
            words = f"The bias has hidden key {column} from query {row} already: its score stays −∞."
    elif work.layer.has("mask"):
        words = f"The mask lets query {row} see key {column}: its score stays as it is."
    reason = "stays as it is, the key is visible" if work.value > -math.inf else "stays as it is"
    return work.copied(before, row, column, words, reason)


def shared_out(work: Working) -> Explanation:
    """A weight: what this key gets of what the query shares out."""
    row, column, formula = work.cell.row, work.cell.column, work.formula
    if not work.layer.has("masked_scores"):
        return work.as_recorded()
    masked = work.row_of("masked_scores", row).double().tolist()
    learned = SHARES[formula.share].parameter
    own = float(work.layer[learned][work.cell.head]) if learned else 0.0
    scores = Row(masked, column, work.at(row, column), work.at(row, "j"), own)
    came_from = (work.cell_of("masked_scores", row, column),)
    if not scores.visible:
        hiders = {_hider(work, key) for key in range(len(masked))}
        hides = " or the ".join(sorted(hiders, reverse=True)) if all(hiders) else ""
        hiding = f"The {hides} hides every key from" if hides else "Every score is −∞ of"
        words = f"{hiding} query {row}: there is nothing to share out, so the weight is 0."
        return work.stated(0.0, words, f"the {hides} hides every key" if hides else "every score is −∞", came_from)
    hider = _hider(work, column)
    hiding, reason = "", ""
    if column not in scores.visible:
        hiding = f"The {hider} hides key {column} from query {row}: i" if hider else "I"
        hiding, reason = (
            f"{hiding}ts score is −∞, so its weight is 0. ",
            f"hidden by the {hider}" if hider else "its score is −∞",
        )
    if work.layer.temperature == 0 and not formula.cap:
        return _coldest(work, scores, hiding, reason, came_from)
    arithmetic = SHARES[formula.share].arithmetic(scores)
    return work.made(
        replace(arithmetic, words=hiding + arithmetic.words, reason=reason or arithmetic.reason), came_from
    )


def _coldest(work: Working, row: Row, hiding: str, reason: str, came_from: tuple[Cell, ...]) -> Explanation:
    """The limit of temperature 0."""
    formula, highest, cell = work.formula, max(row.scores), work.cell
    if formula.share not in ("softmax", "sparsemax") or formula.bias:
        words = f"{hiding}Temperature 0 is the limit of ever smaller ones: scores above, at and below the largest, or 0, are told apart and nothing else."
        head, rows = slice(cell.head, cell.head + 1), slice(cell.row, cell.row + 1)
        (limit,) = work.layer.without("weights").part("weights", heads=head, rows=rows)
        return work.stated(float(limit[0, 0, cell.column]), words, "the limit of temperature 0", came_from)
    winners = [j for j in row.visible if row.scores[j] == highest]
    won, shared = float(row.column in winners), float(len(winners))

    def line(digits: int) -> Printed:
        return quotient(number(won, digits), Printed(f"{len(winners)}", f"{len(winners)}", Decimal(len(winners))))

    words = f"{hiding}Temperature 0 is argmax: the largest score, {shown(highest)}, takes all"
    words += f", shared by {len(winners)} keys." if len(winners) > 1 else "."
    reason = "" if won else reason or "not the largest score"
    return work.made(Arithmetic("", [line], [line], words, [won, shared], "quotient", reason=reason), came_from)


def drawn(work: Working) -> Explanation:
    """A weight that was dropped, or left."""
    row, column, dropping = work.cell.row, work.cell.column, work.formula.dropping
    weight, symbol = work.number_at("weights", row, column), work.symbol("weights", row, column)
    ones = work.row_of("weights", row).new_ones(1, 1, work.layer.sizes["key_pos"])
    head, rows = slice(work.cell.head, work.cell.head + 1), slice(row, row + 1)
    by = float(dropping.weights(work.layer, ones, head, rows)[0, 0, column])
    arithmetic = dropping.arithmetic(symbol, weight, row, column, _hides(work, column), by)
    return work.made(arithmetic, (work.cell_of("weights", row, column),))


def _hider(work: Working, key: int) -> str:
    """What hides a key from the query: the mask, or a bias of −∞; empty where neither does."""
    if _hides(work, key):
        return "mask"
    return "bias" if work.layer.has("bias") and work.number_at("bias", work.cell.row, key) == -math.inf else ""


def _hides(work: Working, key: int) -> bool:
    """Whether the mask hides a key from the query."""
    return work.layer.has("mask") and not bool(work.layer["mask"][work.cell.row, key])
