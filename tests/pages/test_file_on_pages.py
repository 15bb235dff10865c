"""The source "file" on the pages: uploaded, requested where it is missing, exported."""

from __future__ import annotations

import io
import json
from weakref import WeakValueDictionary

import numpy as np
import pytest
import torch
from conftest import component_message, set_knobs, state_of_address
from streamlit.testing.v1 import AppTest
from test_file import QKV, REFUSED, WEIGHTS, mixed_trace, npz
from test_pages import PAGES, drawn, here, opened, said

from attention import File, FileError
from attention.files import array_writer
from attention.sources import registry
from pages.ui.page import share
from pages.ui.server import uploads
from pages.ui.server.limits import LIMITS
from pages.ui.state import sidebar
from pages.ui.state.notices import plain

FILES = {
    "weights of other queries than keys": ("w.npz", npz(weights=WEIGHTS)),
    "queries and keys": ("q.npz", npz(**QKV)),
    "scores alone": ("s.json", json.dumps({"scores": QKV["query"].tolist()}).encode()),
    "an export of several kinds": ("e.safetensors", array_writer.safetensors(mixed_trace())),
}


def uploaded(app: AppTest, name: str, content: bytes) -> AppTest:
    app.file_uploader(key="file_upload").upload(name, content, "application/octet-stream").run()
    assert not app.exception
    return app


@pytest.mark.sample(1)
@pytest.mark.parametrize("page", PAGES)
def test_file_opens_on_every_page(page: str) -> None:
    name, content = FILES["an export of several kinds"]
    app = uploaded(opened(page, source="file"), name, content)
    assert state_of_address(app)["file"] == f"{name}:{File.of(name, content).digest}"
    for number in range(3):
        set_knobs(app, layer=number, head=0)
        assert not app.exception
        assert not app.error


@pytest.mark.parametrize("page", here("pages/learn.py?chapter=masks"))
def test_chapter_on_masks_says_what_a_file_has_not_recorded(page: str) -> None:
    app = uploaded(opened(page, source="file"), *FILES["scores alone"])
    assert not app.error
    assert [caption.value for caption in app.caption if "no rows to average" in caption.value]


def test_lab_paints_each_layer_of_a_file() -> None:
    app = uploaded(opened("app.py", source="file", layer="1", head="2"), *FILES["weights of other queries than keys"])
    assert [figure["layout"]["meta"]["step"] for figure in drawn(app)] == ["weights"]
    np.testing.assert_array_equal(drawn(app)[0]["data"][0]["z"], WEIGHTS[1, 2])
    assert not {"temperature", "mask"} & component_message(app)["controls"].keys(), "these weights have no formula"
    set_knobs(app, layer=0)
    np.testing.assert_array_equal(drawn(app)[0]["data"][0]["z"], WEIGHTS[0, 2])


def test_formula_of_a_file_can_be_overridden() -> None:
    app = uploaded(opened("app.py", source="file", mask="causal"), *FILES["queries and keys"])
    weights = next(figure for figure in drawn(app) if figure["layout"]["meta"]["step"] == "weights")["data"][0]["z"]
    assert not np.triu(np.nan_to_num(weights), 1).any()
    assert "What if, this head only: mask causal" in component_message(app)["override"]["text"]


def test_axes_and_meaning_of_a_mask_are_chosen() -> None:
    app = uploaded(opened("app.py", source="file"), "five.npz", npz(attentions=WEIGHTS[:, None]))
    assert not app.error
    app.text_input(key="axes").set_value("layer batch head query key").run()
    assert not app.error
    assert state_of_address(app)["axes"] == "layer batch head query key"
    assert "[layer batch head query key] = 2 × 1 × 3 × 4 × 6".replace("[", "\\[").replace("]", "\\]") in said(app)
    app = uploaded(
        opened("app.py", source="file", mask_means="hide"), "m.npz", npz(**QKV, mask=np.triu(np.ones((4, 4)), 1))
    )
    weights = next(figure for figure in drawn(app) if figure["layout"]["meta"]["step"] == "weights")["data"][0]["z"]
    assert np.nan_to_num(weights)[0].tolist() == [1, 0, 0, 0]


def test_link_asks_for_its_file_and_labels_a_substitute() -> None:
    name, content = FILES["queries and keys"]
    params = {"source": "file", "file": f"{name}:{File.of(name, content).digest}", "layer": "1"}
    app = opened("app.py", source="file")
    assert "upload it, and every page shows it" in said(app)
    assert not app.error
    app = opened("app.py", **params)
    assert "The link shows the file “q.npz”" in said(app)
    assert "which is not on this server: upload it" in said(app).replace("\\", "")
    assert not drawn(app)
    uploaded(app, name, content)
    assert not app.error
    assert state_of_address(app)["layer"] == "1"
    other = uploaded(opened("app.py", **params), name, npz(**{**QKV, "value": QKV["value"] + 1}))
    assert "is not the same file as in the link" in said(other)
    assert drawn(other)
    with pytest.raises(FileError, match=r"The link shows the file “q\.npz”"):
        registry.source_of(params, LIMITS)


