"""Path patching: the runs of a model in which one part takes its output from another run, and one receiver sees it.

Between a part and its receiver, in the mode "direct" every other head and every MLP keeps its output of run A, in "mlps" the MLPs
recompute, and in "free" everything recomputes; norms recompute in all modes.

Source: Wang et al. 2022, "Interpretability in the Wild", section 3.1; Goldowsky-Dill et al. 2023, "Localizing Model Behavior with
Path Patching".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from attention.formula.names import QUERY
from attention.trace.parts import Compute, Handlers, Inputs, PartRunner, Place, repeat_rows, replace_rows
from attention.trace.residual_parts import EMBEDDING_PART, Part, head_part, mlp_part

_T = TypeVar("_T")


class Target(NamedTuple):
    """What receives the patched output: the query of a head, or a key or value, which several heads may share.

    Attributes:
        receiver: "query", "key" or "value".
        layer: the index in the trace.
        row: the head of the queries, or the head of keys and values.
    """

    receiver: str
    layer: int
    row: int


@dataclass(frozen=True)
class LogitMeasurement:
    """What a run measures.

    Attributes:
        target: the token.
        distractor: if set, the logit of the target minus the logit of this token is measured.
        log_probability: whether the log-probability of the target is measured instead of its logit; not with a distractor.
    """

    target: int
    distractor: int | None = None
    log_probability: bool = False

    def read(self, rows: Tensor) -> list[float]:
        """The measured value of every text of a batch, from its logits at the position [batch token]."""
        if self.distractor is not None:
            return [float(value) for value in rows[:, self.target] - rows[:, self.distractor]]
        return [float(value) for value in (rows.log_softmax(-1) if self.log_probability else rows)[:, self.target]]


class _RecordedRun:
    """What the parts of a model wrote in one run; each tensor has a batch axis of one."""

    logits: Tensor  # at the position, [1 token]

    def __init__(self) -> None:
        self.events: list[int | Place] = []  # attention calls and places of MLPs, in the order of the run
        self.counts: list[dict[str, int]] = []  # of each attention call: its queries, keys and values
        self.head_outputs: list[Tensor] = []  # of each call, with the interventions, [1 query_pos head d_v]
        self.projected: dict[Place, Any] = {}  # the outputs of W_O
        self.written: dict[Place, Any] = {}  # the outputs of MLPs
        self.embedding: Tensor | None = None  # the input of the first layer; None if there are several stacks


class PathRuns:
    """The runs of path patching between two texts of equal length: run A, into which outputs of run B are patched.

    Attributes:
        parts: the parts of the model, in the order in which they write.
    """

    def __init__(self, a: PartRunner, b: PartRunner) -> None:
        """Records both runs."""
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
        """The number of heads in each layer of the trace; 0 where it has no attention."""
        counts = dict(zip(self._runner.layers, self.a.counts, strict=True))
        last = max(part.layer for part in self.parts if part.layer is not None)
        return tuple(counts[layer][QUERY] if layer in counts else 0 for layer in range(last + 1))

    def targets(self, receiver: str, heads: Sequence[tuple[int, int]] = ()) -> tuple[Target, ...]:
        """The queries, keys or values of these heads, as (layer, head); of all heads if there are none.

        Heads that share keys and values have one target.
        """
        counts = {layer: self.a.counts[self._call(layer)][receiver] for layer in sorted(self._runner.layers)}
        rows = [(layer, row) for layer, count in counts.items() for row in range(count)]
        if heads:
            rows = [(layer, head // (self.n_heads[layer] // counts[layer])) for layer, head in heads]
        return tuple(Target(receiver, layer, row) for layer, row in dict.fromkeys(rows))

    def count(self, target: Target) -> int:
        """The number of queries, keys or values in the layer of a target."""
        return self.a.counts[self._call(target.layer)][target.receiver]

    def reaches(self, part: Part, target: Target) -> bool:
        """Whether a part writes before the attention of the target reads."""
        return self._order[part] < self.a.events.index(self._call(target.layer))

    def changes(
        self, parts: Sequence[Part], targets: Sequence[Target], mode: str, measurement: LogitMeasurement
    ) -> Iterator[tuple[int, list[tuple[Part, Target | None, float]]]]:
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
        """The logits [batch token] of run A, and of run A with each part patched from run B; for each wanted call what it receives."""
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

    def _run_targets(self, patches: Sequence[tuple[Target, Tensor]]) -> Tensor:
        """The logits [batch token] of run A, and of run A with each of these queries, keys or values [pos d] patched."""

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
