from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention import AttentionConfig, ConfigError
from attention.formula.config import _POSITIONS, INITS, MASKS, divisors

pytestmark = pytest.mark.quick


def refusal(**knobs):
    with pytest.raises(ConfigError) as caught:
        AttentionConfig(**knobs)
    return str(caught.value)


def test_heads_share_d_model_by_default():
    assert AttentionConfig(d_model=64, n_heads=4).sizes == (4, 16, 16)


def test_d_k_and_d_v_are_independent_for_divisible_heads():
    assert AttentionConfig(d_model=64, n_heads=4, d_k=5).sizes == (4, 5, 16)
    assert AttentionConfig(d_model=64, n_heads=4, d_v=3).sizes == (4, 16, 3)


def test_d_v_follows_d_k_for_indivisible_heads():
    assert AttentionConfig(d_model=64, n_heads=3, d_k=5).sizes == (3, 5, 5)


def test_indivisible_heads_error_lists_the_divisors():
    assert (
        refusal(d_model=64, n_heads=3)
        == "d_model 64 cannot be split over 3 heads: choose 1, 2, 4, 8, 16, 32 or 64, or set d_k."
    )


def test_prime_d_model_offers_one_head_or_all():
    assert refusal(d_model=7, n_heads=2) == "d_model 7 cannot be split over 2 heads: choose 1 or 7, or set d_k."
    assert refusal(d_model=1, n_heads=2) == "d_model 1 cannot be split over 2 heads: choose 1, or set d_k."


def test_d_v_alone_does_not_define_how_queries_split():
    assert "or set d_k" in refusal(d_model=64, n_heads=3, d_v=5)


def test_identity_has_one_head_as_wide_as_d_model():
    assert AttentionConfig(d_model=10, n_heads=3, init="identity").sizes == (1, 10, 10)
    assert AttentionConfig(d_model=10, d_k=10, d_v=10, init="identity").sizes == (1, 10, 10)


@pytest.mark.parametrize("name", ["d_k", "d_v"])
def test_identity_refuses_an_impossible_width(name):
    message = refusal(d_model=10, init="identity", **{name: 4})
    assert f"{name} is d_model (10)" in message
    assert "got 4" in message
    assert f"leave {name} empty, or choose another init" in message


@pytest.mark.parametrize(
    ("name", "bad", "expected"),
    [
        ("d_model", 0, "whole number of at least 1"),
        ("d_model", 64.0, "whole number of at least 1"),
        ("d_model", True, "whole number of at least 1"),
        ("n_heads", -1, "whole number of at least 1"),
        ("n_heads", "4", "whole number of at least 1"),
        ("d_k", 0, "whole number of at least 1"),
        ("d_v", 2.5, "whole number of at least 1"),
        ("window", -1, "whole number of at least 0"),
        ("seed", -1, "whole number from 0 to 4294967295"),
        ("seed", 2**32, "whole number from 0 to 4294967295"),
        ("temperature", -0.1, "number from 0 (argmax) to infinity (uniform)"),
        ("temperature", float("nan"), "number from 0 (argmax) to infinity (uniform)"),
        ("temperature", "1", "number from 0 (argmax) to infinity (uniform)"),
        ("mask", "Causal", "none, causal, window, causal window"),
        ("positions", "rotary", "none, sinusoidal"),
        ("init", "xavier", "scaled normal, uniform, normal, linear, identity"),
    ],
)
def test_bad_knob_error_has_expected_got_and_advice(name, bad, expected):
    message = refusal(**{name: bad})
    assert message.startswith(f"{name} is ")
    assert expected in message
    assert f"got {bad!r}: choose" in message


@pytest.mark.parametrize(
    "knob",
    [{"temperature": 0}, {"temperature": float("inf")}, {"seed": 0}, {"seed": 2**32 - 1}, {"window": 0}, {"d_k": 1}],
)
def test_range_ends_are_valid(knob):
    [(name, value)] = knob.items()
    assert getattr(AttentionConfig(**knob), name) == value


@pytest.mark.parametrize(("name", "choices"), [("mask", MASKS), ("positions", _POSITIONS), ("init", INITS)])
def test_every_offered_choice_is_accepted(name, choices):
    assert [getattr(AttentionConfig(**{name: choice}), name) for choice in choices] == list(choices)


def test_config_is_frozen_and_hashable():
    with pytest.raises(FrozenInstanceError):
        AttentionConfig().seed = 1
    assert {AttentionConfig(seed=1): "a"}[AttentionConfig(seed=1)] == "a"
    assert AttentionConfig(seed=1) != AttentionConfig(seed=2)


@given(st.integers(1, 400))
def test_divisors_are_all_numbers_that_divide(number):
    assert divisors(number) == tuple(i for i in range(1, number + 1) if number % i == 0)
