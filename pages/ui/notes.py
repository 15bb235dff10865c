"""What a person must be told before they look at the picture."""

from __future__ import annotations

import re

import streamlit as st

from attention.errors import AttentionError, AwaitedError
from pages.ui.knobs.session import session


class Notes:
    """The place for messages at the top of a page.

    What a link got wrong stays until it is dismissed: if it went with the next click, everything
    below would jump.
    """

    def __init__(self) -> None:
        self._place = st.container(gap="small")
        self._kept = self._place.empty()
        self._dismiss = self._place.empty()
        self._draw()

    def keep(self, text: str) -> None:
        """Says what a link got wrong, until it is dismissed."""
        kept = session().notes
        if text not in kept:
            first = not kept
            kept.append(text)
            self._draw(button=first)

    def say(self, texts: tuple[str, ...]) -> None:
        """Says what is so now."""
        if texts:
            # Several would push the maps off a laptop's screen.
            folded = self._place.expander(f"{len(texts)} notes on these numbers") if len(texts) > 1 else self._place
            folded.info("  \n".join(plain(text) for text in texts))

    def refused(self, error: AttentionError) -> None:
        """Says why there is no picture; that a file is still awaited is no mistake."""
        if isinstance(error, AwaitedError):
            self.say((str(error),))
        else:
            self.error(str(error))

    def error(self, text: str, here: bool = False) -> None:
        """Says why there is no picture, at the top of the page or, with `here`, where the page is being drawn."""
        (st if here else self._place).error(plain(text))

    def _draw(self, button: bool = True) -> None:
        kept = session().notes
        if kept:
            self._kept.warning("  \n".join(plain(text) for text in kept))
        if kept and button:
            self._dismiss.button("Understood", key="link_notes_seen", type="tertiary", on_click=kept.clear)


def say_later(text: str) -> None:
    """Says something from the next run on, until it is dismissed. For callbacks."""
    session().notes.append(text)


# Bare addresses become links after the backslashes are gone; an invisible joiner between their pieces stops that.
_ADDRESS = re.compile(r"(?i)(?<=:)(?=//)|(?<=www)(?=\.)|(?=@)")


def plain(text: str) -> str:
    """Text with nothing in it that Markdown would read."""
    text = _ADDRESS.sub("\u2060", text)
    return "".join(f"\\{character}" if character in r"\`*_{}[]<>()#+!|~$:&" else character for character in text)
