"""What the vectors at the end of a model are read for: the logit of a token, a difference of two, or the vector of the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.trace.residual_parts import LOGITS

if TYPE_CHECKING:  # it imports torch
    from torch import Tensor

    from attention.trace.linear_run import DirectEffects, LinearRun


@dataclass(frozen=True)
class Readout:
    """What is read from the last vectors.

    Attributes:
        words: what it is, such as "the logit of ·copper".
        tokens: the ids of the tokens whose rows of the unembedding are added, with +1 or −1; empty: the vector of the text.
    """

    words: str
    tokens: tuple[tuple[int, int], ...] = ()

    def directions(self, run: LinearRun) -> Tensor:
        """The vector that the last vector of each position is multiplied with, [pos d_model]; a softcap is frozen at its value.

        The vector of a text is the mean u of all vectors. Its directions are u / (n ‖u‖²): what is read from all positions adds up to
        1, the cosine of u with itself.
        """
        import torch

        vectors = run.value(LOGITS)[0].cpu().double()
        if not self.tokens:
            mean = vectors.mean(0)
            return (mean / (len(vectors) * mean.square().sum())).expand_as(vectors)
        result = torch.zeros_like(vectors)
        for token, sign in self.tokens:
            row = run.direction(token)
            products = vectors @ row + _bias(run, token)
            result += sign * run.logit_factor(products)[:, None] * row
        return result

    def direct_effects(self, run: LinearRun) -> DirectEffects:
        """What each part of a run adds to the readout at each position; the bias of the unembedding is one of the biases."""
        import torch

        vectors = run.value(LOGITS)[0].cpu().double()
        constants = torch.zeros(len(vectors), dtype=torch.float64)
        for token, sign in self.tokens:
            bias = _bias(run, token)
            constants += sign * run.logit_factor(vectors @ run.direction(token) + bias) * bias
        return run.direct_effects(self.directions(run), constants)


def _bias(run: LinearRun, token: int) -> float:
    return 0.0 if run.b_u is None else float(run.b_u[token])
