"""Attribution patching: the estimated effect of a change of each head, from the gradients of one run.

The effect of replacing an activation x by x′ is estimated by its first-order term: the sum of (x′ − x) times the gradient of the
measured value with respect to x, in the run without the change.

Source: Nanda 2023, "Attribution Patching: Activation Patching At Industrial Scale"; Syed et al. 2023, "Attribution Patching Outperforms
Automated Circuit Discovery", equation 2; Kramár et al. 2024, "AtP*", section 3, for the cases in which it fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attention.core.edit_kinds import ABLATIONS
from attention.core.names import HEAD_OUTPUT, KEY, QUERY, VALUE, WEIGHTS
from attention.errors import ConfigError
from attention.models import lm_head, recorder, running
from attention.models.attention_call import ModelCall, in_float32

if TYPE_CHECKING:
    from attention.models.loaded import LoadedModel
    from attention.models.measurement import Measurement
    from attention.patching.forward import Activations

_BYTES_PER_NUMBER = 4
_MAPS_PER_HEAD = 4  # scores, masked scores, weights and their gradient
_ROWS_PER_LAYER = 16  # rows of d_model numbers for each token that a layer keeps for the backward pass


@dataclass(frozen=True, eq=False)
class HeadGradients:
    """What the heads of one layer computed, and the gradient of the measured value with respect to it.

    Attributes:
        values: `query` [head query_pos d_k], `key` [kv_head key_pos d_k], `value` [kv_head key_pos d_v] and `head_output`
            [head query_pos d_v], by name.
        gradients: with respect to each of them, by name, with the same shapes.
    """

    values: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor]


def no_gradient_reason(loaded: LoadedModel, measurement: Measurement, is_changed: bool) -> str:
    """Why there is no estimate for this model, in a sentence; empty if there is one."""
    if measurement.target is None:
        return "vectors are compared with themselves, where the cosine is largest and its gradient 0."
    if is_changed:
        return "gradients are computed in the model without interventions: remove them."
    if any(parameter.is_inference() for parameter in loaded.model.parameters()):
        return "the weights of this model were made in torch.inference_mode, which allows no gradients."
    return ""


def count_bytes(loaded: LoadedModel, model_inputs: Mapping[str, Tensor]) -> int:
    """About how many bytes `run_with_gradients` takes."""
    length = max(ids.shape[-1] for ids in model_inputs.values())
    d_model = int(getattr(loaded.model.config, "hidden_size", 0) or 0)
    numbers = sum(site.n_heads * length * _MAPS_PER_HEAD + d_model * _ROWS_PER_LAYER for site in loaded.sites)
    return numbers * length * _BYTES_PER_NUMBER


def run_with_gradients(
    loaded: LoadedModel, model_inputs: Mapping[str, Tensor], measurement: Measurement, max_bytes: int = 2**33
) -> tuple[float, dict[int, HeadGradients]]:
    """The measured value of one run, and its gradients by layer of the trace: one forward and one backward pass.

    Raises:
        ConfigError: it would take more memory than `max_bytes`.
    """
    if (nbytes := count_bytes(loaded, model_inputs)) > max_bytes:
        raise ConfigError(
            f"Gradients may take at most {max_bytes / 2**20:,.0f} MB; these take about {nbytes / 2**20:,.0f} MB: choose a shorter text."
        )
    calls: list[dict[str, Tensor]] = []  # the tensors of each call of attention, in the graph of the pass

    def attend(call: ModelCall) -> tuple[Tensor, Tensor | None]:
        inputs = (call.query, call.key, call.value)
        # Before the first layer nothing requires a gradient.
        query, key, value = (x if x.requires_grad else x.detach().requires_grad_() for x in inputs)
        output, weights = replace(call, query=query, key=key, value=value).run()
        calls.append({QUERY: query, KEY: key, VALUE: value, HEAD_OUTPUT: output})
        return output, weights

    with (
        loaded.lock.hold(),
        recorder.wrapping_attention(attend),
        lm_head.logits_at(measurement.logit_positions),
    ):
        value = measurement.read(running.run(loaded, model_inputs, gradients=True))[0]
        tensors = [tensor for call in calls for tensor in call.values()]
        # A head may have no effect on the measured value, as in a layer after it.
        gradients = iter(torch.autograd.grad(value, tensors, allow_unused=True))
    result = {}
    for call, layer in zip(calls, loaded.layer_indices, strict=True):
        found = {name: next(gradients) for name in call}
        result[layer] = HeadGradients(
            {name: _without_batch(name, tensor) for name, tensor in call.items()},
            {
                name: _without_batch(name, torch.zeros_like(tensor) if found[name] is None else found[name])
                for name, tensor in call.items()
            },
        )
    return float(value.detach()), result


def estimated_changes(
    gradients: Mapping[int, HeadGradients], kind: str, other: Mapping[int, Activations]
) -> dict[int, Tensor]:
    """The estimated change of the measured value when each head is changed, [head] by layer.

    Args:
        gradients: of the run without a change, by layer.
        kind: "zero" or "mean" (ablation), or the step that is patched from the other run.
        other: the activations of the other run by layer, if `kind` is a step.
    """
    changes = {}
    for layer, parts in gradients.items():
        z, n_heads = parts.values[HEAD_OUTPUT], len(parts.values[QUERY])
        step = kind
        if kind in ABLATIONS:
            step = HEAD_OUTPUT
            difference = -z if kind == "zero" else z.mean(1, keepdim=True) - z
        elif kind == WEIGHTS:
            # Z = A V is linear in A, so that the change of A is felt through Z alone.
            step, weights = HEAD_OUTPUT, _weights_of(other[layer])
            difference = weights @ parts.values[VALUE].repeat_interleave(n_heads // len(parts.values[VALUE]), 0) - z
        else:
            difference = other[layer].patch_into(parts.values[kind], kind) - parts.values[kind]
        change = (difference.double() * parts.gradients[step].double()).sum((1, 2))
        # Heads that share keys or values change with them.
        changes[layer] = change.repeat_interleave(n_heads // len(change)) if step in (KEY, VALUE) else change
    return changes


def _without_batch(name: str, tensor: Tensor) -> Tensor:
    """The tensor [head pos d] of the only text of a batch."""
    of_text = in_float32(tensor[0])
    return of_text.transpose(0, 1) if name == HEAD_OUTPUT else of_text


def _weights_of(activations: Activations) -> Tensor:
    weights = activations.call.weights if activations.call.weights is not None else activations.weights
    assert weights is not None
    return weights
