"""Two states on Explore: links to B and their mistakes, both programs in plain torch, the controls above the maps."""

from __future__ import annotations

import gc
from weakref import ref

import numpy as np
import pytest
from conftest import component_message, set_knobs, state_of_address
from margins import approx
from test_pages import DEFAULT_TEXT, drawn, opened, said

from attention import AttentionConfig, Trace, TypedText
from attention.base.cache import CACHE
from attention.comparison.comparison import HeadIndex, compare
from attention.sources.state import Set, apply

PAGE = "app.py?compare=1"


def test_compare_page_copies_a_to_b_with_independent_knobs() -> None:
    app = opened(PAGE, mask="causal", colors="log", step="masked_scores", compare="&")
    assert not app.exception
    a, b, difference = (figure["data"][0] for figure in drawn(app))
    np.testing.assert_array_equal(a["z"], b["z"])
    assert np.nanmax(np.abs(difference["z"])) == 0
    assert "identical to rounding (largest difference 0)" in drawn(app)[2]["layout"]["title"]["subtitle"]["text"]
    hidden = [
        [np.isnan(figure["data"][1]["z"]).all() for figure in drawn(app)],
        [np.isnan(heatmap["z"]).sum() for heatmap in (a, difference)],
    ]
    assert hidden == [[False, False, False], [36, 36]], "hidden cells are blank in all three"
    # The controls above the maps belong to the edited state; the other state keeps its knobs.
    set_knobs(app, compare="temperature=0.2&head=3")
    controls = component_message(app)["controls"]
    assert next(iter(controls)) == "editing"
    assert controls["editing"]["buttons"] == ["A", "B", "both"]
    assert (controls["temperature"]["value"], controls["head"]["value"], controls["mask"]["value"]) == (
        "0.2",
        "3",
        "causal",
    )
    set_knobs(app, editing="A")
    controls = component_message(app)["controls"]
    assert (controls["temperature"]["value"], controls["head"]["value"]) == ("1.0", "0")
    set_knobs(app, seed=5)
    assert state_of_address(app)["compare"] == "temperature=0.2&seed=&head=3"
    expected = compare(
        TypedText(DEFAULT_TEXT, AttentionConfig(mask="causal", seed=5)).trace(),
        TypedText(DEFAULT_TEXT, AttentionConfig(mask="causal", temperature=0.2)).trace(),
        "masked_scores",
        other=HeadIndex(0, 3),
    )
    np.testing.assert_array_equal(drawn(app)[2]["data"][0]["z"], expected.matrix.numpy())


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("compare", "sentence"),
    [
        ("temperature=hot", "The link asks for temperature = “hot”"),
        ("q=1", "The link sets “q” in the second state"),
        ("source=matrices&x=1,a&nonsense=1", "The link sets “nonsense” in the second state"),
        ("text=", ""),
        ("source=file&file=x.npz:ab", "There is no B: The link shows the file “x.npz”"),
        ("source=matrices&x=1,a", "There is no B: "),
        ("d_model=32", ""),
        ("x" * 30_000, "B is what a comparison opens with"),
    ],
)  # fmt: skip
def test_compare_page_reports_a_bad_b_and_shows_a(compare: str, sentence: str) -> None:
    app = opened(PAGE, compare=compare, step="query")
    assert not app.exception
    text = " ".join([said(app), *(caption.value for caption in app.caption)]).replace("\\", "")
    assert sentence in text
    assert ("There is no B" in text) == ("source=" in compare)
    weights = drawn(app)[0]["data"][0]["z"]
    np.testing.assert_array_equal(weights, TypedText(DEFAULT_TEXT).trace().layers[0].query[0].numpy())
    if compare == "d_model=32":
        assert "axes of different sizes have no partners" in text
        assert len(drawn(app)) == 2


def test_compare_page_handles_matrices_and_exports_both_to_plain_torch() -> None:
    app = opened(PAGE, source="matrices", compare="w_q=1,0,0;0,1,0;0,0,1")
    assert not app.exception
    app.session_state["compare_python"] = True
    app.run()
    programs = [code.value for code in app.code]
    for program, index in zip(programs, (0, 1), strict=True):
        variables: dict[str, object] = {}
        exec(compile(program, "program", "exec"), variables)  # our own program
        assert np.asarray(variables["weights"])[0] == approx(drawn(app)[index]["data"][0]["z"])


def test_compare_page_session_keeps_no_layer() -> None:
    text = "a comparison that stays open"
    app = opened(PAGE, compare="seed=1", text=text)
    assert not app.exception
    traces = [
        value for value in CACHE.cache.values() if isinstance(value, Trace) and value.tokens == tuple(text.split())
    ]
    layers = [ref(trace.layers[0]) for trace in traces]
    assert len(layers) >= 2
    del traces
    CACHE.cache.clear()
    gc.collect()
    assert [layer() for layer in layers] == [None] * len(layers)
    assert not app.exception


@pytest.mark.sample(1)
@pytest.mark.parametrize("knobs", [{}, {"mask": "causal"}, {"mask": "causal", "temperature": "0.5"}])
def test_compare_opens_on_a_difference(knobs: dict[str, str]) -> None:
    app = opened(PAGE, **knobs)
    assert np.nanmax(np.abs(drawn(app)[2]["data"][0]["z"])) > 0.1
    assert state_of_address(app) == {**knobs, "compare": "1"}
    set_knobs(app, compare="&")  # as chosen by hand: equal states stay equal
    assert np.nanmax(np.abs(drawn(app)[2]["data"][0]["z"])) == 0


def test_comparison_is_entered_and_left_by_its_key() -> None:
    app = opened("app.py", mask="causal")
    app.button(key="compare_with").click().run()
    assert state_of_address(app) == {"mask": "causal", "compare": "1"}
    assert len(drawn(app)) == 3
    set_knobs(app, editing="A")
    set_knobs(app, seed="3")  # of A: from now on B has a name
    assert state_of_address(app)["compare"].startswith("temperature=0.5&seed=")
    app.button(key="compare_leave").click().run()
    assert not app.exception
    assert state_of_address(app) == {"mask": "causal", "seed": "3"}
    assert [figure["layout"]["meta"]["step"] for figure in drawn(app)] == ["scores", "weights", "output"]


def test_heads_changes_the_first_state_of_a_comparison() -> None:
    app = opened("pages/heads.py", compare="temperature=0.5")
    app.session_state["session"].state = apply(app.session_state["session"].state, Set({"seed": "3"}))
    assert state_of_address(app.run())["seed"] == "3"
