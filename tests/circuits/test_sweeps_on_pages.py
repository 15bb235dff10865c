"""The sweeps on the pages: heads patched from B on Heads, and a set of prompts on Circuits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import streamlit as st
from conftest import texts_of
from margins import approx
from streamlit.testing.v1 import AppTest
from test_pages import drawn, opened, said
from tiny_models import TinyModels

from attention import Model, circuits
from attention.circuits.prompts import ABLATION, DIRECT, ESTIMATE, PATCH, PromptSweep
from attention.circuits.sweep import HeadSweep, Progress
from attention.models.library import LIBRARY, Settings
from attention.sources.state import second_state
from pages.ui.circuits import ablation
from pages.ui.server import traces

TEXT, OTHER = "the owl asked the moon", "the moon asked the quiet owl"
LINK = {"source": "model", "model": "GPT-2", "text": TEXT}
CSV = "the owl asked the moon,the moon asked the owl, moon, owl\nkeys and queries,the keys and the queries, meet, moon\na,b"


@pytest.fixture(autouse=True)
def model(tiny: TinyModels) -> Iterator[Model]:
    assert traces.trace_of  # importing it gives the library the operator's settings, once
    tiny("GPT-2")
    LIBRARY.hold(Settings(tiny.folder))
    yield Model("GPT-2", TEXT)
    LIBRARY.hold(Settings())


def maps(app: AppTest) -> list[np.ndarray]:
    """The numbers of the maps of layers and heads, each [layer head]."""
    return [
        np.asarray(figure["data"][0]["z"]) for figure in drawn(app) if figure["layout"]["meta"]["step"] == "matters"
    ]


def captions(app: AppTest) -> str:
    return " ".join(caption.value for caption in app.caption).replace("\\", "")


@pytest.mark.parametrize("step", ["head_output", "query"])
def test_heads_are_patched_from_the_second_state(model: Model, step: str) -> None:
    app = opened("pages/heads.py", **LINK, matters_silence=step, compare=f"text={OTHER}")
    assert not app.exception
    button = app.button(key="matters_ask")
    assert button.label.startswith("Patch each of 8 heads in turn")
    button.click().run()
    sweep = circuits.which(circuits.patch_aligned(model, OTHER), patch=step)
    for drawn_map, expected in zip(maps(app), (sweep.change, sweep.estimate, sweep.direct), strict=True):
        assert drawn_map == approx(expected)
    assert "Patches act at" in captions(app)
    assert "rank correlation with the exact sweep (Spearman)" in captions(app)
    assert f"L{sweep.by_effect()[0][0]} H{sweep.by_effect()[0][1]} with the" in " ".join(
        item.value for item in app.markdown
    )


def test_text_of_the_second_state_is_typed_on_heads(model: Model) -> None:
    app = opened("pages/heads.py", **LINK, matters_silence="value")
    assert "B has another text than A; both are equal now" in said(app)
    app.text_area(key="matters_b").set_value(OTHER).run()
    assert not said(app)
    assert app.button(key="matters_ask").label.startswith("Patch each of 8 heads")
    state = {"source": "model", "model": "GPT-2", "text": TEXT}
    assert second_state(state, texts_of(app)["compare"])["text"] == OTHER
    assert model.text == TEXT


def with_prompts(csv: str, **more: str) -> AppTest:
    app = opened("pages/heads.py", **LINK, **more)
    app.session_state["prompts"] = True
    app.run()
    app.text_area(key="prompts_csv").set_value(csv).run()
    assert not app.exception
    return app


@pytest.mark.sample(1)
@pytest.mark.parametrize("exact", [False, True])
def test_prompt_set_shows_means_and_a_link_for_each_prompt(model: Model, exact: bool) -> None:
    app = with_prompts(CSV, prompts_exact=str(exact).lower(), prompts_number=PATCH if exact else ESTIMATE)
    assert "Row 3: expected clean, corrupted, target, distractor" in captions(app)
    verb = "Ablate and patch" if exact else "Estimate"
    button = app.button(key="prompts_ask")
    assert button.label.startswith(f"{verb} all heads in 2 prompts")
    button.click().run()
    assert not app.exception
    result = circuits.over_prompts(model, circuits.PromptSet.from_text(CSV), exact=exact)
    assert [*result.numbers] == ([ABLATION, PATCH] if exact else []) + [ESTIMATE, DIRECT]
    name = PATCH if exact else ESTIMATE
    mean, spread = maps(app)
    assert mean == approx(result.means(name))
    assert spread == approx(result.spreads(name))
    frames = [frame.value for frame in app.dataframe]
    index = next(i for i, frame in enumerate(frames) if "link" in frame)
    heads, rows = frames[index - 1 : index + 1]
    assert [*heads.columns] == [*result.frame(name).columns]
    assert [*rows["link"]] == [prompt.address("GPT-2") for prompt in result.prompts]
    assert ("Rank correlation of the mean estimate" in captions(app)) == exact
    assert "saturated" in captions(app)
    assert "Prompt 2: Patches act at" in captions(app)


def test_prompt_sweep_stops_at_its_button(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def sweep(*_: object, **__: object) -> Iterator[Progress[PromptSweep]]:
        calls.append(True)
        yield Progress(3, 16, 5.0)
        st.stop()  # as a click stops a run in progress

    app = with_prompts(CSV)
    monkeypatch.setattr(circuits, "sweep_prompts", sweep)
    app.button(key="prompts_ask").click().run()
    stop = next(button for button in app.button if button.label == "Stop")
    assert len(calls) == 1
    stop.click().run()
    assert not app.exception
    assert (len(calls), [button.label for button in app.button].count("Stop")) == (1, 0)
    assert app.button(key="prompts_ask").label.startswith("Estimate all heads")


def test_examples_fill_the_field_and_errors_are_sentences(tiny: TinyModels) -> None:
    app = opened("pages/heads.py", **LINK)
    app.session_state["prompts"] = True
    app.run()
    assert app.text_area(key="prompts_csv").value == circuits.EXAMPLES.to_csv()
    app.text_area(key="prompts_csv").set_value("a,b").run()
    assert "A prompt set has rows of clean, corrupted, target, distractor" in said(app)
    tiny("RoBERTa")
    for link, words in (({"text": TEXT}, ""), ({**LINK, "model": "RoBERTa"}, "has no language-model head")):
        other = opened("pages/heads.py", **link)
        other.session_state["prompts"] = True
        other.run()
        assert not other.exception
        assert words in captions(other)
        assert [expander.label for expander in other.expander].count(
            "Many prompts: the mean and spread of every head"
        ) == bool(words)
        assert not [button for button in other.button if button.key == "prompts_ask"]


def test_ablation_sweep_stops_at_its_button(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def sweep(*_: object) -> Iterator[Progress[HeadSweep]]:
        calls.append(True)
        yield Progress(3, 8, 5.0)
        st.stop()  # as a click stops a run in progress

    app = opened("pages/heads.py", **LINK)
    monkeypatch.setattr(ablation, "sweep_heads", sweep)
    app.button(key="matters_ask").click().run()
    stop = next(button for button in app.button if button.label == "Stop")
    assert len(calls) == 1
    stop.click().run()
    assert not app.exception
    assert (len(calls), [button.label for button in app.button].count("Stop")) == (1, 0)
    assert app.button(key="matters_ask").label.startswith("Ablate each of 8 heads in turn")