def test_unreadable_file_gets_one_sentence_and_the_previous_file_stays() -> None:
    app = uploaded(opened("app.py", source="file"), *FILES["queries and keys"])
    maps, file_key = drawn(app), state_of_address(app)["file"]
    for case in ("a header of 100 GB", "10^12 numbers", "a pickle alone", "no JSON"):
        name, content, reason = REFUSED[case]
        uploaded(app, name, content)
        assert reason.split(";")[0][:30] in said(app).replace("\\", "")
        assert state_of_address(app)["file"] == file_key
        np.testing.assert_array_equal(drawn(app)[1]["data"][0]["z"], maps[1]["data"][0]["z"])
    refused = uploaded(opened("app.py", source="file"), *REFUSED["NaN"][:2])
    assert "got nan at head 0, query 1 x1, key 0 k0" in said(refused).replace("\\", "")
    assert not drawn(refused)


@pytest.mark.parametrize("is_own_machine", [True, False])
def test_file_of_torch_opens_where_models_may(is_own_machine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidebar, "ALLOW_LOCAL_MODELS", is_own_machine)
    app = uploaded(opened("app.py", source="file"), *FILES["queries and keys"])
    kept = state_of_address(app)["file"]
    content = io.BytesIO()
    torch.save({"weights": torch.from_numpy(WEIGHTS)}, content)
    uploaded(app, "attn.pt", content.getvalue())
    if is_own_machine:
        np.testing.assert_array_equal(drawn(app)[0]["data"][0]["z"], WEIGHTS[0, 0])
        assert (
            state_of_address(app)["file"]
            == f"attn.pt:{File.of('attn.pt', content.getvalue(), opens_torch=True).digest}"
        )
        assert not app.error
    else:
        assert "“attn.pt” is a pickle, which can run code, so a server does not open it" in said(app)
        assert state_of_address(app)["file"] == kept
        assert len(drawn(app)) > 1
    uploaded(app, "state.pth", b"PK\x03\x04")
    assert state_of_address(app)["file"] != "state.pth"
    assert drawn(app)


def test_locked_link_asks_for_its_file_then_hides_the_field() -> None:
    app = opened("app.py", source="file", file="x.npz:0123456789abcdef", lock="1")
    uploaded(app, *FILES["queries and keys"])
    assert drawn(app)
    assert not app.file_uploader


@pytest.mark.quick
def test_link_button_warns_that_links_contain_no_file() -> None:
    assert share._missing(File.of("x.npz", b"")).startswith("“x.npz” is not in the link: send the file too")


@pytest.mark.quick
def test_open_file_counts_as_an_upload_of_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        uploads, "get_script_run_ctx", lambda: type("Context", (), {"session_id": "a", "uploaded_file_mgr": None})
    )
    monkeypatch.setattr(uploads, "_session_files", WeakValueDictionary())
    file = File.of("x.npz", b"12345")
    uploads.count_file(file)
    assert uploads._session_file_sizes() == {"a": 5}
    file = File.of("y.npz", b"123")
    uploads.count_file(file)
    assert uploads._session_file_sizes() == {"a": 3}
    del file
    assert not uploads._session_file_sizes()


def test_sequence_of_a_file_is_chosen_and_its_plan_shown() -> None:
    batch = np.stack([WEIGHTS, WEIGHTS[:, ::-1]], 1)
    content = npz(attentions=batch, tokens=np.array([list("abcd"), list("efgh")]))
    app = uploaded(opened("app.py", source="file"), "b.npz", content)
    assert list(app.selectbox(key="sequence").options) == ["0: a b c d", "1: e f g h"]
    np.testing.assert_array_equal(drawn(app)[0]["data"][0]["z"], WEIGHTS[0, 0])
    app.selectbox(key="sequence").set_value(1).run()
    assert not app.exception
    assert not app.error
    np.testing.assert_array_equal(drawn(app)[0]["data"][0]["z"], WEIGHTS[0, 2])
    assert state_of_address(app)["sequence"] == "1"
    plan = "“attentions”: weights [layer batch head query key] = 2 × 2 × 3 × 4 × 6"
    assert any(caption.value.startswith(plain(plan)) for caption in app.caption)
    set_knobs(app, sequence=0)
    assert "sequence" not in state_of_address(app)
