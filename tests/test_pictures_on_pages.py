"""Pictures as input on the pages: links with a picture of ours, uploads, and models that read none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import state_of_address
from test_pages import drawn, opened, said
from tiny_pictures import TinyPictureModels

from attention.io.example_pictures import EXAMPLES, example_picture
from attention.models.library import LIBRARY
from attention.sources.knobs import KNOBS
from attention.sources.link import source_of
from pages.ui.server.limits import LIMITS


@pytest.fixture
def models(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> TinyPictureModels:
    monkeypatch.setattr(LIBRARY, "settings", replace(LIBRARY.settings, paths=True))
    return TinyPictureModels(Path(tmp_path_factory.getbasetemp()) / "picture models on pages")


def test_example_pictures_are_the_same_everywhere() -> None:
    assert {name: example_picture(name).digest for name in EXAMPLES} == {
        "circle-and-square": "dec58ecb4d2abaad1108ff049614edc5",
        "two-cats": "d8a0290a867d2c89cfb61a8fae420085",
        "odd-patch": "9cc339cb5c657a00363c5d3203740026",
    }


@pytest.mark.parametrize("family", ["ViT", "CLIP", "LLaVA"])
def test_link_with_an_example_opens_a_picture_model(models: TinyPictureModels, family: str) -> None:
    link = {"source": "model", "model": models(family), "image": "example:two-cats"}
    app = opened("app.py", **link)
    assert not app.error
    assert drawn(app)
    assert state_of_address(app)["image"] == "example:two-cats"
    assert [area.label for area in app.text_area] == ([] if family == "ViT" else ["Text"])
    source, notes = source_of(link, LIMITS)
    assert source.image == example_picture("two-cats")  # type: ignore[attr-defined]
    assert notes == ()


def test_picture_model_begins_with_an_example(models: TinyPictureModels) -> None:
    app = opened("app.py", source="model", model=models("DINOv2"))
    assert drawn(app)
    assert "image" not in state_of_address(app)


def test_unknown_picture_in_a_link_is_replaced_and_said(models: TinyPictureModels) -> None:
    app = opened("app.py", source="model", model=models("ViT"), image="example:dog")
    assert "image is one of example:circle-and-square" in said(app).replace("\\", "")
    assert drawn(app)


def test_knob_of_the_picture_is_last_in_links() -> None:
    assert KNOBS[-1].key == "image"
