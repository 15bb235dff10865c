"""Notes on layers of files and of tensors, and what the numbers of recorded weights say against the way in which a file was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from attention.formula.names import KEY, QUERY, WEIGHTS

if TYPE_CHECKING:
    from torch import Tensor

    from attention.files.plan import Plan
    from attention.trace.layer import Layer


def layer_notes(problems: Mapping[str, Sequence[int]], n_layers: int) -> list[str]:
    """The notes on problems of layers, each with the numbers of its layers where there are several layers."""
    if n_layers == 1:
        return list(problems)
    listed = {note: ", ".join(map(str, numbers[:8])) + ", …" * (len(numbers) > 8) for note, numbers in problems.items()}
    return [f"In layer{'s' * (len(problems[note]) > 1)} {numbers}: {note}" for note, numbers in listed.items()]


def row_sum_note(weights: Iterable[tuple[Tensor, bool]]) -> str:
    """A sentence on rows of recorded weights that do not sum to 1; empty if all do.

    Args:
        weights: [head query_pos key_pos] of each layer, and whether they had 16 bits or fewer.
    """
    odd: list[float] = []
    for tensor, low_precision in weights:
        sums = tensor.sum(dim=-1).flatten()
        odd += sums[(sums - 1).abs() > (0.01 if low_precision else 1e-3)].tolist()
    if not odd:
        return ""
    rows = f"{len(odd):,} rows of weights sum" if len(odd) > 1 else "1 row of weights sums"
    return f"{rows} to a value other than 1, from {min(odd):.3g} to {max(odd):.3g}: they are shown unchanged, not renormalised."


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
