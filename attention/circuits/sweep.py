"""Which heads matter for a prediction: each ablated or patched in turn, several at once, or estimated from gradients.

Ablating a head may change little although the head does something: other heads compensate (backup heads). Several heads can
therefore be ablated together, and the sweep repeated on the ablated model. Source: Wang et al. 2022, "Interpretability in the
Wild", section 3.4; McGrath et al. 2023, "The Hydra Effect".
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from attention.base import cache
from attention.base.errors import ConfigError
from attention.base.printed import format_number, number
from attention.circuits.own_metric import Metric, check_metric, metric_name, reads_trace
from attention.formula.edit_kinds import ABLATIONS, PATCH_CODES
from attention.formula.names import HEAD_OUTPUT, KEY, QUERY, VALUE, WEIGHTS
from attention.sources.model import Model

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray
    from torch import Tensor

    from attention.circuits.batched_heads import Heads
    from attention.models.lm_head import Measurement
    from attention.models.loaded import LoadedModel
    from attention.models.text_inputs import TextInputs
    from attention.patching.forward import Activations, PatchedForward
    from attention.patching.intervention import Intervention

_Token = int | str
"""A token as its id, or as text, such as " copper"."""
_Result = TypeVar("_Result")

SWEEP_KINDS = (*ABLATIONS, *PATCH_CODES)
"""What a sweep does with each head: zero or mean ablation, or a step that is patched from the other run."""
STEP_WORDS = {QUERY: "queries", KEY: "keys", VALUE: "values", WEIGHTS: WEIGHTS, HEAD_OUTPUT: "output (Z)"}
"""The patched steps in words."""
DIRECTIONS = {"noising": ("B", "A"), "denoising": ("A", "B")}
"""The directions of patching: the run from which a step comes, and the run into which it is patched. A is the clean text, B the corrupted one.

