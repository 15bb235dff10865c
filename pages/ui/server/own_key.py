"""A widget that asks what stands under its own key looks that up, and does not copy the session for it.

Streamlit 1.67's select boxes, numbers and texts each make a dictionary of all that is in the session, to read one value of
it: with twelve of them and fifty knobs a ninth of a run. What gives them the session is wrapped here;
`tests/test_own_key.py` fails where a newer Streamlit asks in another way.
"""

from __future__ import annotations

from typing import Any

from streamlit.elements.widgets import number_input, selectbox, text_widgets
from streamlit.runtime.state import SafeSessionState, get_session_state

ASK = (number_input, selectbox, text_widgets)
"""The modules whose widgets ask."""


class _Looked:
    """The session, in which `filtered_state` is the session itself: one asks both whether a key is in it, and for its value."""

    def __init__(self, session: SafeSessionState) -> None:
        self.filtered_state = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self.filtered_state, name)


def look_up() -> None:
    """From now on widgets look up what they ask for."""
    for module in ASK:
        module.get_session_state = lambda: _Looked(get_session_state())  # type: ignore[attr-defined]  # wrapped on purpose, see above
