"""Normalizers, which turn scores into weights, one class each, one line of the table `NORMALIZERS` for each."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.base import printed
from attention.base.printed import Arithmetic, Printed, Summands, bracketed, number, quotient
from attention.formula.inline import inlined
from attention.formula.names import WEIGHTS

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.tensor_types import PerHead, Scores, Weights


@dataclass(frozen=True)
class Row:
    """The masked scores of one query, for the arithmetic of one of its weights.

    Attributes:
        scores: [key_pos], −∞ for hidden keys.
        column: the key whose weight is explained.
        at: the indices of the cell as LaTeX.
        any_at: the indices of any key of the row as LaTeX.
        parameter: the parameter of the normalizer for this head.
    """

    scores: list[float]
    column: int
    at: str
    any_at: str
    parameter: float = 0.0

    @property
    def visible(self) -> list[int]:
        """The keys that the query sees."""
        return [j for j, score in enumerate(self.scores) if score > -math.inf]

    @property
    def keys(self) -> str:
        """The number of visible keys in words."""
        return f"{len(self.visible)} {'key' if len(self.visible) == 1 else 'keys'}"


class Normalizer(ABC):
    """One way to turn scores into weights.

    Attributes:
        name: as in `AttentionConfig.normalizer` and in links.
        words: its effect and its users, for a menu.
        paper: its source.
        formula: plain text.
        in_page: whether the page itself can compute it, under this name in kernel.js.
        argmax: whether its limit at temperature 0 is argmax: the largest scores share all the weight.
        parameter: the name of a layer parameter that it needs, [head]; may be empty.
    """

    name = ""
    words = ""
    paper = ""
    formula = ""
    in_page = False
    argmax = False
    parameter = ""

    @abstractmethod
    def weights(self, scores: Scores) -> Weights:
        """The weights of masked scores; keys at −∞ get 0, also in a row with no visible key."""

    def bind(self, parameter: PerHead) -> Normalizer:
        """The normalizer with the parameter of a layer."""
        raise NotImplementedError(f"{self.name} has no parameter")

    def limit(self, scores: Scores, bias: Scores) -> Weights:
        """The weights at temperature 0: the scores without bias decide, and the `bias` only among the largest."""
        return self.weights(_largest_only(scores, bias))

    def python(self, scores: str) -> list[str]:
        """Lines of plain torch that compute `weights` from the variable `scores`: the body of the function `weights`."""
        return inlined(type(self).weights, WEIGHTS, scores=scores)

    def limit_python(self, scores: str, bias: str) -> list[str]:
        """Lines that compute `limit` from variables of these names."""
        return [*inlined(_largest_only, "winners", scores=scores, bias=bias), *self.python("winners")]

    @abstractmethod
    def arithmetic(self, row: Row) -> Arithmetic:
        """The arithmetic of the weight of the row's column; the row has at least one visible key."""


def _largest_only(scores: Scores, bias: Scores) -> Scores:
    """The bias at the largest scores of each row, −∞ elsewhere."""
    largest = scores.amax(dim=-1, keepdim=True)
    return bias.masked_fill((scores != largest) | (scores == -math.inf), -math.inf)


class _Softmax(Normalizer):
    """Rows sum to 1, and every visible key has a positive weight."""

    name = "softmax"
    words = "Every visible key gets a share of 1, larger scores exponentially more. Nearly every transformer."
    paper = "Vaswani et al. 2017, Attention Is All You Need, equation 1"
    formula = "softmax of M over key_pos"
    in_page = True
    argmax = True

    def weights(self, scores: Scores) -> Weights:
        weights = _softmax(scores)
        blind = weights[..., :1].isnan()  # an all-hidden row is 0 / 0 from its first key to its last
        return weights.masked_fill(blind, 0) if blind.any() else weights

    def python(self, scores: str) -> list[str]:
        return inlined(_softmax, WEIGHTS, scores=scores)

    def arithmetic(self, row: Row) -> Arithmetic:
        return _exponentials(row, max(row.scores), 0.0)


