"""The norm-weighted view: not how much a query looks at a key, but how long the vector is that it gets from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attention.formula import kept
from attention.formula.layer import Layer

if TYPE_CHECKING:
    from torch import Tensor


def reach(layer: Layer) -> Tensor | None:
    """The length ‖f(x_j)‖ of what each key would bring if its weight were 1, [head key_pos]; None where V or W_O is not known.

    f(x_j) = (x_j W_V + b_V) W_O, with the rows of W_O that belong to the head: the key's value, as the output gets it.
    Source: Kobayashi et al. 2020, "Attention is Not Only a Weight: Analyzing Transformers with Vector Norms", section 3.
    """
    if not (layer.has("value") and layer.has("w_o")):
        return None

    def make() -> Tensor:
        import torch

        value, w_o = layer["value"], layer["w_o"]
        group = len(w_o) // len(value)  # query heads that share a key head
        return torch.stack([(value[head // group] @ w_o[head]).norm(dim=-1) for head in range(len(w_o))])

    return kept.matrix(layer.number, "reach", None, make)
