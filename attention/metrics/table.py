"""The metrics of every head on one text, as arrays, in words and as tables; and similar heads.

Heads are similar by the Jensen–Shannon divergence between their weights.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from attention.base import cache
from attention.base.printed import Displayed, plural
from attention.formula.names import WEIGHTS
from attention.metrics.metric import ON_THIS_TEXT, Metric, all_metrics, find, names_of
from attention.metrics.patterns import CELLS_PER_SECOND, iterate_patterns
from attention.trace.layer import Layer
from attention.trace.trace import Trace

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray
    from torch import Tensor


@dataclass(frozen=True, eq=False, repr=False)
class MetricsTable(Displayed):
    """The metrics of every head on one text.

    Attributes:
        values: [layer head metric]; NaN where a metric is undefined, or a layer has fewer heads.
        counts: the number of queries behind each value; 0 where it is undefined.
        uniform: the value of the metric if all visible keys had the same weight, [layer metric].
        n_heads: the number of heads in each layer.
    """

    values: NDArray[np.float64]
    counts: NDArray[np.int64]
    uniform: NDArray[np.float64]
    n_heads: tuple[int, ...]

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {mean:.3g}" for name in all_metrics() if not math.isnan(mean := self._mean(name)))
        return f"MetricsTable({plural(len(self.heads), 'head')} in {plural(len(self.n_heads), 'layer')}; means: {means or 'none defined'})"

    def _mean(self, name: str) -> float:
        defined = [value for value in self.column(name).tolist() if not math.isnan(value)]
        return math.fsum(defined) / len(defined) if defined else math.nan

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        return self.values.nbytes + self.counts.nbytes + self.uniform.nbytes

    @cached_property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """Every head as (layer, head), in order."""
        return tuple((layer, head) for layer, count in enumerate(self.n_heads) for head in range(count))

    def column(self, name: str) -> NDArray[np.float64]:
        """One metric for each of `heads`."""
        import numpy as np

        index = _index(name)
        return np.array([self.values[layer, head, index] for layer, head in self.heads])

    def under_uniform_attention(self, name: str) -> NDArray[np.float64]:
        """One metric for each layer if all visible keys had the same weight, [layer]."""
        return self.uniform[:, _index(name)]

    def frame(self) -> pd.DataFrame:
        """A row for each head: layer, head, and every metric."""
        import pandas as pd

        columns = {"layer": [layer for layer, _ in self.heads], "head": [head for _, head in self.heads]}
        return pd.DataFrame(columns | {name: self.column(name) for name in all_metrics()})

    def sorted_by(self, name: str) -> tuple[tuple[int, int], ...]:
        """All heads by decreasing value; heads with an undefined value come last."""
        import numpy as np

        numbers = self.column(name)
        order = np.argsort(-np.where(np.isnan(numbers), -math.inf, numbers), kind="stable")
        return tuple(self.heads[i] for i in order)

    def rank(self, name: str, layer: int, head: int) -> tuple[int, int] | None:
        """The rank of a head by a metric, from 1, and the number of ranked heads; None if its value is undefined."""
        import numpy as np

        numbers = self.column(name)
        value = numbers[self.heads.index((layer, head))]
        defined = numbers[~np.isnan(numbers)]
        return None if math.isnan(value) else (int((defined > value).sum()) + 1, len(defined))

    def count(self, name: str) -> tuple[int, int]:
        """The fewest and the most queries behind the values of a metric."""
        index = _index(name)
        counts = [int(self.counts[layer, head, index]) for layer, head in self.heads]
        return min(counts, default=0), max(counts, default=0)


def _index(name: str) -> int:
    return [*all_metrics()].index(find(name).name)


def heading(metric: Metric) -> str:
    """The column heading of a metric."""
    return f"{metric.name}, {metric.scope}"


def describe_metric(metric: Metric, table: MetricsTable) -> str:
    """What a metric measures, and how many queries its numbers average here."""
    fewest, most = table.count(metric.name)
    if metric.compute is None:
        over = metric.averaged_over if most else f"not defined here: it needs {metric.averaged_over}"
        return f"{metric.meaning} {metric.formula}; {metric.range}; {metric.scope}: {over}. {metric.paper}."
    queries = f"{most}" if fewest == most else f"{fewest} to {most}"
    where = (
        f"a mean over {queries} queries of this text ({metric.averaged_over})"
        if most
        else f"not defined on this text: no {metric.averaged_over}"
    )
    return f"{metric.meaning} {metric.formula}; {metric.range}; {where}. {metric.paper}."


def frame(
    trace: Trace, table: MetricsTable, order: Sequence[tuple[int, int]], by: str = "", counts: bool = False
) -> pd.DataFrame:
    """A row for each head in this order: layer, head, and every metric that the trace can have, the metric `by` first.

    With `counts`, the number of queries follows each metric.
    """
    import pandas as pd

    layers, heads = [layer for layer, _ in order], [head for _, head in order]
    columns: dict[str, Any] = {"layer": layers, "head": heads}
    if any(layer.name not in ("", f"layer {i}") for i, layer in enumerate(trace.layers)):
        columns = {"name": [trace.layers[layer].name for layer in layers], **columns}
    names = names_of(trace)
    for index, metric in sorted(enumerate(all_metrics().values()), key=lambda pair: pair[1].name != by):
        if metric.name not in names and metric.name != by:
            continue
        columns[heading(metric)] = table.values[layers, heads, index]
        if counts and metric.compute is not None:
            columns[f"{metric.name}, queries"] = table.counts[layers, heads, index]
    return pd.DataFrame(columns)


def describe_head(table: MetricsTable, layer: int, head: int, by: str = "") -> str:
    """One head in words: its rank by a metric, and every metric with its number of queries; those of pictures only where they are defined."""
    numbers = [
        f"{metric.name} {number:.2f}{'' if metric.compute is None else f' ({count})'}"
        if count
        else f"{metric.name} not defined"
        for metric, number, count in zip(
            all_metrics().values(), table.values[layer, head], table.counts[layer, head], strict=True
        )
        if count or not metric.of_pictures
    ]
    place = rank_words(table, layer, head, by)
    return f"L{layer} H{head}{', ' if place else ''}{place}: {', '.join(numbers)}; in brackets the number of queries behind each."


def rank_words(table: MetricsTable, layer: int, head: int, by: str) -> str:
    """The rank of a head by a metric, such as "3rd of 72 by previous, on this text"; empty if undefined."""
    place = table.rank(by, layer, head) if by else None
    return f"{_ordinal(place[0])} of {place[1]} by {by}, {find(by).scope}" if place else ""


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def similar_heads(trace: Trace, layer: int, head: int) -> Sequence[tuple[int, int, float, int]]:
    """Every other head with its divergence from this one: (layer, head, divergence, number of queries), most similar first.

    The Jensen–Shannon divergence between two rows of weights, in bits, averaged over the queries: 0 means identical, 1 means
    disjoint; its square root is a distance. Only heads with the same numbers of queries and keys can be compared.

    Source: Lin 1991; Clark et al. 2019, "What Does BERT Look At?", section 6.
    """
    uid, key, formulas = _cache_key(trace, layer, head)
    return cache.memoize(uid, key, formulas, lambda: _differences(trace, layer, head))


def estimated_seconds(trace: Trace, layer: int, head: int) -> float:
    """The estimated time of `similar_heads` on one thread; 0 if the result is cached."""
    if cache.CACHE.get(_cache_key(trace, layer, head)) is not None:
        return 0.0
    return sum(math.prod(each.shape(WEIGHTS)) for each in trace.layers if each.has(WEIGHTS)) / CELLS_PER_SECOND


def similarity_frame(similar: Sequence[tuple[int, int, float, int]]) -> pd.DataFrame:
    """The result of `similar_heads` as a table."""
    import pandas as pd

    return pd.DataFrame({
        "layer": [entry[0] for entry in similar],
        "head": [entry[1] for entry in similar],
        f"distance, {ON_THIS_TEXT}": [math.sqrt(entry[2]) for entry in similar],
        "divergence in bits": [entry[2] for entry in similar],
        "queries": [entry[3] for entry in similar],
    })  # fmt: skip


def _cache_key(trace: Trace, layer: int, head: int) -> tuple[int, Hashable, Hashable]:
    return trace.layer(layer).uid, ("alike", head), tuple((each.uid, each.formula) for each in trace.layers)


def _differences(trace: Trace, layer: int, head: int) -> Sequence[tuple[int, int, float, int]]:
    reference = trace.layer(layer)
    sizes = reference.shape(WEIGHTS)[1:]
    entries = []
    for other_index, other in enumerate(trace.layers):
        same_shape = other.has(WEIGHTS) and other.shape(WEIGHTS)[1:] == sizes
        if same_shape and (other.tokens, other.key_tokens) == (reference.tokens, reference.key_tokens):
            entries += [
                (other_index, other_head, divergence, count)
                for other_head, (divergence, count) in enumerate(_divergences(reference, head, other))
                if (other_index, other_head) != (layer, head) and count
            ]
    return sorted(entries, key=lambda entry: entry[2])


def _divergences(reference: Layer, head: int, other: Layer) -> list[tuple[float, int]]:
    """The mean divergence between one head and every head of another layer, with the number of queries."""
    import numpy as np
    import torch

    def entropy(probabilities: Tensor) -> Tensor:
        bits: Tensor = torch.special.entr(probabilities).sum(dim=-1) / math.log(2)
        return bits

    sums, counts = np.zeros(other.n_heads), np.zeros(other.n_heads, dtype=np.int64)
    for heads, rows, pattern in iterate_patterns(other):
        (weights,) = reference.blocks(WEIGHTS, heads=slice(head, head + 1), rows=rows)
        total = weights.sum(dim=-1, keepdim=True)
        probabilities = weights / total
        mixture = (probabilities + pattern.probabilities) / 2
        divergence = entropy(mixture) - (entropy(probabilities) + entropy(pattern.probabilities)) / 2
        divergence = pattern.nan_unless(total[..., 0] > 0, divergence.clamp_min(0))
        sums[heads] += divergence.nansum(dim=-1).numpy()
        counts[heads] += (~divergence.isnan()).sum(dim=-1).numpy()
    return [(float(value) / max(1, int(count)), int(count)) for value, count in zip(sums, counts, strict=True)]
