"""What a run of the whole page has drawn reaches the browser, also where a part of the page runs again at once.

When a fragment begins to run, Streamlit 1.67 throws away what has not been sent of that fragment yet, as it will be drawn
anew. But the run of the whole page has then ended without that part: the browser takes it for gone, what stands under it
moves up, and the next picture of the fragment takes the place of that. A button was missing under a film, or the maps were, until
something was turned. So nothing is thrown away then; `tests/test_whole_runs.py` fails where a newer Streamlit has another queue.
"""

from __future__ import annotations

from functools import wraps

from streamlit.runtime.forward_msg_queue import ForwardMsgQueue


def keep_whole_runs() -> None:
    """From now on what waits to be sent stays when a fragment begins to run."""
    clear = ForwardMsgQueue.clear

    @wraps(clear)
    def kept(
        self: ForwardMsgQueue, retain_lifecycle_msgs: bool = False, fragment_ids_this_run: list[str] | None = None
    ) -> None:
        if not retain_lifecycle_msgs or fragment_ids_this_run is None:
            clear(self, retain_lifecycle_msgs, fragment_ids_this_run)
            return
        self._delta_index_map = {}  # what comes now is no part of what waits

    ForwardMsgQueue.clear = kept  # type: ignore[method-assign]  # wrapped on purpose, see above
