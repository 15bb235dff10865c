"""Room for something large before it is made: old traces leave the cache, and what does not fit even then is refused.

The cache, uploads, messages and models have bounds of their own; this holds their sum below the memory of the process.
"""

from __future__ import annotations

import gc

from attention.errors import BusyError
from attention.formula.kept import KEPT
from pages.ui.server import memory
from pages.ui.server.limits import MEMORY_MB

RESERVE = 96 * 2**20
"""Bytes for what nobody counts: what a page copies of a trace to draw it, and what other sessions take meanwhile."""


def lower(*limits: int | None) -> int | None:
    """The lowest of several limits, of which any may be 0 or None: no limit."""
    return min(filter(None, limits), default=None)


LIMIT = lower(MEMORY_MB * 2**20, memory.limit())
"""Bytes that this process may take; None where nobody says."""


def missing(needs: int, resident: int | None, limit: int | None) -> int:
    """Bytes by which a process passes its limit when it takes so many more; 0 where it does not, or nobody knows."""
    return 0 if limit is None or resident is None else max(0, resident + needs + RESERVE - limit)


def make_room(needs: int) -> int:
    """Frees memory where so many bytes more would not fit.

    Returns:
        The bytes that are missing even then; 0 where they fit.
    """

    def short() -> int:
        return missing(needs, memory.resident(), LIMIT)

    if short():
        gc.collect()  # finished runs are cycles, and may hold large figures
        memory.trim()
    if still := short():
        if still > (cached := int(KEPT.cache.currsize)):  # an empty cache would not be enough, so others keep theirs
            return still - cached
        KEPT.shrink(still)
        memory.trim()
    return short()


def make_room_for_trace(needs: int) -> None:
    """The same for the steps of a trace.

    Raises:
        BusyError: they do not fit.
    """
    if short := make_room(needs):
        raise BusyError(
            f"These steps need {_mb(needs)} MB of memory, and this server has {_mb(max(0, needs - short))} MB left: choose fewer heads, "
            "a smaller d_model or a shorter text, come back in a minute, or give the server more memory (LAB_MEMORY_MB, or its container's)."
        )


def _mb(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.0f}"
