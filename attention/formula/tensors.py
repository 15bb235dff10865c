"""What a bias or a dropout may ask of a layer, so that neither knows what a layer is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # torch takes more than a second to import; a page must open before that
    from torch import Tensor


class Tensors(Protocol):
    """Tensors by the names of their steps and parameters, and the sizes of their axes; a `Layer` is one."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """How long each axis is, by its name."""

    @property
    def n_heads(self) -> int:
        """The number of heads of the queries."""

    @property
    def number(self) -> int:
        """What nothing else ever has: what is made of these tensors is kept under it."""

    def __getitem__(self, name: str, /) -> Tensor:
        """The whole tensor of a step or parameter."""
