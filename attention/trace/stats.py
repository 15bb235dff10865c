"""Statistics of a step, computed without keeping its numbers: of a tensor, or of a head row by row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from attention.formula.steps import MAP_AXES, Step

if TYPE_CHECKING:
    from torch import Tensor

    from attention.trace.large_map import BlockMaxima


_FEW_KEYS = 24  # a map of so few has its numbers in its cells
_OUTLIER = 4  # times the typical magnitude; normally distributed numbers reach 1.6 times


class StepStats(NamedTuple):
    """Statistics of a step: its range and, for a probability, the sums of its rows.

    Attributes:
        low: the smallest finite number; `high` the largest; both None if no number is finite.
        min_row_sum: the smallest nonzero sum of a row; `max_row_sum` the largest; both None if no row has one.
        zero_rows: the number of rows that sum to 0.
        brightest: of weights on many keys, the largest of a query that sees at least an eighth of them; None if no query does. Under a
            causal mask, the first queries have weights near 1 whatever the head does.
        typical: of a step of features, the magnitude that 1 of 50 numbers exceeds; None of a map, or of blocks.
    """

    low: float | None = None
    high: float | None = None
    min_row_sum: float | None = None
    max_row_sum: float | None = None
    zero_rows: int = 0
    brightest: float | None = None
    typical: float | None = None

    @property
    def finite_range(self) -> tuple[float, float] | None:
        """The smallest and the largest finite number; None if there is none."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def drawn_range(self, hides_keys: bool) -> tuple[float, float] | None:
        """The range that colours tell apart: without weights of queries that see few keys, if a mask `hides_keys`, and without outlier features."""
        if self.low is None or self.high is None:
            return None
        if hides_keys and self.brightest:
            return self.low, self.brightest
        if self.typical and max(-self.low, self.high) > _OUTLIER * self.typical:
            return -self.typical, self.typical
        return self.low, self.high

    def merge(self, other: StepStats) -> StepStats:
        """The statistics of two blocks combined."""
        pairs = ([value for value in pair if value is not None] for pair in zip(self[:4], other[:4], strict=True))
        lows, highs, smallest_sums, largest_sums = pairs
        return StepStats(
            min(lows, default=None),
            max(highs, default=None),
            min(smallest_sums, default=None),
            max(largest_sums, default=None),
            self.zero_rows + other.zero_rows,
            max((value for value in (self.brightest, other.brightest) if value is not None), default=None),
        )

    @classmethod
    def of(cls, step: Step, tensor: Tensor) -> StepStats:
        """The statistics of a tensor of a step."""
        low, high = finite_range(tensor) or (None, None)
        if step.kind != "probability":
            if step.axes == MAP_AXES or not tensor.numel():
                return cls(low, high)
            magnitudes = tensor.abs().flatten().float()
            return cls(low, high, typical=float(magnitudes.kthvalue(-(-49 * len(magnitudes) // 50)).values))
        sums = tensor.sum(dim=-1).flatten()
        nonzero = sums[sums != 0]
        smallest, largest = (float(value) for value in nonzero.aminmax()) if len(nonzero) else (None, None)
        return cls(low, high, smallest, largest, len(sums) - len(nonzero), _brightest(tensor))


class HeadSurvey(NamedTuple):
    """What one pass over the rows of a head keeps of its maps.

    Attributes:
        stats: the statistics of every map, by its name.
        maxima: the block maxima of every map, by its name, at most `large_map.MAX_SIDE` in each direction; of maps that are not kept.
        head_output: Z [query_pos d_v].
    """

    stats: dict[str, StepStats]
    maxima: dict[str, BlockMaxima]
    head_output: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.head_output.nbytes + sum(each.nbytes for each in self.maxima.values())


class Top(NamedTuple):
    """The keys with the largest numbers of a query, in the order of their numbers; of equal ones, the first key first.

    Attributes:
        keys: their positions, [rank].
        values: their numbers, [rank].
    """

    keys: Tensor
    values: Tensor


def _brightest(weights: Tensor) -> float | None:
    n_keys = weights.shape[-1]
    if n_keys <= _FEW_KEYS:
        return None
    largest = weights.amax(dim=-1)[8 * weights.count_nonzero(dim=-1) >= n_keys]
    return float(largest.max()) if len(largest) else None


def finite_range(tensor: Tensor) -> tuple[float, float] | None:
    """The smallest and the largest finite number of a tensor; None if it has none."""
    if not tensor.numel():
        return None
    low, high = (float(value) for value in tensor.aminmax())
    if math.isfinite(low) and math.isfinite(high):
        return low, high  # the common case: all numbers are finite, and no copy is needed
    # nan_to_num takes a fortieth of the time of selecting the finite numbers.
    above, below = math.inf, -math.inf
    low = float(tensor.nan_to_num(nan=above, posinf=above, neginf=above).amin())
    high = float(tensor.nan_to_num(nan=below, posinf=below, neginf=below).amax())
    return (low, high) if low <= high else None
