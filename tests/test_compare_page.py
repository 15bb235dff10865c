"""Compare as a page: what a link may say of B and what is said of what it may not, both in plain torch, what stands above the maps."""

from __future__ import annotations

import gc
from weakref import ref

import numpy as np
import pytest
from conftest import address, around, turn
from test_pages import DEFAULT_TEXT, drawn, opened, said

from attention import AttentionConfig, Trace, TypedText
from attention.formula.kept import KEPT
from attention.numbers.compare import Place, compare

PAGE = "pages/compare.py"


def test_b_begins_as_a_copy_of_a_and_its_knobs_are_its_own() -> None:
    app = opened(PAGE, mask="causal", colors="log", step="masked_scores")
    assert not app.exception
    a, b, less = (figure["data"][0] for figure in drawn(app))
    np.testing.assert_array_equal(a["z"], b["z"])
    assert np.nanmax(np.abs(less["z"])) == 0
    assert "identical to rounding (largest difference 0)" in drawn(app)[2]["layout"]["title"]["subtitle"]["text"]
    hidden = [
        [np.isnan(figure["data"][1]["z"]).all() for figure in drawn(app)],
        [np.isnan(one["z"]).sum() for one in (a, less)],
    ]
    assert hidden == [[False, False, False], [36, 36]], "hidden cells are blank in all three"
    # The row above the maps has the knobs of the state that is turned; those of the other stay.
    app.session_state["b"] = "temperature=0.2&head=3"
    app.run()
    controls = around(app)["controls"]
    assert next(iter(controls)) == "turn"
    assert controls["turn"]["buttons"] == ["A", "B", "both"]
    assert (controls["temperature"]["value"], controls["head"]["value"], controls["mask"]["value"]) == (
        "0.2",
        "3",
        "causal",
    )
    turn(app, turn="A")
    controls = around(app)["controls"]
    assert (controls["temperature"]["value"], controls["head"]["value"]) == ("1.0", "0")
    turn(app, seed=5)
    assert address(app)["b"] == "temperature=0.2&seed=&head=3"
    expected = compare(
        TypedText(DEFAULT_TEXT, AttentionConfig(mask="causal", seed=5)).trace(),
        TypedText(DEFAULT_TEXT, AttentionConfig(mask="causal", temperature=0.2)).trace(),
        "masked_scores",
        other=Place(0, 3),
    )
    np.testing.assert_array_equal(drawn(app)[2]["data"][0]["z"], expected.matrix.numpy())


@pytest.mark.parametrize(
    ("b", "sentence"),
    [
        ("temperature=hot", "The link asks for temperature = “hot”"),
        ("q=1", "The link asks for “q” in the second state"),
        ("source=matrices&x=1,a&nonsense=1", "The link asks for “nonsense” in the second state"),
        ("text=", ""),
        ("source=file&file=x.npz:ab", "There is no B: The link shows the file “x.npz”"),
        ("source=matrices&x=1,a", "There is no B: "),
        ("d_model=32", ""),
        ("x" * 30_000, "B is the same as A"),
    ],
)  # fmt: skip
def test_what_b_cannot_be_is_said_and_a_is_shown(b: str, sentence: str) -> None:
    app = opened(PAGE, b=b, step="query")
    assert not app.exception
    told = " ".join([said(app), *(one.value for one in app.caption)]).replace("\\", "")
    assert sentence in told
    assert ("There is no B" in told) == ("source=" in b)
    weights = drawn(app)[0]["data"][0]["z"]
    np.testing.assert_array_equal(weights, TypedText(DEFAULT_TEXT).trace().layers[0].query[0].numpy())
    if b == "d_model=32":
        assert "axes of different sizes have no partners" in told
        assert len(drawn(app)) == 2


def test_matrices_are_compared_too_and_both_run_in_plain_torch() -> None:
    app = opened(PAGE, source="matrices", b="w_q=1,0,0;0,1,0;0,0,1")
    assert not app.exception
    app.session_state["compare_python"] = True
    app.run()
    programs = [code.value for code in app.code]
    for program, index in zip(programs, (0, 1), strict=True):
        ran: dict[str, object] = {}
        exec(compile(program, "program", "exec"), ran)  # ours
        np.testing.assert_allclose(np.asarray(ran["weights"])[0], drawn(app)[index]["data"][0]["z"], atol=1e-6)


def test_a_session_of_compare_keeps_neither_layer() -> None:
    text = "a comparison that stays open"
    app = opened(PAGE, b="seed=1", text=text)
    assert not app.exception
    traces = [one for one in KEPT.cache.values() if isinstance(one, Trace) and one.tokens == tuple(text.split())]
    layers = [ref(trace.layers[0]) for trace in traces]
    assert len(layers) >= 2
    del traces
    KEPT.cache.clear()
    gc.collect()
    assert [one() for one in layers] == [None] * len(layers)
    assert not app.exception
