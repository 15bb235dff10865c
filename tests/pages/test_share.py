"""Links, locked links, state files and content too large for links, on every page."""

import json
import tracemalloc

import numpy as np
import pytest
from conftest import state_of_address, texts_of
from test_pages import PAGES, drawn, opened, said

from attention import AttentionConfig, FileError, TypedText
from pages.ui.page import share

LONG = ",".join(["0.123456789"] * 60)


def widgets(app):
    return [
        widget
        for kind in ("selectbox", "slider", "select_slider", "toggle", "text_input", "text_area", "number_input")
        for widget in app.get(kind)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_locked_link_shows_the_state_without_knobs(page: str) -> None:
    app = opened(page, lock="1", text="a b c", mask="causal", q="2")
    assert not app.exception
    assert "The link" not in said(app)
    assert not widgets(app)
    assert not app.get("file_uploader")
    assert not app.get("data_editor")


def test_locked_link_paints_the_same_numbers() -> None:
    link = {"text": "a b c", "mask": "causal", "temperature": "0.5", "seed": "7", "head": "1"}
    free, locked = opened("app.py", **link), opened("app.py", **link, lock="1")
    for figure, locked_figure in zip(drawn(free), drawn(locked), strict=True):
        np.testing.assert_array_equal(figure["data"][0]["z"], locked_figure["data"][0]["z"])


def test_locked_link_reports_invalid_values() -> None:
    app = opened("app.py", lock="1", temperature="999", seed="inf", heads="7", d_model="64", scaled="perhaps")
    assert not app.exception
    for key in ("temperature", "seed", "heads", "scaled"):
        assert f"The link asks for {key} " in said(app).replace("\\", "")


def test_locked_matrices_need_no_editor() -> None:
    app = opened("app.py", lock="1", source="matrices", x="1,0;0,1", w_q="1,0;0,1", w_k="1,0;0,1", w_v="1,2;3,4")
    assert not app.exception
    assert not widgets(app)
    assert drawn(app)[0]["data"][0]["z"].shape == (2, 2)


def save_and_open(page: str, other: str, **link: str):
    """The page with `link`, and `other` after opening the state file of that page."""
    app = opened(page, **link)
    content = share._write_state("Explore", {key: text for key, text in link.items() if key != "uploaded"})
    fresh = opened(other)
    fresh.file_uploader(key="open_state_0").upload("state.json", content.encode(), "application/json").run()
    assert not fresh.exception
    return app, fresh


def test_state_file_opens_to_the_same_digits() -> None:
    link = {"text": "the cat sat", "mask": "window", "window": "1", "temperature": "0.35", "d_model": "12", "heads": "3",
            "d_k": "5", "positions": "sinusoidal", "seed": "9", "head": "2", "step": "scores", "q": "1", "scaled": "false"}  # fmt: skip
    app, fresh = save_and_open("app.py", "app.py", **link)
    assert not said(fresh)
    for figure, reopened in zip(drawn(app), drawn(fresh), strict=True):
        np.testing.assert_array_equal(figure["data"][0]["z"], reopened["data"][0]["z"])
    kept = {key: texts_of(fresh)[key] for key in ("d_k", "step", "q", "scaled")}
    assert kept == {"d_k": "5", "step": "scores", "q": "1", "scaled": "false"}


def test_opening_a_state_file_resets_every_other_knob() -> None:
    fresh = opened("app.py", text="a b", temperature="5.0", mask="causal", d_k="3")
    fresh.file_uploader(key="open_state_0").upload(
        "s.json", share._write_state("Explore", {"text": "c d e"}).encode()
    ).run()
    assert not fresh.exception
    expected = TypedText("c d e", AttentionConfig()).trace().layers[0].weights[0].numpy()
    np.testing.assert_array_equal(drawn(fresh)[1]["data"][0]["z"], expected)
    assert texts_of(fresh) == {"text": "c d e"}


def test_state_file_holds_a_matrix_too_large_for_a_link() -> None:
    link = {"source": "matrices", "matrix_kind": "Q, K and V", "query": LONG, "key": LONG, "value": "1,2"}
    _, fresh = save_and_open("app.py", "app.py", **link)
    assert drawn(fresh)[0]["data"][0]["z"].shape == (1, 1)
    assert state_of_address(fresh)["uploaded"] == "query:1x60,key:1x60"


@pytest.mark.quick
def test_state_file_keeps_the_knobs_of_every_page() -> None:
    state = {"paths_mode": "x", "matters_silence": "mean", "newpage_knob": "1"}
    assert share._read_state(share._write_state("Reference", {**state, "lock": "true"}).encode()) == (
        "Reference",
        state,
    )


@pytest.mark.quick
@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b"{}", b'"attention lab"', b"\xff\xfe\x00", b"[" * 100_000,
        json.dumps({"attention lab": 2, "page": "Explore", "state": {}}).encode(),
        json.dumps({"attention lab": 1, "page": "Explore", "state": {"seed": 5}}).encode(),
        json.dumps({"attention lab": 1, "page": "Explore", "state": []}).encode(),
        json.dumps({"attention lab": 1, "page": ["Explore"], "state": {}}).encode(),
    ],
)  # fmt: skip
def test_invalid_state_file_is_reported(content: bytes) -> None:
    with pytest.raises(FileError, match="A state file is"):
        share._read_state(content)