Noising (corrupted → clean) asks what the clean run needs; denoising (clean → corrupted) what is enough to restore its answer.
Source: Heimersheim and Nanda 2024, "How to use and interpret activation patching", section 3.
"""
_MAX_SECONDS = 110.0  # of all runs together
_MAX_NAMED = 3  # interventions listed by name; more are only counted
_N_RANDOM_GROUPS = 16  # random groups of heads for comparison
SATURATION_CAVEAT = "It is a straight-line estimate: where a softmax is saturated its gradient is almost 0, so changes of queries and keys are underestimated (Kramár et al. 2024, AtP*)."
CAVEAT = "A small change does not mean that the head does nothing: other heads may compensate (backup heads)."


def heads_of(n_heads: Sequence[int]) -> Heads:
    """Every head as (layer, head), in order, from the number of heads in each layer."""
    return tuple((layer, head) for layer, count in enumerate(n_heads) for head in range(count))


def chosen_heads(n_heads: Sequence[int], heads: Iterable[tuple[int, int]] | None) -> Heads:
    """The heads of a request as (layer, head), each once and in order; of None every head.

    Raises:
        ConfigError: they are no such pairs, there are none, or the model has no such head.
    """
    if heads is None:
        return heads_of(n_heads)
    form = "heads are pairs (layer, head), such as [(18, 6), (20, 2)]"
    try:
        chosen = {(int(layer), int(head)) for layer, head in heads}
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{form}; got {str(heads)[:40]}: give a list of such pairs.") from error
    for layer, head in sorted(chosen):
        if not (0 <= layer < len(n_heads) and 0 <= head < n_heads[layer]):
            counts = f"{n_heads[layer]} heads" if 0 <= layer < len(n_heads) else f"{len(n_heads)} layers"
            whose = f"layer {layer} has" if 0 <= layer < len(n_heads) else "this model has"
            raise ConfigError(
                f"{form}; got ({layer}, {head}), and {whose} {counts}: choose heads that exist, counted from 0."
            )
    if not chosen:
        raise ConfigError(f"{form}; got none: give at least one.")
    return tuple(sorted(chosen))


def directed(model: Model, direction: str) -> Model:
    """The run that is patched, with the run to patch from as its other run: the model itself (noising), or its other run (denoising).

    Raises:
        ConfigError: there is no such direction.
    """
    if direction not in DIRECTIONS:
        raise ConfigError(
            f"The direction of patching is noising (corrupted → clean) or denoising (clean → corrupted); got {str(direction)[:40]!r}: choose one of these."
        )
    if direction == "noising" or not isinstance(model.other, Model):
        return model
    return replace(model.other, other=replace(model, other=None, align=False), align=model.align)


def signed(change: float) -> str:
    """A change with its sign: +0.12, −3.4, 0."""
    return f"{'+' if change > 0 else ''}{number(change, 3).text}"


@dataclass(frozen=True, eq=False)
class HeadSweep:
    """The effect of ablating or patching each head in turn, as a map [layer head]; NaN where a layer has fewer heads.

    Attributes:
        quantity: the measured quantity, such as "log-probability of ·copper".
        kind: what each head gets, one of `SWEEP_KINDS`.
        baseline: the quantity before the sweep's changes, with the interventions in `interventions` active.
        change: the quantity with each head changed, minus `baseline`.
        direct: each head's direct contribution to the logit or logit difference; all NaN if unknown.
        remainder: the part of that logit that no head contributes directly; NaN if unknown.
        interventions: the interventions active during the whole sweep, each in a few words; empty for the unchanged model.
        n_heads: the number of heads in each layer.
        heads: the heads of the sweep as (layer, head), in order; of the others all maps are NaN.
        no_direct_reason: why the direct effects are unknown, in a sentence; empty if they are known.
        estimate: the change as attribution patching estimates it from gradients; all NaN if unknown.
        no_estimate_reason: why the estimates are unknown, in a sentence; empty if they are known.
        alignment: which tokens were patched if the other text has another number of tokens, in sentences.
        direction: of a patch, one of `DIRECTIONS`.
    """

    quantity: str
    kind: str
    baseline: float
    change: NDArray[np.float64]
    direct: NDArray[np.float64]
    remainder: float
    interventions: tuple[str, ...]
    n_heads: tuple[int, ...]
    heads: Heads
    no_direct_reason: str
    estimate: NDArray[np.float64]
    no_estimate_reason: str = ""
    alignment: tuple[str, ...] = ()
    direction: str = "noising"

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        return int(self.change.nbytes + self.direct.nbytes + self.estimate.nbytes)

    @property
    def is_ablation(self) -> bool:
        """Whether the heads are ablated, not patched from another run."""
        return self.kind in ABLATIONS

    @property
    def title(self) -> str:
        """What the sweep does with each head, in a few words."""
        return (
            "Without each head"
            if self.is_ablation
            else f"Each head with the {STEP_WORDS[self.kind]} of {DIRECTIONS[self.direction][0]}"
        )

    @property
    def rank_correlation(self) -> float:
        """Spearman's rank correlation between the estimates and the exact changes, from −1 to 1; NaN if unknown, or if all are equal."""
        return rank_correlation(self.change, self.estimate)

    @property
    def limit(self) -> float:
        """The end of a scale, symmetric about 0, that covers all changes."""
        import numpy as np

        return float(np.nanmax(np.abs(self.change), initial=0.0))

    @property
    def has_direct_effects(self) -> bool:
        """Whether the direct effects are known."""
        return not self.no_direct_reason

    @property
    def has_estimates(self) -> bool:
        """Whether the estimates are known."""
        return not self.no_estimate_reason

    @property
    def interventions_words(self) -> str:
        """The active interventions, as words that follow "with"; empty if there are none."""
        count = len(self.interventions)
        return ", ".join(self.interventions) if count <= _MAX_NAMED else f"{count} changes"

    @property
    def _numbers(self) -> dict[str, NDArray[np.float64]]:
        how = {"zero": "ablated", "mean": "replaced by its mean"}.get(self.kind, "")
        how = how or f"{STEP_WORDS[self.kind]} from {DIRECTIONS[self.direction][0]} ({self.direction})"
        how += f" with {self.interventions_words}" if self.interventions else ""
        numbers = {f"change of {self.quantity}, {how}": self.change}
        if self.has_estimates:
            numbers["estimate of that change (attribution patching)"] = self.estimate
        if self.has_direct_effects:
            numbers["direct effect on the logit"] = self.direct
        return numbers

    @property
    def columns(self) -> tuple[str, ...]:
        """The column headings of a table of heads."""
        return tuple(self._numbers)

    def row(self, layer: int, head: int) -> tuple[float, ...]:
        """The numbers of one head, one for each of `columns`."""
        return tuple(float(numbers[layer, head]) for numbers in self._numbers.values())

    def other_heads_words(self, layer: int, head: int) -> str:
        """The median change over the other heads of the layer, changed one at a time, in words; empty if there are no other heads."""
        import numpy as np

        rest = np.array([self.change[each] for each in self.heads if each[0] == layer and each[1] != head])
        if not len(rest):
            return ""
        return f"Another head of its layer: {signed(float(np.median(rest)))} (median of {len(rest)})."

    def by_effect(self) -> Heads:
        """All heads, by decreasing size of their change."""
        return tuple(sorted(self.heads, key=lambda pair: -abs(float(self.change[pair]))))

    def frame(self, order: Sequence[tuple[int, int]] = ()) -> pd.DataFrame:
        """A row for each head in this order (by default that of `by_effect`): layer, head, `columns`."""
        import pandas as pd

        order = order or self.by_effect()
        rows = [(*pair, *self.row(*pair)) for pair in order]
        return pd.DataFrame(rows, columns=["layer", "head", *self.columns])

    def describe(self, layer: int, head: int) -> str:
        """The change when one head is ablated or patched, and its direct effect, in words."""
        change = float(self.change[layer, head])
        direct = ""
        if self.has_direct_effects:
            direct = f"; it adds {signed(float(self.direct[layer, head]))} directly to the logit (direct effect)"
        name = f"L{layer} H{head}"
        how = (
            f"Without {name}"
            if self.is_ablation
            else f"{name} with the {STEP_WORDS[self.kind]} of {DIRECTIONS[self.direction][0]}"
        )
        return f"{how}: {self.quantity} {format_number(self.baseline)} → {format_number(self.baseline + change)} ({signed(change)}){direct}."

    def describe_estimate(self) -> str:
        """How well the estimates rank the heads, and when they fail, in sentences; the reason if there are none."""
        if not self.has_estimates:
            return f"Attribution patching gives no estimate: {self.no_estimate_reason}"
        return f"Attribution patching estimates the same from one backward pass: rank correlation with the exact sweep (Spearman) {format_number(self.rank_correlation)} over {len(self.heads)} heads. {SATURATION_CAVEAT}"


