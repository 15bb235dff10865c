"""The metrics of every head on one text, as arrays: sorting, ranks and counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from attention.analysis.metrics.metric import NAMES, find
from attention.core.display import Displayed
from attention.printed import plural

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
        means = ", ".join(f"{name} {mean:.3g}" for name in NAMES if not math.isnan(mean := self._mean(name)))
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

        index = NAMES.index(find(name).name)
        return np.array([self.values[layer, head, index] for layer, head in self.heads])

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
        index = NAMES.index(find(name).name)
        counts = [int(self.counts[layer, head, index]) for layer, head in self.heads]
        return min(counts, default=0), max(counts, default=0)
