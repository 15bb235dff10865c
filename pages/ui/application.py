"""The routes, middleware and lifespan of the Lab's server, shared by all main files."""

from __future__ import annotations

from typing import Any

from starlette.middleware import Middleware

from pages.ui import process
from pages.ui.exports import route
from pages.ui.server import assets
from pages.ui.server.assets import IndexPage
from pages.ui.server.guard import AllowedHosts, AllowedOrigins, Backpressure, BinaryOnly, WithHeaders
from pages.ui.server.in_flight import BoundedBodies
from pages.ui.server.uploads import BoundedUploads

_MIDDLEWARE = [
    Middleware(middleware)
    for middleware in (
        WithHeaders,
        AllowedHosts,
        BoundedBodies,
        IndexPage,
        AllowedOrigins,
        Backpressure,
        BinaryOnly,
        BoundedUploads,
    )
]
"""The middleware around Streamlit's own server, outermost first."""


def parts() -> dict[str, Any]:
    """The arguments of `st.App`: routes, middleware and lifespan.

    Streamlit recognizes an app by the text ``st.App(…)`` in its main file, so each main file calls it itself.
    """
    routes = [*assets.routes(), *route.routes()]
    return {"routes": routes, "middleware": _MIDDLEWARE, "lifespan": process.lifespan}
