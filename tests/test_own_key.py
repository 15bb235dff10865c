"""A widget looks its own key up, and does not copy the session."""

from __future__ import annotations

import pytest
from conftest import ROOT, turn
from streamlit.runtime.state import SessionState
from streamlit.testing.v1 import AppTest

COPIED = SessionState.filtered_state


def test_a_run_copies_the_session_for_itself_and_not_for_every_widget(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = list[SessionState]()
    copied = property(lambda session: (copies.append(session), COPIED.fget(session))[1])  # type: ignore[attr-defined]  # a property has it
    monkeypatch.setattr(SessionState, "filtered_state", copied)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    copies.clear()
    app = turn(app, seed=3)
    asking = [*app.selectbox, *app.number_input, *app.text_area, *app.text_input]
    assert len(asking) > 10
    assert 0 < len(copies) < 6


def test_a_number_that_was_emptied_is_empty_and_what_was_typed_stays() -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    app.number_input(key="d_k").set_value(5).run()
    assert app.number_input(key="d_k").value == 5
    app.number_input(key="d_k").set_value(None).run()
    assert app.number_input(key="d_k").value is None
    assert app.text_area(key="text").set_value("one two").run().text_area(key="text").value == "one two"