@dataclass(frozen=True, eq=False)
class HeadEstimates:
    """The effect of each head as attribution patching estimates it, and its direct effect, as maps [layer head]; NaN where a layer has fewer heads.

    The attributes are those of `HeadSweep`, with `baseline` in the unchanged run.
    """

    quantity: str
    kind: str
    baseline: float
    estimate: NDArray[np.float64]
    direct: NDArray[np.float64]
    n_heads: tuple[int, ...]
    heads: Heads
    no_direct_reason: str = ""
    alignment: tuple[str, ...] = ()
    direction: str = "noising"

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        return int(self.estimate.nbytes + self.direct.nbytes)

    def by_effect(self) -> Heads:
        """The heads as (layer, head), by decreasing size of their estimate."""
        return tuple(sorted(self.heads, key=lambda pair: -abs(float(self.estimate[pair]))))

    def frame(self) -> pd.DataFrame:
        """A row for each head in the order of `by_effect`: layer, head, estimated change (of a patch with its direction), direct effect."""
        import pandas as pd

        rows = [(*pair, float(self.estimate[pair]), float(self.direct[pair])) for pair in self.by_effect()]
        return pd.DataFrame(
            rows,
            columns=[
                "layer",
                "head",
                f"estimate{f', {self.direction}' * (self.kind not in ABLATIONS)}",
                "direct effect",
            ],
        )


@dataclass(frozen=True)
class _GroupAblation:
    """The effect of ablating several heads together, compared with random heads of the same layers.

    Attributes:
        heads: the ablated heads, as (layer, head).
        quantity: the measured quantity.
        baseline: the quantity in the unchanged run; `ablated` without the heads.
        individual_changes: the change without each head alone, in the order of `heads`; these rarely add up to the joint change.
        random_changes: the changes without the same number of random heads of the same layers, sorted.
    """

    heads: Heads
    quantity: str
    baseline: float
    ablated: float
    individual_changes: tuple[float, ...]
    random_changes: tuple[float, ...]

    @property
    def change(self) -> float:
        """The change with all of them ablated."""
        return self.ablated - self.baseline

    @property
    def random_median(self) -> float:
        """The median change over the random heads; NaN if there are no other heads to draw."""
        from statistics import median

        return median(self.random_changes) if self.random_changes else math.nan

    def frame(self) -> pd.DataFrame:
        """A row for the group, for each of its heads alone, and for each random group: what, layer, head (of one head), change."""
        import pandas as pd

        rows: list[tuple[str, int | None, int | None, float]] = [("together", None, None, self.change)]
        rows += [("alone", *head, change) for head, change in zip(self.heads, self.individual_changes, strict=True)]
        rows += [("random group", None, None, change) for change in self.random_changes]
        table = pd.DataFrame(rows, columns=["what", "layer", "head", f"change of {self.quantity}, ablated"])
        return table.astype({"layer": "Int64", "head": "Int64"})

    @property
    def description(self) -> str:
        """The result in words."""
        names, control = ", ".join(f"L{layer} H{head}" for layer, head in self.heads), ""
        if self.random_changes:
            control = f"; the same number of random heads of the same layers: {signed(self.random_median)} (median of {len(self.random_changes)})"
        return f"Without {names}: {self.quantity} {format_number(self.baseline)} → {format_number(self.ablated)} ({signed(self.change)}){control}."


