"""A matrix on the aligned axes of two states: partners share a row or column, merged tokens are pooled, the rest are gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from attention.analysis.compare.alignment import Alignment
from attention.core.steps import MAP_AXES, Step

if TYPE_CHECKING:
    from torch import Tensor

Side = Literal["a", "b"]


def pool_aligned(matrix: Tensor, rows: Alignment, columns: Alignment, side: Side, step: Step | None = None) -> Tensor:
    """A matrix [row column] on axes aligned between two states: nan in gaps, and where several cells cannot be pooled.

    Weights are summed over keys and averaged over queries; other steps with query rows are averaged over them. Nothing else
    is pooled: a sum of scores, or of rows of K, has no meaning. Without a `step` the matrix is a mask and is averaged.
    """
    if rows.is_identity and columns.is_identity:
        return matrix
    means = step is None
    adds = step is not None and step.axes == MAP_AXES and step.kind == "probability"
    keyed = step is not None and step.axes[-2] == "key_pos"
    pooled = _along(matrix, columns, side, summed=adds, single_only=not (adds or means))
    return _along(pooled.T, rows, side, summed=False, single_only=keyed).T


def _along(matrix: Tensor, alignment: Alignment, side: Side, summed: bool, single_only: bool) -> Tensor:
    """The columns of a matrix [other column] pooled by group; with `single_only` groups of several tokens become nan."""
    import torch

    if alignment.is_identity:
        return matrix
    spans = [group.a if side == "a" else group.b for group in alignment.groups]
    starts = torch.tensor([first for first, _ in spans])
    counts = torch.tensor([stop - first for first, stop in spans])
    pooled = torch.full((len(matrix), len(spans)), float("nan"), dtype=matrix.dtype)
    single = counts == 1
    pooled[:, single] = matrix[:, starts[single]]
    for index in torch.nonzero(counts > 1).flatten().tolist():
        part = matrix[:, slice(*spans[index])]
        if not single_only:
            pooled[:, index] = part.sum(dim=1) if summed else part.mean(dim=1)
    several = torch.tensor([single_only and not group.is_one_to_one for group in alignment.groups])
    pooled[:, several] = float("nan")
    return pooled
