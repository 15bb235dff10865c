"""The charts of the chapter on softmax, each from small numbers."""

from __future__ import annotations

import numpy as np
from drawings import numbers

from attention.lessons import softmax

SPREAD = softmax.spread((0.1, -0.2, -0.3, 0.5))
WEIGHTS = np.tril(numbers(2, 3, 3, 3, low=0)).astype(np.float32)
SCALING = softmax._Scaling(
    ("the", "<b>", "owl"), ("the", "<b>", "owl"), ("scaled normal", "uniform"), WEIGHTS, numbers(2, 3, low=0), numbers(2, 3, low=0), np.tri(3) > 0
)  # fmt: skip

DRAWINGS = {
    "softmax_curve": lambda: softmax.softmax_curve(softmax.curve()),
    "shares_by_temperature": lambda: softmax.shares_by_temperature(SPREAD),
    "variance_by_temperature": lambda: softmax.variance_by_temperature(SPREAD),
    "entropy_by_temperature": lambda: softmax.entropy_by_temperature(SPREAD),
    "scaling_maps": lambda: softmax.scaling_maps(SCALING),
}