@dataclass(frozen=True)
class Progress(Generic[_Result]):
    """The progress of a long computation.

    Attributes:
        done: the finished runs, of `total`.
        seconds: the estimated remaining time.
        result: the result, in the last report only.
        prompt: the number of the current prompt, from 1, of a set of prompts.
    """

    done: int
    total: int
    seconds: float
    result: _Result | None = None
    prompt: int = 1


def rank_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Spearman's rank correlation of two arrays without their NaN; equal numbers share the mean of their ranks. NaN if one has no order."""
    import pandas as pd

    ranks = [pd.Series(numbers.ravel()).rank() for numbers in (a, b)]
    constant = any(row.nunique() < 2 for row in ranks)  # also where all are NaN
    return math.nan if constant else float(ranks[0].corr(ranks[1]))


def sweep_heads(
    model: Model,
    position: int | None = None,
    target: _Token | None = None,
    distractor: _Token | None = None,
    kind: str = "zero",
    unchanged: bool = False,
    metric: Metric | None = None,
    heads: Iterable[tuple[int, int]] | None = None,
    direction: str = "noising",
) -> Iterator[Progress[HeadSweep]]:
    """Ablates or patches each head in turn and measures the change of a prediction; stop iterating to cancel between two batches.

    Each change is applied on top of the model's interventions. Arguments that are not listed are those of `which`.

    Args:
        kind: "zero" or "mean" ablation; or the step of each head that is patched from the other run: query, key, value, weights or
            head_output. Heads that share keys or values change with them.
        unchanged: change heads of the model without its interventions, on the same text.

    Yields:
        The progress; the last item has the result.

    Raises:
        ConfigError: a head does not exist, there is no other run, or the sweep would take too long.
    """
    _check_kind(kind)
    model = model if kind in ABLATIONS else directed(model, direction)
    loaded, inputs = load(model)
    model = replace(model, interventions=(), frozen=False) if unchanged else model
    n_heads = loaded.heads_by_layer
    chosen = chosen_heads(n_heads, heads)
    expected_seconds = estimate_runs(model, loaded, inputs, len(chosen), kind)
    measurement, description = resolve_metric(model, loaded, inputs, position, target, distractor, metric)
    key = ("matters", *_cache_key(model, loaded, inputs), measurement, kind, chosen, direction)
    # Of a function it is not known what it depends on, so nothing of it is cached.
    if metric is None and (cached := cache.CACHE.get(key)) is not None:
        yield Progress(len(chosen), len(chosen), 0, cached)
        return
    yield Progress(0, len(chosen), expected_seconds)
    forward, other = model.patched_forward(loaded, inputs), other_run(model, loaded, inputs, kind)
    change, started, done, baseline = _empty_map(n_heads), time.monotonic(), 0, math.nan
    estimated = _estimate_heads(model, loaded, inputs, measurement, kind, other)
    groups = [(_change_of(*head, kind),) for head in chosen]
    runs = changed_runs(model, loaded, inputs, groups, measurement, forward, other)
    for batch in runs:
        for baseline, changed in batch:
            change[chosen[done]] = changed - baseline
            done += 1
        remaining = (time.monotonic() - started) / done * (len(chosen) - done)
        yield Progress(done, len(chosen), remaining)
    direct, remainder, no_direct_reason = _direct_effects(loaded, inputs, measurement, forward)
    estimates: dict[int, Tensor] = {} if isinstance(estimated, str) else estimated[1]
    no_estimate_reason = estimated if isinstance(estimated, str) else ""
    result = HeadSweep(
        description, kind, baseline, change, _only(direct, chosen), remainder, tuple(each.label for each in model.interventions), n_heads, chosen,
        no_direct_reason, _only(_as_map(n_heads, estimates), chosen), no_estimate_reason, model.alignment_sentences(loaded, inputs) if other else (),
        direction,
    )  # fmt: skip
    if metric is None:
        result = cache.CACHE.get_or_compute(key, lambda: result)
    yield Progress(len(chosen), len(chosen), 0, result)


