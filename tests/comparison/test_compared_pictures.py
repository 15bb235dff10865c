"""Two states over their pictures: each number at its patch, one scale for A and B, and clicks on the change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from test_patches_in_words import check_places
from tiny_pictures import TinyPictureModels, noise

from attention import Cell, Model, Override
from attention.base.tokens import Patch, label
from attention.comparison.comparison import HeadIndex, compare
from attention.comparison.figures import cell_of_click, compared_pictures
from attention.explanation.alignment import position_names
from attention.pictures.marks import Spec
from attention.pictures.over_picture import TokenGrid
from attention.pictures.steps_view import OverPicture
from attention.trace.trace import Trace

IMAGE = Image.fromarray(noise())


def drawn(a: Trace, b: Trace, cell: Cell, reads: str = "row", colors: str = "stretched") -> list[Spec]:
    other = HeadIndex(cell.layer, cell.head)
    difference = compare(a, b, cell.step, other, other)
    return compared_pictures(a, b, cell, difference, colors, OverPicture(reads))


@pytest.mark.sample(1)
@pytest.mark.parametrize("reads", ["row", "column"])
@pytest.mark.parametrize("step", ["weights", "scores"])
def test_a_b_and_change_have_their_numbers_on_one_scale(
    picture_models: TinyPictureModels, reads: str, step: str
) -> None:
    source = Model(picture_models("DINOv2 with registers"), image=IMAGE)
    a, b = source.trace(), replace(source, image=Image.fromarray(noise(seed=1))).trace()
    grid = TokenGrid.of(a.layers[1].tokens)
    assert grid is not None
    first, second = (trace.layers[1].matrix(step, 2).numpy() for trace in (a, b))
    part = np.s_[3] if reads == "row" else np.s_[:, 6]
    figures = drawn(a, b, Cell(1, step, 2, 3, 6), reads)
    heats = [figure["data"][0] for figure in figures]
    for heat, numbers in zip(heats, (first[part], second[part], second[part] - first[part]), strict=True):
        np.testing.assert_array_equal(heat["z"], grid.fill(numbers))
    ends = [np.abs(heat["z"][grid.pictures[0].area]).max() for heat in heats]
    assert heats[0]["zmax"] == heats[1]["zmax"] == max(ends[:2])
    assert -heats[2]["zmin"] == heats[2]["zmax"] == ends[2]
    assert [figure["layout"]["title"]["text"].split("  ")[0] for figure in figures] == [
        "<b>A</b>",
        "<b>B</b>",
        "<b>B − A</b>",
    ]
    assert len({figure["layout"]["meta"]["step"] for figure in figures}) == 3


def test_patches_at_other_positions_are_compared_with_their_partners(picture_models: TinyPictureModels) -> None:
    source = Model(picture_models("LLaVA"), "the <image> owl asked", image=IMAGE)
    a, b = source.trace(), replace(source, text="the moon <image> owl asked").trace()
    layer = len(a.layers) - 1
    places = [
        {token: at for at, token in enumerate(trace.layers[layer].tokens) if isinstance(token, Patch)}
        for trace in (a, b)
    ]
    assert list(places[0].values()) != list(places[1].values())
    query = next(token for token in places[0] if (token.row, token.column) == (2, 1))
    cell = Cell(layer, "weights", 1, places[0][query], places[0][query])
    _, of_b, change = drawn(a, b, cell)
    first, second = (trace.layers[layer].matrix("weights", 1).numpy() for trace in (a, b))
    grid = change["layout"]["meta"]["grid"]
    assert of_b["layout"]["meta"]["grid"]["at"] == places[1][query]
    other = HeadIndex(layer, 1)
    difference = compare(a, b, "weights", other, other)
    top = grid["top"]
    for token in list(places[0])[:4]:  # the query sees these
        row, column = top + token.row, token.column
        expected = second[places[1][query], places[1][token]] - first[places[0][query], places[0][token]]
        assert change["data"][0]["z"][row, column] == expected
        chosen = Cell(layer, "weights", 1, 0, 0)
        name = change["layout"]["meta"]["step"]
        clicked = cell_of_click(difference, chosen, name, grid["at"], int(grid["positions"][row, column]))
        assert clicked == replace(chosen, row=places[0][query], column=places[0][token])


def test_patch_stays_a_patch_in_the_difference(picture_models: TinyPictureModels) -> None:
    source = Model(picture_models("LLaVA"), "the owl", image=IMAGE)
    a, b = source.trace(), replace(source, text="an owl sat").trace()
    at = len(a.layers) - 1
    difference = compare(a, b, "weights", HeadIndex(at, 0), HeadIndex(at, 0))
    names = position_names(difference.columns, a.layers[at].key_tokens, b.layers[at].key_tokens)
    patches = [name for name in names if "patch" in name]
    assert len(patches) == 9
    assert all(label(name, 12) == f"patch {name.row},{name.column}" for name in patches)


def test_override_is_compared_and_text_has_no_pictures(picture_models: TinyPictureModels) -> None:
    source = Model(picture_models("CLIP"), "the owl", image=IMAGE)
    a, b = source.trace(), replace(source, config=Override(temperature=0.5)).trace()
    assert len(drawn(a, b, Cell(0, "weights", 0, 1, 1), colors="log")) == 3
    assert drawn(a, b, Cell(len(a.layers) - 1, "weights", 0, 1, 1)) == []
    alone = compared_pictures(a, b, Cell(0, "weights", 0, 1, 1), None, "fixed", OverPicture())
    assert [figure["layout"]["title"]["text"] for figure in alone] == ["<b>A</b>  weights over the picture"]


def test_table_of_a_difference_has_the_places(picture_models: TinyPictureModels) -> None:
    a, b = (Model(picture_models("ViT"), image=Image.fromarray(noise(seed=seed))).trace() for seed in range(2))
    table = compare(a, b, "weights", HeadIndex(1, 2)).frame()
    check_places(table, "", list(a.tokens))
    assert table.shape == (7, 3 + 7)
