"""Path patching: the change of a prediction along each path from a head, an MLP or the embedding to a head or the logits.

Source: Wang et al. 2022, "Interpretability in the Wild", section 3.1; Goldowsky-Dill et al. 2023, "Localizing Model Behavior with
Path Patching".
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from attention.base import cache
from attention.base.errors import ConfigError
from attention.base.printed import format_number
from attention.circuits.own_metric import Metric, check_metric, metric_name, reads_trace
from attention.circuits.sweep import DIRECTIONS, Progress, check_ids, chosen_heads, heads_of, signed
from attention.explanation.alignment import align, without_partner
from attention.formula.names import KEY, QUERY, VALUE
from attention.trace.residual_parts import EMBEDDING_PART, Part, head_part, mlp_part

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray
    from torch import Tensor

    from attention.trace.model_run import ModelRun
    from attention.trace.parts import Compute, Inputs, PartRunner, Place, RunParts
    from attention.trace.trace import Trace

_T = TypeVar("_T")

RECEIVERS = ("logits", QUERY, KEY, VALUE)
"""What can receive the patched output: the logits at a position, or an input of the attention of a head."""

MODES = {
    "direct": "every other head and every MLP keeps its output of run A, so the change reaches the receiver along the residual stream only",
    "mlps": "every other head keeps its output of run A, and the MLPs in between recompute, as in Wang et al. 2022",
    "free": "everything between the source and the receiver recomputes",
}
"""What happens between a source and its receiver, by the name of the mode; norms recompute in all modes."""

_QUANTITIES = ("logit", "log-probability")

CAVEAT = (
    "A path is measured with everything else at run A, and norms and softmaxes are not linear, so the numbers of several paths "
    "need not add up to the effect of all of them."
)

_MAX_SECONDS = 110.0  # where others wait
_DIRECT_SHARE = 0.4  # of the time of a plain run: frozen MLPs are not computed


def paths(
    trace: Trace,
    other: Trace,
    receiver: str = "logits",
    layer: int | None = None,
    head: int | None = None,
    *,
    heads: Iterable[tuple[int, int]] | None = None,
    mode: str = "direct",
    target: int | str | None = None,
    distractor: int | str | None = None,
    position: int | None = None,
    quantity: str = "logit",
    metric: Metric | None = None,
    direction: str = "noising",
) -> PathPatching:
    """The change of a prediction of `trace` along each path, where one source takes its output from `other`; see `PathPatching`.

    Run A is that of `trace`, with its interventions, and run B that of `other`. If a head receives, its query, key or value alone is
    that of the run with the source patched, and everything after it recomputes. If the logits receive, they are those of the run
    with the source patched.

    Args:
        trace: of a `Model` or a `Trained`.
        other: of the same model, with equally long texts.
        receiver: "logits", or the "query", "key" or "value" of heads.
        layer: the layer of the receiving heads; None for all layers.
        head: the receiving head; None for all heads. Heads that share a key or value receive it together.
        heads: the heads from which paths begin, each as (layer, head); None for every head, every MLP and the embedding.
        mode: what recomputes between source and receiver: "direct" (nothing), "mlps", or "free" (everything).
        target: a token, as its text or id; None for the likeliest token of run A.
        distractor: a second token; the logit of the target minus its logit is then measured.
        position: of the prediction; None for the end of the text, or the last mask.
        quantity: "logit" or "log-probability" of the target, if there is no distractor.
        metric: a function of the logits [query_pos vocabulary] that returns one number, measured instead of a target.
        direction: if `trace` is of the clean text and `other` of the corrupted one: "noising" (corrupted → clean) patches `other` into
            `trace`, "denoising" (clean → corrupted) `trace` into `other`, which is run A of the result then.

    Raises:
        ConfigError: the two cannot be patched, a head or token does not exist, or it would take too long.
        TextError: a text is not one token.

    Source: Wang et al. 2022, "Interpretability in the Wild", section 3.1; Goldowsky-Dill et al. 2023, "Localizing Model Behavior with
    Path Patching".
    """
    a, b = _runs_of(trace, other)
    _ = _both_parts(a, b)  # raises
    ids = [a.find_token(token)[0] if isinstance(token, str) else token for token in (target, distractor)]
    chosen = None if heads is None else chosen_heads(a.parts().n_heads, heads)
    request = PathRequest(receiver, layer, head, chosen, mode, ids[0], ids[1], position, quantity, metric, direction)
    *_, last = patch_paths(a, b, request)
    assert last.result is not None
    return last.result


@dataclass(frozen=True)
class PathEnd:
    """One end of a path.

    Attributes:
        name: such as "embedding", "L0 H2", "L0 MLP" or "logits"; "L3 H4–H5 (shared key)" where heads share a key or value.
        layer: the index of its layer in the trace; None for the embedding and the logits.
        heads: its heads: one, or those that share a key or value; empty for everything else.
    """

    name: str
    layer: int | None = None
    heads: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class PathPatching:
    """The change of a prediction of run A when one source takes its output from run B and only one target sees it.

    Attributes:
        receiver: what receives the patched output: "logits", or the "query", "key" or "value" of the targets.
        mode: one of `MODES`.
        quantity: the measured quantity, such as "logit of ·copper".
        baseline: the quantity in run A.
        other: the quantity in run B.
        values: the quantity with the path patched, minus `baseline`, [source target]; NaN where the source does not precede the target.
        sources: the rows of `values`: the embedding, heads, and MLPs, in the order in which they run.
        targets: the columns of `values`: one for the logits, otherwise one for each query, or for each key or value, which several heads may share.
        n_heads: the number of heads in each layer of the trace; 0 where a hybrid model has no attention, but a mixer, which its
            "MLP" here contains.
        direction: "noising", where the clean run is A, or "denoising", where it is B.
    """

    receiver: str
    mode: str
    quantity: str
    baseline: float
    other: float
    values: NDArray[np.float64]
    sources: tuple[PathEnd, ...]
    targets: tuple[PathEnd, ...]
    n_heads: tuple[int, ...]
    direction: str = "noising"

    @property
    def nbytes(self) -> int:
        """The memory of the array, in bytes."""
        return int(self.values.nbytes)

    @property
    def limit(self) -> float:
        """The end of a scale, symmetric about 0, that covers all changes."""
        import numpy as np

        return float(np.nanmax(np.abs(self.values), initial=0.0))

    def layer_map(self, target: int = 0) -> NDArray[np.float64]:
        """The changes along the paths into one target, [layer head]; the last column is the MLP of the layer, NaN where there is none."""
        import numpy as np

        result = np.full((len(self.n_heads), max(self.n_heads) + 1), np.nan)
        for source, change in zip(self.sources, self.values[:, target], strict=True):
            if source.layer is not None and source.layer < len(result):
                result[source.layer, source.heads[0] if source.heads else -1] = change
        return result

    def largest(self, count: int = 5) -> tuple[tuple[int, int], ...]:
        """The paths with the largest changes, the largest first, as indices (source, target)."""
        return self._sorted()[:count]

    def describe(self, source: int, target: int) -> str:
        """The change of the quantity along one path, in words."""
        change = float(self.values[source, target])
        end = self.targets[target].name
        receiver = f"the {end}" if self.receiver == "logits" else f"the {self.receiver} of {end}"
        after = format_number(self.baseline + change)
        return f"{self.sources[source].name} → {receiver}: {signed(change)} ({format_number(self.baseline)} becomes {after})."

    def frame(self) -> pd.DataFrame:
        """A row for each path, by decreasing size of its change: source, target, receiver, change."""
        import pandas as pd

        rows = [
            (self.sources[source].name, self.targets[target].name, self.receiver, float(self.values[source, target]))
            for source, target in self._sorted()
        ]
        return pd.DataFrame(
            rows, columns=["source", "target", "receiver", f"change of {self.quantity}, {self.direction}"]
        )

    def _sorted(self) -> tuple[tuple[int, int], ...]:
        import numpy as np

        order = np.argsort(-np.abs(self.values), axis=None, kind="stable")  # NaN comes last
        pairs = (divmod(int(index), len(self.targets)) for index in order)
        return tuple(pair for pair in pairs if not np.isnan(self.values[pair]))


PathProgress: TypeAlias = Progress[PathPatching]
"""The progress of path patching."""


@dataclass(frozen=True)
class PathRequest:
    """Which paths are patched, and what is measured: the arguments of `paths`, with tokens as ids.

    Raises:
        ConfigError: a value is not allowed.
    """

    receiver: str = "logits"
    layer: int | None = None
    head: int | None = None
    heads: tuple[tuple[int, int], ...] | None = None
    mode: str = "direct"
    target: int | None = None
    distractor: int | None = None
    position: int | None = None
    quantity: str = "logit"
    metric: Metric | None = None
    direction: str = "noising"

    def __post_init__(self) -> None:
        check_metric(self.metric, self.target, self.distractor, self.position)
        if self.metric is not None and reads_trace(self.metric):
            raise ConfigError(
                "Path patching repeats a run without its trace, so that a metric of it reads the logits: write metric=lambda logits: …."
            )
        named = (
            ("receiver", RECEIVERS),
            ("mode", tuple(MODES)),
            ("quantity", _QUANTITIES),
            ("direction", tuple(DIRECTIONS)),
        )
        for name, allowed in named:
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name} of path patching is one of {', '.join(allowed)}; got {str(getattr(self, name))[:40]!r}: choose one of these."
                )
        if self.receiver == "logits" and (self.layer, self.head) != (None, None):
            raise ConfigError(
                f"The logits belong to no head; got layer {self.layer}, head {self.head}: choose the receiver query, key or value."
            )
        if self.head is not None and self.layer is None:
            raise ConfigError(f"A receiving head has a layer; got head {self.head} alone: give both, or none.")


def estimated_seconds_of_paths(trace: Trace, other: Trace, request: PathRequest) -> float:
    """The estimated seconds of `paths` with the fields of this request, without running it.

    Raises:
        ConfigError: it would take too long, or the two cannot be patched.
    """
    return estimate_seconds(*_runs_of(trace, other), request)


def estimate_seconds(a: ModelRun, b: ModelRun, request: PathRequest) -> float:
    """The estimated seconds of `patch_paths`, as `estimated_seconds_of_paths`."""
    return _estimate(_both_parts(a, b)[0], request)


def _runs_of(trace: Trace, other: Trace) -> tuple[ModelRun, ModelRun]:
    if trace.model_run is None or other.model_run is None:
        raise ConfigError(
            "Path patching runs the model of two traces again; got a trace without a model: give two traces of one Model, or of one Trained."
        )
    return trace.model_run, other.model_run


def _both_parts(a: ModelRun, b: ModelRun) -> tuple[RunParts, RunParts]:
    from attention.patching.forward import check_lengths

    parts, other = a.parts(), b.parts()
    if (parts.model, parts.n_heads) != (other.model, other.n_heads):
        raise ConfigError(
            f"Both runs of path patching are of one model; got {parts.model} and {other.model}: give two texts of the same model."
        )

    def suggestion() -> str:
        return other.text_of_length(parts.text, parts.lengths[0]) if len(parts.lengths) == 1 else ""

    def unmatched() -> str:
        alignment = align(parts.tokens, other.tokens)
        return without_partner(alignment, parts.tokens, other.tokens, ("this one", "the other"))

    check_lengths(parts.lengths, other.lengths, suggestion, unmatched)
    return parts, other


def patch_paths(a: ModelRun, b: ModelRun, request: PathRequest) -> Iterator[PathProgress]:
    """Patches each path in turn, as `paths`; stop iterating to cancel between two batches.

    Args:
        a: the run into which outputs are patched, such as `trace.model_run`.
        b: the run from which they are taken.

    Yields:
        The progress; the last item has the result.

    Raises:
        ConfigError: as for `paths`.
    """
    import numpy as np

    if request.direction == "denoising":
        a, b = b, a
    run, other_run = _both_parts(a, b)
    expected_seconds = _estimate(run, request)
    positions: tuple[int, ...] = (run.position(request.position),)
    if request.metric is not None:
        positions = tuple(range(run.lengths[-1]))
    key = ("paths", run.key, other_run.key, positions, request)
    if (cached := cache.CACHE.get(key)) is not None:
        yield PathProgress(1, 1, 0, cached)
        return
    yield PathProgress(0, sum(_count_runs(run, request)), expected_seconds)
    started, done = time.monotonic(), 0
    runs = _PathRuns(run.runner(positions), other_run.runner(positions))
    measurement, quantity = _measurement(a, run.model, runs, request)
    targets = () if request.receiver == "logits" else runs.targets(request.receiver, _receiving_heads(run, request))
    parts = [
        part
        for part in runs.parts
        if (request.heads is None or (part.layer, part.head) in request.heads)
        and (not targets or any(runs.reaches(part, target) for target in targets))
    ]
    values = np.full((len(parts), max(1, len(targets))), np.nan)
    total = len(parts) + sum(runs.reaches(part, target) for part in parts for target in targets)
    for n_runs, changes in runs.changes(parts, targets, request.mode, measurement):
        for part, target, change in changes:
            values[parts.index(part), 0 if target is None else targets.index(target)] = change
        done += n_runs
        yield PathProgress(done, total, (time.monotonic() - started) / done * (total - done))
    sources = tuple(PathEnd(part.name, part.layer, () if part.head is None else (part.head,)) for part in parts)
    ends = tuple(_target_end(runs, target) for target in targets) or (PathEnd("logits"),)
    in_a, in_b = (measurement.read(each.logits)[0] for each in (runs.a, runs.b))
    result = PathPatching(
        request.receiver, request.mode, quantity, in_a, in_b, values, sources, ends, runs.n_heads, request.direction
    )
    if request.metric is None:  # of a function it is not known what it depends on
        result = cache.CACHE.get_or_compute(key, lambda: result)
    yield PathProgress(total, total, 0, result)


def _receiving_heads(run: RunParts, request: PathRequest) -> list[tuple[int, int]]:
    if request.layer is None:
        return [*heads_of(run.n_heads)]
    heads = [request.head] if request.head is not None else range(run.n_heads[_checked_layer(run, request.layer)])
    return [_checked_head(run, request.layer, head) for head in heads]


def _checked_layer(run: RunParts, layer: int) -> int:
    if not 0 <= layer < len(run.n_heads):
        raise ConfigError(f"Layers count from 0 to {len(run.n_heads) - 1}; got {layer}: choose one of these.")
    if not run.n_heads[layer]:
        raise ConfigError(f"Layer {layer} of {run.model} has no attention, so no head: choose another layer.")
    return layer


def _checked_head(run: RunParts, layer: int, head: int) -> tuple[int, int]:
    count = run.n_heads[_checked_layer(run, layer)]
    if not 0 <= head < count:
        raise ConfigError(f"Heads of layer {layer} count from 0 to {count - 1}; got {head}: choose one of these.")
    return layer, head


def _count_runs(run: RunParts, request: PathRequest) -> tuple[int, int]:
    """At most how many sources and how many pairs of a source and a target are patched."""
    n_heads = run.n_heads
    chosen = None if request.heads is None else len(request.heads)
    if request.receiver == "logits":
        return (sum(n_heads) + len(n_heads) + 1 if chosen is None else chosen), 0
    counts = n_heads if request.receiver == QUERY else run.n_kv_heads
    receiving = {(layer, head * counts[layer] // n_heads[layer]) for layer, head in _receiving_heads(run, request)}
    earlier = [sum(n_heads[:layer]) + layer + 1 if chosen is None else chosen for layer, _ in receiving]
    return max(earlier), sum(earlier)


def _estimate(run: RunParts, request: PathRequest) -> float:
    n_parts, n_pairs = _count_runs(run, request)
    needed = run.seconds * (n_parts * (_DIRECT_SHARE if request.mode == "direct" else 1) + n_pairs)
    if needed > _MAX_SECONDS and run.is_bounded:  # on the user's own machine, Ctrl-C is the limit
        raise ConfigError(
            f"Patching {n_pairs or n_parts:,} paths in turn would take about {needed:,.0f} s here; at most {_MAX_SECONDS:,.0f} s are "
            "allowed: choose one receiving head, one source, a shorter text, or a smaller model."
        )
    return needed


def _measurement(run: ModelRun, model: str, runs: _PathRuns, request: PathRequest) -> tuple[_Measurement, str]:
    if request.metric is not None:
        return _FunctionMeasurement(request.metric), metric_name(request.metric)
    target = int(runs.a.logits[0, -1].argmax()) if request.target is None else request.target
    ids = [target] if request.distractor is None else [target, request.distractor]
    check_ids(model, runs.a.logits.shape[-1], ids)
    names = run.token_names(ids)
    measurement = _LogitMeasurement(target, request.distractor, request.quantity == "log-probability")
    if request.distractor is not None:
        return measurement, f"logit of {names[0]} minus logit of {names[1]}"
    return measurement, f"{request.quantity} of {names[0]}"


def _target_end(runs: _PathRuns, target: _Target) -> PathEnd:
    group = runs.n_heads[target.layer] // runs.count(target)
    heads = tuple(range(target.row * group, (target.row + 1) * group))
    name = f"L{target.layer} H{heads[0]}"
    if group > 1:
        name += f"–H{heads[-1]} (shared {target.receiver})"
    return PathEnd(name, target.layer, heads)


class _Target(NamedTuple):
    """What receives the patched output: the query of a head, or a key or value, which several heads may share."""

    receiver: str
    layer: int
    row: int  # the head of the queries, or the head of keys and values


class _LogitMeasurement(NamedTuple):
    """The logit of the target, minus that of the distractor if there is one; or the log-probability of the target."""

    target: int
    distractor: int | None = None
    log_probability: bool = False

    def read(self, rows: Tensor) -> list[float]:
        """The measured value of every text of a batch, from its logits at one position [batch position token]."""
        rows = rows[:, -1]
        if self.distractor is not None:
            return [float(value) for value in rows[:, self.target] - rows[:, self.distractor]]
        return [float(value) for value in (rows.log_softmax(-1) if self.log_probability else rows)[:, self.target]]


class _FunctionMeasurement(NamedTuple):
    """A function of the logits at all positions."""

    function: Metric

    def read(self, rows: Tensor) -> list[float]:
        """The measured value of every text of a batch, from its logits [batch position token]."""
        from attention.models.lm_head import one_number

        return [float(one_number(self.function(logits.float()))) for logits in rows]


_Measurement: TypeAlias = _LogitMeasurement | _FunctionMeasurement


class _RecordedRun:
    """What the parts of a model wrote in one run; each tensor has a batch axis of one."""

    logits: Tensor  # [1 position token]

    def __init__(self) -> None:
        self.events: list[int | Place] = []  # attention calls and places of MLPs, in the order of the run
        self.counts: list[dict[str, int]] = []  # of each attention call: its queries, keys and values
        self.head_outputs: list[Tensor] = []  # of each call, with the interventions, [1 query_pos head d_v]
        self.projected: dict[Place, Any] = {}  # the outputs of W_O
        self.written: dict[Place, Any] = {}  # the outputs of MLPs
        self.embedding: Tensor | None = None  # the input of the first layer; None if there are several stacks


class _PathRuns:
    """The runs of path patching between two texts of equal length: run A, into which outputs of run B are patched.

    `parts` are in the order in which they write. Norms recompute in all modes.
    """

    def __init__(self, a: PartRunner, b: PartRunner) -> None:
        self._runner = a
        self.a, self.b = _record(a), _record(b)
        n_calls = Counter(module for module, _ in self.a.written)
        self._part_of = {place: mlp_part(a.mlp_layer(place, n_calls[place[0]])) for place in self.a.written}
        heads = enumerate(self.a.head_outputs)
        self._order = {
            head_part(a.layers[i], head): self.a.events.index(i) for i, z in heads for head in range(z.shape[2])
        }
        self._order |= {part: self.a.events.index(place) for place, part in self._part_of.items()}
        if self.a.embedding is not None:
            self._order[EMBEDDING_PART] = -1
        self.parts = tuple(sorted(self._order, key=lambda part: self._order[part]))

    @property
    def n_heads(self) -> tuple[int, ...]:
        counts = dict(zip(self._runner.layers, self.a.counts, strict=True))
        last = max(part.layer for part in self.parts if part.layer is not None)
        return tuple(counts[layer][QUERY] if layer in counts else 0 for layer in range(last + 1))

    def targets(self, receiver: str, heads: Sequence[tuple[int, int]]) -> tuple[_Target, ...]:
        """The queries, keys or values of these heads, as (layer, head); heads that share keys and values have one target."""
        counts = {layer: self.a.counts[self._call(layer)][receiver] for layer in sorted(self._runner.layers)}
        rows = [(layer, head // (self.n_heads[layer] // counts[layer])) for layer, head in heads]
        return tuple(_Target(receiver, layer, row) for layer, row in dict.fromkeys(rows))

    def count(self, target: _Target) -> int:
        return self.a.counts[self._call(target.layer)][target.receiver]

    def reaches(self, part: Part, target: _Target) -> bool:
        return self._order[part] < self.a.events.index(self._call(target.layer))

    def changes(
        self, parts: Sequence[Part], targets: Sequence[_Target], mode: str, measurement: _Measurement
    ) -> Iterator[tuple[int, list[tuple[Part, _Target | None, float]]]]:
        """The number of finished runs, and the change of the measured value for each part and each target that it reaches, batch by batch.

        Without targets, only the logits see the part. Otherwise the first run of a batch of parts computes what each target receives,
        and gives no change; in the runs after it, one target has its query, key or value of that run, and everything after the target
        recomputes.
        """
        wanted = {self._call(target.layer): target.receiver for target in targets}
        for sources in _batches(parts, self._runner.batch_size - 1):
            logits, received = self._run_sources(sources, mode, wanted)
            if not targets:
                before, *after = measurement.read(logits)
                yield len(sources), [(part, None, value - before) for part, value in zip(sources, after, strict=True)]
                continue
            yield len(sources), []
            pairs = [(i, target) for i, part in enumerate(sources) for target in targets if self.reaches(part, target)]
            for batch in _batches(pairs, self._runner.batch_size - 1):
                # The first row of a batch has no part patched.
                patches = [(target, received[self._call(target.layer)][i + 1, target.row]) for i, target in batch]
                before, *after = measurement.read(self._run_targets(patches))
                changes = zip(batch, after, strict=True)
                yield len(batch), [(sources[row], target, value - before) for (row, target), value in changes]

    def _run_sources(
        self, sources: Sequence[Part], mode: str, wanted: Mapping[int, str]
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """The logits [batch position token] of run A, and of run A with each part patched from run B; for each wanted call what it receives."""
        from attention.trace.parts import Handlers, repeat_rows, replace_rows

        rows: dict[Part, int] = {part: i for i, part in enumerate(sources, start=1)}
        n_rows, a, b = len(sources) + 1, self.a, self.b
        received: dict[int, Tensor] = {}

        def on_inputs(call: int, inputs: Inputs) -> Inputs:
            if call in wanted:
                received[call] = inputs[wanted[call]]
            return inputs

        def on_output(call: int, z: Tensor, intervened: Compute) -> Tensor:
            layer = self._runner.layers[call]
            z = intervened() if mode == "free" else repeat_rows(a.head_outputs[call], n_rows)
            for part, row in rows.items():
                if part.layer == layer and part.head is not None:
                    z[row, :, part.head] = b.head_outputs[call][0, :, part.head]
            return z

        def on_projected(place: Place, call: int, compute: Compute) -> Any:
            if mode == "free":
                return compute()
            # A family may do more than W_O here, such as a gate that reads the residual stream: it is frozen as well.
            layer, frozen = self._runner.layers[call], repeat_rows(a.projected[place], n_rows)
            patched = [row for part, row in rows.items() if part.layer == layer and part.head is not None]
            return replace_rows(frozen, compute(), patched, n_rows) if patched else frozen

        def on_written(place: Place, compute: Compute) -> Any:
            result = repeat_rows(a.written[place], n_rows) if mode == "direct" else compute()
            row = rows.get(self._part_of[place])
            return result if row is None else replace_rows(result, repeat_rows(b.written[place], n_rows), [row], n_rows)

        def on_embedding(x: Tensor) -> Tensor:
            row = rows.get(EMBEDDING_PART)
            return x if row is None else replace_rows(x, repeat_rows(b.embedding, n_rows), [row], n_rows)

        handlers = Handlers(on_inputs, on_output, on_projected, on_written, on_embedding)
        return self._runner.run(n_rows, handlers), received

    def _run_targets(self, patches: Sequence[tuple[_Target, Tensor]]) -> Tensor:
        """The logits [batch position token] of run A, and of run A with each of these queries, keys or values [pos d] patched."""
        from attention.trace.parts import Handlers

        def on_inputs(call: int, inputs: Inputs) -> Inputs:
            layer, patched = self._runner.layers[call], dict(inputs)
            for row, (target, received) in enumerate(patches, start=1):
                if target.layer == layer:
                    if patched[target.receiver] is inputs[target.receiver]:
                        patched[target.receiver] = inputs[target.receiver].clone()
                    patched[target.receiver][row, target.row] = received
            return patched

        return self._runner.run(len(patches) + 1, Handlers(on_inputs, lambda call, z, intervened: intervened()))

    def _call(self, layer: int) -> int:
        return self._runner.layers.index(layer)


def _record(runner: PartRunner) -> _RecordedRun:
    from attention.trace.parts import Handlers

    run = _RecordedRun()

    def on_inputs(call: int, inputs: Inputs) -> Inputs:
        run.counts.append({name: tensor.shape[1] for name, tensor in inputs.items()})
        run.events.append(call)
        return inputs

    def on_output(call: int, z: Tensor, intervened: Compute) -> Tensor:
        run.head_outputs.append(intervened())
        return run.head_outputs[-1].clone()

    def on_projected(place: Place, call: int, compute: Compute) -> Any:
        run.projected[place] = compute()
        return run.projected[place]

    def on_written(place: Place, compute: Compute) -> Any:
        run.written[place] = compute()
        run.events.append(place)
        return run.written[place]

    def on_embedding(x: Tensor) -> Tensor:
        run.embedding = x.clone()
        return x

    run.logits = runner.run(1, Handlers(on_inputs, on_output, on_projected, on_written, on_embedding))
    return run


def _batches(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
