"""Weights, other maps and metrics, added up over the spans of a trace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attention.base.errors import MissingError, ShapeError, SizeError, check_index
from attention.formula.names import WEIGHTS
from attention.formula.steps import find_step
from attention.metrics import metric as metrics_of_heads
from attention.metrics.patterns import iterate_patterns

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray
    from torch import Tensor

    from attention.base.spans import Span
    from attention.trace.layer import Layer
    from attention.trace.trace import Trace

REST = "other tokens"
"""The name of the tokens that are in no span: of a chat, what the template adds, such as special tokens, names of roles and a default system prompt."""

SINK = "first token"
"""The name of the first token of a text where it counts alone, as an attention sink (Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks)."""

_MOST_NUMBERS = 2**22  # of a table: of 270 heads those of 124 spans


@dataclass(frozen=True, eq=False)
class Groups:
    """The spans of a trace as groups of positions; the last one has the tokens that are in none, if there are any.

    Attributes:
        names: the names of the spans.
        sizes: the number of tokens of each.
        members: whether a token is in a group, [pos group], as numbers.
        spans: the spans, without the rest.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    members: Tensor
    spans: tuple[Span, ...]

    @property
    def without_sink(self) -> Groups:
        """The same groups, of which the first token of the text is one of its own, `SINK`: many heads look there when they look at nothing."""
        import torch

        alone = torch.zeros(len(self.members), 1, dtype=torch.float64)
        alone[0] = 1
        members = torch.cat([self.members * (1 - alone), alone], dim=-1)
        sizes = tuple(int(size) for size in members.sum(0).tolist())
        return Groups((*self.names, SINK), sizes, members, self.spans)

    @classmethod
    def of(cls, trace: Trace) -> Groups:
        """The groups of a trace.

        Raises:
            MissingError: it has no spans.
        """
        import torch

        if not trace.spans:
            raise MissingError(
                "This trace has no spans: name stretches of its tokens with Model(…, spans=…), with messages=, or with trace.with_spans({…})."
            )
        n_tokens = len(trace.tokens)
        members = torch.zeros(n_tokens, len(trace.spans) + 1, dtype=torch.float64)
        for i, span in enumerate(trace.spans):
            members[span.first : span.last + 1, i] = 1
        members[:, -1] = 1 - members.sum(-1)
        names, n_groups = [span.name for span in trace.spans], len(trace.spans) + bool(members[:, -1].any())
        members = members[:, :n_groups]
        sizes = tuple(int(size) for size in members.sum(0).tolist())
        return cls((*names, REST)[:n_groups], sizes, members, trace.spans)


