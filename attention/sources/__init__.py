"""Where a trace comes from: each source is a frozen dataclass with `.trace()`, one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from attention.trace import Trace


class Source(Protocol):
    """Anything that gives a trace. Frozen and hashable, so that it can be the key of a cache."""

    def trace(self) -> Trace:
        """The tokens and every step this source can record."""
        ...
