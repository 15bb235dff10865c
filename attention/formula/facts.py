"""What is said of a step in all heads, without keeping its numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from attention.formula.steps import Step

if TYPE_CHECKING:
    from torch import Tensor


class Facts(NamedTuple):
    """What is said of a step in all heads: its ends, and of a probability what its rows sum to.

    Attributes:
        low: the smallest finite number, `high` the largest; both None where there is none.
        least: the smallest sum of a row that is not 0, `most` the largest; both None where there is none.
        empty: how many rows sum to 0.
    """

    low: float | None = None
    high: float | None = None
    least: float | None = None
    most: float | None = None
    empty: int = 0

    @property
    def ends(self) -> tuple[float, float] | None:
        """The smallest and the largest finite number; None where there is none."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def and_(self, other: Facts) -> Facts:
        """The facts of both together."""
        pairs = ([one for one in pair if one is not None] for pair in zip(self[:4], other[:4], strict=True))
        lows, highs, least, most = pairs
        ends = min(lows, default=None), max(highs, default=None)
        return Facts(*ends, min(least, default=None), max(most, default=None), self.empty + other.empty)

    @classmethod
    def of(cls, step: Step, tensor: Tensor) -> Facts:
        """Those of a tensor."""
        low, high = ends(tensor) or (None, None)
        if step.kind != "probability":
            return cls(low, high)
        sums = tensor.sum(dim=-1).flatten()
        there = sums[sums != 0]
        least, most = (float(end) for end in there.aminmax()) if len(there) else (None, None)
        return cls(low, high, least, most, len(sums) - len(there))


class Survey(NamedTuple):
    """What looking once at all heads gives: the facts of every map by its name, and Z [head query_pos d_v]."""

    facts: dict[str, Facts]
    head_output: Tensor

    @property
    def nbytes(self) -> int:
        """The memory of its tensor, in bytes."""
        return self.head_output.nbytes


def ends(tensor: Tensor) -> tuple[float, float] | None:
    """The smallest and the largest finite number of a tensor; None where it has none."""
    if not tensor.numel():
        return None
    low, high = (float(end) for end in tensor.aminmax())
    if math.isfinite(low) and math.isfinite(high):
        return low, high  # the common case: nothing hidden, and no copy of a large tensor
    # Filling in takes a fortieth of the time that picking the finite ones out would.
    above, below = math.inf, -math.inf
    low = float(tensor.nan_to_num(nan=above, posinf=above, neginf=above).amin())
    high = float(tensor.nan_to_num(nan=below, posinf=below, neginf=below).amax())
    return (low, high) if low <= high else None
