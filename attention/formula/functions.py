"""The attention formula, one pure function per step.

    softmax(mask(Q Kᵀ / (√d_k · temperature))) V W_O

How scores come from Q and K is in `scores`, how weights come from scores in `shares`. Nothing is overwritten: a step that
is overwritten cannot be shown. Source: Vaswani et al. 2017, "Attention Is All You Need", equation 1 and section 3.2.2.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from attention.formula.scores import times

if TYPE_CHECKING:
    from attention.formula.axes import (
        HeadOutput,
        HeadRow,
        HeadRows,
        Output,
        OutputBias,
        OutputProjection,
        Projection,
        Rows,
        Scores,
        Value,
        Visible,
        Weights,
    )  # fmt: skip


def project(x: Rows, w: Projection, b: HeadRow | None = None) -> HeadRows:
    """Every head's rows, X W + b."""
    # One product for all heads: a product per head would read x once for each of them, twice as slow.
    beside = times(x, w.transpose(0, 1).flatten(1), None if b is None else b.flatten())
    return beside.reshape(len(beside), len(w), -1).transpose(0, 1).contiguous()


def scale_scores(scores: Scores, divisor: float, temperature: float) -> Scores:
    """Scores divided by divisor · temperature.

    At temperature 0 there is no such quotient: the scores stay divided by the divisor alone, and the weights
    take the limit.
    """
    return scores / divisor if temperature == 0 else scores / (divisor * temperature)


def cap_scores(scaled_scores: Scores, cap: float, temperature: float = 1.0) -> Scores:
    """Scores kept between −cap and cap, cap · tanh(S′ / cap); at temperature 0 they are −cap, 0 or cap.

    Source: Gemma Team 2024, "Gemma 2", section 2 (logit soft-capping); Bello et al. 2016, section 3.
    """
    return cap * (scaled_scores.sign() if temperature == 0 else torch.tanh(scaled_scores / cap))


def mask_scores(scores: Scores, mask: Visible | None) -> Scores:
    """The scores, and −∞ where the mask (True = may attend) hides a key."""
    return scores if mask is None else scores.masked_fill(~mask, -math.inf)


def mix_values(weights: Weights, value: Value) -> HeadOutput:
    """Each head's output, A V, with values for every head. A query that sees no key gets 0."""
    return weights @ value


def project_output(head_output: HeadOutput, w_o: OutputProjection, b_o: OutputBias | None = None) -> Output:
    """The heads side by side, times W_O, plus b_O."""
    beside = head_output.transpose(0, 1).flatten(1) @ w_o.flatten(0, 1)
    return beside if b_o is None else beside + b_o
