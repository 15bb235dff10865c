"""Heads and Masks of a model that reads a picture: the switch, the list of tokens, the fields of patches; and texts without them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import state_of_address
from streamlit.testing.v1 import AppTest
from test_pages import drawn, opened
from tiny_pictures import TinyPictureModels

from attention import Model
from attention.formula import mask_tensor
from attention.metrics.find_rule import PatchBox
from attention.models.library import LIBRARY
from attention.pictures.over_picture import default_query
from attention.vision.examples import example_picture

OVER = {"heads_drawn": "over the picture"}


@pytest.fixture
def models(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> TinyPictureModels:
    made = TinyPictureModels(Path(tmp_path_factory.getbasetemp()) / "picture models by name")
    made.folder.mkdir(exist_ok=True)
    monkeypatch.setattr(
        LIBRARY, "settings", replace(LIBRARY.settings, folder=made.folder)
    )  # names, not paths: AppTest needs options
    return made


def heads(models: TinyPictureModels, family: str, **more: str) -> AppTest:
    _ = models(family)
    app = opened("pages/heads.py", source="model", model=family, image="example:two-cats", **more)
    assert not app.exception
    return app


def labels(app: AppTest) -> list[str]:
    return [element.label for element in app.selectbox]


def test_heads_are_drawn_over_the_picture_when_asked(models: TinyPictureModels) -> None:
    app = heads(models, "ViT")
    assert "panel_grid" not in drawn(app)[0]["layout"]["meta"]
    assert "Query" not in labels(app)
    (switch,) = (element for element in app.selectbox if element.label == "Draw each head as")
    switch.set_value("over the picture").run()
    assert drawn(app)[0]["layout"]["meta"]["panel_grid"]["at"] == 0
    assert state_of_address(app)["heads_drawn"] == "over the picture"
    (tokens,) = (element for element in app.selectbox if element.label == "Query")
    tokens.set_value(4).run()
    assert drawn(app)[0]["layout"]["meta"]["panel_grid"]["at"] == 4
    assert state_of_address(app)["q"] == "4"


def test_last_word_looks_where_there_is_no_cls(models: TinyPictureModels) -> None:
    trace = Model(models("LLaVA"), "the owl", image=example_picture("two-cats")).trace()
    last = default_query(trace.layers[2].tokens)
    assert last == len(trace.layers[2].tokens) - 1
    app = heads(models, "LLaVA", text="the owl", layer="2")
    (switch,) = (element for element in app.selectbox if element.label == "Draw each head as")
    switch.set_value("over the picture").run()
    meta = drawn(app)[0]["layout"]["meta"]
    assert meta["panel_grid"]["at"] == last
    assert {panel["layer"] for panel in meta["panels"]} == {2, 3}


@pytest.mark.parametrize(("step", "reads", "name"), [("weights", "query", "Query"), ("value", "key", "Column")])
def test_step_decides_what_is_drawn(models: TinyPictureModels, step: str, reads: str, name: str) -> None:
    app = heads(models, "ViT", step=step, k="2", **OVER)
    assert drawn(app)[0]["layout"]["meta"]["panel_grid"]["reads"] == reads
    assert name in labels(app)


def test_layers_of_a_text_are_drawn_as_maps(models: TinyPictureModels) -> None:
    app = heads(models, "CLIP", text="the owl", layer="3", **OVER)
    assert "panel_grid" not in drawn(app)[0]["layout"]["meta"]
    assert any("has no patches along its axes" in caption.value for caption in app.caption)


def test_sorting_and_one_layer_work_over_the_picture(models: TinyPictureModels) -> None:
    app = heads(models, "ViT", heads_sort="patch distance", **OVER)
    assert "sorted by patch distance" in drawn(app)[0]["layout"]["meta"]["alt"]
    one = heads(models, "ViT", heads_layers="one layer", layer="1", **OVER)
    assert {panel["layer"] for panel in drawn(one)[0]["layout"]["meta"]["panels"]} == {1}


def test_texts_have_neither_the_switch_nor_metrics_of_pictures() -> None:
    app = opened("pages/heads.py", text="a b a", heads="2", **OVER)
    assert not app.exception
    assert not {"Draw each head as", "Query"} & set(labels(app))
    axes = [element for element in app.selectbox if element.label == "Vertical axis"]
    assert all("patch distance" not in element.options for element in axes)


def test_field_of_patches_masks_a_rectangle(models: TinyPictureModels) -> None:
    _ = models("ViT")
    app = opened("app.py", explore_mask="true", source="model", model="ViT", image="example:two-cats")
    assert not app.exception
    (field,) = (element for element in app.text_input if element.label == "Patches")
    field.set_value("row 0-1, column 2").run()
    (button,) = (element for element in app.button if element.label == "Mask these patches")
    button.click().run()
    state = state_of_address(app)
    assert state["mask"] == "custom"
    tokens = Model(models("ViT"), image=example_picture("two-cats")).trace().tokens
    visible = mask_tensor.custom(len(tokens), len(tokens), state["cells"])
    box = PatchBox((0, 1), (2, 2))
    assert visible.all(0).tolist() == [token not in box for token in tokens]
    assert not visible[:, ~visible.all(0)].any()
    (field,) = (element for element in app.text_input if element.label == "Patches")
    field.set_value("row 9, column 2").run()
    (button,) = (element for element in app.button if element.label == "Mask these patches")
    assert button.disabled
    assert any("No key is patch row 9, column 2" in caption.value for caption in app.caption)


def test_button_masks_all_but_near_patches(models: TinyPictureModels) -> None:
    _ = models("ViT")
    app = opened("app.py", explore_mask="true", source="model", model="ViT", image="example:two-cats")
    (near,) = (element for element in app.number_input if element.label == "Rows and columns")
    near.set_value(0).run()
    (button,) = (element for element in app.button if element.label == "Mask all but near patches")
    button.click().run()
    visible = mask_tensor.custom(7, 7, state_of_address(app)["cells"])
    assert visible[1:, 1:].tolist() == [[i == j for j in range(6)] for i in range(6)]
    assert visible[0].all()
    assert visible[:, 0].all()


def test_texts_have_no_fields_of_patches() -> None:
    app = opened("app.py", explore_mask="true", text="a b c")
    assert "Patches" not in [element.label for element in app.text_input]
