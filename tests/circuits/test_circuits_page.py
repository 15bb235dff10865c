"""What is inside the chosen head, on Heads: its maps have the numbers of the package, long runs wait for a click, and every source gets an answer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from conftest import state_of_address
from margins import approx
from streamlit.testing.v1 import AppTest
from test_pages import drawn, opened, said
from tiny_models import TinyModels

from attention import Model, circuits
from attention.base.cache import CACHE
from attention.circuits import direct_effects, figures
from attention.models.library import LIBRARY, Settings
from attention.training import Trained
from pages.ui.circuits import writes
from pages.ui.page import heads_panels
from pages.ui.server import traces

TEXT = "the owl asked the moon"
PAGE = "pages/heads.py?heads_inside=true"
LINK = {"source": "model", "model": "Llama", "text": TEXT, "layer": "1", "head": "2", "q": "4", "k": "2"}


@pytest.fixture(autouse=True)
def library(tiny: TinyModels) -> Iterator[None]:
    assert traces.trace_of  # importing it gives the library the operator's settings, once
    LIBRARY.hold(Settings(tiny.folder))
    yield
    LIBRARY.hold(Settings())


def map_of(app: AppTest, step: str) -> np.ndarray | None:
    found = [figure for figure in drawn(app) if figure["layout"]["meta"]["step"] == step]
    return np.asarray(found[0]["data"][0]["z"]) if found else None


def words(app: AppTest) -> str:
    return " ".join(item.value for item in (*app.markdown, *app.caption)).replace("\\", "") + said(app)


def test_both_maps_have_the_numbers_of_the_package(tiny: TinyModels) -> None:
    tiny("Llama")
    app = opened(PAGE, **LINK)
    assert not app.exception
    trace = Model("Llama", TEXT).trace()
    effects = map_of(app, "logit-effect")
    assert effects is not None
    shown = np.isfinite(effects)
    assert effects[shown] == approx(circuits.writes(trace, 1, 2).numpy()[shown])
    terms = circuits.score_terms(trace, 1, 2, 4, 2)
    assert map_of(app, figures._STEP) == approx(terms.by_layer().values.numpy())
    assert terms.describe()[0].split(" wrote")[0] in words(app)
    assert "adds" in words(app)


def test_long_runs_wait_for_a_click(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny("Llama")
    for panels in (writes, heads_panels):  # the metrics of all heads need the same run
        monkeypatch.setattr(panels, "METRIC_SECONDS", 0.0)
    CACHE.reset(2**28)
    app = opened(PAGE, **LINK)
    assert map_of(app, "weights") is not None
    assert map_of(app, "logit-effect") is None
    app.button(key="circuits_ask").click().run()
    assert not app.exception
    assert map_of(app, "logit-effect") is not None
    assert map_of(app, figures._STEP) is None
    app.button(key="circuits_terms_ask").click().run()
    assert map_of(app, figures._STEP) is not None
    assert map_of(app, "logit-effect") is not None  # the run is cached


def test_lab_refuses_a_long_run_in_a_sentence(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny("Llama")
    monkeypatch.setattr(direct_effects, "_MAX_SECONDS", 0.0)
    CACHE.reset(2**28)
    app = opened("app.py", **LINK, view="writes")
    assert not app.exception
    assert "open “Inside this head” on Heads" in words(app)
    assert map_of(app, "logit-effect") is None


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("family", "expected"),
    {
        "BERT": "non-linear layer", "GPT-J": "cannot be recorded", "T5": "adds", "BART": "adds", "Gemma 2": "adds", "RoBERTa": "adds",
    }.items(),
)  # fmt: skip
def test_every_family_gets_its_numbers_or_the_reason(tiny: TinyModels, family: str, expected: str) -> None:
    tiny(family)
    text = "the owl <mask> the moon" if family == "BERT" else TEXT
    app = opened(PAGE, **LINK | {"model": family, "text": text, "text2": "a quiet harbor"})
    assert not app.exception
    assert expected in words(app)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "more",
    [
        {"words": "true"},
        {"special": "hide"},
        {"interventions": "1.2.zero"},
        {"temperature": "0"},
        {"mask": "window", "window": "1"},
        {"target": "no such token at all"},
        {"target": "·moon", "against": "·moon"},
        {"step": "query", "q": "4", "k": "3"},
        {"text": "moon"},
        {"text": "<b>moon</b> 🦉 مرحبا"},
    ],
)  # fmt: skip
def test_odd_states_have_no_traceback(tiny: TinyModels, more: dict[str, str]) -> None:
    tiny("Llama")
    app = opened(PAGE, **LINK | more)
    assert not app.exception
    assert map_of(app, "weights") is not None


def test_sources_without_a_model_say_what_to_choose() -> None:
    for link in ({"text": TEXT}, {"source": "matrices"}, {"source": "notebook"}):
        app = opened(PAGE, **link)
        assert not app.exception
        assert "needs the model around it" in words(app)


def test_untrained_model_is_drawn_at_once() -> None:
    app = opened(PAGE, source="trained", task="induction", at="0", layer="1", q="20", k="7")
    trace = Trained("induction", at=0).trace()
    terms = circuits.score_terms(trace, 1, 0, 20, 7)
    assert map_of(app, figures._STEP) == approx(terms.by_layer().values.numpy())


def test_typed_text_leaves_circuits_for_a_model() -> None:
    app = opened("pages/heads.py", heads_inside="true", text="a b")
    app.button(key="circuits_trained").click().run()
    assert not app.exception
    assert app.selectbox(key="source").value == "trained"
    app = opened("pages/heads.py", heads_inside="true", text="a b", seed="3")
    names = LIBRARY.names()
    if names:  # the text goes to the model
        app.button(key="circuits_model").click().run()
        assert {key: state_of_address(app)[key] for key in ("source", "text")} == {"source": "model", "text": "a b"}
