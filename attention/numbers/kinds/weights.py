"""What a query makes of its scores: hidden ones, shares of 1, weights that are dropped."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

from attention.formula.cell import Cell
from attention.formula.shares import SHARES
from attention.formula.shares.share import Row
from attention.formula.steps import is_step
from attention.numbers.arithmetic import Explanation, Term
from attention.numbers.working import Working
from attention.printed import Arithmetic, Printed, number, quotient, shown


def hidden(work: Working) -> Explanation:
    """A score that stays as it is, or is hidden."""
    row, column = work.cell.row, work.cell.column
    before = next((name for factor_, name in work.layer.factors(work.step) if is_step(name)), "")
    if not before:
        return work.given("The masked score as the source recorded it; what made it is not known.")
    came_from = (work.cell_of(before, row, column),)
    if work.value == -math.inf and _hider(work) == "mask":
        words = (
            f"The mask hides key {column} from query {row}: its score becomes −∞, so that its weight will be exactly 0."
        )
        terms = (Term(r"-\infty", work.value),)
        return work.told((r"-\infty \quad \text{(hidden)}",), words, "−∞: hidden by the mask", came_from, terms)
    words = f"The mask lets query {row} see key {column}: its score stays as it is."
    if work.value == -math.inf:
        words = f"The bias has hidden key {column} from query {row} already: its score stays −∞."
    symbol, score = work.symbol(before, row, column), work.number_at(before, row, column)
    return work.copied(symbol, score, words, "stays as it is, the key is visible", came_from)


def shared_out(work: Working) -> Explanation:
    """A weight: what this key gets of what the query shares out."""
    row, column, formula = work.cell.row, work.cell.column, work.formula
    if not work.layer.has("masked_scores"):
        return work.given()
    masked = work.row_of("masked_scores", row).double().tolist()
    learned = SHARES[formula.share].parameter
    own = float(work.layer[learned][work.cell.head]) if learned else 0.0
    scores = Row(masked, column, work.at(row, column), work.at(row, "j"), own)
    came_from = (work.cell_of("masked_scores", row, column),)
    hides = _hider(work)
    if not scores.visible:
        words = (
            f"The {hides} hides every key from query {row}: there is nothing to share out, so all its weights are 0."
        )
        return work.told(("0",), words, f"0: the {hides} hides every key", came_from)
    seen = column in scores.visible
    hiding = "" if seen else f"The {hides} hides key {column} from query {row}: its score is −∞, so its weight is 0. "
    if work.layer.temperature == 0 and not formula.cap:
        return _coldest(work, scores, hiding, came_from)
    arithmetic = SHARES[formula.share].arithmetic(scores)
    made = work.made(replace(arithmetic, words=hiding + arithmetic.words.format(row=row)), came_from)
    return made if seen else replace(made, short=f"0: hidden by the {hides}", sign="=")


def _coldest(work: Working, row: Row, hiding: str, came_from: tuple[Cell, ...]) -> Explanation:
    """The limit of temperature 0."""
    formula, highest = work.formula, max(row.scores)
    if formula.share not in ("softmax", "sparsemax") or formula.bias:
        words = f"{hiding}Temperature 0 is the limit of ever smaller ones: scores above, at and below the largest, or 0, are told apart and nothing else."
        return work.said(words, "the limit of temperature 0", came_from)
    winners = [j for j in row.visible if row.scores[j] == highest]
    won, shared = float(row.column in winners), float(len(winners))

    def line(digits: int) -> Printed:
        return quotient(number(won, digits), Printed(f"{len(winners)}", f"{len(winners)}", Decimal(len(winners))))

    words = f"{hiding}Temperature 0 is argmax: the largest score, {shown(highest)}, takes all"
    words += f", shared by {len(winners)} keys." if len(winners) > 1 else "."
    made = work.made(Arithmetic("", [line], [line], words, [won, shared], "quotient"), came_from)
    reason = "hidden by the mask" if hiding else "not the largest score"
    return made if won else replace(made, short=f"0: {reason}")


def drawn(work: Working) -> Explanation:
    """A weight that was dropped, or left."""
    row, column = work.cell.row, work.cell.column
    weight, hidden = work.number_at("weights", row, column), _hides(work)
    symbol, dropping = work.symbol("weights", row, column), work.formula.dropping
    by = work.number_at("drop", row, column) if work.layer.has("drop") else 1.0
    arithmetic = dropping.arithmetic(symbol, weight, work.value, row, column, hidden, by)
    return work.made(arithmetic, (work.cell_of("weights", row, column),))


def _hider(work: Working) -> str:
    """What hides a key: the mask, or a bias of −∞."""
    return "mask" if _hides(work) or not work.layer.has("bias") else "bias"


def _hides(work: Working) -> bool:
    """Whether the mask hides the key from the query."""
    return work.layer.has("mask") and not bool(work.layer["mask"][work.cell.row, work.cell.column])
