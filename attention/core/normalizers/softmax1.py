"""The softmax with a term added to its denominator: a query may attend to nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from attention.core.inline import inlined
from attention.core.names import WEIGHTS
from attention.core.normalizers.normalizer import Normalizer, Row, largest_only
from attention.core.normalizers.softmax import exponentials
from attention.printed import Arithmetic

if TYPE_CHECKING:
    from torch import Tensor

    from attention.core.tensor_types import PerHead, Scores, Weights


@dataclass(frozen=True)
class Softmax1(Normalizer):
    """e^s / (1 + Σ e^s): rows sum to less than 1."""

    name: str = "softmax1"
    words: str = (
        "One is added to the sum, so that a query whose scores are all low attends to nearly nothing, and needs no first token to dump its "
        "attention on. The sinks of gpt-oss are its learned form."
    )
    paper: str = "Miller 2023, Attention Is Off By One"
    formula: str = "e^M / (1 + Σ e^M) over key_pos"
    sums: Literal["1", "below 1", "freely"] = "below 1"
    in_page: bool = True

    def weights(self, scores: Scores) -> Weights:
        """The softmax with a sink; a row with no visible key is 0 throughout."""
        return with_sink(scores, self._sink(scores))

    def limit(self, scores: Scores, bias: Scores) -> Weights:
        """The largest scores take all above 0, share with the sink at 0, and get nothing below."""
        largest = largest_only(scores, bias)
        return with_sign(scores, largest, self.weights(largest))

    def python(self, scores: str) -> list[str]:
        """Lines of the softmax with a sink of 0."""
        return [f"sink = {scores}.new_zeros(())", *inlined(with_sink, WEIGHTS, scores=scores)]

    def limit_python(self, scores: str, bias: str) -> list[str]:
        """Lines of the limit."""
        return [
            *super().limit_python(scores, bias),
            *inlined(with_sign, WEIGHTS, scores=scores, level=WEIGHTS),
        ]

    def _sink(self, scores: Tensor) -> Tensor:
        """The sink, an extra score of 0: it adds e^0 = 1 to the sum."""
        return scores.new_zeros(())

    def arithmetic(self, row: Row) -> Arithmetic:
        """e^score over e^sink plus the sum of all; without a learned sink, e^sink is 1."""
        shift = max(row.parameter, *row.scores)
        return exponentials(row, shift, math.exp(row.parameter - shift))


@dataclass(frozen=True)
class Sinks(Softmax1):
    """e^s / (e^sink + Σ e^s): each head has a learned sink."""

    name: str = "sinks"
    words: str = "Each head has a learned extra score (sink) that belongs to no key, so that a query may attend to nearly nothing. gpt-oss."
    paper: str = "OpenAI 2025, gpt-oss-120b & gpt-oss-20b Model Card, section 2.2"
    formula: str = "e^M / (e^sink + Σ e^M) over key_pos"
    in_page: bool = False
    parameter: str = "sinks"
    sinks: PerHead | None = None

    def bind(self, parameter: PerHead) -> Sinks:
        """The normalizer with the sinks of a layer."""
        return replace(self, sinks=parameter)

    def _sink(self, scores: Tensor) -> Tensor:
        """The sinks, [head 1 1]."""
        return super()._sink(scores) if self.sinks is None else self.sinks[:, None, None].to(scores.dtype)

    def python(self, scores: str) -> list[str]:
        """Lines of the softmax with `sinks` [head]."""
        return ["sink = sinks[:, None, None]", *inlined(with_sink, WEIGHTS, scores=scores)]


def with_sink(scores: Scores, sink: Tensor) -> Weights:
    """The softmax over the scores and an extra score, the sink, which belongs to no key."""
    import torch

    highest = torch.maximum(scores.amax(dim=-1, keepdim=True), sink)
    powers = torch.exp(scores - highest)
    return powers / (torch.exp(sink - highest) + powers.sum(dim=-1, keepdim=True))  # sums below 1


def with_sign(scores: Scores, winners: Scores, level: Weights) -> Weights:
    """By the sign of a row's largest score: the softmax of the winners above 0, `level` at 0, nothing below."""
    import torch

    largest = scores.amax(dim=-1, keepdim=True)
    above = torch.softmax(winners, dim=-1).nan_to_num(0)
    return torch.where(largest > 0, above, torch.where(largest == 0, level, torch.zeros_like(above)))
