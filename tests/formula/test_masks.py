import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention.bias import causal_lower_right

from attention import ConfigError
from attention.formula import mask_tensor
from attention.formula.formula import Formula, from_json, to_json
from attention.formula.mask import Mask

pytestmark = pytest.mark.quick

lengths = st.integers(1, 9)


def rows(mask):
    return ["".join("x" if visible else "." for visible in row) for row in mask.tolist()]


def test_causal_mask_shows_the_query_and_earlier_keys():
    assert rows(mask_tensor.causal(3, 3)) == ["x..", "xx.", "xxx"]


def test_causal_mask_aligns_unequal_lengths_at_the_first_token():
    assert rows(mask_tensor.causal(2, 4)) == ["x...", "xx.."]
    assert rows(mask_tensor.causal(4, 2)) == ["x.", "xx", "xx", "xx"]


@given(lengths, lengths)
def test_keys_before_the_first_query_align_as_in_torch(n_queries, n_keys):
    n_queries, n_keys = sorted((n_queries, n_keys))  # torch warns of queries that see nothing
    bottom_right = causal_lower_right(n_queries, n_keys)._materialize()
    assert torch.equal(Mask("causal", query_offset=n_keys - n_queries).build(n_queries, n_keys), bottom_right)


@given(lengths, lengths, st.integers(0, 9), st.integers(0, 9), st.integers(-4, 4))
def test_window_has_two_sides_and_earlier_keys(n_queries, n_keys, left, right, before):
    mask = Mask("window", left, window_right=right, query_offset=before)
    visible = mask.build(n_queries, n_keys)
    expected = [[-left <= k - (q + before) <= right for k in range(n_keys)] for q in range(n_queries)]
    assert visible.tolist() == expected
    query_pos, key_pos = mask_tensor.positions(n_queries, n_keys)
    assert torch.equal(eval(mask.python(), {"query_pos": query_pos, "key_pos": key_pos}), visible)
    assert from_json(to_json(Formula(mask=mask))).mask == mask


def test_patches_and_first_key_know_no_earlier_keys():
    assert torch.equal(Mask("first", query_offset=2).build(2, 3), Mask("first").build(2, 3))


@given(lengths, lengths, st.integers(0, 9), st.sampled_from(["none", "causal", "window", "causal window"]))
def test_every_mask_matches_its_definition(n_queries, n_keys, size, name):
    rule = {
        "none": lambda q, k: True,
        "causal": lambda q, k: k <= q,
        "window": lambda q, k: abs(q - k) <= size,
        "causal window": lambda q, k: k <= q and abs(q - k) <= size,
    }[name]
    built = Mask(name, window=size).build(n_queries, n_keys)
    assert built.tolist() == [[rule(q, k) for k in range(n_keys)] for q in range(n_queries)]


@pytest.mark.parametrize("name", ["none", "causal", "window", "causal window"])
def test_masks_are_boolean(name):
    assert Mask(name).build(3, 4).dtype == torch.bool


def test_undeclared_mask_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a mask is one of none, causal, .*; got 'diagonal': choose one of them\."):
        Mask("diagonal").build(2, 2)
