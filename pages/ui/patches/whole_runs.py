"""What a run of the whole page has drawn reaches the browser, also where a fragment of the page runs again at once.

Replaces: `ForwardMsgQueue.clear`, where a fragment begins to run.
Why: Streamlit then drops what has not been sent of that fragment, since it will be drawn again. But the run of the whole page has
    then ended without this part: the browser removes it, what stands below moves up, and the next picture of the fragment
    takes the place of that. A button was missing under a film, or the maps were, until somebody turned a knob.
    A page cannot prevent it: messages are sent 10 ms apart, and the fragment may be asked for at any time in between.
Canary: `tests/test_whole_runs.py`, test_fragment_run_removes_nothing_from_the_full_run.
Public replacement: a Streamlit that keeps the messages of a finished run of the whole page when a fragment begins.
"""

from __future__ import annotations

from functools import wraps

from streamlit.runtime.forward_msg_queue import ForwardMsgQueue


def apply() -> None:
    """From now on what waits to be sent stays when a fragment begins to run."""
    clear = ForwardMsgQueue.clear

    @wraps(clear)
    def clear_unless_fragment(
        self: ForwardMsgQueue, retain_lifecycle_msgs: bool = False, fragment_ids_this_run: list[str] | None = None
    ) -> None:
        if not retain_lifecycle_msgs or fragment_ids_this_run is None:
            clear(self, retain_lifecycle_msgs, fragment_ids_this_run)
            return
        self._delta_index_map = {}  # what comes now is no part of what waits

    ForwardMsgQueue.clear = clear_unless_fragment  # type: ignore[method-assign]
