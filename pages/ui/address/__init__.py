"""The menu of all pages, and the component that sends a page its state. Its script, address.js, is the only one that writes the address."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from pages.ui.features import Script, panels
from pages.ui.server import assets
from pages.ui.state import knob_state
from pages.ui.state.session import session
from pages.ui.state.user_actions import ADDRESS

_SCRIPTS = (
    Script(0, "app.py", "Lab"),
    Script(20, "pages/heads.py", "Heads"),
    Script(80, "pages/reference.py", "Reference"),
)


@cache
def menu() -> dict[str, str]:
    """The title of each page by its script, in the order of the menu; the first is the start page."""
    scripts = (*_SCRIPTS, *(script for feature in panels() for script in feature.scripts))
    return {script.path: script.title for script in sorted(scripts)}


@cache
def names() -> dict[str, str]:
    """The last part of each page's address, by its title."""
    return {title: "" if path == "app.py" else Path(path).stem for path, title in menu().items()}


@cache
def _component() -> Any:
    return assets.component("address", "attention_address", "<i hidden></i>", "")


def send_state(title: str, fragment: str = "", failed: bool = False) -> None:
    """Sends the page its whole state and the number of its last applied action. Call it when all knobs have been read.

    Args:
        title: the title of the page.
        fragment: the name of the fragment that changes the state on its own; empty for a full run.
        failed: whether the run ended before all knobs were read; the others then stay unchanged.
    """
    ours = session()
    if not fragment:
        knob_state.end_run(failed)
    ours.answers_sent += 1
    data = {
        "session": ours.name,
        "serial": ours.answers_sent,
        "number": ours.last_action,
        "serverActs": ours.server_actions,
        "page": names()[title],
        "pages": tuple(filter(None, names().values())),
        "state": knob_state.address(),
        "restored": bool(ours.replaced) and not fragment,
        "fragment": bool(fragment),
    }
    if ours.replaced and not fragment:
        ours.replaced_in = ours.answers_sent
    _component()(
        key=f"{ADDRESS}_{fragment}" if fragment else ADDRESS,
        data=data,
        on_acts_change=lambda: None,
        on_again_change=lambda: None,
        height="content",
    )
