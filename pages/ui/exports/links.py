"""Download links that look like buttons. Each requests the file of the state that the page shows at the moment of the click."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import streamlit as st

from pages.ui.exports import export_tokens
from pages.ui.exports.export_tokens import Offer
from pages.ui.server import assets

MOST_BYTES = 2**20  # of a file that is sent together with the page

_HTML = "<div class='exports'><span role='status'></span></div>"
_STYLE = """
.exports { display: flex; flex-wrap: wrap; gap: 0.5rem; align-items: center; font-size: 0.875rem; }
.exports:not(:has(a)) { display: none; }
.exports a { display: inline-flex; align-items: center; justify-content: center; min-height: 2.25rem; padding: 0.2rem 0.75rem;
  color: inherit; text-decoration: none; white-space: nowrap; background: var(--st-background-color);
  border: 1px solid var(--st-border-color); border-radius: var(--st-button-radius, 0.5rem); }
.exports a:hover, .exports a:focus-visible { color: var(--st-primary-color); border-color: var(--st-primary-color); }
.exports a:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 2px; }
.exports [role=status] { overflow-wrap: anywhere; }
.exports [role=status].warns { font-weight: 600; flex-basis: 100%; }
"""


class Link(NamedTuple):
    """A link to a file.

    Attributes:
        label: the text of the link.
        name: the name of the file in `pages.ui.exports.catalog` or of an offer.
        more: further query parameters beside the state.
        offered: whether the file is an offer of this tab, which needs no state.
    """

    label: str
    name: str
    more: Mapping[str, str] = {}
    offered: bool = False


@cache
def _component() -> Any:
    return assets.component("exports", "attention_exports", _HTML, _STYLE)


def download_links(key: str, *files: Link) -> None:
    """Draws links side by side.

    Args:
        key: the key of the component.
        files: the links.
    """
    drawn = tuple((link.label, link.name, dict(link.more), link.offered) for link in files)
    _component()(key=key, data={"links": drawn, "token": export_tokens.current_tab().token}, height="content")


def offer_link(label: str, name: str, offer: Offer) -> Link:
    """A link to a file that exists only while this tab is open.

    Args:
        label: the text of the link.
        name: the name of the file in the URL, unique on the page.
        offer: the file.
    """
    export_tokens.offer(name, offer)
    return Link(label, name, offered=True)


def small_download(label: str, content: str, name: str, media_type: str, key: str) -> None:
    """Draws a download button for a small file, which is sent together with the page."""
    if len(content.encode(errors="replace")) <= MOST_BYTES:
        st.download_button(label, content, name, media_type, key=key, on_click="ignore")
    else:
        st.caption(
            f"{name} can have at most {MOST_BYTES:,} bytes here, and it would have more: reduce its content to save it."
        )
