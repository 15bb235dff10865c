"""The one place where traces live: shared by everybody, bounded by what they weigh.

A trace is never written to, so one object serves all sessions. Pages and their callbacks keep the
source and come back here: whoever kept a trace would keep it as long as a browser tab is open.
"""

from __future__ import annotations

import gc
from threading import Lock

from cachetools import LRUCache, cached

from attention import Source, Trace
from pages.ui.limits import CACHE_MB

_LARGE = 16 * 2**20  # bytes


@cached(LRUCache(CACHE_MB * 2**20, getsizeof=lambda trace: trace.nbytes), lock=Lock())
def trace_of(source: Source) -> Trace:
    """The trace of a source, made once as long as it is kept.

    Raises:
        AttentionError: the source gives none.
    """
    trace = source.trace()
    if trace.nbytes > _LARGE:
        gc.collect()  # finished runs are cycles, and may hold large figures; Streamlit's own collection is off
    return trace
