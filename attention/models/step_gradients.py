"""A trace whose steps have gradients: its queries, keys and values keep the graph of a second pass, which begins at the embeddings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attention.base.errors import ConfigError
from attention.formula.names import KEY, QUERY, VALUE
from attention.models import lm_head, recorder, running

if TYPE_CHECKING:
    from torch.nn import Module

    from attention.models.attention_call import ModelCall
    from attention.models.loaded import LoadedModel
    from attention.models.text_inputs import TextInputs
    from attention.trace.trace import Trace


def with_gradients(loaded: LoadedModel, inputs: TextInputs, trace: Trace) -> Trace:
    """The trace with queries, keys and values in a graph whose leaf is `trace.embeddings`; see `Model.trace`.

    Raises:
        ConfigError: the model has no input of token embeddings of one text, or its attention is not recorded.
    """
    embedding = loaded.input_embeddings
    if embedding is None or not loaded.sites or loaded.is_encoder_decoder or loaded.reader is not None:
        raise ConfigError(
            f"Gradients of steps begin at the embeddings of one text, and {loaded.name} reads something else, or its Q and K are unknown: "
            "choose a model of one text, whose attention is recorded."
        )
    leaves: list[Tensor] = []
    calls: list[dict[str, Tensor]] = []

    def embed(_: Module, __: Any, output: Tensor) -> Tensor:
        leaves.append(output[0].detach().clone().requires_grad_())
        return leaves[-1][None]

    def attend(call: ModelCall) -> tuple[Tensor, Tensor | None]:
        steps = {QUERY: call.query, KEY: call.key, VALUE: call.value}
        calls.append({name: tensor[0].to("cpu", torch.float32) for name, tensor in steps.items()})
        return call.run()

    with loaded.lock.hold(), recorder.wrapping_attention(attend), lm_head.logits_at(()):
        hook = embedding.register_forward_hook(embed)
        try:
            _ = running.run(loaded, inputs, gradients=True)
        finally:
            hook.remove()
    layers = list(trace.layers)
    for index, steps in zip(loaded.layer_indices, calls, strict=True):
        layers[index] = layers[index].with_tensors(**steps)
    return replace(trace, layers=tuple(layers), embeddings=leaves[0])
