"""The routes, middleware and lifespan of the Lab's server, shared by all main files."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.middleware import Middleware

from pages.ui import process
from pages.ui.exports import route
from pages.ui.server import assets, guard, heavy, in_flight, moved, uploads

_MIDDLEWARE = (
    guard.with_headers,
    guard.allowed_hosts,
    moved.former_pages,
    in_flight.bounded_bodies,
    assets.our_index_page,
    guard.allowed_origins,
    guard.backpressure,
    guard.binary_only,
    uploads.bounded_uploads,
)
"""The middleware around Streamlit's own server, outermost first."""


def parts() -> dict[str, Any]:
    """The arguments of `st.App`: routes, middleware and lifespan.

    Streamlit recognizes an app by the text ``st.App(…)`` in its main file, so each main file calls it itself.
    """
    heavy.share_imports()
    routes = [*assets.routes(), *route.routes()]
    middleware = [Middleware(partial(partial, function)) for function in _MIDDLEWARE]
    return {"routes": routes, "middleware": middleware, "lifespan": process.lifespan}
