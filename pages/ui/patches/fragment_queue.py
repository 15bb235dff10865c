"""Keeps the unsent messages of a full run when a fragment reruns immediately after it.

Replaces: `ForwardMsgQueue.clear` at the start of a fragment run.
Why: Streamlit drops the fragment's unsent messages, since the fragment will be drawn again. The full run then appears to have ended
    without this part: the browser removes it, the elements below move up, and the fragment's next messages
    replace the wrong elements. A button under a film, or the maps, were missing until the next change of a knob.
    A page cannot prevent this: messages are sent 10 ms apart, and a fragment may be requested at any time in between.
Canary: `tests/pages/server/test_fragment_queue.py`, test_fragment_run_removes_nothing_from_the_full_run.
Public replacement: a Streamlit that keeps the messages of a finished full run when a fragment begins.
"""

from __future__ import annotations

from functools import wraps

from streamlit.runtime.forward_msg_queue import ForwardMsgQueue


def apply() -> None:
    """Keeps unsent messages at the start of a fragment run."""
    clear = ForwardMsgQueue.clear

    @wraps(clear)
    def clear_unless_fragment(
        self: ForwardMsgQueue, retain_lifecycle_msgs: bool = False, fragment_ids_this_run: list[str] | None = None
    ) -> None:
        if not retain_lifecycle_msgs or fragment_ids_this_run is None:
            clear(self, retain_lifecycle_msgs, fragment_ids_this_run)
            return
        self._delta_index_map = {}  # so that new messages are not merged into the waiting ones

    ForwardMsgQueue.clear = clear_unless_fragment  # type: ignore[method-assign]  # the patch
