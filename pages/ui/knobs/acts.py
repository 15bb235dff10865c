"""What a person has done, as the server hears of it: from the page, with a number each, or from Streamlit's own widgets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import streamlit as st

from attention.sources.link_aliases import with_current_keys
from pages.ui.knobs import inputs
from pages.ui.knobs.session import Session, session

ADDRESS = "address"
"""The key of the component that brings acts of the whole page."""
_MOST = 1000  # acts in a message, and keys of a state


def take() -> bool:
    """Applies the acts of the page that no run has taken yet; whether one of them was a whole state, by Back or Forward.

    Not in a callback: a run that Streamlit stops would lose it. An act that was taken has raised the number of the session.
    """
    ours, whole = session(), False
    for act in _waiting(ours):
        ours.taking = True
        try:
            whole |= _apply(ours, act)
        except Exception:
            ours.number = act["number"]  # it would raise again in every run
            raise
        finally:
            ours.taking = False
        ours.number = act["number"]
    return whole


def _waiting(ours: Session) -> list[dict[str, Any]]:
    """The acts that are newer than the last that was taken, in their order."""
    found: dict[int, dict[str, Any]] = {}
    for key in (ADDRESS, *ours.handlers):
        for act in _sent(ours, key):
            found.setdefault(act["number"], act)
    return [found[number] for number in sorted(found)]


def _sent(ours: Session, key: str) -> Iterator[dict[str, Any]]:
    """The acts that a component has sent to this session, and what the page had seen by then."""
    state = st.session_state.get(key, None)
    message = state.get("acts") if isinstance(state, dict) else None
    if not isinstance(message, dict) or message.get("session") not in ("", ours.name):
        return
    seen, acts = message.get("seen"), message.get("acts")
    if isinstance(seen, int) and seen >= ours.replaced_in and ours.replaced_in:
        ours.replaced, ours.replaced_in = {}, 0
    for act in acts[:_MOST] if isinstance(acts, list) else ():
        number = act.get("number") if isinstance(act, dict) else None
        if isinstance(number, int) and ours.number < number < 2**53:
            yield act


def _apply(ours: Session, act: dict[str, Any]) -> bool:
    state, key = act.get("state"), act.get("key")
    if isinstance(state, dict):
        texts = {name: text for name, text in list(state.items())[:_MOST] if isinstance(text, str)}
        inputs.restore(with_current_keys(texts).texts)
        return True
    on_click, on_turn = ours.handlers.get(str(key), (None, None))
    cell, knob = act.get("cell"), act.get("knob")
    if isinstance(cell, dict) and on_click and all(isinstance(cell.get(side), int) for side in "xy"):
        on_click(str(cell.get("step")), cell["x"], cell["y"])
    if isinstance(knob, dict) and on_turn:
        on_turn(dict(knob))
    return False
