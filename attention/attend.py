"""The attention formula, one pure function per step, and `attend`, which calls them in order.

    softmax(mask(Q Kᵀ / (√d_k · temperature))) V W_O

Nothing is overwritten: a step that is overwritten cannot be shown.
Source: Vaswani et al. 2017, "Attention Is All You Need", equation 1 and section 3.2.2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attention.errors import ShapeError
from attention.trace import Layer


def sinusoidal(n_positions: int, d_model: int) -> Tensor:
    """The sine and cosine encoding of positions, [query_pos d_model], in float32.

    Column 2i holds sin(pos / 10000^(2i/d_model)), column 2i + 1 the cosine of the same angle; an
    odd d_model ends on a sine. Source: Vaswani et al. 2017, section 3.5.
    """
    columns = torch.arange(d_model)
    rate = torch.exp((columns // 2 * 2).double() * (-math.log(10000.0) / d_model))
    angle = torch.arange(n_positions)[:, None] * rate
    return torch.where(columns % 2 == 0, angle.sin(), angle.cos()).float()


def project(x: Tensor, w: Tensor) -> Tensor:
    """Every head's rows, X W: [pos d_model] times [head d_model d_k] gives [head pos d_k]."""
    # One product for all heads: a product per head would read x once for each of them, twice as slow.
    beside = _times(x, w.transpose(0, 1).flatten(1))
    return beside.reshape(len(beside), len(w), -1).transpose(0, 1).contiguous()


def dot_scores(query: Tensor, key: Tensor) -> Tensor:
    """How well each query matches each key, Q Kᵀ: [head query_pos key_pos]."""
    return _times(query, key.transpose(-2, -1))


def scale_scores(scores: Tensor, divisor: float, temperature: float) -> Tensor:
    """Scores divided by divisor · temperature: [head query_pos key_pos].

    At temperature 0 there is no such quotient: the scores stay divided by the divisor alone, and
    `softmax_weights` takes the limit.
    """
    return scores / divisor if temperature == 0 else scores / (divisor * temperature)


def mask_scores(scaled_scores: Tensor, mask: Tensor | None) -> Tensor:
    """The scaled scores, and −∞ where the mask (True = may attend) hides a key: [head query_pos key_pos]."""
    if mask is None:
        return scaled_scores
    return scaled_scores.masked_fill(~mask, -math.inf)


def softmax_weights(masked_scores: Tensor, argmax: bool = False) -> Tensor:
    """The share each key gets of a query's attention: [head query_pos key_pos].

    Rows sum to 1. A row with no visible key is 0 throughout, never NaN and never uniform. With
    `argmax` (the limit of temperature 0) the largest score takes all; ties share evenly.
    """
    if argmax:
        highest = masked_scores.amax(dim=-1, keepdim=True)
        share = ((masked_scores > -math.inf) & (masked_scores == highest)).to(masked_scores.dtype)
        return share / share.sum(dim=-1, keepdim=True).clamp_min(1)
    weights = torch.softmax(masked_scores, dim=-1)
    blind = weights[..., :1].isnan()  # an all-hidden row is 0 / 0 from its first key to its last
    return weights.masked_fill(blind, 0) if blind.any() else weights


def drop_weights(weights: Tensor, dropout: float, generator: torch.Generator) -> Tensor:
    """The weights with a share of them set to 0 and the rest divided by 1 − dropout: [head query_pos key_pos].

    Rows sum to 1 only on average. More dropout drops what less has dropped, and more.
    Source: Srivastava et al. 2014, "Dropout"; on the weights as in `nn.MultiheadAttention`.
    """
    luck = torch.rand(weights.shape, generator=generator)
    return torch.where(luck >= dropout, weights / (1 - dropout), torch.zeros_like(weights))


def mix_values(weights: Tensor, value: Tensor) -> Tensor:
    """Each head's output, A V: [head query_pos d_v]. A query that sees no key gets 0."""
    return weights @ value


def project_output(head_output: Tensor, w_o: Tensor) -> Tensor:
    """The heads side by side, times W_O: [query_pos d_model]. `w_o` is [head d_v d_model]."""
    beside = head_output.transpose(0, 1).flatten(1)
    return beside @ w_o.flatten(0, 1)


def _times(left: Tensor, right: Tensor) -> Tensor:
    """Left @ right, summed in double precision and rounded once.

    In single precision BLAS sums the last rows and columns in another order, so that the same word
    twice would have two scores, and the argmax of temperature 0 would miss the tie.
    """
    return (left.double() @ right.double()).to(left.dtype)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    scaled: bool = True,
    temperature: float = 1.0,
    w_o: Tensor | None = None,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> Layer:
    """One layer of attention with every step kept, from Q [head query_pos d_k], K [head key_pos d_k] and V [head key_pos d_v].

    Args:
        mask: boolean [query_pos key_pos], True = may attend; None hides nothing.
        scaled: divide the scores by √d_k.
        temperature: 0 to infinity; 0 is argmax with ties split evenly, infinity is uniform over the
            visible keys.
        w_o: [head d_v d_model]; without it `output` stays None.
        dropout: the share of the weights that is dropped; needs a `generator`.

    Raises:
        ShapeError: the axes do not fit together, or the mask is not boolean.
    """
    if mask is not None and mask.dtype != torch.bool:
        raise ShapeError(f"a mask is boolean, True = may attend; got {mask.dtype}: compare it with 0 first.")
    divisor = math.sqrt(query.shape[-1]) if scaled else 1.0
    Layer(query=query, key=key, value=value, mask=mask, w_o=w_o)  # says which axis does not fit, before torch does
    scores = dot_scores(query, key)
    scaled_scores = scale_scores(scores, divisor, temperature)
    shrinks = temperature == 0 or divisor * temperature >= 1  # then no quotient overflows, and nobody needs to look
    if not (shrinks or torch.isfinite(scaled_scores).all()) and torch.isfinite(scores).all():
        # So small a temperature that the quotient overflows: in these numbers it is 0.
        temperature = 0.0
        scaled_scores = scale_scores(scores, divisor, temperature)
    masked_scores = mask_scores(scaled_scores, mask)
    weights = softmax_weights(masked_scores, argmax=temperature == 0)
    dropped_weights = drop_weights(weights, dropout, generator) if dropout and generator else None
    head_output = mix_values(weights if dropped_weights is None else dropped_weights, value)
    return Layer(
        query=query,
        key=key,
        value=value,
        scores=scores,
        scaled_scores=scaled_scores,
        masked_scores=masked_scores,
        weights=weights,
        dropped_weights=dropped_weights,
        head_output=head_output,
        output=None if w_o is None else project_output(head_output, w_o),
        mask=mask,
        w_o=w_o,
        divisor=divisor,
        temperature=temperature,
        dropout=dropout,
    )