def _change_of(layer: int, head: int | None, kind: str, **place: Any) -> Intervention:
    """The ablation, or the patch, of one head or site."""
    from attention.patching.intervention import Intervention

    how: dict[str, Any] = {"ablate": kind} if kind in ABLATIONS else {"patch": kind}
    return Intervention(layer, head, **how, **place)


def changed_runs(
    model: Model,
    loaded: LoadedModel,
    inputs: TextInputs,
    groups: Sequence[Sequence[Intervention]],
    measurement: Measurement,
    forward: PatchedForward,
    other: Mapping[int, Activations] | None = None,
) -> Iterator[list[tuple[float, float]]]:
    """For each group of changes, the measured value without and with them, batch by batch; a metric of a trace run by run."""
    from attention.circuits import batched_heads
    from attention.models.lm_head import one_number

    metric = measurement.function
    if metric is None or not reads_trace(metric):
        yield from batched_heads.changed_runs(loaded, inputs, groups, measurement, forward, other)
        return
    before = float(one_number(metric(model.trace())))
    for group in groups:
        changed = replace(model, interventions=(*model.interventions, *group))
        yield [(before, float(one_number(metric(changed.trace()))))]


def _only(numbers: NDArray[np.float64], heads: Heads) -> NDArray[np.float64]:
    """A map [layer head] with the numbers of these heads; NaN elsewhere."""
    import numpy as np

    rows, columns = zip(*heads, strict=True)
    result = np.full_like(numbers, np.nan)
    result[rows, columns] = numbers[rows, columns]
    return result


def which(
    model: Model,
    position: int | None = None,
    target: _Token | None = None,
    distractor: _Token | None = None,
    ablation: str = "zero",
    patch: str = "",
    *,
    metric: Metric | None = None,
    heads: Iterable[tuple[int, int]] | None = None,
    direction: str = "noising",
) -> HeadSweep:
    """The effect of each head on a prediction: every head is ablated, or patched from the model's other run, one at a time.

    `sweep_heads` does the same step by step, with its progress.

    Args:
        model: a model with a text, as `Model(folder, text)` or `Model.of(model, tokenizer, text)`; its interventions stay active.
        position: the position of the prediction; None: the end of the text. Without a language-model head, the position whose vector is
            compared by cosine, None: the mean over all tokens.
        target: the predicted token; None: the most likely one.
        distractor: a second token; the logit difference is measured then, and otherwise the log-probability of the target.
        ablation: "zero" or "mean": what the output of a head becomes.
        patch: the step of each head that is taken from `model.other` instead: query, key, value, weights or head_output.
        metric: a function that returns one number, measured instead of a token: of the logits [query_pos vocabulary] of the run, or of its
            trace if its parameter is called `trace`, which takes a recorded pass for each head.
        heads: the heads that are changed, each as (layer, head); None for all.
        direction: of a patch, if the model's text is the clean one and its other run's the corrupted one: "noising", from the corrupted
            run into the clean one, or "denoising", from the clean run into the corrupted one, in which everything is measured then.

    Raises:
        ConfigError: there is no other run to patch from, the values are not allowed, or the sweep would take too long.
        TextError: a target is not one token of the model.
        AttentionError: as for `Model.trace`.
    """
    *_, last = sweep_heads(
        model, position, target, distractor, patch or ablation, metric=metric, heads=heads, direction=direction
    )
    assert last.result is not None
    return last.result


