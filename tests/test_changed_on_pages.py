"""A model in the pages: the text it writes is stepped through, a sweep over its heads is stopped, a changed head is embedded, shown to a class, locked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import streamlit as st
from conftest import ROOT, address, unpacked
from streamlit.testing.v1 import AppTest
from test_pages import drawn, opened
from tiny_models import TinyModels

from attention import Intervention, Model
from attention.formula.intervention import read
from attention.models.library import LIBRARY, Settings
from attention.numbers.compare import Place, compare
from attention.numbers.mattering import Progress
from attention.printed import shown
from attention.sources import mattering
from attention.sources.second import second
from pages.ui.server import traces

TEXT = "the owl asked the moon"
SILENT = Intervention(1, 2, silence="zero")
LINK = {"source": "model", "model": "GPT-2", "text": TEXT, "layer": "1", "head": "2"}
SHOWN = ({"lock": "1"}, {"present": "temperature"}, {"embed": "true"}, {"embed": "true", "lock": "1"})


@pytest.fixture(autouse=True)
def model(tiny: TinyModels) -> Iterator[Model]:
    assert traces.MODELS  # it tells the library what an operator allows, once
    tiny("GPT-2")
    LIBRARY.hold(Settings(tiny.folder))
    yield Model("GPT-2", TEXT)
    LIBRARY.hold(Settings())


def embedded(page: str, **params: str) -> AppTest:
    """A page as a link opens it; `embed` in another's page."""
    app = AppTest.from_file(str(ROOT / page), default_timeout=60)
    app.context["is_embedded"] = "embed" in params
    for key, value in params.items():
        if key != "embed":
            app.query_params[key] = value
    return app.run()


def weights_of(app: AppTest) -> np.ndarray:
    return np.asarray(next(one for one in drawn(app) if one["layout"]["meta"]["step"] == "weights")["data"][0]["z"])


def around(app: AppTest) -> dict[str, Any]:
    """What stands around the maps, also of a page without controls."""
    return next(unpacked(one.proto.bytes) for one in app.get("bidi_component") if b'"own":' in one.proto.bytes)


def test_the_text_that_it_writes_is_stepped_through_and_the_link_shows_the_same(model: Model) -> None:
    app = opened("app.py", **LINK, generate="4")
    written = app.get("select_slider")[0]
    assert (written.label, written.value, [*written.options]) == ("Generated tokens", 4, ["0", "1", "2", "3", "4"])
    for said in (1, 0, 3):
        app.get("select_slider")[0].set_value(said).run()
        expected = replace(model, generate=4, said=said).trace()
        np.testing.assert_array_equal(weights_of(app), expected.layers[1].weights[2].numpy())
        assert address(app)["said"] == str(said)
        assert address(app).get("q") in (None, str(len(expected.read) - 1))
        assert f"(token {expected.predictions[-1].position}):" in " ".join(one.value for one in app.markdown).replace(
            "\\", ""
        )
        other = opened("app.py", **LINK, generate="4", said=str(said))
        np.testing.assert_array_equal(weights_of(other), weights_of(app))
        assert other.get("select_slider")[0].value == said
    app.get("select_slider")[0].set_value(4).run()
    assert "said" not in address(app)


def test_a_sweep_over_all_heads_is_stopped_by_its_button(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def which(*_: object) -> Iterator[Progress]:
        asked.append(True)
        yield Progress(3, 8, 5.0)
        st.stop()  # as a click does to a run in progress

    app = opened("pages/heads.py", **LINK)
    monkeypatch.setattr(mattering, "which", which)
    app.button(key="matters_ask").click().run()
    stop = next(one for one in app.button if one.label == "Stop")
    assert len(asked) == 1
    stop.click().run()
    assert not app.exception
    assert (len(asked), [one.label for one in app.button].count("Stop")) == (1, 0)
    assert app.button(key="matters_ask").label.startswith("Ablate each of 8 heads in turn")


@pytest.mark.parametrize("how", SHOWN)
def test_a_changed_head_is_seen_to_be_changed_wherever_its_link_is_shown(how: dict[str, str], model: Model) -> None:
    app = embedded("app.py", **LINK, **how, do="1.2.zero")
    assert not app.exception
    switch = next(one for one in app.checkbox if one.label == "L1 H2 silenced")
    assert (switch.value, switch.disabled) == (True, "embed" not in how or "lock" in how)
    assert around(app)["own"]["said"].startswith("Changed: L1 H2 silenced.")
    assert ("silence" in {one.key for one in app.button}) == (how == {"embed": "true"})
    changed = replace(model, interventions=(SILENT,)).trace()
    output = next(one for one in drawn(app) if one["layout"]["meta"]["step"] == "output")["data"][0]["z"]
    np.testing.assert_array_equal(np.asarray(output), changed.layers[1].output.numpy())


@pytest.mark.parametrize("how", SHOWN)
def test_a_comparison_is_the_same_wherever_its_link_is_shown(how: dict[str, str], model: Model) -> None:
    app = embedded("pages/compare.py", **LINK, **how, step="output", b="do=1.2.zero")
    assert not app.exception
    found = compare(model.trace(), replace(model, interventions=(SILENT,)).trace(), "output", Place(1, 2))
    np.testing.assert_array_equal(np.asarray(drawn(app)[2]["data"][0]["z"]), found.matrix.numpy())
    assert around(app)["own"]["said"] == "B: Changed: L1 H2 silenced."
    assert ("turn" in {one["name"] for one in around(app)["controls"] or ()}) == (how == {"embed": "true"})


def test_where_two_states_differ_most_is_one_click_away(model: Model) -> None:
    do = "0.1.zero"
    app = opened("pages/compare.py", **{**LINK, "layer": "0"}, b=f"do={do}")
    a, b = model.trace(), replace(model, interventions=read(do)).trace()
    less = (b.layers[1].weights - a.layers[1].weights).abs().amax(dim=(1, 2))
    layer, head = 1, int(less.argmax())
    button = app.button(key="look_at_largest")
    assert button.label == f"Largest in L{layer} H{head} ({shown(float(less.max()))})"
    button.click().run()
    assert not app.exception
    found = compare(a, b, "weights", Place(layer, head))
    np.testing.assert_array_equal(np.asarray(drawn(app)[2]["data"][0]["z"]), found.matrix.numpy())
    assert "layer" not in second(app.session_state["session"].pending_values, str(address(app)["b"]))
    assert "look_at_largest" not in {one.key for one in app.button}


def test_a_cell_is_set_where_it_was_clicked(model: Model) -> None:
    app = opened("app.py", **LINK, q="3", k="1")
    app.session_state["setting"] = True
    app.run()
    assert "Query 3, key 1. Click another cell of the map to choose it." in {one.value for one in app.caption}
    app.button(key="setting_do").click().run()
    assert not app.exception
    expected = replace(model, interventions=read("1.2.w3,1=0")).trace()
    np.testing.assert_array_equal(weights_of(app), expected.layers[1].weights[2].numpy())
    assert weights_of(app)[3, 1] == 0
