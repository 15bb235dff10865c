"""One layer of attention from Q, K and V."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from attention.base.errors import ShapeError
from attention.formula.formula import Formula
from attention.formula.names import KEY, QUERY, VALUE
from attention.trace.layer import Layer

if TYPE_CHECKING:
    from attention.formula.tensor_types import Key, OutputProjection, Query, Value, Visible


def attend(
    query: Query,
    key: Key,
    value: Value,
    mask: Visible | None = None,
    *,
    scaled: bool = True,
    temperature: float = 1.0,
    w_o: OutputProjection | None = None,
    formula: Formula | None = None,
) -> Layer:
    """One layer of attention, from Q, K and V.

    Args:
        query: its number of heads is a multiple of the keys' number.
        key: with the d_k of the queries.
        value: one row per key, in as many heads as the keys.
        mask: boolean, True = may attend; None hides nothing.
        scaled: whether the scores are divided by √d_k.
        temperature: 0 to infinity; 0 is argmax with ties split evenly, infinity is uniform over the
            visible keys.
        w_o: None: the layer has no step `output`.
        formula: the formula of the steps after Q and K; replaces `scaled` and `temperature`.

    Raises:
        ShapeError: the shapes do not match, or the mask is not boolean.
    """
    if mask is not None and mask.dtype != torch.bool:
        raise ShapeError(f"a mask is boolean, True = may attend; got {mask.dtype}: compare it with 0 first.")
    divisor = math.sqrt(query.shape[-1]) if scaled else 1.0
    tensors = {QUERY: query, KEY: key, VALUE: value, "w_o": w_o, "mask": mask}
    recorded = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    return Layer(recorded=recorded, formula=formula or Formula(divisor=divisor, temperature=temperature))