def together(
    model: Model,
    heads: Sequence[tuple[int, int]],
    position: int | None = None,
    target: _Token | None = None,
    distractor: _Token | None = None,
    ablation: str = "zero",
    *,
    metric: Metric | None = None,
) -> _GroupAblation:
    """The effect of ablating several heads at once, each alone, and random groups of other heads of the same layers.

    Everything comes on top of the model's other interventions; the heads need not be ablated in the model.

    Args:
        model: as for `which`, like the other arguments.
        heads: the heads, as (layer, head).

    Raises:
        ConfigError: there are no heads, or none of that index, or it would take too long.
        TextError: a target is not one token of the model.
    """
    if ablation not in ABLATIONS:
        raise ConfigError(f"Heads are ablated by {' or '.join(ABLATIONS)}; got {ablation[:40]!r}: choose one of these.")
    loaded, inputs = load(model)
    group = chosen_heads(loaded.heads_by_layer, heads)
    others = tuple(each for each in model.interventions if each.ablated_head not in group)
    model = replace(model, interventions=others)
    measurement, description = resolve_metric(model, loaded, inputs, position, target, distractor, metric)
    key = ("together", *_cache_key(model, loaded, inputs), measurement, group, ablation)
    if metric is None and (cached := cache.CACHE.get(key)) is not None:
        result: _GroupAblation = cached
        return result
    random_groups = _random_groups(group, {layer: loaded.sites_by_layer[layer].n_heads for layer, _ in group})
    groups = [group, *((head,) for head in group), *random_groups]
    _ = estimate_runs(model, loaded, inputs, len(groups))
    changes = [[_change_of(*head, ablation) for head in heads] for heads in groups]
    runs = changed_runs(model, loaded, inputs, changes, measurement, model.patched_forward(loaded, inputs))
    pairs = [pair for batch in runs for pair in batch]
    effects = [ablated - baseline for baseline, ablated in pairs]
    alone, random_changes = effects[1 : 1 + len(group)], sorted(effects[1 + len(group) :])
    result = _GroupAblation(group, description, *pairs[0], tuple(alone), tuple(random_changes))
    return result if metric is not None else cache.CACHE.get_or_compute(key, lambda: result)


def attribution(
    model: Model,
    position: int | None = None,
    target: _Token | None = None,
    distractor: _Token | None = None,
    ablation: str = "zero",
    patch: str = "",
    *,
    metric: Metric | None = None,
    heads: Iterable[tuple[int, int]] | None = None,
    direction: str = "noising",
) -> HeadEstimates:
    """The estimated effect of each head, by attribution patching: two forward passes and one backward pass for all heads.

    The arguments are those of `which`, whose result has the same estimates beside the exact changes. The estimate is the first-order
    term of the exact change; where a softmax is saturated, it is too small.

    Source: Nanda 2023, "Attribution Patching: Activation Patching At Industrial Scale"; Syed et al. 2023, equation 2.

    Raises:
        ConfigError: there is no estimate for this model, or it takes too much memory.
        TextError: a target is not one token of the model.
    """
    kind = patch or ablation
    _check_kind(kind)
    model = model if kind in ABLATIONS else directed(model, direction)
    loaded, inputs = load(model)
    chosen = chosen_heads(loaded.heads_by_layer, heads)
    measurement, description = resolve_metric(model, loaded, inputs, position, target, distractor, metric)
    key = ("estimates", *_cache_key(model, loaded, inputs), measurement, kind, chosen, direction)
    if metric is None and (cached := cache.CACHE.get(key)) is not None:
        result: HeadEstimates = cached
        return result
    n_heads, other = loaded.heads_by_layer, other_run(model, loaded, inputs, kind)
    estimated = _estimate_heads(model, loaded, inputs, measurement, kind, other)
    if isinstance(estimated, str):
        raise ConfigError(f"Attribution patching gives no estimate: {estimated}")
    direct, _, no_direct_reason = _direct_effects(loaded, inputs, measurement)
    alignment = model.alignment_sentences(loaded, inputs) if other else ()
    baseline, estimates = estimated[0], _only(_as_map(n_heads, estimated[1]), chosen)
    result = HeadEstimates(
        description,
        kind,
        baseline,
        estimates,
        _only(direct, chosen),
        n_heads,
        chosen,
        no_direct_reason,
        alignment,
        direction,
    )
    return result if metric is not None else cache.CACHE.get_or_compute(key, lambda: result)


def patch_aligned(model: Model, other: Model | str) -> Model:
    """The model with another run to patch from, whose text may have another number of tokens.

    Tokens that correspond, as a comparison aligns the two texts, are patched; all others keep the values of their own run. The trace says
    in `changes` which these are, and a sweep in `alignment`. Weights need texts of the same number of tokens.

    Args:
        model: the run that is patched, by its `interventions` or by `which(…, patch=…)`.
        other: the run to patch from, or its text.
    """
    if isinstance(other, str):
        other = replace(model, text=other, interventions=(), frozen=False, other=None, input_ids=(), align=False)
    return replace(model, other=other, align=True)


