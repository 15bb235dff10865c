"""The link component: buttons that copy the address, and a rerun after a lost connection returns."""

from __future__ import annotations

from functools import cache
from typing import Any

from pages.ui.server import assets

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
    "present": ("Copy link for a projector", "Link"),
    "iframe": ("Copy code for a web page", "Code"),
    "open": ("Open in Attention Lab ↗", ""),
    "ask": ("Copy the link", "Link"),
    "try": ("Preview as a student ↗", ""),
}
"""Every button by its kind: its label, and the noun in the message that confirms the copy."""


@cache
def _component() -> Any:
    return assets.component("share_buttons", "attention_share_buttons", _HTML, _STYLE)


def copy_buttons(*kinds: str, missing: str = "", key: str, page: str = "", leave_open: str = "", ask: str = "") -> None:
    """Draws the buttons of these `kinds`.

    Args:
        kinds: keys of `BUTTONS`.
        missing: the part of the state that is not in the link, and what to do, as the continuation of a sentence after "but";
            empty if the link is complete.
        key: the key of the component.
        page: the title of the page. One component on each page has it, and manages menu, focus and connection.
        leave_open: for "present": the names of the usable knobs, separated by dots.
        ask: for "ask" and "try": the query of the Lessons page with the question.
    """
    # A tuple, because Streamlit imports pandas to check whether a list is a table.
    drawn = tuple((kind, *BUTTONS[kind]) for kind in kinds)
    _component()(
        key=key,
        data={
            "buttons": drawn,
            "missing": missing,
            "page": page,
            "open": leave_open,
            "ask": ask,
        },
        height="content",
    )


def mount_without_buttons(page: str) -> None:
    """Mounts the component without buttons, only to manage the page's menu, focus and connection."""
    copy_buttons(key="copy_link", page=page)
