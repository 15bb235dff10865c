"""Tiny models that read series, with random weights, and series drawn for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

SMALL = {
    "num_input_channels": 2, "context_length": 32, "patch_length": 8, "patch_stride": 4, "d_model": 16, "num_attention_heads": 2,
    "num_hidden_layers": 2, "ffn_dim": 24, "prediction_length": 5,
}  # fmt: skip
"""A PatchTST whose patches overlap."""
SMALL_TIMESFM = {
    "patch_length": 8, "context_length": 32, "horizon_length": 8, "num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 16,
    "head_dim": 8, "num_attention_heads": 2,
}  # fmt: skip
WALK = np.random.default_rng(0).normal(size=(40, 2)).cumsum(0)
"""Two columns of 40 steps."""


def model_of(name: str, **values: Any) -> Any:
    """A model of a class of transformers with these values of its config, and weights of which no two rows are equal."""
    import transformers

    cls = getattr(transformers, name)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = cls(cls.config_class(**values)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    return model


def recorded(source: Any) -> tuple[Any, list[torch.Tensor | None], Any]:
    """The output of a recorded pass, the weights of its calls, and its inputs."""
    from attention.models import running
    from attention.models.recorder import recording

    loaded, inputs = source.load_inputs()
    weights = list[torch.Tensor | None]()
    with recording(lambda call: weights.append(call.weights)):
        output = running.run(loaded, inputs)
    return output, weights, inputs


def arguments_of(inputs: Any) -> dict[str, Any]:
    """The arguments of a model as its documentation gives them: a TimesFM with a head reads a list of frequencies."""
    arguments = dict(inputs.read.arguments)
    if arguments.get("freq") is not None and arguments["freq"].ndim == 1:
        arguments["freq"] = arguments["freq"].tolist()
    return arguments