def estimated_seconds(model: Model, kind: str = "zero") -> float:
    """The estimated seconds of `sweep_heads`, without running it.

    Raises:
        ConfigError: it would take too long.
        AttentionError: as for `Model.trace`.
    """
    loaded, inputs = load(model)
    return estimate_runs(model, loaded, inputs, sum(site.n_heads for site in loaded.sites), kind)


def measure(
    model: Model, target: _Token | None = None, distractor: _Token | None = None, metric: Metric | None = None
) -> float:
    """The measured value at the end of the model's text: the log-probability of the target, its logit minus that of the distractor, or a metric.

    Raises:
        AttentionError: as for `sweep_heads`.
    """
    from attention.models import lm_head, running

    loaded, inputs = load(model)
    measurement, _ = resolve_metric(model, loaded, inputs, None, target, distractor, metric)
    if reads_trace(metric):
        assert metric is not None
        return float(lm_head.one_number(metric(model.trace())))
    with lm_head.logits_at(measurement.logit_positions):
        return float(measurement.read(running.run(loaded, inputs))[0])


def _estimate_heads(
    model: Model,
    loaded: LoadedModel,
    inputs: TextInputs,
    metric: Measurement,
    kind: str,
    other: Mapping[int, Activations],
) -> tuple[float, dict[int, Tensor]] | str:
    """The measured value, and the estimated change of each head by attribution patching, [head] by layer; or why there is none."""
    from attention.circuits import batched_heads

    if reads_trace(metric.function):
        return "a metric of a trace is measured without gradients: give a function of the logits."
    if reason := batched_heads.no_gradient_reason(loaded, metric, bool(model.interventions)):
        return reason
    try:
        value, gradients = batched_heads.run_with_gradients(loaded, inputs, metric, model.max_bytes)
    except RuntimeError as error:  # of a function that leaves torch, such as by logits.numpy()
        if metric.function is None:
            raise
        return f"the metric gives no gradient ({' '.join(str(error).split())[:80]} …): compute it with torch."
    return value, batched_heads.estimated_changes(gradients, kind, other)


def _random_groups(heads: Heads, n_heads: dict[int, int]) -> list[Heads]:
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


def load(model: Model) -> tuple[LoadedModel, TextInputs]:
    """The loaded model, whose heads can be changed, and its token ids."""
    loaded, inputs = model.load_inputs()
    if not loaded.sites:
        raise ConfigError(f"The heads of {loaded.name} cannot be ablated: choose a model of another family.")
    return loaded, inputs


def other_run(model: Model, loaded: LoadedModel, inputs: TextInputs, kind: str) -> Mapping[int, Activations]:
    """The activations of the model's other run, by layer, that a change of this kind needs; empty for an ablation."""
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


def estimate_runs(model: Model, loaded: LoadedModel, inputs: TextInputs, n_runs: int, kind: str = "zero") -> float:
    """The estimated seconds of this number of runs, if they are allowed."""
    from attention.models import forward_pass
    from attention.patching.forward import count_layers

    n_patched = count_layers(loaded.layer_indices, model.interventions, model.frozen) + (kind not in ABLATIONS)
    n_tokens = sum(ids.shape[-1] for ids in inputs.values())
    plain = forward_pass.count_parameters(loaded) * n_tokens / forward_pass.PARAMETER_TOKENS_PER_SECOND
    needed = (plain + forward_pass.SECONDS_PER_LAYER * n_patched) * n_runs
    if needed > _MAX_SECONDS and not loaded.in_memory:  # on the user's own machine, Ctrl-C is the limit
        raise ConfigError(
            f"{n_runs:,} changes, one at a time, would take about {needed:,.0f} s here; at most {_MAX_SECONDS:,.0f} s are "
            "allowed: choose a shorter text, or a smaller model."
        )
    return needed


def _check_kind(kind: str) -> None:
    if kind not in SWEEP_KINDS:
        raise ConfigError(
            f"Each head gets an ablation ({', '.join(ABLATIONS)}) or a step of the other run ({', '.join(PATCH_CODES)}); "
            f"got {kind[:40]!r}: choose one of these."
        )


def _cache_key(model: Model, loaded: LoadedModel, inputs: TextInputs) -> tuple[object, ...]:
    """Everything that a sweep depends on: the model, its input, which may have pictures, and its interventions."""
    other = None if model.other is None else model.other.key
    return loaded.uid, inputs.key, model.interventions, model.frozen, other, model.align


