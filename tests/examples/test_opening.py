"""The packed numbers that the bare address draws first are those that the page computes."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT, component_message, unpack_message
from margins import approx
from streamlit.testing.v1 import AppTest

from attention.examples import EXAMPLES
from pages.ui.page import explore, opening
from pages.ui.server.assets import OPENING


@pytest.mark.quick
def test_packed_opening_is_what_the_page_computes() -> None:
    packed, computed = (unpack_message(message)["screen"] for message in (OPENING.read_bytes(), opening._message()))
    assert packed.keys() == computed.keys()
    for before, now in zip(packed["terms"], computed["terms"], strict=True):
        assert {name: before[name] for name in ("name", "step", "shown", "short")} == {
            name: now[name] for name in ("name", "step", "shown", "short")
        }
        assert before["z"] == approx(now["z"], nan=True)
    assert (packed["queries"], packed["why"], packed["where"]) == (
        computed["queries"],
        computed["why"],
        computed["where"],
    )


@pytest.mark.quick
def test_typed_text_goes_to_the_source_or_to_its_model_or_to_random_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explore, "MODELS", tmp_path)
    assert explore._typed("a b", {}) == {"text": "a b"}
    assert explore._typed("a b", {"source": "model", "model": "x"}) == {"text": "a b"}
    example = {"source": "example", "example": "copper"}
    assert explore._typed("a b", example) == {"source": "typed text", "text": "a b"}
    (tmp_path / EXAMPLES["copper"].model).mkdir()
    of_model = {"source": "model", "model": EXAMPLES["copper"].model, "layer": 18, "head": 6, "text": "a b"}
    assert explore._typed("a b", example) == of_model
    assert explore._typed("a b", example, random=True) == {"source": "typed text", "text": "a b"}


def test_a_slow_source_waits_and_a_locked_page_takes_no_text() -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.query_params["text"] = "a b c"
    app.run()
    for seconds, slow in ((0.0, False), (60.0, True)):  # those of the first run are the machine's
        app.session_state["session"].seconds["TypedText"] = seconds
        app.run()
        assert component_message(app)["screen"]["sentence"] == {"text": "a b c", "goes_to": "", "slow": slow}
    locked = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    locked.query_params.update(text="a b c", lock="1")
    sent = [unpack_message(part.proto.bytes) for part in locked.run().get("bidi_component") if part.proto.bytes]
    assert [message["screen"]["sentence"] for message in sent if message["screen"]] == [None]