@dataclass(frozen=True, eq=False)
class SpanTable:
    """The weight that the queries of one span give to the keys of another, for each head; NaN where a layer has fewer heads, or other tokens.

    The last span may be `REST`, the tokens without a name.

    Attributes:
        step: the step that is added up.
        names: the names of the spans.
        sizes: the number of tokens of each.
        layers: the layer of each row of the numbers; `heads`: the head of each column.
        values: the sum over the keys of a span, as the mean over the queries of a span, [layer head query_span key_span].
        uniform: the same if each query gave all keys that it sees the same weight: a long span gets more by its length alone, [layer head query_span key_span].
    """

    step: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    values: NDArray[np.float64]
    uniform: NDArray[np.float64]

    @property
    def per_key(self) -> NDArray[np.float64]:
        """The mean per token of the span that is looked at, [layer head query_span key_span]."""
        import numpy as np

        mean: NDArray[np.float64] = self.values / np.array(self.sizes)
        return mean

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers."""
        return int(self.values.nbytes + self.uniform.nbytes)

    def mean(self) -> SpanTable:
        """The mean over all heads of all layers, as a table of one layer and one head, both −1."""
        import numpy as np

        values, uniform = (np.nanmean(numbers, axis=(0, 1), keepdims=True) for numbers in (self.values, self.uniform))
        return SpanTable(self.step, self.names, self.sizes, (-1,), (-1,), values, uniform)

    def frame(self) -> pd.DataFrame:
        """A row for each layer, head and pair of spans: the sum, the mean per key, the share by chance, and the sum divided by it."""
        import numpy as np
        import pandas as pd

        index = [self.layers, self.heads, self.names, self.names]
        rows = pd.MultiIndex.from_product(index, names=["layer", "head", "query span", "key span"])
        by_chance = self.uniform.ravel()
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(by_chance > 0, self.values.ravel() / by_chance, math.nan)
        columns = {
            "key tokens": np.tile(self.sizes, self.values.size // len(self.sizes)),
            "sum": self.values.ravel(), "mean per key": self.per_key.ravel(), "by chance": by_chance, "sum / by chance": ratio,
        }  # fmt: skip
        return pd.DataFrame(columns, index=rows).dropna(subset=["sum"]).reset_index()

    def csv(self) -> Iterator[str]:
        """The frame as CSV, a head at a time: the rows of all heads at once may take a gigabyte."""
        for i, layer in enumerate(self.layers):
            for j, head in enumerate(self.heads):
                one = replace(
                    self, layers=(layer,), heads=(head,), values=self.values[i : i + 1, j : j + 1], uniform=self.uniform[i : i + 1, j : j + 1]
                )  # fmt: skip
                yield one.frame().to_csv(index=False, header=not (i or j))


def table(trace: Trace, step: str = WEIGHTS, layer: int | None = None, head: int | None = None) -> SpanTable:
    """The weight that the queries of each span give to each span: the sum over its keys, as the mean over the queries.

    A few rows of a few heads are computed at a time, and nothing of the size of a map is kept.

    Args:
        trace: a trace with spans.
        step: a step of weights.
        layer: the only layer; None: all. Those whose queries or keys are other tokens, as in cross-attention, have NaN.
        head: the only head; None: all.

    Raises:
        MissingError: the trace has no spans, or no such layer or head, or the step is none of weights.
        SizeError: so many spans, layers and heads have too many numbers.
    """
    import numpy as np

    declared = find_step(step)
    if declared.kind != "probability" or declared.axes[-2:] != ("query_pos", "key_pos"):
        raise MissingError(
            f"Spans add up weights; got the step {declared.name}: give weights, or a map of your own to spans.sums(trace, map)."
        )
    groups = Groups.of(trace)
    indices = range(len(trace.layers)) if layer is None else (layer,)
    layers = [trace.layer(index) for index in indices]
    n_heads = max((each.n_heads for each in layers if each.has_attention), default=0)
    if head is not None:
        check_index("heads", head, n_heads)
    n_groups = len(groups.names)
    n_numbers = len(layers) * n_heads * n_groups**2
    if n_numbers > _MOST_NUMBERS:
        raise SizeError(
            f"A table of spans has at most {_MOST_NUMBERS:,} numbers; {n_groups:,} spans in {len(layers)} layers of {n_heads} heads have {n_numbers:,}: "
            "give layer=, or name longer stretches, such as paragraphs."
        )
    values, uniform = (np.full((len(layers), n_heads, n_groups, n_groups), np.nan) for _ in range(2))
    for i, each in enumerate(layers):
        if has_tokens(each, trace) and each.has(declared.name):
            sums = _of_layer(each, declared.name, groups)
            for numbers, of_layer in zip((values, uniform), sums, strict=True):
                numbers[i, : each.n_heads] = of_layer.numpy()
    if head is not None:
        values, uniform = values[:, head : head + 1], uniform[:, head : head + 1]
    heads = range(n_heads) if head is None else (head,)
    return SpanTable(declared.name, groups.names, groups.sizes, tuple(indices), tuple(heads), values, uniform)


def has_tokens(layer: Layer, trace: Trace) -> bool:
    """Whether a layer attends from the tokens of the trace to themselves."""
    return layer.has(WEIGHTS) and layer.tokens == trace.tokens == layer.key_tokens


def _of_layer(layer: Layer, step: str, groups: Groups) -> tuple[Tensor, Tensor]:
    """The sums of the weights of a layer, and those under uniform attention, [head query_span key_span]."""
    import torch

    n_groups = len(groups.names)
    sums, uniform = (torch.zeros(layer.n_heads, n_groups, n_groups, dtype=torch.float64) for _ in range(2))
    for heads, rows, pattern in iterate_patterns(layer):
        weights = pattern.weights if step == WEIGHTS else layer.blocks(step, heads=heads, rows=rows)[0]
        queries = groups.members[rows].T
        visible = pattern.visible.double() @ groups.members
        sums[heads] += queries @ (weights.double() @ groups.members)
        uniform[heads] += queries @ (visible / pattern.n_visible.clamp_min(1)[..., None])
    sizes = torch.tensor(groups.sizes)[:, None]
    return sums / sizes, uniform / sizes


def sums(trace: Trace, numbers: Any) -> pd.DataFrame:
    """Numbers of tokens, added up over the spans of a trace.

    Of a map [query_pos key_pos], such as a rollout, what a head writes (`circuits.writes`), or weights: the sum over the keys of each span (columns), as the mean over
    the queries of each span (rows). Of numbers [key_pos], such as relevance (`circuits.relevance(trace).values`) or one row of a map: a row for each span with its number
    of tokens, the sum, and the mean per token.

    Raises:
        MissingError: the trace has no spans.
        ShapeError: the numbers are not of the tokens of the trace.
    """
    import pandas as pd
    import torch

    groups, values = Groups.of(trace), torch.as_tensor(numbers).detach().cpu().double()
    n_tokens = len(trace.tokens)
    if values.ndim not in (1, 2) or set(values.shape) != {n_tokens}:
        raise ShapeError(
            f"Spans add up numbers of {n_tokens} tokens, [key_pos] or [query_pos key_pos]; got the shape {list(values.shape)}: give one map or one row."
        )
    added = values @ groups.members
    sizes = torch.tensor(groups.sizes)
    if values.ndim == 1:
        columns = {"tokens": groups.sizes, "sum": added, "mean per token": added / sizes}
        return pd.DataFrame(columns, index=pd.Index(groups.names, name="span"))
    mean = (groups.members.T @ added) / sizes[:, None]
    index, columns_index = (pd.Index(groups.names, name=name) for name in ("query span", "key span"))
    return pd.DataFrame(mean.numpy(), index=index, columns=columns_index)


def metric(trace: Trace, name: str) -> pd.DataFrame:
    """A metric of every head on the queries of each span alone: layer, head, query span, value, number of queries for which it is defined.

    Raises:
        MissingError: the trace has no spans, no metric has this name, or it is no mean over queries.
    """
    import pandas as pd

    groups, declared = Groups.of(trace), metrics_of_heads.find(name)
    if declared.compute is None:
        raise MissingError(f"{name} is one number of a head, whatever the query: choose a metric of queries.")
    rows = [row for index, layer in enumerate(trace.layers) if has_tokens(layer, trace) for row in _metric_rows(index, layer, declared.compute, groups)]  # fmt: skip
    return pd.DataFrame(rows, columns=["layer", "head", "query span", name, "queries"])


def _metric_rows(index: int, layer: Layer, compute: Any, groups: Groups) -> Iterator[Sequence[Any]]:
    import torch

    shape = layer.n_heads, len(groups.names)
    total, count = (torch.zeros(*shape, dtype=torch.float64) for _ in range(2))
    for heads, rows, pattern in iterate_patterns(layer):
        values = compute(pattern)  # [head query_pos]
        defined = values.isfinite().double()
        total[heads] += values.nan_to_num(0.0, 0.0, 0.0) @ groups.members[rows]
        count[heads] += defined @ groups.members[rows]
    for head in range(layer.n_heads):
        for i, name in enumerate(groups.names):
            n = int(count[head, i])
            yield index, head, name, float(total[head, i]) / n if n else math.nan, n