def resolve_metric(
    model: Model,
    loaded: LoadedModel,
    inputs: TextInputs,
    position: int | None,
    target: _Token | None,
    distractor: _Token | None,
    metric: Metric | None = None,
) -> tuple[Measurement, str]:
    """What is measured, from the arguments of `which`, and its name in words."""
    from attention.models import lm_head, running
    from attention.models.lm_head import Measurement
    from attention.models.token_pieces import readable_tokens

    check_metric(metric, position, target, distractor)
    if metric is not None:
        if not reads_trace(metric) and not lm_head.class_names(loaded) and not lm_head.vocabulary_size(loaded):
            raise ConfigError(
                f"{lm_head.no_prediction_reason(loaded, ())} A metric of it reads the trace: write metric=lambda trace: …."
            )
        n_positions = len(lm_head.predicted_text_ids(inputs))
        return Measurement(function=metric, positions=tuple(range(n_positions))), metric_name(metric)
    ids = [model.find_token(token)[0] if isinstance(token, str) else token for token in (target, distractor)]
    if classes := lm_head.class_names(loaded):  # one class is predicted for the whole input
        positions: tuple[int, ...] = ()
        what, size = "The numbers of the classes", len(classes)
    elif size := lm_head.vocabulary_size(loaded):
        positions = lm_head.prediction_positions(loaded, inputs, () if position is None else (position,))[-1:]
        if not positions:
            raise ConfigError(lm_head.no_prediction_reason(loaded, positions))
        what = "Token ids"
    else:
        length = next(iter(inputs.values())).shape[-1]
        if position is not None and not 0 <= position < length:
            raise ConfigError(f"Positions range from 0 to {length - 1}; got {position}: choose one of these.")
        subject = "tokens' vectors (mean)" if position is None else f"vector of token {position}"
        return Measurement(position), f"cosine of {subject} with no head changed"
    if ids[0] is None:
        with lm_head.logits_at(positions) if positions else nullcontext():
            ids[0] = lm_head.read_predictions(loaded, inputs, running.run(loaded, inputs), positions)[0].ids[0]
    given = [token for token in ids if token is not None]
    check_ids(loaded.name, size, given, what)
    names = [classes[token] if classes else readable_tokens(loaded.tokenizer, [token])[0] for token in given]
    words = f"log-probability of {names[0]}" if len(names) == 1 else f"logit of {names[0]} minus logit of {names[1]}"
    return Measurement(positions[-1] if positions else 0, ids[0], ids[1]), words


def check_ids(model: str, size: int, ids: Sequence[int], what: str = "Token ids") -> None:
    """Checks the ids of tokens or classes, of which a model has `size`.

    Raises:
        ConfigError: one of them does not exist.
    """
    for given in ids:
        if not 0 <= given < size:
            raise ConfigError(f"{what} of {model} range from 0 to {size - 1:,}; got {given}: choose one of these.")


def _direct_effects(
    loaded: LoadedModel, inputs: TextInputs, metric: Measurement, forward: PatchedForward | None = None
) -> tuple[NDArray[np.float64], float, str]:
    """What each head adds directly, what no head adds, and why these are unknown; empty if they are known."""
    from attention.models import linearize

    if forward is not None and forward.sites:
        effects: Any = "an MLP or the residual stream is changed, and only changed heads are parts of the sum."
    elif metric.function is not None:
        effects = (
            "they are parts of a logit or of a difference of two, and a metric of your own need not be a sum of parts."
        )
    else:
        effects = linearize.direct_effects(loaded, inputs, metric, forward)
    if isinstance(effects, str):
        return _empty_map(loaded.heads_by_layer), math.nan, effects
    return _as_map(loaded.heads_by_layer, effects[0]), effects[1], ""


def _empty_map(n_heads: tuple[int, ...]) -> NDArray[np.float64]:
    import numpy as np

    return np.full((len(n_heads), max(n_heads)), np.nan)


def _as_map(n_heads: tuple[int, ...], by_layer: Mapping[int, Tensor]) -> NDArray[np.float64]:
    """A map [layer head] of numbers [head] by layer; NaN where there are none."""
    numbers = _empty_map(n_heads)
    for layer, row in by_layer.items():
        numbers[layer, : len(row)] = row.numpy()
    return numbers
