"""The metrics of every head on one text, as arrays: sorted, ranked, counted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from attention.numbers.metrics.metric import NAMES, find

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """The metrics of every head on one text.

    Attributes:
        values: [layer head metric]; NaN where a metric is not defined, or a layer has not so many heads.
        counts: on how many queries each number rests, 0 where it is not defined.
        uniform: what the metric would be if every key that may be looked at had the same weight, [layer metric].
        n_heads: how many heads each layer has.
    """

    values: NDArray[np.float64]
    counts: NDArray[np.int64]
    uniform: NDArray[np.float64]
    n_heads: tuple[int, ...]

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {mean:.3g}" for name in NAMES if not math.isnan(mean := self._mean(name)))
        return f"Table({len(self.heads)} heads in {len(self.n_heads)} layers; means: {means or 'none is defined'})"

    def _mean(self, name: str) -> float:
        there = [one for one in self.column(name).tolist() if not math.isnan(one)]
        return math.fsum(there) / len(there) if there else math.nan

    @property
    def nbytes(self) -> int:
        """The memory of its numbers, in bytes."""
        return self.values.nbytes + self.counts.nbytes + self.uniform.nbytes

    @cached_property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """Every head as layer and head, in their order."""
        return tuple((layer, head) for layer, many in enumerate(self.n_heads) for head in range(many))

    def column(self, name: str) -> NDArray[np.float64]:
        """One metric of `heads`, in their order."""
        import numpy as np

        at = NAMES.index(find(name).name)
        return np.array([self.values[layer, head, at] for layer, head in self.heads])

    def sorted_by(self, name: str) -> tuple[tuple[int, int], ...]:
        """All heads, the one with the largest number first; heads for which it is not defined come last."""
        import numpy as np

        numbers = self.column(name)
        order = np.argsort(-np.where(np.isnan(numbers), -math.inf, numbers), kind="stable")
        return tuple(self.heads[i] for i in order)

    def rank(self, name: str, layer: int, head: int) -> tuple[int, int] | None:
        """Which place a head has by a metric, from 1, and of how many; None where it is not defined."""
        import numpy as np

        numbers = self.column(name)
        own = numbers[self.heads.index((layer, head))]
        defined = numbers[~np.isnan(numbers)]
        return None if math.isnan(own) else (int((defined > own).sum()) + 1, len(defined))

    def count(self, name: str) -> tuple[int, int]:
        """The fewest and the most queries on which the numbers of a metric rest."""
        at = NAMES.index(find(name).name)
        counts = [int(self.counts[layer, head, at]) for layer, head in self.heads]
        return min(counts, default=0), max(counts, default=0)
