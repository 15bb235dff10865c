"""Normalizers, which turn scores into weights: one file for each, one line of the table for each."""

from __future__ import annotations

from attention.core.normalizers.normalizer import Normalizer
from attention.core.normalizers.sigmoid import Sigmoid
from attention.core.normalizers.softmax import Softmax
from attention.core.normalizers.softmax1 import Sinks, Softmax1
from attention.core.normalizers.sparsemax import Sparsemax

NORMALIZERS: dict[str, Normalizer] = {
    normalizer.name: normalizer for normalizer in (Softmax(), Softmax1(), Sigmoid(), Sparsemax(), Sinks())
}
"""All normalizers by their names in links."""

__all__ = ["NORMALIZERS", "Normalizer"]
