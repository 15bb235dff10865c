"""Heads of a model with layers without attention are compared by the model's own layers."""

from __future__ import annotations

from test_hybrid import TEXT, library  # noqa: F401  # a fixture

from attention import Model
from attention.comparison.comparison import HeadIndex, compare


def test_heads_of_a_hybrid_are_compared_by_their_layers() -> None:
    trace = Model("Jamba", TEXT).trace()
    assert compare(trace, trace, "weights", HeadIndex(1, 0), HeadIndex(3, 0)).largest > 0
