"""The protocol that biases and dropout need of a layer, so that they do not import `Layer`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # torch takes more than a second to import; a page must open before that
    from torch import Tensor


class Tensors(Protocol):
    """Tensors by the names of their steps and parameters, and the sizes of their axes; a `Layer` is one."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The length of each axis, by its name."""

    @property
    def n_heads(self) -> int:
        """The number of heads of the queries."""

    @property
    def uid(self) -> int:
        """Unique id of the recorded tensors (a cache key)."""

    def __getitem__(self, name: str, /) -> Tensor:
        """The tensor of a step or parameter, for all heads."""
