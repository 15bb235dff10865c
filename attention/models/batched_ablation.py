"""Head ablation in batches: one text, many runs with different heads ablated, and the change of a prediction or of the vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attention.errors import ConfigError
from attention.models import lm_head, recorder, running, time_cost
from attention.models.forward_pass import patched_head_output
from attention.patching.forward import PatchedForward

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attention.models.loaded import LoadedModel
    from attention.models.recorder import Call

Heads = tuple[tuple[int, int], ...]
"""Heads that are ablated together, each as (layer, head)."""

BATCH_TOKENS = 512  # in all texts of a batch: a fraction of a second, so that other threads wait only briefly
BATCH_WEIGHT_BYTES = 2**26  # of the attention weights of a batch in one layer
MAX_SECONDS = 110.0  # of all runs together
_BYTES_PER_NUMBER = 4


@dataclass(frozen=True)
class Measurement:
    """What a run measures.

    Attributes:
        position: of the prediction. Without a language-model head, of the vector that is compared; None: all vectors.
        target: the token whose log-probability is measured; None without a language-model head.
        distractor: if set, the logit of the target minus the logit of this token is measured instead.
    """

    position: int | None = None
    target: int | None = None
    distractor: int | None = None

    @property
    def logit_positions(self) -> tuple[int, ...]:
        """The positions at which logits are computed."""
        return () if self.target is None or self.position is None else (self.position,)


def estimate_seconds(
    loaded: LoadedModel, model_inputs: Mapping[str, Tensor], n_runs: int, n_patched_layers: int = 0
) -> float:
    """The estimated seconds for this number of runs, in each of which this number of layers is patched anyway.

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
            f"Ablating (silencing) {n_runs:,} heads in turn would take about {needed:,.0f} s here; at most "
            f"{MAX_SECONDS:,.0f} s are allowed: choose a shorter text, or a smaller model."
        )
    return needed


def ablation_runs(
    loaded: LoadedModel,
    model_inputs: Mapping[str, Tensor],
    groups: Sequence[Heads],
    measurement: Measurement,
    ablation: str = "zero",
    forward: PatchedForward | None = None,
) -> Iterator[list[tuple[float, float]]]:
    """For each group of heads, the measured value without and with their ablation; yielded batch by batch.

    Every batch also contains the text without ablation, so that the ablated heads are the only difference.

    Args:
        loaded: the model.
        model_inputs: the ids of its texts.
        groups: the heads that are ablated together, by layers of the trace.
        measurement: what is measured.
        ablation: "zero", or "mean": replace a head's output by its mean over positions.
        forward: patches that apply in all runs, before the heads are ablated.
    """
    forward = forward or PatchedForward()
    length = max(ids.shape[-1] for ids in model_inputs.values())
    weight_bytes = max(site.n_heads for site in loaded.sites) * length * length * _BYTES_PER_NUMBER
    batch_size = max(1, min(BATCH_TOKENS // length, BATCH_WEIGHT_BYTES // weight_bytes) - 1)
    for start in range(0, len(groups), batch_size):
        batch = ((), *groups[start : start + batch_size])
        n_calls = 0

        def patch(output: Tensor, call_of: Callable[[int], Call], batch: tuple[Heads, ...] = batch) -> Tensor:
            nonlocal n_calls
            layer, site = loaded.layer_indices[n_calls], loaded.sites[n_calls]
            n_calls += 1
            if forward.affects(layer):
                patched = (patched_head_output(forward, layer, call_of(i), site) for i in range(len(output)))
                output = torch.stack([z.transpose(0, 1) for z in patched if z is not None])
            ablated = [(i, head) for i, heads in enumerate(batch) for index, head in heads if index == layer]
            if not ablated:
                return output
            rows, heads = (list(indices) for indices in zip(*ablated, strict=True))
            output = output.clone()
            baseline = torch.zeros_like(output)
            if ablation == "mean":
                baseline = output.mean(dim=1, keepdim=True).expand_as(output)
            output[rows, :, heads] = baseline[rows, :, heads]
            return output

        batch_inputs = {name: ids.expand(len(batch), -1) for name, ids in model_inputs.items()}
        with recorder.patching_outputs(patch), lm_head.logits_at(measurement.logit_positions):
            values = _measure(running.run(loaded, batch_inputs), measurement)
        before, *after = values.tolist()
        yield [(before, value) for value in after]


def _measure(model_output: Any, measurement: Measurement) -> Tensor:
    """For every text of a batch a log-probability, a logit difference, or the cosine with the vectors of the first text."""
    if measurement.target is None:
        last = model_output["last_hidden_state"].cpu().double()
        cosine = torch.cosine_similarity(last, last[:1], dim=-1)
        # Clamped, since rounding can give more than 1 for equal vectors.
        selected: Tensor = (
            cosine.mean(-1) if measurement.position is None else cosine[:, measurement.position]
        ).clamp_max(1)
        return selected
    logits = model_output.get("logits", model_output.get("prediction_logits"))
    row = logits[:, 0 if logits.shape[1] == 1 else measurement.position].cpu().double()
    if measurement.distractor is not None:
        difference: Tensor = row[:, measurement.target] - row[:, measurement.distractor]
        return difference
    log_probabilities: Tensor = row.log_softmax(-1)[:, measurement.target]
    return log_probabilities
