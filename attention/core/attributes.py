"""Steps and parameters as attributes of a layer, so that editors and type checkers know `layer.weights`.

`tests/test_contract.py` checks that these are exactly the declared steps and parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from torch import Tensor

    from attention.core.step import LayerView


class TensorOf:
    """A descriptor: the tensor of the step or parameter of this name, for all heads; None if the layer does not have it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, layer: None, owner: type) -> TensorOf: ...

    @overload
    def __get__(self, layer: LayerView, owner: type) -> Tensor | None: ...

    def __get__(self, layer: LayerView | None, owner: type) -> TensorOf | Tensor | None:
        if layer is None:
            return self
        return layer[self.name] if layer.has(self.name) else None


class Attributes:
    """An attribute for each step, in the order of the formula, and for each parameter."""

    embedding = TensorOf()
    position = TensorOf()
    input = TensorOf()
    query = TensorOf()
    memory = TensorOf()
    key = TensorOf()
    value = TensorOf()
    rotated_query = TensorOf()
    rotated_key = TensorOf()
    scores = TensorOf()
    scaled_scores = TensorOf()
    capped_scores = TensorOf()
    biased_scores = TensorOf()
    masked_scores = TensorOf()
    weights = TensorOf()
    dropped_weights = TensorOf()
    head_output = TensorOf()
    patched_output = TensorOf()
    output = TensorOf()

    mask = TensorOf()
    w_q = TensorOf()
    w_k = TensorOf()
    w_v = TensorOf()
    w_o = TensorOf()
    b_q = TensorOf()
    b_k = TensorOf()
    b_v = TensorOf()
    b_o = TensorOf()
    w_s = TensorOf()
    bias = TensorOf()
    sinks = TensorOf()
    dropout_mask = TensorOf()
    patched_weights = TensorOf()
    patched_head_output = TensorOf()
    bias_table = TensorOf()
