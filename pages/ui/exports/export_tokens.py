"""Tokens: give an export access to data of an open tab that is not in the URL.

A token is 128 random bits. It stands for an upload, long matrices, or offers that no link describes, such as
the pictures of a training run. It also identifies the session in the fair queue.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakValueDictionary

from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from attention import File, FileError
from attention.io.picture import Picture
from pages.ui.state.matrix_drafts import full_text, sizes_in_link
from pages.ui.state.session import session

MOST_OFFERS = 32  # of one tab; the oldest is dropped


class Offer(NamedTuple):
    """A file that a page can make but no URL describes: its media type, its name in the browser, and its maker."""

    media_type: str
    file_name: str
    make: Callable[[], str | bytes]


@dataclass(eq=False)
class Tab:
    """The export data of one tab. Only its session references it, so it ends with the session.

    Attributes:
        session: Streamlit's session id.
        token: the token in the tab's links; it changes when an upload is replaced.
        file: the uploaded attention file.
        matrices: the texts of the matrices that are too long for a link, by name.
        offers: the offers by name.
        pictures: the uploaded pictures by their values of `image`.
    """

    session: str
    token: str = ""
    file: File | None = None
    matrices: Mapping[str, str] = field(default_factory=dict)
    offers: dict[str, Offer] = field(default_factory=dict)
    pictures: Mapping[str, Picture] = field(default_factory=dict)

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
    matrices = {name: text for name in sizes_in_link() if (text := full_text(name)) is not None}
    pictures = {name: uploaded.picture for name, uploaded in ours.uploaded_pictures.items()}
    is_current = current.file is ours.file and (current.pictures, current.matrices) == (pictures, matrices)
    if not (current.token and is_current):
        _TABS.pop(current.token, None)
        current.token, current.file = secrets.token_urlsafe(16), ours.file
        current.pictures, current.matrices = pictures, matrices
        _TABS[current.token] = current
    return current


def offer(name: str, offered: Offer) -> None:
    """Registers a file for the links of this tab, until another one has the same name or the tab closes."""
    offers = current_tab().offers
    offers.pop(name, None)
    offers[name] = offered
    while len(offers) > MOST_OFFERS:
        del offers[next(iter(offers))]


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
