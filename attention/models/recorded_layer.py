"""One recorded call of attention as a `Layer`: its recorded tensors, and the formula that computes the other steps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attention.core.formula import Formula
from attention.core.layer import Layer
from attention.core.mask import Mask
from attention.core.names import INPUT, KEY, MEMORY, QUERY, VALUE, WEIGHTS

if TYPE_CHECKING:
    from attention.models.loaded import Site
    from attention.models.recorder import Call

MAX_WHOLE_BYTES = 2**24  # of the maps of all heads of a layer; larger layers compute them head by head
_PROVENANCE = {
    INPUT: "The input of this layer's attention: the tokens after all layers before it and a normalization.",
    MEMORY: "The output of the encoder for the first text.",
    QUERY: "The query as it enters the product: what the model does to it before, such as rotary position, is not recorded.",
    KEY: "The key as it enters the product: what the model does to it before, such as rotary position, is not recorded.",
}
_TOLERANCE = 1e-4  # how far weights may be from those of eager attention and still count as equal
MAPS_PER_HEAD = 4  # scores, scaled, masked, weights: about as many are computed for every head
BYTES_PER_NUMBER = 4  # bytes


def build_layer(call: Call, site: Site, tokens: tuple[str, ...], keys: tuple[str, ...]) -> Layer:
    """The layer of one call: its recorded tensors, and the formula that computes the other steps.

    Without a formula, and with recorded weights and head outputs, where the formula does not give the model's weights.
    """
    tensors: dict[str, Any] = {
        INPUT: call.input,
        MEMORY: call.memory,
        QUERY: call.query,
        KEY: call.key,
        VALUE: call.value,
    }
    tensors |= site.parameters
    tensors |= {
        "bias": call.bias,
        "sinks": call.sinks,
        "mask": call.mask if not isinstance(call.mask, Mask | None) else None,
    }
    divisor, root = None if call.scaling == 1 else 1 / call.scaling, math.sqrt(call.query.shape[-1])
    is_root = divisor is not None and math.isclose(divisor, root)
    formula = Formula(
        divisor=root if is_root else divisor,
        own_divisor=None if is_root else divisor,
        cap=call.cap,
        bias="given" if call.bias is not None else "",
        normalizer="sinks" if call.sinks is not None else "softmax",
        mask=call.mask if isinstance(call.mask, Mask) else None if call.mask is not None else Mask(),
    )
    whole = MAPS_PER_HEAD * len(call.query) * len(tokens) * len(keys) * BYTES_PER_NUMBER <= MAX_WHOLE_BYTES
    recorded = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    provenance = {step: text for step, text in _PROVENANCE.items() if step not in site.pure_projections}
    layer = Layer(
        site.name,
        tokens,
        keys,
        recorded,
        formula,
        whole,
        shared_with_model=frozenset(site.parameters),
        provenance=provenance,
    )
    if _has_model_weights(layer, call):
        return layer
    # The family computes something that is not known here: its tensors are shown, and nothing is recomputed.
    weights = call.rerun(call.query, call.key, call.value)[0] if call.weights is None else call.weights
    return replace(layer.with_tensors(weights=weights, head_output=call.head_output), formula=None)


def _has_model_weights(layer: Layer, call: Call) -> bool:
    """Whether the formula gives the model's weights, if it records any, in the first, middle and last row of every head."""
    from attention.core.compute import compute_blocks

    last, heads = call.query.shape[1] - 1, slice(0, len(call.query))
    for query in {0, last // 2, last}:
        rows = slice(query, query + 1)
        expected = call.attend_rows(rows)[0] if call.weights is None else call.weights[:, rows]
        if expected is not None and bool(
            (compute_blocks(layer, (WEIGHTS,), heads, rows)[0] - expected).abs().max() > _TOLERANCE
        ):
            return False
    return True
