"""What the page is told of its state. Its script is the only one that writes the address (address.js)."""

from __future__ import annotations

from functools import cache
from typing import Any

from pages.ui.knobs import inputs
from pages.ui.knobs.acts import ADDRESS
from pages.ui.knobs.session import session
from pages.ui.menu import NAMES
from pages.ui.server import served


@cache
def _component() -> Any:
    return served.component("address", "attention_address", "<i hidden></i>", "")


def answer(title: str, fragment: str = "", failed: bool = False, unread: bool = False) -> None:
    """Tells the page its whole state, and which act of the page this answers. Called when all knobs have been read.

    Args:
        title: of the page.
        fragment: a name, where a fragment changes the state by itself.
        failed: the run ended before all knobs were read; the others stay what they are.
        unread: nothing of the address was read.
    """
    ours = session()
    state = ours.address if unread else inputs.address() if fragment else inputs.finish(failed)
    ours.address = state
    ours.answers += 1
    data = {
        "session": ours.name,
        "serial": ours.answers,
        "number": ours.number,
        "serverActs": ours.server_acts,
        "page": NAMES[title],
        "pages": tuple(filter(None, NAMES.values())),
        "state": state,
        "restored": bool(ours.replaced) and not fragment,
        "fragment": bool(fragment),
    }
    if ours.replaced and not fragment:
        ours.replaced_in = ours.answers
    _component()(
        key=f"{ADDRESS}_{fragment}" if fragment else ADDRESS,
        data=data,
        on_acts_change=lambda: None,
        on_again_change=lambda: None,
        height="content",
    )
