"""Two states compared: the partner of each row and column, and the differences."""

from __future__ import annotations

from attention.comparison.comparison import Difference, HeadIndex, compare

__all__ = ["Difference", "HeadIndex", "compare"]
