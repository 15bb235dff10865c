"""A model on the pages: stepping through generated text, stopping an ablation sweep, a changed head embedded, projected and locked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, state_of_address, unpack_message
from streamlit.testing.v1 import AppTest
from test_pages import drawn, opened
from tiny_models import TinyModels

from attention import Intervention, Model
from attention.models.library import LIBRARY, Settings
from attention.patching.intervention import parse_codes
from pages.ui.server import traces

TEXT = "the owl asked the moon"
SILENT = Intervention(1, 2, ablate="zero")
LINK = {"source": "model", "model": "GPT-2", "text": TEXT, "layer": "1", "head": "2"}
SHOWN = ({"lock": "1"}, {"present": "temperature"}, {"embed": "true"}, {"embed": "true", "lock": "1"})


@pytest.fixture(autouse=True)
def model(tiny: TinyModels) -> Iterator[Model]:
    assert traces.trace_of  # importing it gives the library the operator's settings, once
    tiny("GPT-2")
    LIBRARY.hold(Settings(tiny.folder))
    yield Model("GPT-2", TEXT)
    LIBRARY.hold(Settings())


def embedded(page: str, **params: str) -> AppTest:
    """A page opened by a link; with `embed`, inside another page."""
    app = AppTest.from_file(str(ROOT / page), default_timeout=60)
    app.context["is_embedded"] = "embed" in params
    for key, value in params.items():
        if key != "embed":
            app.query_params[key] = value
    return app.run()


def weights_of(app: AppTest) -> np.ndarray:
    return np.asarray(
        next(figure for figure in drawn(app) if figure["layout"]["meta"]["step"] == "weights")["data"][0]["z"]
    )


def around(app: AppTest) -> dict[str, Any]:
    """The message around the maps, also for a page without controls."""
    return next(
        unpack_message(component.proto.bytes)
        for component in app.get("bidi_component")
        if b'"override":' in component.proto.bytes
    )


def test_generated_text_is_stepped_through_and_its_link_matches(model: Model) -> None:
    app = opened("app.py", **LINK, generate="4")
    slider = app.get("select_slider")[0]
    assert (slider.label, slider.value, [*slider.options]) == ("Generated tokens", 4, ["0", "1", "2", "3", "4"])
    for prefix in (1, 0, 3):
        app.get("select_slider")[0].set_value(prefix).run()
        expected = replace(model, generate=4, prefix_len=prefix).trace()
        np.testing.assert_array_equal(weights_of(app), expected.layers[1].weights[2].numpy())
        assert state_of_address(app)["prefix_len"] == str(prefix)
        assert state_of_address(app).get("q") in (None, str(len(expected.input_tokens) - 1))
        assert f"(token {expected.predictions[-1].position}):" in " ".join(
            markdown.value for markdown in app.markdown
        ).replace("\\", "")
        other = opened("app.py", **LINK, generate="4", prefix_len=str(prefix))
        np.testing.assert_array_equal(weights_of(other), weights_of(app))
        assert other.get("select_slider")[0].value == prefix
    app.get("select_slider")[0].set_value(4).run()
    assert "prefix_len" not in state_of_address(app)


@pytest.mark.parametrize("options", SHOWN)
def test_changed_head_is_labelled_wherever_its_link_opens(options: dict[str, str], model: Model) -> None:
    app = embedded("app.py", **LINK, **options, interventions="1.2.zero")
    assert not app.exception
    switch = next(checkbox for checkbox in app.checkbox if checkbox.label == "L1 H2 silenced")
    assert (switch.value, switch.disabled) == (True, "embed" not in options or "lock" in options)
    assert around(app)["override"]["text"].startswith("Changed: L1 H2 silenced.")
    assert ("silence" in {button.key for button in app.button}) == (options == {"embed": "true"})
    changed = replace(model, interventions=(SILENT,)).trace()
    output = next(figure for figure in drawn(app) if figure["layout"]["meta"]["step"] == "output")["data"][0]["z"]
    np.testing.assert_array_equal(np.asarray(output), changed.layers[1].output.numpy())


def test_clicked_cell_is_set(model: Model) -> None:
    app = opened("app.py", **LINK, q="3", k="1")
    app.session_state["setting"] = True
    app.run()
    assert "Query 3, key 1. Click another cell of the map to choose it." in {caption.value for caption in app.caption}
    app.button(key="setting_do").click().run()
    assert not app.exception
    expected = replace(model, interventions=parse_codes("1.2.w3,1=0")).trace()
    np.testing.assert_array_equal(weights_of(app), expected.layers[1].weights[2].numpy())
    assert weights_of(app)[3, 1] == 0