def _softmax(scores: Scores) -> Weights:
    """The softmax of rows with at least one visible key; processors agree on a double that is rounded, and not on a float."""
    import torch

    return torch.softmax(scores.double(), dim=-1).to(scores.dtype)  # rows sum to 1


def _exponentials(row: Row, shift: float, added: float) -> Arithmetic:
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


class _Softmax1(Normalizer):
    """e^s / (1 + Σ e^s): rows sum to less than 1."""

    name = "softmax1"
    words = (
        "One is added to the sum, so that a query whose scores are all low attends to nearly nothing, and needs no first token to dump its "
        "attention on. The sinks of gpt-oss are its learned form."
    )
    paper = "Miller 2023, Attention Is Off By One"
    formula = "e^M / (1 + Σ e^M) over key_pos"
    in_page = True

    def weights(self, scores: Scores) -> Weights:
        return _with_sink(scores, self._sink(scores))

    def limit(self, scores: Scores, bias: Scores) -> Weights:
        largest = _largest_only(scores, bias)
        return _with_sign(scores, largest, self.weights(largest))

    def python(self, scores: str) -> list[str]:
        return [f"sink = {scores}.new_zeros(())", *inlined(_with_sink, WEIGHTS, scores=scores)]

    def limit_python(self, scores: str, bias: str) -> list[str]:
        return [*super().limit_python(scores, bias), *inlined(_with_sign, WEIGHTS, scores=scores, level=WEIGHTS)]

    def _sink(self, scores: Tensor) -> Tensor:
        return scores.new_zeros(())

    def arithmetic(self, row: Row) -> Arithmetic:
        shift = max(row.parameter, *row.scores)
        return _exponentials(row, shift, math.exp(row.parameter - shift))


class _Sinks(_Softmax1):
    """e^s / (e^sink + Σ e^s): each head has a learned sink."""

    name = "sinks"
    words = "Each head has a learned extra score (sink) that belongs to no key, so that a query may attend to nearly nothing. gpt-oss."
    paper = "OpenAI 2025, gpt-oss-120b & gpt-oss-20b Model Card, section 2.2"
    formula = "e^M / (e^sink + Σ e^M) over key_pos"
    in_page = False
    parameter = "sinks"

    def __init__(self, sinks: PerHead | None = None) -> None:
        self._sinks = sinks

    def bind(self, parameter: PerHead) -> _Sinks:
        return _Sinks(parameter)

    def _sink(self, scores: Tensor) -> Tensor:
        return super()._sink(scores) if self._sinks is None else self._sinks[:, None, None].to(scores.dtype)

    def python(self, scores: str) -> list[str]:
        return ["sink = sinks[:, None, None]", *inlined(_with_sink, WEIGHTS, scores=scores)]


def _with_sink(scores: Scores, sink: Tensor) -> Weights:
    """The softmax over the scores and an extra score, the sink, which belongs to no key."""
    import torch

    highest = torch.maximum(scores.amax(dim=-1, keepdim=True), sink).double()
    powers = torch.exp(scores - highest)
    return (powers / (torch.exp(sink - highest) + powers.sum(dim=-1, keepdim=True))).to(scores.dtype)  # sums below 1


def _with_sign(scores: Scores, winners: Scores, level: Weights) -> Weights:
    """By the sign of a row's largest score: the softmax of the winners above 0, `level` at 0, nothing below."""
    import torch

    largest = scores.amax(dim=-1, keepdim=True)
    above = torch.softmax(winners.double(), dim=-1).nan_to_num(0).to(scores.dtype)
    return torch.where(largest > 0, above, torch.where(largest == 0, level, torch.zeros_like(above)))


