"""Sweeps over the heads of a model: the effect of each on a prediction when it is ablated or patched, exact and as estimated from gradients."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from attention.base import cache
from attention.base.errors import ConfigError
from attention.circuits.head_importance import SWEEP_KINDS, GroupAblation, HeadEstimates, HeadSweep, SweepProgress
from attention.formula.edit_kinds import ABLATIONS, PATCH_CODES
from attention.formula.names import WEIGHTS
from attention.sources.model import Model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from attention.models.lm_head import Measurement
    from attention.models.loaded import LoadedModel
    from attention.models.text_inputs import TextInputs
    from attention.patching.forward import Activations

_N_RANDOM_GROUPS = 16
"""The number of random groups of heads for comparison."""


def sweep_heads(
    model: Model,
    position: int | None = None,
    target: int | None = None,
    distractor: int | None = None,
    kind: str = "zero",
    unchanged: bool = False,
) -> Iterator[SweepProgress]:
    """Ablates or patches each head in turn and measures the change of a prediction; stop iterating to cancel between two batches.

    Each change is applied on top of the model's interventions.

    Args:
        model: a model with a text; with its `other` run, if `kind` is a step.
        position: the position of the prediction; None: the end of the text. Without a language-model head, the position whose vector is
            compared by cosine, None: the mean over all tokens.
        target: a token id; None: the most likely token of the unpatched model.
        distractor: a second token id; the metric is then the logit difference.
        kind: "zero" or "mean" ablation; or the step of each head that is patched from the other run: query, key, value, weights or
            head_output. Heads that share keys or values change with them.
        unchanged: change heads of the model without its interventions, on the same text.

    Yields:
        The progress; the last item has the result.

    Raises:
        ConfigError: a head does not exist, there is no other run, or the sweep would take too long.
    """
    from attention.circuits import batched_heads
    from attention.models import linearize

    loaded, inputs = load(model)
    _check_kind(kind)
    model = replace(model, interventions=(), frozen=False) if unchanged else model
    n_heads = loaded.heads_by_layer
    heads = [(layer, head) for layer, count in enumerate(n_heads) for head in range(count)]
    expected_seconds = _estimate_runs(model, loaded, inputs, len(heads), kind)
    metric, description = _resolve_metric(loaded, inputs, position, target, distractor)
    key = ("matters", *_cache_key(model, loaded, inputs), metric, kind)
    if (result := cache.CACHE.get(key)) is not None:
        yield SweepProgress(len(heads), len(heads), 0, result)
        return
    yield SweepProgress(0, len(heads), expected_seconds)
    forward, other = model.patched_forward(loaded, inputs), _other_run(model, loaded, inputs, kind)
    change, started, done, baseline = _empty_map(n_heads), time.monotonic(), 0, math.nan
    estimated = _estimate_heads(model, loaded, inputs, metric, kind, other)
    runs = batched_heads.head_runs(loaded, inputs, [(head,) for head in heads], metric, kind, forward, other)
    for batch in runs:
        for baseline, changed in batch:
            change[heads[done]] = changed - baseline
            done += 1
        remaining = (time.monotonic() - started) / done * (len(heads) - done)
        yield SweepProgress(done, len(heads), remaining)
    direct = linearize.direct_effects(loaded, inputs, metric, forward)
    result = HeadSweep(
        description,
        kind,
        baseline,
        change,
        _as_map(n_heads, {} if isinstance(direct, str) else direct[0]),
        math.nan if isinstance(direct, str) else direct[1],
        tuple(intervention.label for intervention in model.interventions),
        n_heads,
        direct if isinstance(direct, str) else "",
        _as_map(n_heads, {} if isinstance(estimated, str) else estimated[1]),
        estimated if isinstance(estimated, str) else "",
        model.alignment_sentences(loaded, inputs) if other else (),
    )
    yield SweepProgress(len(heads), len(heads), 0, cache.CACHE.get_or_compute(key, lambda: result))


def estimated_seconds(model: Model, kind: str = "zero") -> float:
    """The estimated seconds of `sweep_heads`, without running it.

    Raises:
        ConfigError: it would take too long.
        AttentionError: as for `Model.trace`.
    """
    loaded, inputs = load(model)
    return _estimate_runs(model, loaded, inputs, sum(site.n_heads for site in loaded.sites), kind)


def estimate(
    model: Model,
    position: int | None = None,
    target: int | None = None,
    distractor: int | None = None,
    kind: str = "zero",
) -> HeadEstimates:
    """The estimated changes of `sweep_heads`, and the direct effects, without the sweep. The arguments are the same.

    Raises:
        ConfigError: there is no estimate for this model, no other run, or it takes too much memory.
    """
    from attention.models import linearize

    loaded, inputs = load(model)
    _check_kind(kind)
    metric, description = _resolve_metric(loaded, inputs, position, target, distractor)
    key = ("estimates", *_cache_key(model, loaded, inputs), metric, kind)
    if (cached := cache.CACHE.get(key)) is not None:
        result: HeadEstimates = cached
        return result
    n_heads = loaded.heads_by_layer
    other = _other_run(model, loaded, inputs, kind)
    estimated = _estimate_heads(model, loaded, inputs, metric, kind, other)
    if isinstance(estimated, str):
        raise ConfigError(f"Attribution patching gives no estimate: {estimated}")
    direct = linearize.direct_effects(loaded, inputs, metric)
    result = HeadEstimates(
        description,
        kind,
        estimated[0],
        _as_map(n_heads, estimated[1]),
        _as_map(n_heads, {} if isinstance(direct, str) else direct[0]),
        n_heads,
        direct if isinstance(direct, str) else "",
        model.alignment_sentences(loaded, inputs) if other else (),
    )
    return cache.CACHE.get_or_compute(key, lambda: result)


def _estimate_heads(
    model: Model,
    loaded: LoadedModel,
    inputs: TextInputs,
    metric: Measurement,
    kind: str,
    other: Mapping[int, Activations],
) -> tuple[float, dict[int, Tensor]] | str:
    """The measured value, and the estimated change of each head by attribution patching, [head] by layer; or why there is none.

    Raises:
        ConfigError: the gradients would take too much memory.
    """
    from attention.circuits import batched_heads

    if reason := batched_heads.no_gradient_reason(loaded, metric, bool(model.interventions)):
        return reason
    value, gradients = batched_heads.run_with_gradients(loaded, inputs, metric, model.max_bytes)
    return value, batched_heads.estimated_changes(gradients, kind, other)


def ablate_group(
    model: Model,
    heads: tuple[tuple[int, int], ...],
    position: int | None = None,
    target: int | None = None,
    distractor: int | None = None,
    ablation: str = "zero",
) -> GroupAblation:
    """The effect of ablating several heads at once, of each alone, and of random groups of other heads in the same layers.

    Everything is applied on top of the model's other interventions; the heads need not be ablated in the model. The arguments are
    those of `sweep_heads`.

    Raises:
        ConfigError: a head does not exist, or it would take too long.
    """
    from attention.circuits import batched_heads
    from attention.models import forward_pass
    from attention.patching.intervention import Intervention

    if ablation not in ABLATIONS:
        raise ConfigError(f"Heads are ablated by {' or '.join(ABLATIONS)}; got {ablation[:40]!r}: choose one of these.")
    loaded, inputs = load(model)
    forward_pass.check_interventions(loaded, tuple(Intervention(*head, ablate="zero") for head in heads), ())
    model = replace(
        model,
        interventions=tuple(
            intervention for intervention in model.interventions if intervention.ablated_head not in heads
        ),
    )
    metric, description = _resolve_metric(loaded, inputs, position, target, distractor)
    key = ("together", *_cache_key(model, loaded, inputs), metric, heads, ablation)
    if (cached := cache.CACHE.get(key)) is not None:
        result: GroupAblation = cached
        return result
    random_groups = _random_groups(heads, {layer: loaded.sites_by_layer[layer].n_heads for layer, _ in heads})
    groups = [heads, *((head,) for head in heads), *random_groups]
    _ = _estimate_runs(model, loaded, inputs, len(groups))
    forward = model.patched_forward(loaded, inputs)
    pairs = [
        pair for batch in batched_heads.head_runs(loaded, inputs, groups, metric, ablation, forward) for pair in batch
    ]
    changes = [ablated - baseline for baseline, ablated in pairs]
    single_changes, random_changes = changes[1 : 1 + len(heads)], sorted(changes[1 + len(heads) :])
    return cache.CACHE.get_or_compute(
        key, lambda: GroupAblation(heads, description, *pairs[0], tuple(single_changes), tuple(random_changes))
    )


def _random_groups(heads: tuple[tuple[int, int], ...], n_heads: dict[int, int]) -> list[tuple[tuple[int, int], ...]]:
    """Random groups of other heads, with as many heads of each layer; empty if a layer has too few other heads."""
    import torch

    generator = torch.Generator().manual_seed(0)
    others = {layer: [head for head in range(count) if (layer, head) not in heads] for layer, count in n_heads.items()}
    n_wanted = {layer: sum(head_layer == layer for head_layer, _ in heads) for layer in others}
    if any(len(others[layer]) < n_wanted[layer] for layer in others):
        return []
    groups = []
    for _ in range(_N_RANDOM_GROUPS):
        group: list[tuple[int, int]] = []
        for layer, candidates in others.items():
            order = torch.randperm(len(candidates), generator=generator)[: n_wanted[layer]].tolist()
            group += [(layer, candidates[i]) for i in order]
        groups.append(tuple(group))
    return groups


def measure(model: Model, target: int, distractor: int | None = None) -> float:
    """The measured value at the end of the model's text: the log-probability of the target, or its logit minus that of the distractor.

    Raises:
        AttentionError: as for `sweep_heads`.
    """
    from attention.models import lm_head, running

    loaded, inputs = load(model)
    metric, _ = _resolve_metric(loaded, inputs, None, target, distractor)
    with lm_head.logits_at(metric.logit_positions):
        return float(metric.read(running.run(loaded, inputs))[0])


def load(model: Model) -> tuple[LoadedModel, TextInputs]:
    """The loaded model and its token ids.

    Raises:
        ConfigError: heads of this family cannot be changed.
    """
    loaded, inputs = model.load_inputs()
    if not loaded.sites:
        raise ConfigError(f"The heads of {loaded.name} cannot be ablated: choose a model of another family.")
    return loaded, inputs


def _other_run(model: Model, loaded: LoadedModel, inputs: TextInputs, kind: str) -> Mapping[int, Activations]:
    """The activations of the model's other run, by layer, that a change of this kind needs; empty for an ablation.

    Raises:
        ConfigError: there is no other run, it has another length, or its activations take too much memory.
    """
    from attention.models import forward_pass
    from attention.patching.intervention import Intervention

    if kind in ABLATIONS:
        return {}
    longest = max(ids.shape[-1] for ids in inputs.values())
    nbytes = 4 * forward_pass.count_numbers(loaded, (Intervention(patch=kind),), False, longest)
    if nbytes > model.max_bytes:
        raise ConfigError(
            f"The {kind} of all heads of the other state may take {model.max_bytes / 2**20:,.0f} MB; they take "
            f"{nbytes / 2**20:,.0f} MB: choose a shorter text."
        )
    return model.other_activations(loaded, inputs, dict.fromkeys(loaded.sites_by_layer, kind == WEIGHTS))


def _estimate_runs(model: Model, loaded: LoadedModel, inputs: TextInputs, n_runs: int, kind: str = "zero") -> float:
    """The estimated seconds of this number of runs.

    Raises:
        ConfigError: they take too long.
    """
    from attention.circuits import batched_heads
    from attention.patching.forward import count_layers

    n_patched = count_layers(loaded.layer_indices, model.interventions, model.frozen) + (kind not in ABLATIONS)
    return batched_heads.estimate_seconds(loaded, inputs, n_runs, n_patched)


def _check_kind(kind: str) -> None:
    """Raise an error if a sweep does not do this with heads.

    Raises:
        ConfigError: the kind does not exist.
    """
    if kind not in SWEEP_KINDS:
        raise ConfigError(
            f"Each head gets an ablation ({', '.join(ABLATIONS)}) or a step of the other run ({', '.join(PATCH_CODES)}); "
            f"got {kind[:40]!r}: choose one of these."
        )


def _cache_key(model: Model, loaded: LoadedModel, inputs: TextInputs) -> tuple[object, ...]:
    """Everything that a sweep depends on: the model, its input, which may have pictures, and its interventions."""
    digests = tuple(picture.digest for picture in model.images)
    other = None if model.other is None else model.other.key
    return loaded.uid, inputs.key, digests, model.interventions, model.frozen, other, model.align


def _resolve_metric(
    loaded: LoadedModel, inputs: TextInputs, position: int | None, target: int | None, distractor: int | None
) -> tuple[Measurement, str]:
    """The metric, and its description."""
    from attention.models import lm_head, running
    from attention.models.lm_head import Measurement
    from attention.models.token_pieces import readable_tokens

    requested = () if position is None else (position,)
    if classes := lm_head.class_names(loaded):
        return _class_metric(loaded, inputs, classes, target, distractor)
    if not lm_head.vocabulary_size(loaded):
        length = next(iter(inputs.values())).shape[-1]
        if position is not None and not 0 <= position < length:
            raise ConfigError(f"Positions range from 0 to {length - 1}; got {position}: choose one of these.")
        subject = "tokens' vectors (mean)" if position is None else f"vector of token {position}"
        return Measurement(position), f"cosine of {subject} with no head changed"
    positions = lm_head.prediction_positions(loaded, inputs, requested)
    if not positions:
        raise ConfigError(lm_head.no_prediction_reason(loaded, positions))
    if target is None:
        with lm_head.logits_at(positions[-1:]):
            outputs = running.run(loaded, inputs)
        target = lm_head.read_predictions(loaded, inputs, outputs, positions[-1:])[0].ids[0]
    size = lm_head.vocabulary_size(loaded)
    _check_ids("Token ids", loaded, size, target, distractor)
    names = [readable_tokens(loaded.tokenizer, [token])[0] for token in (target, distractor) if token is not None]
    return Measurement(positions[-1], target, distractor), _metric_words(names)


def _class_metric(
    loaded: LoadedModel, inputs: TextInputs, classes: Sequence[str], target: int | None, distractor: int | None
) -> tuple[Measurement, str]:
    """The metric of a classifier: a class that is predicted for the whole input."""
    from attention.models import lm_head, running
    from attention.models.lm_head import Measurement

    if target is None:
        target = lm_head.read_predictions(loaded, inputs, running.run(loaded, inputs), ())[0].ids[0]
    _check_ids("The numbers of the classes", loaded, len(classes), target, distractor)
    names = [classes[index] for index in (target, distractor) if index is not None]
    return Measurement(0, target, distractor), _metric_words(names)


def _check_ids(what: str, loaded: LoadedModel, size: int, *ids: int | None) -> None:
    for given in ids:
        if given is not None and not 0 <= given < size:
            raise ConfigError(
                f"{what} of {loaded.name} range from 0 to {size - 1:,}; got {given}: choose one of these."
            )


def _metric_words(names: Sequence[str]) -> str:
    return f"log-probability of {names[0]}" if len(names) == 1 else f"logit of {names[0]} minus logit of {names[1]}"


def _empty_map(n_heads: tuple[int, ...]) -> NDArray[np.float64]:
    """A map [layer head] without numbers."""
    import numpy as np

    return np.full((len(n_heads), max(n_heads)), np.nan)


def _as_map(n_heads: tuple[int, ...], by_layer: Mapping[int, Tensor]) -> NDArray[np.float64]:
    """A map [layer head] of numbers [head] by layer; NaN where there are none."""
    numbers = _empty_map(n_heads)
    for layer, row in by_layer.items():
        numbers[layer, : len(row)] = row.numpy()
    return numbers
