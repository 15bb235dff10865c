"""The link component: buttons that copy the address, and a new run when a lost connection is back."""

from __future__ import annotations

from functools import cache
from typing import Any

from pages.ui.knobs import inputs
from pages.ui.server import served

_HTML = "<div class='links'><span role='status'></span></div>"
_STYLE = """
.links { display: flex; flex-wrap: wrap; gap: 0.5rem; align-items: center; font-size: 0.875rem; }
.links:not(:has(button, a)) { display: none; }
.links button { font: inherit; color: inherit; cursor: pointer; min-height: 2.25rem; padding: 0.2rem 0.75rem; white-space: nowrap;
  background: var(--st-background-color); border: 1px solid var(--st-border-color); border-radius: var(--st-button-radius, 0.5rem); }
.links button:hover, .links button:focus-visible { color: var(--st-primary-color); border-color: var(--st-primary-color); }
.links a { color: var(--st-primary-color); }
.links { position: relative; }
.links [role=status] { overflow-wrap: anywhere; }
.links [role=status].warns { font-weight: 600; flex-basis: 100%; }
.st-key-tools .links [role=status] { position: absolute; right: 0; top: calc(100% + 0.3rem); z-index: 10; width: max-content; max-width: min(22rem, 60vw);
  background: var(--st-background-color); border-radius: var(--st-button-radius, 0.5rem); }
.st-key-tools .links [role=status]:not(:empty) { padding: 0.4rem 0.7rem; border: 1px solid var(--st-text-color); }
"""
BUTTONS = {
    "link": ("Copy link", "Link"),
    "lock": ("Copy locked link", "Link without knobs"),
    "present": ("Copy link, as projected", "Link"),
    "iframe": ("Copy code for a web page", "Code"),
    "open": ("Open in Attention Lab ↗", ""),
    "ask": ("Copy the link", "Link"),
    "try": ("See it as they will ↗", ""),
}
"""Every button by its kind: what stands on it, and what is said to be copied."""


@cache
def _component() -> Any:
    return served.component("link", "attention_link", _HTML, _STYLE)


def buttons(*kinds: str, missing: str = "", key: str, page: str = "", leave_open: str = "", ask: str = "") -> None:
    """Draws the buttons of these `kinds`.

    Args:
        kinds: of `BUTTONS`.
        missing: what the link does not hold and what to do, as a sentence goes on after "but"; empty when it holds all.
        key: of the component.
        page: the title of the page; given once on it, to watch over its menu, its focus and its connection.
        leave_open: for "present": the knobs that can be turned, with points between them.
        ask: for "ask" and "try": the query of the page of lessons that asks a question.
    """
    # Streamlit asks of every list whether it is a table, and imports pandas to know; a tuple is none.
    drawn = tuple((kind, *BUTTONS[kind]) for kind in kinds)
    _component()(
        key=key,
        data={
            "buttons": drawn,
            "missing": missing,
            "page": page,
            "open": leave_open,
            "ask": ask,
            "mask": inputs.first_mask(),
        },
        height="content",
    )


def watch(page: str) -> None:
    """Only the watch over the page, for one that has nothing to share."""
    buttons(key="copy_link", page=page)
