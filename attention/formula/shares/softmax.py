"""The softmax: every visible key gets its share of 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attention import printed
from attention.formula.inline import inlined
from attention.formula.names import WEIGHTS
from attention.formula.shares.share import Row, Share
from attention.printed import Arithmetic, Parts, Printed, number, quotient

if TYPE_CHECKING:
    from attention.formula.axes import Scores, Weights


@dataclass(frozen=True)
class Softmax(Share):
    """Rows sum to 1, and no visible key gets nothing."""

    name: str = "softmax"
    words: str = "Every visible key gets a share of 1, larger scores exponentially more. Nearly every transformer."
    paper: str = "Vaswani et al. 2017, Attention Is All You Need, equation 1"
    formula: str = "softmax of M over key_pos"
    sums: Literal["1", "below 1", "freely"] = "1"
    in_page: bool = True
    argmax: bool = True

    def weights(self, scores: Scores) -> Weights:
        """Rows sum to 1; a row with no visible key is 0 throughout, never NaN and never uniform."""
        weights = softmax(scores)
        blind = weights[..., :1].isnan()  # an all-hidden row is 0 / 0 from its first key to its last
        return weights.masked_fill(blind, 0) if blind.any() else weights

    def python(self, scores: str) -> list[str]:
        """One line."""
        return inlined(softmax, WEIGHTS, scores=scores)

    def arithmetic(self, row: Row) -> Arithmetic:
        """E to the score over the sum of all, the largest subtracted first."""
        highest = max(row.scores)
        return exponentials(row, highest, 0.0)


def softmax(scores: Scores) -> Weights:
    """The softmax of rows that see a key."""
    import torch

    return torch.softmax(scores, dim=-1)  # every row sums to 1


def exponentials(row: Row, shift: float, added: float) -> Arithmetic:
    """e^(score − shift) over the sum of all of them, and of what is `added` to it."""
    visible, column, scores = row.visible, row.column, row.scores
    power = {j: math.exp(scores[j] - shift) for j in visible}
    top, total, below = power.get(column, 0.0), math.fsum(power.values()) + added, Parts([*power.values()])

    def one_more(digits: int) -> list[Printed]:
        if not added:
            return []
        return [number(1.0, digits) if shift == row.own else printed.power(row.own, shift, digits)]

    def parts(digits: int) -> list[Printed]:
        powers = below.printed(lambda i: printed.powered(scores[visible[i]], shift, digits), digits)
        return [*one_more(digits), *powers]

    def above(digits: int) -> Printed:
        return printed.power(scores[column], shift, digits)

    def whole(digits: int) -> Printed:
        if len(below.few) <= 4:
            return quotient(above(digits), printed.total(parts(digits), per_line=99))
        one, whole_sum = above(digits), printed.total(parts(digits))
        tex = rf"{one.tex} \;\big/\; \big({whole_sum.tex}\big)"
        return Printed(tex, "", one.value / whole_sum.value, (one, whole_sum))

    def shares(digits: int) -> Printed:
        return quotient(number(top, digits), number(total, digits))

    def short(digits: int) -> Printed:
        return quotient(above(digits), number(total, digits))

    sink = r"\text{sink} " if row.own else ""
    largest_of = rf"\max_j M{row.any_at}" if not added else rf"\max({sink or 0}, \max_j M{row.any_at})"
    first = f"e^{{{sink}-m}} + " if added else ""
    return Arithmetic(
        formula=rf"\frac{{e^{{M{row.at} - m}}}}{{{first}\sum_j e^{{M{row.any_at} - m}}}}, \quad m = {largest_of} = {printed.exponent(shift).tex}",
        lines=[whole, shares],
        shorts=[short],
        words=f"The share of key {column} in everything query {{row}} can see ({row.keys}).",
        values=[top, total],
        operation="quotient",
        below=[*[added] * bool(added), *below.values],
    )
