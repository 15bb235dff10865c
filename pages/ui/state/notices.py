"""Messages at the top of a page, above the pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention.base import progress
from attention.base.errors import AttentionError, AwaitedError
from pages.ui.state.session import session


class Notes:
    """The place for messages at the top of a page.

    Messages about bad links stay until they are dismissed. If they disappeared at the next click, the
    page below would jump.
    """

    def __init__(self) -> None:
        self._place = st.container(gap="small")
        self._warning = self._place.empty()
        self._dismiss = self._place.empty()
        self._draw()

    def warn(self, text: str) -> None:
        """Shows a message about a bad link until it is dismissed."""
        messages = session().notes
        if text not in messages:
            is_first = not messages
            messages.append(text)
            self._draw(button=is_first)

    def show(self, texts: tuple[str, ...]) -> None:
        """Shows notes about the current numbers."""
        if texts:
            # Several notes would push the maps off a laptop's screen.
            place = self._place.expander(f"{len(texts)} notes on these numbers") if len(texts) > 1 else self._place
            place.info("  \n".join(plain(text) for text in texts))

    def show_refusal(self, error: AttentionError) -> None:
        """Shows why there is no picture: as a note if a file is still awaited, otherwise as an error."""
        if isinstance(error, AwaitedError):
            self.show((str(error),))
        else:
            self.error(str(error))

    def error(self, text: str) -> None:
        """Shows an error."""
        self._place.error(plain(text))

    def _draw(self, button: bool = True) -> None:
        messages = session().notes
        if messages:
            self._warning.warning("  \n".join(plain(text) for text in messages))
        if messages and button:
            self._dismiss.button("Dismiss", key="link_notes_seen", type="tertiary", on_click=messages.clear)


@contextmanager
def progress_bar(place: DeltaGenerator | None = None) -> Iterator[None]:
    """A context whose reports of progress are one bar until its end, in `place` or, in a callback, at the top of the page."""
    bars: list[DeltaGenerator] = []

    def on_progress(text: str, fraction: float) -> None:
        bars[:] = [(bars[0] if bars else place or st).progress(fraction, text)]

    try:
        with progress.report_progress_to(on_progress):
            yield
    finally:
        for drawn in bars:
            drawn.empty()


def show_later(text: str) -> None:
    """Shows a message from the next run on, until it is dismissed. For callbacks."""
    session().notes.append(text)


def show_error(text: str) -> None:
    """Draws an error message in place; Markdown in `text` is escaped."""
    st.error(plain(text))


def show_refusal(error: AttentionError) -> None:
    """Draws an error in place: as a note if a file is still awaited."""
    (st.info if isinstance(error, AwaitedError) else st.error)(plain(str(error)))


# Streamlit turns bare addresses into links even with backslashes; an invisible word joiner prevents that.
_ADDRESS = re.compile(r"(?i)(?<=:)(?=//)|(?<=www)(?=\.)|(?=@)")


def plain(text: str) -> str:
    """The text with all Markdown escaped."""
    text = _ADDRESS.sub("\u2060", text)
    return "".join(f"\\{character}" if character in r"\`*_{}[]<>()#+!|~$:&" else character for character in text)
