"""A matrix on the axes of two states: its own rows and columns where they have partners, pieces put together, and gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from attention.formula.steps import MAP_AXES, Step
from attention.numbers.alignment import Alignment

if TYPE_CHECKING:
    from torch import Tensor

Side = Literal["a", "b"]


def grouped(matrix: Tensor, rows: Alignment, columns: Alignment, side: Side, step: Step | None = None) -> Tensor:
    """A matrix [row column] on axes that have the places of both: nan where it has none, or where there is no one number for several.

    Weights are summed over keys and averaged over queries, other rows of queries averaged. Nothing else is put together: a
    sum of scores, or of rows of K, is nothing. Without a `step` it is a mask, of which all is averaged.
    """
    if rows.plain and columns.plain:
        return matrix
    means = step is None
    adds = step is not None and step.axes == MAP_AXES and step.kind == "probability"
    keyed = step is not None and step.axes[-2] == "key_pos"
    found = _along(matrix, columns, side, summed=adds, apart=not (adds or means))
    return _along(found.T, rows, side, summed=False, apart=keyed).T


def _along(matrix: Tensor, alignment: Alignment, side: Side, summed: bool, apart: bool) -> Tensor:
    """The columns of a matrix [other here] in groups; with `apart` those of several have no number."""
    import torch

    if alignment.plain:
        return matrix
    spans = [one.a if side == "a" else one.b for one in alignment.groups]
    starts = torch.tensor([first for first, _ in spans])
    counts = torch.tensor([stop - first for first, stop in spans])
    found = torch.full((len(matrix), len(spans)), float("nan"), dtype=matrix.dtype)
    one = counts == 1
    found[:, one] = matrix[:, starts[one]]
    for at in torch.nonzero(counts > 1).flatten().tolist():
        part = matrix[:, slice(*spans[at])]
        if not apart:
            found[:, at] = part.sum(dim=1) if summed else part.mean(dim=1)
    several = torch.tensor([apart and not one.single for one in alignment.groups])
    found[:, several] = float("nan")
    return found
