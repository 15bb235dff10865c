"""What the numbers of recorded weights say against the way in which a file was read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attention.formula.names import KEY, QUERY, WEIGHTS

if TYPE_CHECKING:
    from torch import Tensor

    from attention.files.plan import Plan
    from attention.trace.layer import Layer


def looks_otherwise(plan: Plan, layers: Sequence[Layer]) -> list[str]:
    """Sentences on recorded weights whose numbers say that their axes are others than those that were read.

    Weights of a key that sum to 1 over another axis; and the zeros of a window at both ends of a sequence.
    """
    pairs = [
        (stored.places[WEIGHTS], layer[WEIGHTS])
        for stored, layer in zip(plan.layers, layers, strict=True)
        if WEIGHTS in stored.places and layer.formula is None
    ]
    names = next((list(row.axes) for row in plan.rows if row.step == WEIGHTS), [])
    if not pairs or names[-2:] != [QUERY, KEY]:
        return []
    place, weights = pairs[0]
    tolerance = 0.01 if place.low_precision else 1e-3

    def sums_to_1(axis: int) -> bool:
        return all(bool(((each.sum(axis) - 1).abs() <= tolerance).all()) for _, each in pairs)

    if not sums_to_1(-1):
        if sums_to_1(-2):
            return [
                f"In weights, every column sums to 1: the axes may be [{' '.join([*names[:-2], KEY, QUERY])}]; if so, write that in Axes."
            ]
        if names[-3:-2] == ["head"] and sums_to_1(-3):
            sizes = weights.shape
            rest = [QUERY, "head"] if sizes[-2] == sizes[-3] != sizes[-1] else ["head", QUERY]
            return [
                f"In weights, every sum along the axis read as head is 1: the axes may be [{' '.join([*names[:-3], KEY, *rest])}]; if so, write that in Axes."
            ]
    n, width = weights.shape[-2:]
    if width % 2 and 1 < width <= n and all(_has_window(each) for _, each in pairs):
        return [
            f"The {width} columns have the zeros of a window around each query, as Longformer returns it: they may be no keys. "
            f"If so, write “{' '.join([*names[:-1], 'window'])}” in Axes."
        ]
    if width < n and not plan.has_key_tokens:
        advice = (
            f"write “{' '.join([*names[:-1], 'window'])}” in Axes"
            if width % 2
            else "save the columns of the window alone"
        )
        return [
            f"There are {width:,} keys for {n:,} queries; if the columns are those of a window, they are no keys: {advice}."
        ]
    return []


def _has_window(weights: Tensor) -> bool:
    """Whether exactly the cells of a window that are before the first key or after the last one are 0, in some head."""
    import torch

    n, width = weights.shape[-2:]
    keys = torch.arange(n)[:, None] + torch.arange(width)[None] - width // 2
    outside = (keys < 0) | (keys >= n)
    return not bool(weights[:, outside].any()) and bool((weights[:, ~outside] > 0).any(0).all())
