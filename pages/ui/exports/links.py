"""Download links that look like buttons, and the tokens with which an export gets data of an open tab that is not in the URL.

A link requests the file of the state that the page shows at the moment of the click. A token is 128 random bits. It stands for an upload, long matrices, or
offers that no link describes, such as the pictures of a training run. It also identifies the session in the fair queue.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from attention.base.errors import FileError
from attention.sources.file import File
from pages.ui.server import assets
from pages.ui.state.knob_state import sizes_in_link
from pages.ui.state.matrices import full_text
from pages.ui.state.session import session

_MOST_OFFERS = 32  # of one tab; the oldest is dropped
_MOST_BYTES = 2**20  # of a file that is sent together with the page

_HTML = "<div class='exports'><span role='status'></span></div>"


class Link(NamedTuple):
    """A link to a file.

    Attributes:
        name: the name of the file in `pages.ui.exports.catalog` or of an offer.
        more: further query parameters beside the state.
        offered: whether the file is an offer of this tab, which needs no state.
    """

    label: str
    name: str
    more: Mapping[str, str] = {}
    offered: bool = False


class Offer(NamedTuple):
    """A file that a page can make but no URL describes: its media type, its name in the browser, and its maker."""

    media_type: str
    file_name: str
    make: Callable[[], str | bytes]


def download_links(key: str, *files: Link) -> None:
    """Draws links side by side."""
    drawn = tuple((link.label, link.name, dict(link.more), link.offered) for link in files)
    mount = assets.component("exports", "attention_exports", _HTML)
    mount(key=key, data={"links": drawn, "token": current_tab().token}, height="content")


def offer_link(label: str, name: str, offer: Offer) -> Link:
    """A link to a file that exists only while this tab is open, until another one has the same name."""
    offers = current_tab().offers
    offers.pop(name, None)
    offers[name] = offer
    while len(offers) > _MOST_OFFERS:
        del offers[next(iter(offers))]
    return Link(label, name, offered=True)


def small_download(label: str, content: str, name: str, media_type: str, key: str) -> None:
    """Draws a download button for a small file, which is sent together with the page."""
    if len(content.encode(errors="replace")) <= _MOST_BYTES:
        st.download_button(label, content, name, media_type, key=key, on_click="ignore")
    else:
        st.caption(
            f"{name} can have at most {_MOST_BYTES:,} bytes here, and it would have more: reduce its content to save it."
        )


@dataclass(eq=False)
class Tab:
    """The export data of one tab. Only its session references it, so it ends with the session.

    Attributes:
        session: Streamlit's session id.
        token: in the tab's links; it changes when an upload is replaced.
        file: the uploaded attention file.
        matrices: the texts of the matrices that are too long for a link, by name.
        offers: the offers by name.
        given: the uploaded inputs of media, by their field and their name in links.
    """

    session: str
    token: str = ""
    file: File | None = None
    matrices: Mapping[str, str] = field(default_factory=dict)
    offers: dict[str, Offer] = field(default_factory=dict)
    given: Mapping[tuple[str, str], Any] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether the tab is still open."""
        return not runtime.exists() or runtime.get_instance().is_active_session(self.session)


_TABS: WeakValueDictionary[str, Tab] = WeakValueDictionary()  # by token


def current_tab() -> Tab:
    """The tab of the running script, with a token for its current state."""
    ours = session()
    if ours.exports is None:
        context = get_script_run_ctx()
        ours.exports = Tab(context.session_id if context else "")
    current: Tab = ours.exports
    matrices = {name: full_text(name) for name in sizes_in_link() if name in ours.state.texts}
    given = {name: uploaded.given for name, uploaded in ours.uploaded_inputs.items()}
    is_current = current.file is ours.file and (current.given, current.matrices) == (given, matrices)
    if not (current.token and is_current):
        _TABS.pop(current.token, None)
        current.token, current.file = secrets.token_urlsafe(16), ours.file
        current.given, current.matrices = given, matrices
        _TABS[current.token] = current
    return current


def find(token: str) -> Tab:
    """The open tab with this token.

    Raises:
        GoneError: the tab is closed, or its token has changed.
    """
    owner = _TABS.get(token)
    if owner is None or not owner.open:
        raise GoneError(
            "This file belonged to a closed page or a replaced upload: open the page again and download the file there."
        )
    return owner


class GoneError(FileError):
    """The data of a token no longer exists."""
