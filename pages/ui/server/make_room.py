"""Frees memory before a large allocation: evicts old traces from the cache, and refuses what still does not fit.

The cache, uploads, messages and models have their own limits; this module keeps their sum below the memory of the process.
"""

from __future__ import annotations

import gc

from attention.core.cache import CACHE
from attention.errors import BusyError
from pages.ui.server import memory
from pages.ui.server.limits import MEMORY_MB

RESERVE = 96 * 2**20
"""Bytes for uncounted memory: copies of a trace for drawing, and concurrent allocations of other sessions."""


def lowest_limit(*limits: int | None) -> int | None:
    """The lowest of several limits; 0 and None mean no limit."""
    return min(filter(None, limits), default=None)


LIMIT = lowest_limit(MEMORY_MB * 2**20, memory.limit())
"""The memory limit of this process in bytes; None without a limit."""


def bytes_missing(needs: int, resident: int | None, limit: int | None) -> int:
    """The bytes by which a process would exceed its limit with another `needs` bytes; 0 if it would not, or without a limit."""
    return 0 if limit is None or resident is None else max(0, resident + needs + RESERVE - limit)


def make_room(needs: int) -> int:
    """Frees memory if another `needs` bytes would not fit.

    Returns:
        The bytes that are still missing; 0 if they fit.
    """

    def shortage() -> int:
        return bytes_missing(needs, memory.resident(), LIMIT)

    if shortage():
        gc.collect()  # finished runs are reference cycles that may contain large figures
        memory.trim()
    if nbytes := shortage():
        if nbytes > (cached := int(CACHE.cache.currsize)):  # not even an empty cache would be enough, so evict nothing
            return nbytes - cached
        CACHE.shrink(nbytes)
        memory.trim()
    return shortage()


def make_room_for_trace(needs: int) -> None:
    """The same for the steps of a trace.

    Raises:
        BusyError: they do not fit.
    """
    if shortage := make_room(needs):
        raise BusyError(
            f"These steps need {_mb(needs)} MB of memory, and this server has {_mb(max(0, needs - shortage))} MB left: choose fewer heads, "
            "a smaller d_model or a shorter text, try again in a minute, or give the server more memory (LAB_MEMORY_MB, or the limit of its container)."
        )


def _mb(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.0f}"
