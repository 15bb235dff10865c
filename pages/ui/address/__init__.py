"""The menu of all pages, and the component that sends a page its state and brings the actions of its user.

Its script, address.js, is the only one that writes the address.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from pages.ui.features import Script, panels
from pages.ui.server import assets
from pages.ui.state import knob_state, widgets
from pages.ui.state.session import Session, session

_KEY = "address"  # of the component; more of its kind belong to fragments
_MOST = 1000  # actions in a message, and keys of a state
_SCRIPTS = (
    Script(0, "app.py", "Explore"),
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


def send_state(title: str, fragment: str = "", failed: bool = False) -> None:
    """Sends the page its whole state and the number of its last applied action. Call it when all knobs have been read.

    Args:
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
    assets.component("address", "attention_address", "<i hidden></i>")(
        key=f"{_KEY}_{fragment}" if fragment else _KEY,
        data=data,
        on_acts_change=lambda: None,
        on_again_change=lambda: None,
        height="content",
    )


def apply_actions(widgets_too: bool = True) -> bool:
    """Applies what the user has done. Returns whether Back or Forward replaced the whole state.

    Not for callbacks, whose actions are lost when Streamlit stops the run: each action is applied whole, and only once.

    Args:
        widgets_too: whether changed widgets count; a fragment leaves them to the run of the whole page.
    """
    ours, state_replaced = session(), False
    actions = _pending(ours)
    if widgets_too:
        widgets.apply_changes()
    for action in actions:
        ours.applying_action = True
        try:
            state_replaced |= _apply(ours, action)
        except Exception:  # whatever a handler of a page raises would be raised again in every run
            ours.last_action = action["number"]
            raise
        finally:
            ours.applying_action = False
        ours.last_action = action["number"]
    return state_replaced


def _pending(ours: Session) -> list[dict[str, Any]]:
    """The actions newer than the last applied one, in order."""
    actions: dict[int, dict[str, Any]] = {}
    for key in (_KEY, *ours.handlers):
        for action in _sent(ours, key):
            actions.setdefault(action["number"], action)
    return [actions[number] for number in sorted(actions)]


def _sent(ours: Session, key: str) -> Iterator[dict[str, Any]]:
    """The actions that a component has sent to this session. Forgets replaced widgets once the page has seen their answer."""
    state = st.session_state.get(key, None)
    message = state.get("acts") if isinstance(state, dict) else None
    if not isinstance(message, dict) or message.get("session") not in ("", ours.name):
        return
    last_answer, actions = message.get("seen"), message.get("acts")
    if isinstance(last_answer, int) and last_answer >= ours.replaced_in and ours.replaced_in:
        ours.replaced, ours.replaced_in = {}, 0
    for action in actions[:_MOST] if isinstance(actions, list) else ():
        number = action.get("number") if isinstance(action, dict) else None
        if isinstance(number, int) and ours.last_action < number < 2**53:
            yield action


def _apply(ours: Session, action: dict[str, Any]) -> bool:
    """Applies one action. Returns whether it replaced the whole state."""
    state, key = action.get("state"), action.get("key")
    if isinstance(state, dict):
        texts = {name: text for name, text in list(state.items())[:_MOST] if isinstance(text, str)}
        knob_state.restore_state(texts)
        return True
    on_click, on_turn = ours.handlers.get(str(key), (None, None))
    cell, knob = action.get("cell"), action.get("knob")
    if isinstance(cell, dict) and on_click and all(isinstance(cell.get(side), int) for side in "xy"):
        on_click(str(cell.get("step")), cell["x"], cell["y"])
    if isinstance(knob, dict) and on_turn:
        on_turn(dict(knob))
    return False
