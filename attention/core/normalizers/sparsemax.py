"""The sparsemax: the point of the simplex nearest to the scores, with true zeros."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attention.core.normalizers.normalizer import Normalizer, Row
from attention.printed import Arithmetic, Printed, bracketed, number

if TYPE_CHECKING:
    from attention.core.tensor_types import Scores, Weights


@dataclass(frozen=True)
class Sparsemax(Normalizer):
    """max(s − τ, 0), with the τ that makes the row sum to 1."""

    name: str = "sparsemax"
    words: str = (
        "Low scores get exactly 0: the row is the point of the simplex nearest to its scores. For translation and classification where "
        "people want to read which words counted."
    )
    paper: str = "Martins and Astudillo 2016, From Softmax to Sparsemax, algorithm 1"
    formula: str = "sparsemax of M over key_pos"
    sums: Literal["1", "below 1", "freely"] = "1"
    in_page: bool = True
    argmax: bool = True

    def weights(self, scores: Scores) -> Weights:
        """Rows sum to 1, with true zeros; a row with no visible key is 0 throughout."""
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
        """The score minus the threshold, if that is positive."""
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