@pytest.mark.quick
@pytest.mark.parametrize("piece", ["{},", "[],", '{"a":', '"a",', '"\\"', "1,", '"aa":1,'])
def test_invalid_state_file_is_not_parsed(piece: str) -> None:
    content = (piece * (2**20 // len(piece))).encode()
    tracemalloc.start()
    try:
        for begins in (b"", b"[", b"{", b'{"state":['):
            with pytest.raises(FileError, match="A state file is"):
                share._read_state(begins + content)
        assert tracemalloc.get_traced_memory()[1] < 5 * 2**20  # 26 MB as lists and dicts
    finally:
        tracemalloc.stop()


@pytest.mark.quick
def test_state_file_has_a_size_limit_and_roundtrips_odd_texts() -> None:
    state = {"text": '"{[\\\n' * 1000, "x": "\\", "seed": ""}
    assert share._read_state(share._write_state("Explore", state).encode()) == ("Explore", state)
    with pytest.raises(FileError, match=r"at most 8 MB; got 9,437,184 bytes"):
        share._read_state(b" " * (9 * 2**20))
    with pytest.raises(FileError, match="at most 8 MB; this state has more"):
        share._write_state("Explore", {"x": "1," * (5 * 2**20)})


def test_broken_state_file_gets_one_sentence_and_loses_nothing() -> None:
    app = opened("app.py", text="a b")
    app.file_uploader(key="open_state_0").upload("s.json", b"<script>alert(1)</script>").run()
    assert not app.exception
    assert "A state file is a .json file" in said(app)
    assert drawn(app)[0]["data"][0]["z"].shape == (2, 2)


def test_state_file_with_nonsense_reports_each_knob() -> None:
    app = opened("app.py")
    state = {"temperature": "hot", "seed": "inf", "mask": "<b>", "heads": "1e99", "q": "-1", "text": "a \ud800 b"}
    app.file_uploader(key="open_state_0").upload(
        "s.json", share._write_state("Explore", state).encode("utf-8", "surrogatepass")
    ).run()
    assert not app.exception
    app = opened("app.py")
    state["text"] = "a b"
    app.file_uploader(key="open_state_0").upload(
        "s.json", share._write_state("Nowhere", {**state, "unknown": "x"}).encode()
    ).run()
    assert not app.exception
    for key in ("temperature", "seed", "mask", "heads", "q"):
        assert f"asks for {key} " in said(app).replace("\\", "")


def test_link_to_an_uploaded_matrix_asks_for_it_again() -> None:
    app = opened("app.py", source="matrices", uploaded="x:512x64,w_q:64x64")
    assert not app.exception
    assert not drawn(app)
    assert "X (512 × 64) is too long for a link" in said(app).replace("\\", "")
    app.file_uploader(key="matrices_file_x").upload("x.csv", b"1,0,0\n0,1,0\n", "text/csv").run()
    assert "X (512" not in said(app)
    assert "W_Q (64 × 64)" in said(app).replace("\\", "")
    app.file_uploader(key="matrices_file_w_q").upload("w.csv", b"2,0,2\n2,0,0\n2,1,2\n", "text/csv").run()
    assert not app.error
    assert drawn(app)[0]["data"][0]["z"].shape == (2, 2)
    assert "uploaded" not in state_of_address(app)


@pytest.mark.parametrize("text", ["x:1", "x", ":", "unknown:2x2", "x:<b>9</b>" * 100])
def test_malformed_list_of_uploads_does_no_harm(text: str) -> None:
    app = opened("app.py", source="matrices", uploaded=text)
    assert not app.exception
