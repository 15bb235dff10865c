"""The one place where traces live: shared by everybody, bounded by what they weigh.

A trace is never written to, so one object serves all sessions. Pages and their callbacks keep the
source and come back here: whoever kept a trace would keep it as long as a browser tab is open.
"""

from __future__ import annotations

import gc
from collections.abc import Hashable
from threading import Lock

from cachetools import LRUCache, cached

from attention import Source, Trace
from attention.sources import Turnable
from pages.ui import turns
from pages.ui.limits import CACHE_MB

_LARGE = 16 * 2**20  # bytes


_KEPT: LRUCache[Hashable, Trace] = LRUCache(CACHE_MB * 2**20, getsizeof=lambda trace: trace.nbytes)
_LOCK = Lock()


@cached(_KEPT, lock=_LOCK)
def trace_of(source: Source) -> Trace:
    """The trace of a source, made once as long as it is kept; from its scores, if only a later knob was turned.

    Raises:
        AttentionError: the source gives none.
    """
    with turns.aside():
        trace = source.trace(_scores_of(source.unturned)) if isinstance(source, Turnable) else source.trace()
        if trace.nbytes > _LARGE:
            gc.collect()  # finished runs are cycles, and may hold large figures; Streamlit's own collection is off
    return trace


@cached(_KEPT, key=lambda source: (source, "scores"), lock=_LOCK)
def _scores_of(unturned: Turnable) -> Trace:
    return unturned.scores()
