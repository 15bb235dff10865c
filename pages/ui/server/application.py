"""What a server of the Lab consists of beside its script, whichever file starts it."""

from __future__ import annotations

from typing import Any

from starlette.middleware import Middleware

from pages.ui.exports import route as exports
from pages.ui.server import process, served
from pages.ui.server.first_paint import IndexPage
from pages.ui.server.garbage import BinaryOnly
from pages.ui.server.headers import WithHeaders
from pages.ui.server.origins import AllowedOrigins
from pages.ui.server.places import NotedPlaces
from pages.ui.server.unread import BoundedUnread
from pages.ui.server.uploads import BoundedUploads

MIDDLEWARE = [
    Middleware(part)
    for part in (WithHeaders, IndexPage, AllowedOrigins, BoundedUnread, BinaryOnly, NotedPlaces, BoundedUploads)
]
"""What goes around Streamlit's own server, from outside to inside."""


def parts() -> dict[str, Any]:
    """The arguments of `st.App`: routes of our scripts, what goes around all answers, and what happens while it serves.

    Streamlit finds an app by the words ``st.App(…)`` in its main file, so each main file writes them itself.
    """
    routes = [*served.routes(), *exports.routes()]
    return {"routes": routes, "middleware": MIDDLEWARE, "lifespan": process.serving}
