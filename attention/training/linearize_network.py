"""A forward pass of a tiny model as a `LinearRun`: with frozen norms, heads and MLPs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attention.core.linear_run import LinearRun
from attention.core.names import EMBEDDING, KEY, MEMORY, QUERY, VALUE
from attention.core.residual_parts import EMBEDDING_PART, LOGITS, mlp_part
from attention.training import network

if TYPE_CHECKING:
    from attention.training.design import Design


def run_linear(
    parameters: Mapping[str, Tensor], design: Design, batch: network.Batch, attention: Callable[..., Tensor]
) -> LinearRun:
    """The pass with frozen norms, heads and MLPs. It records the queries, keys and values of each layer, such as "query 1".

    Args:
        parameters: by their names.
        design: the model.
        batch: one sequence.
        attention: the head outputs [1 head pos d_v], patched or not, from the arguments of `network.attend`.
    """
    run, layers = LinearRun(), design.attention_layers

    def attend(name: str, *qkv_bias_visible: Any) -> tuple[Tensor, dict[str, Tensor]]:
        for step, tensor in zip((QUERY, KEY, VALUE), qkv_bias_visible, strict=False):
            run.read(f"{step} {layers.index(name)}", tensor)
        with torch.no_grad():
            return attention(name, *qkv_bias_visible), {}

    def part(name: str, x: Tensor) -> Tensor:
        if name in (EMBEDDING, MEMORY):
            return run.source(EMBEDDING_PART, x)
        if name == "mlp":
            return run.source(mlp_part(len(layers) - 1), x)
        if name == "end":
            run.read(LOGITS, x)
            return x
        index = layers.index(name)
        return run.head_outputs(index, design.heads_of(name), x)

    with torch.enable_grad(), _FrozenNorms(run):
        network.forward(parameters, design, batch, attention=attend, part=part)
    run.w_u = parameters["answer"].T
    return run


class _FrozenNorms(TorchFunctionMode):
    """In it, every layer norm is linear: its scale is frozen at the value for its input."""

    def __init__(self, run: LinearRun) -> None:
        super().__init__()
        self.run = run

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        y = func(*args, **(kwargs or {}))
        if func is not torch.nn.functional.layer_norm:
            return y
        return self.run.norm(args[0], y, kwargs["bias"], centered=True)
