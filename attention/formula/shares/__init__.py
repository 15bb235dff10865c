"""Normalizers, which turn scores into weights: one file for each, one line of the table for each."""

from __future__ import annotations

from attention.formula.shares.share import Normalizer
from attention.formula.shares.sigmoid import Sigmoid
from attention.formula.shares.softmax import Softmax
from attention.formula.shares.softmax1 import Sinks, Softmax1
from attention.formula.shares.sparsemax import Sparsemax

SHARES: dict[str, Normalizer] = {
    normalizer.name: normalizer for normalizer in (Softmax(), Softmax1(), Sigmoid(), Sparsemax(), Sinks())
}
"""All normalizers by their names in links."""

__all__ = ["SHARES", "Normalizer"]
