"""One call of a model's attention as a layer: what was recorded, and the formula that makes the rest of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attention.formula.formula import Formula
from attention.formula.layer import Layer
from attention.formula.mask import Mask
from attention.formula.names import INPUT, KEY, MEMORY, QUERY, VALUE, WEIGHTS

if TYPE_CHECKING:
    from attention.models.loaded import Site
    from attention.models.recording import Call

WHOLE_BYTES = 2**24  # of the maps of all heads of a layer; beyond, they are made head by head
_TOLD = {
    INPUT: "What this layer's attention was given: what the layers before it, and a normalisation, made of the tokens.",
    MEMORY: "What the encoder made of the first text.",
    QUERY: "The query as it enters the product: what the model does to it before, such as rotary position, is not recorded.",
    KEY: "The key as it enters the product: what the model does to it before, such as rotary position, is not recorded.",
}
_NEAR = 1e-4  # how far weights may be from those of eager attention, and be called the same
MAPS = 4  # scores, scaled, masked, weights: about as many are made of every head
NUMBER = 4  # bytes


def layer_of(call: Call, site: Site, tokens: tuple[str, ...], keys: tuple[str, ...]) -> Layer:
    """What was recorded of one call, and the formula that makes the rest of it."""
    there: dict[str, Any] = {
        INPUT: call.input,
        MEMORY: call.memory,
        QUERY: call.query,
        KEY: call.key,
        VALUE: call.value,
    }
    there |= site.parameters
    there |= {
        "bias": call.bias,
        "sinks": call.sinks,
        "mask": call.mask if not isinstance(call.mask, Mask | None) else None,
    }
    divisor, root = None if call.scaling == 1 else 1 / call.scaling, math.sqrt(call.query.shape[-1])
    usual = divisor is not None and math.isclose(divisor, root)
    formula = Formula(
        divisor=root if usual else divisor,
        own_divisor=None if usual else divisor,
        cap=call.cap,
        bias="given" if call.bias is not None else "",
        share="sinks" if call.sinks is not None else "softmax",
        mask=call.mask if isinstance(call.mask, Mask) else None if call.mask is not None else Mask(),
    )
    whole = MAPS * len(call.query) * len(tokens) * len(keys) * NUMBER <= WHOLE_BYTES
    recorded = {step: tensor for step, tensor in there.items() if tensor is not None}
    told = {step: said for step, said in _TOLD.items() if step not in site.made}
    layer = Layer(site.name, tokens, keys, recorded, formula, whole, lent=frozenset(site.parameters), told=told)
    if _same(layer, call):
        return layer
    # The family does something between that is not known here: what it made is shown, and nothing worked out.
    weights = call.again(call.query, call.key, call.value)[0] if call.weights is None else call.weights
    return replace(layer.recording(weights=weights, head_output=call.head_output), formula=None)


def _same(layer: Layer, call: Call) -> bool:
    """Whether the formula makes the weights that the model had, if it gives any, in the first, the middle and the last row of every head."""
    from attention.formula.making import part

    last, heads = call.query.shape[1] - 1, slice(0, len(call.query))
    for at in {0, last // 2, last}:
        rows = slice(at, at + 1)
        theirs = call.rows(rows)[0] if call.weights is None else call.weights[:, rows]
        if theirs is not None and bool((part(layer, (WEIGHTS,), heads, rows)[0] - theirs).abs().max() > _NEAR):
            return False
    return True
