"""Changed heads of one text: many runs in batches, each with other heads ablated or patched; or attribution patching, an estimate from one run.

Attribution patching estimates the effect of replacing an activation x by x′ by its first-order term: the sum of (x′ − x) times the gradient of the
measured value with respect to x, in the run without the change.

Source: Nanda 2023, "Attribution Patching: Activation Patching At Industrial Scale"; Syed et al. 2023, "Attribution Patching Outperforms
Automated Circuit Discovery", equation 2; Kramár et al. 2024, "AtP*", section 3, for the cases in which it fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attention.base.errors import ConfigError
from attention.formula.edit_kinds import ABLATIONS, at_positions
from attention.formula.names import HEAD_OUTPUT, KEY, QUERY, VALUE, WEIGHTS
from attention.models import forward_pass, lm_head, recorder, running
from attention.models.attention_call import ModelCall, in_float32
from attention.models.forward_pass import patched_head_output
from attention.models.layer_sites import WritePlace, changed_site, handled_sites
from attention.patching.forward import PatchedForward
from attention.patching.intervention import Intervention

if TYPE_CHECKING:
    from attention.models.lm_head import Measurement
    from attention.models.loaded import LoadedModel
    from attention.models.text_inputs import TextInputs
    from attention.patching.forward import Activations


Heads = tuple[tuple[int, int], ...]
"""Heads, each as (layer, head)."""

_BYTES_PER_NUMBER = 4
_MAPS_PER_HEAD = 4  # scores, masked scores, weights and their gradient
_ROWS_PER_LAYER = 16  # rows of d_model numbers for each token that a layer keeps for the backward pass


def changed_runs(
    loaded: LoadedModel,
    model_inputs: TextInputs,
    groups: Sequence[Sequence[Intervention]],
    measurement: Measurement,
    forward: PatchedForward | None = None,
    other: Mapping[int, Activations] | None = None,
) -> Iterator[list[tuple[float, float]]]:
    """For each group of changes, the measured value without and with them; yielded batch by batch.

    Every batch also contains the text without a change, so that the changes are the only difference.

    Args:
        model_inputs: the ids of its texts.
        groups: the changes that are made at the same time: ablations and patches of heads, MLPs and the residual stream, each of one layer.
        forward: interventions that apply in all runs, and what MLPs and the residual stream are patched from; the groups come after them.
        other: the activations of the other run, by layer of the trace, if heads are patched.
    """
    forward = forward or PatchedForward()
    has_sites = bool(forward.sites) or any(change.site for group in groups for change in group)
    batch_size = forward_pass.texts_at_once(loaded, model_inputs) - 1
    for start in range(0, len(groups), batch_size):
        batch = ((), *groups[start : start + batch_size])
        n_calls = 0

        def attend(call: ModelCall, batch: tuple[Sequence[Intervention], ...] = batch) -> tuple[Tensor, Tensor | None]:
            nonlocal n_calls
            layer, site = loaded.layer_indices[n_calls], loaded.sites[n_calls]
            n_calls += 1
            output, weights = call.run()
            patched = output.clone()
            for i, group in enumerate(batch):
                here = [change for change in group if change.layer == layer and not change.site]
                changed, patches = forward, tuple(change for change in here if change.patch)
                if patches:
                    changed = _with_patches(forward, patches, other or {})
                if changed.affects(layer):
                    z = patched_head_output(changed, layer, call.detached_text(i, output, weights), site)
                    assert z is not None
                    patched[i] = z.transpose(0, 1)
                for change in here:
                    if change.ablate:
                        z = patched[i, :, change.head]
                        value = z.mean(0, keepdim=True).expand_as(z) if change.ablate == "mean" else torch.zeros_like(z)
                        patched[i, :, change.head] = at_positions(z, value, change.positions)
            return patched, weights

        def write(place: WritePlace, x: Tensor, batch: tuple[Sequence[Intervention], ...] = batch) -> Tensor:
            x = changed_site(place, x, forward.sites, forward).clone()
            for i, group in enumerate(batch):
                x[i : i + 1] = changed_site(place, x[i : i + 1], group, forward)
            return x

        batch_inputs = model_inputs.repeated(len(batch))
        with ExitStack() as stack:
            stack.enter_context(recorder.wrapping_attention(attend))
            stack.enter_context(lm_head.logits_at(measurement.logit_positions))
            if has_sites:
                stack.enter_context(loaded.lock.hold())
                stack.enter_context(handled_sites(loaded, write))
            values = measurement.read(running.run(loaded, batch_inputs))
        before, *after = values.tolist()
        yield [(before, value) for value in after]


def _with_patches(
    forward: PatchedForward, patches: tuple[Intervention, ...], other: Mapping[int, Activations]
) -> PatchedForward:
    # Both are of the same run, but only those that were requested for weights have them.
    with_weights = any(patch.patch == WEIGHTS for patch in patches)
    merged = {**forward.other, **other} if with_weights else {**other, **forward.other}
    return replace(forward, interventions=(*forward.interventions, *patches), other=merged)


@dataclass(frozen=True, eq=False)
class _HeadGradients:
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
    if measurement.target is None and measurement.function is None:
        return "vectors are compared with themselves, where the cosine is largest and its gradient 0."
    if is_changed:
        return "gradients are computed in the model without interventions: remove them."
    if any(parameter.is_inference() for parameter in loaded.model.parameters()):
        return "the weights of this model were made in torch.inference_mode, which allows no gradients."
    return ""


def _count_bytes(loaded: LoadedModel, model_inputs: Mapping[str, Tensor]) -> int:
    length = max(ids.shape[-1] for ids in model_inputs.values())
    d_model = int(getattr(loaded.model.config, "hidden_size", 0) or 0)
    numbers = sum(site.n_heads * length * _MAPS_PER_HEAD + d_model * _ROWS_PER_LAYER for site in loaded.sites)
    return numbers * length * _BYTES_PER_NUMBER


def run_with_gradients(
    loaded: LoadedModel, model_inputs: Mapping[str, Tensor], measurement: Measurement, max_bytes: int = 2**33
) -> tuple[float, dict[int, _HeadGradients]]:
    """The measured value of one run, and its gradients by layer of the trace: one forward and one backward pass.

    Raises:
        ConfigError: it would take more memory than `max_bytes`.
    """
    if (nbytes := _count_bytes(loaded, model_inputs)) > max_bytes:
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

    with loaded.lock.hold(), recorder.wrapping_attention(attend), lm_head.logits_at(measurement.logit_positions):
        value = measurement.read(running.run(loaded, model_inputs, gradients=True))[0]
        tensors = [tensor for call in calls for tensor in call.values()]
        # A head may have no effect on the measured value, as in a layer after it.
        gradients = iter(torch.autograd.grad(value, tensors, materialize_grads=True))
    result = {}
    for call, layer in zip(calls, loaded.layer_indices, strict=True):
        by_name = {name: next(gradients) for name in call}
        values, found = ({n: _without_batch(n, tensor) for n, tensor in each.items()} for each in (call, by_name))
        result[layer] = _HeadGradients(values, found)
    return float(value.detach()), result


def estimated_changes(
    gradients: Mapping[int, _HeadGradients], kind: str, other: Mapping[int, Activations]
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
