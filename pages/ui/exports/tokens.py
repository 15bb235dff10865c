"""Tokens: what a file needs and no address holds, for as long as the tab that shows it is open.

A token is 128 random bits. It leads to an upload, to long matrices, or to something that the page offers and no link describes, such as
the pictures of a training; and it says which session asks, whose files take turns with those of others.
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
from pages.ui.knobs.session import session
from pages.ui.knobs.texts import sizes_in_link, whole_text

MOST_OFFERS = 32  # of one tab; the oldest goes


class Offer(NamedTuple):
    """A file that a page can make, and no address describes: its media type, what a browser calls it, and what makes it."""

    media_type: str
    file_name: str
    make: Callable[[], str | bytes]


@dataclass(eq=False)
class Tab:
    """What the links of one tab need. Its session alone keeps it, so it goes with that.

    Attributes:
        session: the name that Streamlit has for it.
        token: what its links carry; an upload that is replaced changes it.
        file: the uploaded file with attention.
        matrices: the texts of the matrices that are too long for a link, by name.
        offers: by their names.
    """

    session: str
    token: str = ""
    file: File | None = None
    matrices: Mapping[str, str] = field(default_factory=dict)
    offers: dict[str, Offer] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether somebody still has the tab open."""
        return not runtime.exists() or runtime.get_instance().is_active_session(self.session)


_TABS: WeakValueDictionary[str, Tab] = WeakValueDictionary()  # by token


def tab() -> Tab:
    """The tab whose script runs, with a token for what it shows now."""
    ours = session()
    if ours.exports is None:
        context = get_script_run_ctx()
        ours.exports = Tab(context.session_id if context else "")
    found: Tab = ours.exports
    matrices = {name: text for name in sizes_in_link() if (text := whole_text(name)) is not None}
    if not found.token or found.file is not ours.file or found.matrices != matrices:
        _TABS.pop(found.token, None)
        found.token, found.file, found.matrices = secrets.token_urlsafe(16), ours.file, matrices
        _TABS[found.token] = found
    return found


def offer(name: str, offered: Offer) -> None:
    """Lets the links of this tab ask for a file under a name, until another takes its place or the tab is closed."""
    offers = tab().offers
    offers.pop(name, None)
    offers[name] = offered
    while len(offers) > MOST_OFFERS:
        del offers[next(iter(offers))]


def find(token: str) -> Tab:
    """The open tab with a token.

    Raises:
        GoneError: there is none.
    """
    found = _TABS.get(token)
    if found is None or not found.open:
        raise GoneError(
            "This file belonged to a page that is closed, or to an upload that was replaced: open the page again and take the file from there."
        )
    return found


class GoneError(FileError):
    """What a token led to is no longer there."""
