"""The attention formula, one pure function per step.

    softmax(mask(Q Kᵀ / (√d_k · temperature))) V W_O

How scores come from Q and K is in `scores`, how weights come from scores in `shares`. Nothing is overwritten: a step that
is overwritten cannot be shown. Source: Vaswani et al. 2017, "Attention Is All You Need", equation 1 and section 3.2.2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attention.formula.scores import times


def project(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """Every head's rows, X W + b: [pos d_model] times [head d_model d_k] gives [head pos d_k]; b is [head d_k]."""
    # One product for all heads: a product per head would read x once for each of them, twice as slow.
    beside = times(x, w.transpose(0, 1).flatten(1), None if b is None else b.flatten())
    return beside.reshape(len(beside), len(w), -1).transpose(0, 1).contiguous()


def scale_scores(scores: Tensor, divisor: float, temperature: float) -> Tensor:
    """Scores divided by divisor · temperature: [head query_pos key_pos].

    At temperature 0 there is no such quotient: the scores stay divided by the divisor alone, and the weights
    take the limit.
    """
    return scores / divisor if temperature == 0 else scores / (divisor * temperature)


def cap_scores(scaled_scores: Tensor, cap: float, temperature: float = 1.0) -> Tensor:
    """Scores kept between −cap and cap, cap · tanh(S′ / cap): [head query_pos key_pos]; at temperature 0 they are −cap, 0 or cap.

    Source: Gemma Team 2024, "Gemma 2", section 2 (logit soft-capping); Bello et al. 2016, section 3.
    """
    return cap * (scaled_scores.sign() if temperature == 0 else torch.tanh(scaled_scores / cap))


def mask_scores(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The scores, and −∞ where the mask (True = may attend) hides a key: [head query_pos key_pos]."""
    return scores if mask is None else scores.masked_fill(~mask, -math.inf)


def mix_values(weights: Tensor, value: Tensor) -> Tensor:
    """Each head's output, A V: [head query_pos d_v]. A query that sees no key gets 0."""
    return weights @ value


def project_output(head_output: Tensor, w_o: Tensor, b_o: Tensor | None = None) -> Tensor:
    """The heads side by side, times W_O: [query_pos d_model]. `w_o` is [head d_v d_model], b_o [d_model]."""
    beside = head_output.transpose(0, 1).flatten(1) @ w_o.flatten(0, 1)
    return beside if b_o is None else beside + b_o
