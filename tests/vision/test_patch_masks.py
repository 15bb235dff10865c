"""Masks over patches: windows in two dimensions as rules and interventions, and rectangles of patches as custom masks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from margins import approx
from PIL import Image
from tiny_pictures import TinyPictureModels, noise

from attention import ConfigError, Intervention, Layer, Model, TypedText
from attention.base.tokens import Patch, patch_places
from attention.formula import mask_tensor
from attention.formula.formula import Formula
from attention.formula.mask import Mask
from attention.metrics.find_rule import PatchBox
from attention.patching.intervention import parse_codes
from attention.pictures.live_inputs import _mask_rule
from attention.vision.places import hide_patches, mask_near_patches

pytestmark = pytest.mark.quick

TOKENS = ("[CLS]", *(Patch(0, row, column, (0, 0, 1, 1)) for row in range(3) for column in range(5)), "dog")


def model(picture_models: TinyPictureModels, family: str, **more: Any) -> Model:
    return Model(
        picture_models(family), "the owl asked" if family == "LLaVA" else "", image=Image.fromarray(noise()), **more
    )


def may_see(query: str, key: str, size: int) -> bool:
    """The rule of a window of patches, for one cell."""
    if not (isinstance(query, Patch) and isinstance(key, Patch)):
        return True
    is_near = max(abs(query.row - key.row), abs(query.column - key.column)) <= size
    return is_near and query.picture == key.picture


@given(
    st.lists(st.tuples(st.integers(-1, 1), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12),
    st.integers(0, 4),
)
def test_window_of_patches_is_its_rule_cell_by_cell(places: list[tuple[int, int, int]], size: int) -> None:
    tokens = [Patch(*place, (0, 0, 1, 1)) if place[0] >= 0 else "word" for place in places]
    both = (patch_places(tokens), patch_places(tokens))
    if not any(isinstance(token, Patch) for token in tokens):
        with pytest.raises(ConfigError, match="needs queries and keys that are patches"):
            Mask("patch window", size).build(len(tokens), len(tokens), both)
        return
    visible = Mask("patch window", size).build(len(tokens), len(tokens), both)
    causal = Mask("causal patch window", size).build(len(tokens), len(tokens), both)
    for i, query in enumerate(tokens):
        for j, key in enumerate(tokens):
            assert bool(visible[i, j]) == may_see(query, key, size)
            assert bool(causal[i, j]) == (may_see(query, key, size) and j <= i)


def test_window_of_patches_of_a_layer_is_computed_and_drawn() -> None:
    scores = torch.rand(1, len(TOKENS), len(TOKENS))
    formula = Formula(divisor=None, mask=Mask("patch window", 1))
    layer = Layer(tokens=TOKENS, recorded={"scores": scores}, formula=formula)
    expected = torch.tensor([[may_see(query, key, 1) for key in TOKENS] for query in TOKENS])
    assert layer.mask is not None
    assert torch.equal(layer.mask, expected)
    assert torch.equal(layer["weights"][0] > 0, expected)
    rule = _mask_rule(layer)
    assert rule["kind"] == "custom"
    np.testing.assert_array_equal(rule["bits"], expected.numpy())
    # Equal sizes and equal names, but another grid: the cached mask is not that of the first layer.
    other = (*TOKENS[:1], *(Patch(0, at // 3, at % 3, (0, 0, 1, 1)) for at in range(15)), "dog")
    second = Layer(tokens=other, recorded={"scores": scores}, formula=formula)
    assert second.mask is not None
    assert torch.equal(second.mask, torch.tensor([[may_see(query, key, 1) for key in other] for query in other]))


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "code"),
    [("ViT", "patch-window0"), ("DINOv2 with registers", "patch-window1"), ("LLaVA", "causal-patch-window0")],
)
def test_intervention_masks_the_model_by_its_patches(picture_models: TinyPictureModels, family: str, code: str) -> None:
    number = 0 if family != "LLaVA" else 2
    trace = model(picture_models, family, interventions=parse_codes(f"{number}.1.{code}")).trace()
    unchanged = model(picture_models, family).trace()
    layer = trace.layers[number]
    assert any(isinstance(token, Patch) for token in layer.tokens)
    size = int(code[-1])
    expected = torch.tensor(
        [
            [may_see(query, key, size) and (j <= i or family != "LLaVA") for j, key in enumerate(layer.tokens)]
            for i, query in enumerate(layer.tokens)
        ]
    )
    scores = unchanged.layers[number].matrix("scaled_scores", 1)
    by_hand = scores.masked_fill(~expected, -torch.inf).softmax(-1)
    assert layer.matrix("weights", 1) == approx(by_hand)
    assert layer.matrix("weights", 0) == approx(unchanged.layers[number].matrix("weights", 0))
    # The rest of the model is computed again.
    assert trace.layers[number + 1]["weights"] != approx(unchanged.layers[number + 1]["weights"])
    # The same mask as cells gives the same numbers, bit for bit.
    cells = Intervention(layer=number, head=1, mask="custom", hidden=mask_tensor.encode(expected))
    same = model(picture_models, family, interventions=(cells,)).trace()
    assert torch.equal(same.layers[number + 1]["weights"], trace.layers[number + 1]["weights"])


def test_code_and_words_of_windows_of_patches() -> None:
    for code in ("0.1.patch-window2", "*.*.causal-patch-window3"):
        (change,) = parse_codes(code)
        assert change.code == code
        assert "patches see patches at most" in change.words
    assert parse_codes("0.1.patch-window2")[0].window == 2
    with pytest.raises(ConfigError):
        parse_codes("0.1.patch-window")


def test_window_of_patches_without_patches_is_refused() -> None:
    layer = Layer(
        tokens=("a", "b"),
        recorded={"scores": torch.zeros(1, 2, 2)},
        formula=Formula(divisor=None, mask=Mask("patch window", 1)),
    )
    with pytest.raises(ConfigError, match="this layer has none"):
        _ = layer["weights"]
    with pytest.raises(ConfigError):
        replace(TypedText("a b").config, mask="patch window")


def test_rectangle_of_patches_is_read_in_both_spellings() -> None:
    box = PatchBox.parse("row 1-2, column 3")
    assert box == PatchBox.parse("Patches rows 2–1 columns 3-3") == PatchBox((1, 2), (3, 3))
    assert PatchBox.parse(box.text) == box
    assert PatchBox.parse(str(TOKENS[7])).text == TOKENS[7]
    assert [token for token in TOKENS if token in box] == ["patch row 1, column 3", "patch row 2, column 3"]
    second = Patch(1, 1, 3, (0, 0, 1, 1))
    assert second in box
    assert second not in PatchBox((1, 2), (3, 3), 0)
    assert second in PatchBox.parse(str(second))
    assert PatchBox.parse(str(second)).picture == 1
    for wrong in ("", "3, 7", "row 1", "row -1, column 2", "row 1, column 99999"):
        with pytest.raises(ConfigError, match="Patches are written as"):
            PatchBox.parse(wrong)


def test_rectangle_is_hidden_beside_what_the_mask_hides() -> None:
    layer = Layer(
        tokens=TOKENS, recorded={"scores": torch.zeros(1, 17, 17)}, formula=Formula(divisor=None, mask=Mask("causal"))
    )
    hidden = hide_patches(layer, 0, "row 0-1, column 2-4")
    visible = mask_tensor.custom(17, 17, hidden)
    for i, j in np.ndindex(17, 17):
        token = TOKENS[j]
        is_inside = isinstance(token, Patch) and token.row <= 1 and token.column >= 2
        assert bool(visible[i, j]) == (j <= i and not is_inside)
    near = mask_tensor.custom(17, 17, mask_near_patches(layer, 0, 1))
    assert all(bool(near[i, j]) == (j <= i and may_see(TOKENS[i], TOKENS[j], 1)) for i, j in np.ndindex(17, 17))
    with pytest.raises(ConfigError, match="No key is patch row 7"):
        hide_patches(layer, 0, "row 7, column 0")
