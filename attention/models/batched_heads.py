"""Changed heads in batches: one text, many runs with different heads ablated or patched, and the value that each run gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from attention.core.edit_kinds import ABLATIONS
from attention.core.names import WEIGHTS
from attention.errors import ConfigError
from attention.models import lm_head, recorder, running, time_cost
from attention.models.forward_pass import patched_head_output
from attention.models.picture_inputs import repeated
from attention.patching.forward import PatchedForward
from attention.patching.intervention import Intervention

if TYPE_CHECKING:
    from torch import Tensor

    from attention.models.attention_call import ModelCall
    from attention.models.loaded import LoadedModel
    from attention.models.measurement import Measurement
    from attention.patching.forward import Activations

Heads = tuple[tuple[int, int], ...]
"""Heads that are changed at the same time, each as (layer, head)."""

BATCH_TOKENS = 512  # in all texts of a batch: a fraction of a second, so that other threads wait only briefly
BATCH_WEIGHT_BYTES = 2**26  # of the attention weights of a batch in one layer
MAX_SECONDS = 110.0  # of all runs together
_BYTES_PER_NUMBER = 4


def estimate_seconds(
    loaded: LoadedModel, model_inputs: Mapping[str, Tensor], n_runs: int, n_patched_layers: int = 0
) -> float:
    """The estimated seconds for this number of runs, in each of which this number of layers is patched.

    Raises:
        ConfigError: they take too long.
    """
    n_tokens = sum(ids.shape[-1] for ids in model_inputs.values())
    needed = (
        time_cost.count_parameters(loaded) * n_tokens / time_cost.PARAMETER_TOKENS_PER_SECOND
        + time_cost.SECONDS_PER_LAYER * n_patched_layers
    ) * n_runs
    if needed > MAX_SECONDS and not loaded.in_memory:  # on the user's own machine, Ctrl-C is the limit
        raise ConfigError(
            f"Changing {n_runs:,} heads in turn would take about {needed:,.0f} s here; at most {MAX_SECONDS:,.0f} s are "
            "allowed: choose a shorter text, or a smaller model."
        )
    return needed


def texts_at_once(loaded: LoadedModel, model_inputs: Mapping[str, Tensor]) -> int:
    """The number of equal texts in a batch, at least 2: limited by their tokens, and by the weights of one layer."""
    length = max(ids.shape[-1] for ids in model_inputs.values())
    weight_bytes = max(site.n_heads for site in loaded.sites) * length * length * _BYTES_PER_NUMBER
    return max(2, min(BATCH_TOKENS // length, BATCH_WEIGHT_BYTES // weight_bytes))


def head_runs(
    loaded: LoadedModel,
    model_inputs: Mapping[str, Tensor],
    groups: Sequence[Heads],
    measurement: Measurement,
    kind: str = "zero",
    forward: PatchedForward | None = None,
    other: Mapping[int, Activations] | None = None,
) -> Iterator[list[tuple[float, float]]]:
    """For each group of heads, the measured value without and with their change; yielded batch by batch.

    Every batch also contains the text without a change, so that the changed heads are the only difference.

    Args:
        loaded: the model.
        model_inputs: the ids of its texts.
        groups: the heads that are changed at the same time, by layers of the trace.
        measurement: what is measured.
        kind: "zero" or "mean" (ablation of the head output), or the step that is patched from the other run.
        forward: interventions that apply in all runs; the change of the heads comes after them.
        other: the activations of the other run, by layer of the trace, if `kind` is a step.
    """
    forward = forward or PatchedForward()
    batch_size = texts_at_once(loaded, model_inputs) - 1
    for start in range(0, len(groups), batch_size):
        batch = ((), *groups[start : start + batch_size])
        n_calls = 0

        def attend(call: ModelCall, batch: tuple[Heads, ...] = batch) -> tuple[Tensor, Tensor | None]:
            nonlocal n_calls
            layer, site = loaded.layer_indices[n_calls], loaded.sites[n_calls]
            n_calls += 1
            heads_of = {i: found for i, heads in enumerate(batch) if (found := [h for at, h in heads if at == layer])}
            output, weights = call.run()
            patched = output.clone()
            for i in range(len(output)):
                changed = forward
                if i in heads_of and kind not in ABLATIONS:
                    changed = _with_patches(forward, layer, heads_of[i], kind, other or {})
                if changed.affects(layer):
                    z = patched_head_output(changed, layer, call.detached_text(i, output, weights), site)
                    assert z is not None
                    patched[i] = z.transpose(0, 1)
            for i, heads in heads_of.items() if kind in ABLATIONS else ():
                row = patched[i]
                row[:, heads] = row[:, heads].mean(0, keepdim=True) if kind == "mean" else 0.0
            return patched, weights

        batch_inputs = repeated(model_inputs, len(batch))
        with recorder.wrapping_attention(attend), lm_head.logits_at(measurement.logit_positions):
            values = measurement.read(running.run(loaded, batch_inputs))
        before, *after = values.tolist()
        yield [(before, value) for value in after]


def _with_patches(
    forward: PatchedForward, layer: int, heads: Sequence[int], step: str, other: Mapping[int, Activations]
) -> PatchedForward:
    """The forward pass that also patches a step of some heads of a layer from the other run."""
    patches = tuple(Intervention(layer, head, patch=step) for head in heads)
    # Both are of the same run, but only those that were requested for weights have them.
    merged = {**forward.other, **other} if step == WEIGHTS else {**other, **forward.other}
    return replace(forward, interventions=(*forward.interventions, *patches), other=merged)
