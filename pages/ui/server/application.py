"""What a server of the Lab consists of beside its script, whichever file starts it."""

from __future__ import annotations

from typing import Any

from pages.ui.exports import route as exports
from pages.ui.server import headers, process, served


def parts() -> dict[str, Any]:
    """The arguments of `st.App`: routes of our scripts, headers of every answer, and what happens while it serves.

    Streamlit finds an app by the words ``st.App(…)`` in its main file, so each main file writes them itself.
    """
    return {
        "routes": [*served.routes(), *exports.routes()],
        "middleware": headers.MIDDLEWARE,
        "lifespan": process.serving,
    }
