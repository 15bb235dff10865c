"""Path patching on the page Heads: its request, its map, its words and its table."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import streamlit as st
from conftest import set_knobs, state_of_address
from margins import approx
from streamlit.testing.v1 import AppTest
from test_pages import drawn, opened
from tiny_models import TinyModels

from attention import Model, circuits
from attention.circuits import figures
from attention.circuits.path_patching import PathProgress, PathRequest
from attention.models.library import LIBRARY, Settings
from pages.ui.circuits import path_patching
from pages.ui.server import traces

A, B = "the owl asked the moon", "the cat asked the mat"
LINK = {"source": "model", "model": "Llama", "text": A, "layer": "1", "head": "2"}


@pytest.fixture(autouse=True)
def library(tiny: TinyModels) -> Iterator[None]:
    assert traces.trace_of  # importing it gives the library the operator's settings, once
    tiny("Llama")
    LIBRARY.hold(Settings(tiny.folder))
    yield
    LIBRARY.hold(Settings())


def asked(**params: str) -> AppTest:
    app = opened("pages/heads.py", **LINK, **params)
    return app.button(key="paths_ask").click().run()


def path_map(app: AppTest) -> np.ndarray:
    figure = next(figure for figure in drawn(app) if figure["layout"]["meta"]["step"] == "paths")
    return np.asarray(figure["data"][0]["z"])


def words(app: AppTest) -> str:
    return " ".join(markdown.value for markdown in app.markdown).replace("\\", "")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("params", "options"),
    [
        ({}, {}),
        ({"paths_mode": "mlps"}, {"mode": "mlps"}),
        ({"paths_receiver": "key"}, {"receiver": "key", "layer": 1, "head": 2}),
        ({"paths_receiver": "query", "paths_heads": "all"}, {"receiver": "query"}),
    ],
)
def test_panel_draws_the_numbers_of_the_library(params: dict[str, str], options: dict[str, object]) -> None:
    app = asked(paths_other=B, **params)
    assert not app.exception
    a, b = (Model("Llama", text).trace() for text in (A, B))
    result = circuits.paths(a, b, **options)
    expected = result.values if len(result.targets) > 1 else result.layer_map()
    assert path_map(app) == approx(expected, nan=True)
    assert result.describe(*result.largest(1)[0]) in words(app)
    assert any("change of logit of" in column for frame in app.dataframe for column in frame.value.columns)
    assert state_of_address(app)["paths_other"] == B


def test_panel_asks_for_run_b_and_explains_unequal_lengths() -> None:
    app = opened("pages/heads.py", **LINK, paths_mode="mlps", paths_other="the")
    assert "same number of tokens in both states" in " ".join(error.value for error in app.error)
    closed = opened("pages/heads.py", **LINK)
    assert not closed.exception
    assert "paths_ask" not in {button.key for button in closed.button}


def test_panel_stops_at_its_button(monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(*_: object) -> Iterator[PathProgress]:
        yield PathProgress(3, 8, 5.0)
        st.stop()  # as a click stops a run in progress

    monkeypatch.setattr(path_patching, "patch_paths", steps)
    app = asked(paths_other=B)
    stop = app.button(key="paths_stop")
    stop.click().run()
    assert not app.exception
    assert app.button(key="paths_ask").label.startswith("Patch each path in turn (about ")


def test_click_on_a_path_opens_its_source_head() -> None:
    a, b = (Model("Llama", text).trace() for text in (A, B))
    one, several = circuits.paths(a, b), circuits.paths(a, b, "query")
    assert figures.ends_at(one, 3, 1) == (1, 3)
    assert figures.ends_at(one, 4, 1) is None  # its MLP
    places = [several.sources[y].name for y in range(len(several.sources)) if figures.ends_at(several, 0, y)]
    assert places == [f"L0 H{head}" for head in range(4)]
    assert figures.ends_at(several, 0, 99) is None
    assert PathRequest().receiver == "logits"


def test_second_state_is_run_b_without_a_text() -> None:
    app = opened("pages/heads.py", **LINK)
    app.session_state["paths"] = True
    app.run()
    assert any("compare with a second state on Explore" in info.value for info in app.info)
    set_knobs(app, compare="text=the+cat+asked+the+mat")
    app.button(key="paths_ask").click().run()
    assert not app.exception
    assert any("Run B is the second state of Explore" in caption.value for caption in app.caption)
    a, b = (Model("Llama", text).trace() for text in (A, B))
    assert path_map(app) == approx(circuits.paths(a, b).layer_map())
