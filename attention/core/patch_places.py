"""The places of patches along an axis as a tensor, for rules and distances in two dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attention.tokens import Patch

if TYPE_CHECKING:
    from torch import Tensor

NO_PATCH = -1
"""Picture, row and column of a token that is no patch."""


def patch_places(tokens: Sequence[str]) -> Tensor:
    """The picture, row and column of each token, [pos 3]; `NO_PATCH` for one that is no patch."""
    import torch

    none = (NO_PATCH,) * 3
    places = [(token.picture, token.row, token.column) if isinstance(token, Patch) else none for token in tokens]
    return torch.tensor(places, dtype=torch.int64).reshape(-1, 3)
