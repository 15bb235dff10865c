"""Two states compared: the partner of each row and column, and the differences; and the mean of the weights over prompts."""

from __future__ import annotations

from attention.comparison.comparison import Difference, HeadIndex, compare
from attention.comparison.mean import mean_weights

__all__ = ["Difference", "HeadIndex", "compare", "mean_weights"]
