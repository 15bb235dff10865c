"""The pages in the order of the menu, and the component that sends a page its state. Its script, address.js, is the only one that writes the address."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from pages.ui.server import assets
from pages.ui.state import knob_state
from pages.ui.state.session import session
from pages.ui.state.user_actions import ADDRESS

MENU = {
    "app.py": "Lab",
    "pages/lessons.py": "Lessons",
    "pages/heads.py": "Heads",
    "pages/circuits.py": "Circuits",
    "pages/compare.py": "Compare",
    "pages/masks.py": "Masks",
    "pages/softmax.py": "Softmax",
    "pages/training.py": "Training",
    "pages/reference.py": "Reference",
}
"""The title of each page by its script; the first is the start page."""

NAMES = {title: "" if path == "app.py" else Path(path).stem for path, title in MENU.items()}
"""The last part of each page's address, by its title."""


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
    state = knob_state.address() if fragment else knob_state.finish(failed)
    ours.address = state
    ours.answers_sent += 1
    data = {
        "session": ours.name,
        "serial": ours.answers_sent,
        "number": ours.last_action,
        "serverActs": ours.server_actions,
        "page": NAMES[title],
        "pages": tuple(filter(None, NAMES.values())),
        "state": state,
        "restored": bool(ours.replaced_widgets) and not fragment,
        "fragment": bool(fragment),
    }
    if ours.replaced_widgets and not fragment:
        ours.replaced_in = ours.answers_sent
    _component()(
        key=f"{ADDRESS}_{fragment}" if fragment else ADDRESS,
        data=data,
        on_acts_change=lambda: None,
        on_again_change=lambda: None,
        height="content",
    )
