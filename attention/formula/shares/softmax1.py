"""The softmax with one added to the sum: a query may attend to nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attention.formula.shares.share import Row, Share
from attention.formula.shares.softmax import exponentials
from attention.printed import Arithmetic

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Softmax1(Share):
    """e^s / (1 + Σ e^s): rows sum to less than 1."""

    name: str = "softmax1"
    words: str = (
        "One is added to the sum, so that a query whose scores are all low attends to nearly nothing, and needs no first token to dump its "
        "attention on. The sinks of gpt-oss are its learned form."
    )
    paper: str = "Miller 2023, Attention Is Off By One"
    formula: str = "e^M / (1 + Σ e^M) over key_pos"
    equation: str = r"A_{ij} = \frac{e^{M_{ij}}}{1 + \sum_{l} e^{M_{il}}}"
    sums: Literal["1", "below 1", "freely"] = "below 1"
    in_page: bool = True

    def weights(self, scores: Tensor) -> Tensor:
        """Rows sum to less than 1; a row with no visible key is 0 throughout."""
        import torch

        highest = scores.amax(dim=-1, keepdim=True).clamp_min(0)
        powers = torch.exp(scores - highest)
        return powers / (torch.exp(-highest) + powers.sum(dim=-1, keepdim=True))

    def limit(self, scores: Tensor, bias: Tensor) -> Tensor:
        """Above 0 the largest take all, at 0 the one that was added takes its part, below it takes all."""
        import torch

        highest = scores.amax(dim=-1, keepdim=True)
        winners = bias.masked_fill((scores != highest) | (scores == -math.inf), -math.inf)
        above = torch.softmax(winners, dim=-1).nan_to_num(0)
        return torch.where(
            highest > 0, above, torch.where(highest == 0, self.weights(winners), torch.zeros_like(above))
        )

    def python(self, scores: str) -> tuple[str, ...]:
        """Lines that subtract the largest first, so that nothing overflows."""
        return (
            f"highest = {scores}.amax(dim=-1, keepdim=True).clamp_min(0)",
            f"powers = torch.exp({scores} - highest)",
            "weights = powers / (torch.exp(-highest) + powers.sum(dim=-1, keepdim=True))  # every row sums to less than 1",
        )

    def arithmetic(self, row: Row) -> Arithmetic:
        """E to the score over 1 and the sum of all."""
        shift = max(0.0, *row.scores)
        return exponentials(row, shift, math.exp(-shift))
