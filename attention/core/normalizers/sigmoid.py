"""The sigmoid: the weight of each key is independent of the other keys."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attention import printed
from attention.core.inline import inlined
from attention.core.names import WEIGHTS
from attention.core.normalizers.normalizer import Normalizer, Row
from attention.printed import Arithmetic, Printed, number

if TYPE_CHECKING:
    from attention.core.tensor_types import Scores, Weights


@dataclass(frozen=True)
class Sigmoid(Normalizer):
    """σ(s − log n) with n keys: rows sum to anything between 0 and n."""

    name: str = "sigmoid"
    words: str = (
        "The weight of each key is independent of the other keys, so rows can sum to anything. The logarithm of the number of keys is "
        "subtracted, so that the sums are near 1 at first. Apple's sigmoid attention."
    )
    paper: str = "Ramapuram et al. 2024, Theory, Analysis, and Best Practices for Sigmoid Self-Attention, equation 2"
    formula: str = "σ(M − log n), n keys"
    sums: Literal["1", "below 1", "freely"] = "freely"
    in_page: bool = True

    def weights(self, scores: Scores) -> Weights:
        """Weights between 0 and 1, each from its own score; hidden keys get 0."""
        import torch

        return torch.sigmoid(scores - math.log(scores.shape[-1]))  # a row sums to anything

    def limit(self, scores: Scores, bias: Scores) -> Weights:
        """1 for positive scores, 0 for negative ones; for 0 the weights of the bias alone."""
        return by_sign(scores, self.weights(bias))

    def limit_python(self, scores: str, bias: str) -> list[str]:
        """Lines that compute the weights of the bias alone, and then the limit."""
        lines = [] if bias == "bias" else [f"bias = {bias}"]
        return [*lines, *self.python("bias"), *inlined(by_sign, WEIGHTS, scores=scores, level=WEIGHTS)]

    def arithmetic(self, row: Row) -> Arithmetic:
        """1 / (1 + n · e^−score)."""
        n, score = len(row.scores), row.scores[row.column]
        denominator = 1 + n * math.exp(min(-score, 700.0)) if score > -math.inf else math.inf

        def line(digits: int) -> Printed:
            exponent = printed.exponent(-score, digits)
            power = Printed(
                rf"1 + {n} \cdot e^{{{exponent.tex}}}", f"(1 + {n}·e^({exponent.text}))", 1 + n * exponent.value.exp()
            )
            return Printed(
                rf"\frac{{1}}{{{power.tex}}}", f"1 / {power.text}", 1 / power.value, (number(1.0, digits), power)
            )

        def divided(digits: int) -> Printed:
            return printed.quotient(number(1.0, digits), number(denominator, digits))

        return Arithmetic(
            formula=rf"\frac{{1}}{{1 + n\, e^{{-M{row.at}}}}}, \quad n = {n}",
            lines=[line, divided],
            one_liners=[line],
            words=f"The weight of key {row.column} is independent of the other {n - 1}; the row of query {{row}} need not sum to 1.",
            values=[1.0, denominator],
            operation="quotient",
        )


def by_sign(scores: Scores, level: Weights) -> Weights:
    """1 for positive scores, 0 for negative ones, and `level` for 0."""
    import torch

    return torch.where(scores == 0, level, (scores > 0).to(scores.dtype))
