"""The attention formula, one pure function per step, and `attend`, which calls them in order.

    softmax(mask(Q Kᵀ / (√d_k · temperature))) V W_O

Nothing is overwritten: a step that is overwritten cannot be shown.
Source: Vaswani et al. 2017, "Attention Is All You Need", equation 1 and section 3.2.2.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from attention.errors import MissingError, ShapeError
from attention.formula.cost import ROWS
from attention.formula.trace import MAP_AXES, Layer, ends, find_step


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
    # Some rows at a time: the doubles of a whole large product would go through memory twice.
    whole, right = left.new_empty(*left.shape[:-1], right.shape[-1]), right.double()
    for at in range(0, left.shape[-2], ROWS):
        whole[..., at : at + ROWS, :] = left[..., at : at + ROWS, :].double() @ right
    return whole


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
    layer = scores_layer(query, key, value, w_o=w_o)
    return finish(layer, mask, scaled=scaled, temperature=temperature, dropout=dropout, generator=generator)


def scores_layer(
    query: Tensor, key: Tensor, value: Tensor, *, w_o: Tensor | None = None, only: int | None = None
) -> Layer:
    """The first half of `attend`: a layer up to its scores, which no mask, scaling or temperature changes.

    With `only` the scores are those of that head, [1 query_pos key_pos].

    Raises:
        ShapeError: the axes do not fit together.
    """
    layer = Layer(query=query, key=key, value=value, w_o=w_o, only=only)  # says what does not fit, before torch does
    kept = slice(None) if only is None else slice(only, only + 1)
    return replace(layer, scores=dot_scores(query[kept], key[kept]))


def finish(
    layer: Layer,
    mask: Tensor | None = None,
    *,
    scaled: bool = True,
    temperature: float = 1.0,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> Layer:
    """The second half of `attend`: every step after the scores, arguments as there.

    Where the layer keeps one head only, the weights of the others are made for their outputs, some queries at a
    time, and forgotten.

    Raises:
        ShapeError: the mask does not fit, or is not boolean.
    """
    if mask is not None and mask.dtype != torch.bool:
        raise ShapeError(f"a mask is boolean, True = may attend; got {mask.dtype}: compare it with 0 first.")
    layer = replace(layer, mask=mask)
    query, key, value, scores = layer["query"], layer["key"], layer["value"], layer["scores"]
    divisor = math.sqrt(query.shape[-1]) if scaled else 1.0
    hiding = mask if mask is not None and not bool(mask.all()) else None
    if _overflows(layer, divisor, temperature):
        temperature = 0.0  # so small a temperature that the quotient overflows: in these numbers it is 0
    spans: dict[str, tuple[float, float]] = {}

    def seen(**made: Tensor | None) -> None:
        """Remembers how far the steps of all heads reach: their colours are the same for each, the kept one too."""
        for name, tensor in made.items():
            if tensor is not None and (span := ends(tensor)):
                low, high = spans.get(name, span)
                spans[name] = min(low, span[0]), max(high, span[1])

    def shared_out(scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        scaled_scores = scale_scores(scores, divisor, temperature)
        masked_scores = mask_scores(scaled_scores, mask)
        weights = softmax_weights(masked_scores, argmax=temperature == 0)
        dropped = drop_weights(weights, dropout, generator) if dropout and generator else None
        return scaled_scores, masked_scores, weights, dropped

    def mixed(head: int) -> Tensor:
        rows = []
        for at in range(0, query.shape[1], ROWS):
            some = slice(at, at + ROWS)
            scores = dot_scores(query[head, some], key[head])
            parts = shared_out(scores, None if hiding is None else hiding[some])
            seen(
                scores=scores,
                masked_scores=parts[1] if hiding is not None else None,
                weights=parts[2],
                dropped_weights=parts[3],
            )
            rows.append(mix_values(parts[2] if parts[3] is None else parts[3], value[head]))
        return torch.cat(rows)

    # In the order of the heads, so that the same weights are dropped whether one head is kept or all.
    before = [] if layer.only is None else [mixed(head) for head in range(layer.only)]
    scaled_scores, masked_scores, weights, dropped_weights = shared_out(scores, hiding)
    kept = slice(None) if layer.only is None else slice(layer.only, layer.only + 1)
    head_output = mix_values(weights if dropped_weights is None else dropped_weights, value[kept])
    if layer.only is not None:
        hidden = masked_scores if hiding is not None else None
        seen(scores=scores, masked_scores=hidden, weights=weights, dropped_weights=dropped_weights)
        after = [mixed(head) for head in range(layer.only + 1, len(query))]
        if "scores" in spans:  # a division keeps the order, and rounds the ends as all numbers between them
            low, high = scale_scores(scores.new_tensor(spans["scores"]), divisor, temperature).tolist()
            spans["scaled_scores"] = low, high
            spans.setdefault("masked_scores", (low, high))
        head_output = torch.stack([*before, head_output[0], *after])
    return replace(
        layer,
        scaled_scores=scaled_scores,
        masked_scores=masked_scores,
        weights=weights,
        dropped_weights=dropped_weights,
        head_output=head_output,
        output=None if layer.w_o is None else project_output(head_output, layer.w_o),
        divisor=divisor,
        temperature=temperature,
        dropout=dropout,
        spans=spans,
    )


def head_alone(layer: Layer, head: int) -> Layer:
    """One head of a layer with every step, as a layer of its own; it has no W_O and no output, and drops no weights."""
    query, key, value = (layer[name][head : head + 1] for name in ("query", "key", "value"))
    return attend(query, key, value, layer.mask, scaled=layer.divisor != 1, temperature=layer.temperature)


def _overflows(layer: Layer, divisor: float, temperature: float) -> bool:
    """Whether scores that are finite become infinite when they are divided."""
    if temperature == 0 or divisor * temperature >= 1:
        return False  # a division by so much shrinks, and nobody needs to look
    scores = layer["scores"]
    if layer.only is not None:  # no score is larger than the lengths of its query and its key, multiplied
        scores = (layer["query"].norm(dim=-1).amax(dim=-1) * layer["key"].norm(dim=-1).amax(dim=-1)).flatten()
    return bool(torch.isfinite(scores).all()) and not bool(
        torch.isfinite(scale_scores(scores, divisor, temperature)).all()
    )


def of_head(layer: Layer, step: str, head: int) -> NDArray[Any]:
    """One head's matrix, made now where the layer has kept another head's only."""
    if layer.only in (None, head) or find_step(step).axes != MAP_AXES:
        return layer.matrix(step, head).numpy()
    if step == "dropped_weights":  # which ones are dropped depends on the heads before it
        raise MissingError(
            f"of so long a text only head {layer.only} has its dropped weights; got all heads: choose another step, or open one head in the Lab."
        )
    return head_alone(layer, head).matrix(step).numpy()
