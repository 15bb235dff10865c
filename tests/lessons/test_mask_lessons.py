import math

import pytest
import torch
from margins import approx
from test_patches_in_words import trace_of
from tiny_pictures import TinyPictureModels

from attention import AttentionConfig, ConfigError, TypedText
from attention.formula import mask_tensor
from attention.formula.mask import Mask
from attention.lessons import mask_examples
from attention.lessons.mask_examples import table as hidden_cells_table
from attention.tutorials import Notebook

pytestmark = pytest.mark.quick

SCORES = torch.tensor([0.3, -1.2, 2.0, 0.1])


def test_each_hiding_method_gives_its_row_without_a_key() -> None:
    table = mask_examples.hidden_row_table(SCORES).set_index("hidden by")
    assert table.loc["softmax of −∞, directly", "outcome"].startswith("NaN")
    assert table.loc["−1e10 instead of −∞ (notebook 4)", "weights of the row"] == "  ".join(["0.2500"] * 4)
    assert table.loc["−10000 added (older BERT code)", "outcome"].startswith("as if nothing were hidden")
    assert table.loc["Attention Lab", "sum"] == "0.0000"


def test_torch_rows_equal_torch() -> None:
    nothing_hidden = torch.ones(4, dtype=torch.bool)
    expected = torch.softmax(SCORES, dim=-1)
    assert mask_examples._sdpa(SCORES, nothing_hidden) == approx(expected)
    assert mask_examples._multihead(SCORES, nothing_hidden) == approx(expected)
    one_hidden = torch.tensor([True, False, True, True])
    masked = torch.softmax(SCORES.masked_fill(~one_hidden, -math.inf), dim=-1)
    assert mask_examples._sdpa(SCORES, one_hidden) == approx(masked)
    assert mask_examples._multihead(SCORES, one_hidden) == approx(masked)


def test_three_averaging_methods_are_equal_and_match_the_notebook() -> None:
    trace = Notebook("averaging-trick").trace()
    average, ways = mask_examples.averaging_traces(trace)
    assert average.difference == approx(0, scale=1)
    assert average.softmax == approx(trace.layers[0].head_output[0])
    assert average.weights[2] == approx(torch.tensor([1 / 3] * 3 + [0.0] * 5))
    assert list(ways) == ["loop", "triangular matrix", "masked softmax"]


def test_click_toggles_one_mask_cell() -> None:
    visible = mask_tensor.causal(5, 7)
    changed = mask_tensor.custom(5, 7, mask_tensor.toggle(visible, 2, 6))
    assert (changed != visible).nonzero().tolist() == [[2, 6]]
    restored = mask_tensor.custom(5, 7, mask_tensor.toggle(changed, 2, 6))
    assert torch.equal(restored, visible)


def test_mask_roundtrips_through_its_grid() -> None:
    trace = TypedText("the the the", AttentionConfig(mask="causal")).trace()
    grid = mask_examples.grid(trace)
    assert list(grid.columns) == ["0 the", "1 the", "2 the"]
    assert torch.equal(mask_tensor.custom(3, 3, mask_examples.encode_table(grid)), mask_tensor.causal(3, 3))


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (64, 64), (200, 130)])
def test_custom_mask_roundtrips_through_text(size: tuple[int, int]) -> None:
    visible = torch.rand(size, generator=torch.Generator().manual_seed(0)) > 0.5
    assert torch.equal(mask_tensor.custom(*size, mask_tensor.encode(visible)), visible)


def test_structured_mask_is_short_enough_for_a_link() -> None:
    assert len(mask_tensor.encode(mask_tensor.causal(64, 64))) < 700
    assert mask_tensor.encode(torch.ones(9, 9, dtype=torch.bool)) == ""


def test_everything_outside_a_smaller_custom_mask_is_visible() -> None:
    written = mask_tensor.encode(torch.zeros(2, 2, dtype=torch.bool))
    assert mask_tensor.custom(3, 3, written).tolist() == [
        [False, False, True],
        [False, False, True],
        [True, True, True],
    ]
    assert mask_tensor.custom(1, 1, written).tolist() == [[False]]


@pytest.mark.parametrize(
    "cells", ["x", "2x2", "2x2.", "2x2.!!", "0x0.eJw", "9999x9999.eJwDAAAAAAE", "-1x2.eJw", "2x2.eJwTAAAAIQAh", "é"]
)
def test_malformed_custom_mask_is_refused(cells: str) -> None:
    with pytest.raises(ConfigError, match="Click the mask"):
        mask_tensor.custom(2, 2, cells)


def test_prefix_keys_are_visible_to_all_others_are_causal() -> None:
    visible = Mask("prefix", prefix=2).build(4, 5)
    assert visible[:, :2].all()
    assert torch.equal(visible[:, 2:], mask_tensor.causal(4, 5)[:, 2:])


def test_padding_hides_the_same_keys_from_every_query() -> None:
    trace = TypedText("one two three\nfour", AttentionConfig(mask="causal"), sequence=1, pad=True).trace()
    assert trace.tokens == ("four", "", "")
    assert trace.layers[0].mask.tolist() == [[True, False, False]] * 3
    alone = TypedText("four", AttentionConfig(mask="causal")).trace()
    assert trace.layers[0].weights[:, :1, :1] == approx(alone.layers[0].weights)
    assert trace.layers[0].output[:1] == approx(alone.layers[0].output)


def test_higher_dropout_keeps_earlier_drops_and_changes_no_other_step() -> None:
    def layer(dropout: float):
        return TypedText("a b c d e f g h", AttentionConfig(dropout=dropout)).trace().layers[0]

    none, sample, larger = layer(0.0), layer(0.3), layer(0.8)
    assert none.dropped_weights is None
    assert sample.weights == approx(none.weights)
    assert ((sample.dropped_weights == 0) <= (larger.dropped_weights == 0)).all()
    remaining = sample.dropped_weights != 0
    assert sample.dropped_weights[remaining] == approx(sample.weights[remaining] / 0.7)
    assert sample.head_output == approx(sample.dropped_weights @ sample.value)
    assert torch.equal(sample.dropped_weights, layer(0.3).dropped_weights)
    sums = TypedText("w " * 200, AttentionConfig(dropout=0.5)).trace().layers[0].dropped_weights.sum(dim=-1)
    assert 0.98 < float(sums.mean()) < 1.02
    assert float(sums.std()) > 0.01


@pytest.mark.slow
def test_table_of_hidden_cells_keeps_its_order(picture_models: TinyPictureModels) -> None:
    rows = hidden_cells_table(trace_of(picture_models, "ViT"), 0, 1, 0, 20)
    assert [name for name in rows.columns if "_" not in name] == ["query", "key", "may attend", "weights"]
    assert list(rows.columns).index("may attend") == 8
