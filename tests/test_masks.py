import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention import ConfigError
from attention.formula import mask_tensor
from attention.formula.mask import Mask

lengths = st.integers(1, 9)


def rows(mask):
    return ["".join("x" if visible else "." for visible in row) for row in mask.tolist()]


def test_causal_mask_shows_the_query_and_earlier_keys():
    assert rows(mask_tensor.causal(3, 3)) == ["x..", "xx.", "xxx"]


def test_causal_mask_aligns_unequal_lengths_at_the_first_token():
    assert rows(mask_tensor.causal(2, 4)) == ["x...", "xx.."]
    assert rows(mask_tensor.causal(4, 2)) == ["x.", "xx", "xx", "xx"]


def test_window_mask_shows_both_sides():
    assert rows(mask_tensor.window(4, 4, 1)) == ["xx..", "xxx.", ".xxx", "..xx"]


def test_window_mask_zero_is_the_diagonal():
    assert rows(mask_tensor.window(3, 3, 0)) == ["x..", ".x.", "..x"]


def test_window_mask_far_beyond_the_last_key_shows_nothing():
    assert rows(mask_tensor.window(5, 2, 1)) == ["xx", "xx", ".x", "..", ".."]


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
