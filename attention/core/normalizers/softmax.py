"""The softmax: the weights of the visible keys sum to 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attention import printed
from attention.core.inline import inlined
from attention.core.names import WEIGHTS
from attention.core.normalizers.normalizer import Normalizer, Row
from attention.printed import Arithmetic, Printed, Summands, number, quotient

if TYPE_CHECKING:
    from attention.core.tensor_types import Scores, Weights


@dataclass(frozen=True)
class Softmax(Normalizer):
    """Rows sum to 1, and every visible key has a positive weight."""

    name: str = "softmax"
    words: str = "Every visible key gets a share of 1, larger scores exponentially more. Nearly every transformer."
    paper: str = "Vaswani et al. 2017, Attention Is All You Need, equation 1"
    formula: str = "softmax of M over key_pos"
    sums: Literal["1", "below 1", "freely"] = "1"
    in_page: bool = True
    argmax: bool = True

    def weights(self, scores: Scores) -> Weights:
        """The softmax of each row; a row with no visible key is 0 throughout, never NaN and never uniform."""
        weights = softmax(scores)
        blind = weights[..., :1].isnan()  # an all-hidden row is 0 / 0 from its first key to its last
        return weights.masked_fill(blind, 0) if blind.any() else weights

    def python(self, scores: str) -> list[str]:
        """The line that computes the softmax."""
        return inlined(softmax, WEIGHTS, scores=scores)

    def arithmetic(self, row: Row) -> Arithmetic:
        """e^score over the sum of all, after subtraction of the largest."""
        highest = max(row.scores)
        return exponentials(row, highest, 0.0)


def softmax(scores: Scores) -> Weights:
    """The softmax of rows with at least one visible key."""
    import torch

    return torch.softmax(scores, dim=-1)  # every row sums to 1


def exponentials(row: Row, shift: float, added: float) -> Arithmetic:
    """e^(score − shift) over `added` plus the sum of all of them."""
    visible, column, scores = row.visible, row.column, row.scores
    power = {j: math.exp(scores[j] - shift) for j in visible}
    numerator, total, terms = power.get(column, 0.0), math.fsum(power.values()) + added, Summands([*power.values()])

    def sink_term(digits: int) -> list[Printed]:
        if not added:
            return []
        return [number(1.0, digits) if shift == row.parameter else printed.power(row.parameter, shift, digits)]

    def printed_terms(digits: int) -> list[Printed]:
        powers = terms.printed(lambda i: printed.power_of_difference(scores[visible[i]], shift, digits), digits)
        return [*sink_term(digits), *powers]

    def printed_power(digits: int) -> Printed:
        return printed.power(scores[column], shift, digits)

    def full_line(digits: int) -> Printed:
        if len(terms.printed_indices) <= 4:
            return quotient(printed_power(digits), printed.sum_of(printed_terms(digits), per_line=99))
        power_of_key, total_of_row = printed_power(digits), printed.sum_of(printed_terms(digits))
        tex = rf"{power_of_key.tex} \;\big/\; \big({total_of_row.tex}\big)"
        return Printed(tex, "", power_of_key.value / total_of_row.value, (power_of_key, total_of_row))

    def divided(digits: int) -> Printed:
        return quotient(number(numerator, digits), number(total, digits))

    def short(digits: int) -> Printed:
        return quotient(printed_power(digits), number(total, digits))

    sink = r"\text{sink} " if row.parameter else ""
    largest_of = rf"\max_j M{row.any_at}" if not added else rf"\max({sink or 0}, \max_j M{row.any_at})"
    first = f"e^{{{sink}-m}} + " if added else ""
    return Arithmetic(
        formula=rf"\frac{{e^{{M{row.at} - m}}}}{{{first}\sum_j e^{{M{row.any_at} - m}}}}, \quad m = {largest_of} = {printed.exponent(shift).tex}",
        lines=[full_line, divided],
        one_liners=[short],
        words=f"The share of key {column} in everything query {{row}} can see ({row.keys}).",
        values=[numerator, total],
        operation="quotient",
        denominator_terms=[*[added] * bool(added), *terms.values],
    )