class _Sigmoid(Normalizer):
    """σ(s − log n) with n keys: rows sum to anything between 0 and n."""

    name = "sigmoid"
    words = (
        "The weight of each key is independent of the other keys, so rows can sum to anything. The logarithm of the number of keys is "
        "subtracted, so that the sums are near 1 at first. Apple's sigmoid attention."
    )
    paper = "Ramapuram et al. 2024, Theory, Analysis, and Best Practices for Sigmoid Self-Attention, equation 2"
    formula = "σ(M − log n), n keys"
    in_page = True

    def weights(self, scores: Scores) -> Weights:
        import torch

        return torch.sigmoid(scores.double() - math.log(scores.shape[-1])).to(scores.dtype)  # a row sums to anything

    def limit(self, scores: Scores, bias: Scores) -> Weights:
        return _by_sign(scores, self.weights(bias))

    def limit_python(self, scores: str, bias: str) -> list[str]:
        lines = [] if bias == "bias" else [f"bias = {bias}"]
        return [*lines, *self.python("bias"), *inlined(_by_sign, WEIGHTS, scores=scores, level=WEIGHTS)]

    def arithmetic(self, row: Row) -> Arithmetic:
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


def _by_sign(scores: Scores, level: Weights) -> Weights:
    """1 for positive scores, 0 for negative ones, and `level` for 0."""
    import torch

    return torch.where(scores == 0, level, (scores > 0).to(scores.dtype))


class _Sparsemax(Normalizer):
    """max(s − τ, 0), with the τ that makes the row sum to 1."""

    name = "sparsemax"
    words = (
        "Low scores get exactly 0: the row is the point of the simplex nearest to its scores. For translation and classification where "
        "people want to read which words counted."
    )
    paper = "Martins and Astudillo 2016, From Softmax to Sparsemax, algorithm 1"
    formula = "sparsemax of M over key_pos"
    in_page = True
    argmax = True

    def weights(self, scores: Scores) -> Weights:
        import torch

        # Subtract the largest: the threshold depends only on differences, and large scores keep their digits.
        highest = scores.amax(dim=-1, keepdim=True)
        shifted = torch.where(highest == -math.inf, scores, scores - highest).double()
        ordered = shifted.sort(dim=-1, descending=True).values
        ranks = torch.arange(1, scores.shape[-1] + 1, dtype=torch.float64)
        sums = ordered.nan_to_num(neginf=-1e300).cumsum(dim=-1)
        support = (1 + ranks * ordered > sums).sum(dim=-1, keepdim=True).clamp_min(1)
        threshold = (sums.gather(-1, support - 1) - 1) / support
        weights = (shifted - threshold).clamp_min(0)
        return torch.where(highest == -math.inf, 0.0, weights).to(scores.dtype)

    def arithmetic(self, row: Row) -> Arithmetic:
        ordered = sorted((row.scores[j] for j in row.visible), reverse=True)
        count = sum(1 + (i + 1) * score > math.fsum(ordered[: i + 1]) for i, score in enumerate(ordered))
        threshold = (math.fsum(ordered[:count]) - 1) / count
        score = row.scores[row.column]
        keys = "the largest score" if count == 1 else f"the {count} largest scores"
        threshold_words = (
            f"τ = {number(threshold).text} comes from {keys} of query {{row}}: their sum less 1, divided by {count}."
        )
        if score <= threshold:
            words = f"Key {row.column} gets exactly 0, since its score is not above the threshold. {threshold_words}"
            return Arithmetic.zero(words, f"not above the threshold τ = {number(threshold).text}")

        def line(digits: int) -> Printed:
            minuend, subtrahend = number(score, digits), bracketed(threshold, digits)
            parts = (minuend, Printed(f"-{subtrahend.tex}", "", -subtrahend.value))
            tex, text = f"{minuend.tex} - {subtrahend.tex}", f"{minuend.text} − {subtrahend.text}"
            return Printed(tex, text, minuend.value - subtrahend.value, parts)

        return Arithmetic(
            formula=rf"M{row.at} - \tau",
            lines=[line],
            one_liners=[line],
            words=f"Key {row.column} gets what its score has above the threshold. {threshold_words}",
            values=[score, -threshold],
            operation="sum",
        )


NORMALIZERS: dict[str, Normalizer] = {
    normalizer.name: normalizer for normalizer in (_Softmax(), _Softmax1(), _Sigmoid(), _Sparsemax(), _Sinks())
}
"""All normalizers by their names in links."""
