import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import ROOT
from margins import approx

from attention import AttentionConfig, NumbersError, TypedText
from attention.formula.config import INITS
from attention.lessons import softmax
from attention.lessons.softmax import measure
from attention.trace.attend import attend

pytestmark = pytest.mark.quick

ROW = (0.1, -0.2, -0.3, 0.5)
TEXT = "the owl asked the moon and the moon blinked"


def test_softmax_curve_matches_notebook_1() -> None:
    x = np.arange(-5, 5, 0.1)
    powers = np.exp(x - np.max(x))
    curve = softmax.curve()
    np.testing.assert_array_equal(curve.number, x)
    assert curve.share.to_numpy() == approx(powers / powers.sum(axis=0))
    assert curve.share.sum() == approx(1)


def test_softmax_weights_and_variances_match_notebook_2() -> None:
    spread = softmax.spread(ROW)
    assert spread.shares[1.0] == approx([0.2562, 0.1898, 0.1717, 0.3822], step=1e-4)
    assert spread.shares[0.125] == approx([0.0390, 0.0035, 0.0016, 0.9559], step=1e-4)
    table = spread.frame().set_index("temperature")
    assert round(table.loc[1.0, "variance"], 4) == 0.0091
    assert round(table.loc[0.125, "variance"], 4) == 0.2218


def test_variance_matches_torch_and_entropy_spans_0_to_ln_n() -> None:
    spread = softmax.spread(ROW)
    for temperature, variance, entropy in zip(spread.temperatures, spread.variance, spread.entropy, strict=True):
        shares = torch.softmax(torch.tensor(ROW, dtype=torch.float64) / temperature, dim=0)
        assert variance == approx(float(shares.var()))
        assert entropy == approx(float(torch.distributions.Categorical(shares).entropy()))
        assert 0 <= entropy <= math.log(4)
    assert (np.diff(spread.entropy) > 0).all()


@pytest.mark.parametrize(
    "text", ["0.1, -0.2, -0.3, 0.5", "0.1 -0.2 -0.3 0.5", "[0.1, −0.2,\n -0.3; .5]", "0.1,-0.2,-0.3,5e-1"]
)
def test_row_is_parsed_as_people_write_it(text: str) -> None:
    assert softmax.parse_row(text) == ROW


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("cat", "“cat”"),
        ("1", "only one, 1"),
        ("", "nothing"),
        (" ,; ", "nothing"),
        ("1, nan", "“nan”"),
        ("-inf 1", "“-inf”"),
        ("1, 10001", "“10001”"),
        ("1 " * 1000, "1,000"),
        ("1, 2\x00", "U+0000"),
    ],
)
def test_bad_row_error_quotes_the_input(text: str, quoted: str) -> None:
    with pytest.raises(NumbersError) as error:
        softmax.parse_row(text)
    assert quoted in str(error.value)
    assert "2 to 32 numbers" in str(error.value)
    assert "0.1, -0.2, -0.3, 0.5" in str(error.value)


@pytest.mark.parametrize("mask", ["none", "causal"])
def test_scaling_maps_equal_attend(mask: str) -> None:
    scaling = measure(TypedText(TEXT, AttentionConfig(mask=mask, temperature=0.5, init="linear")))
    assert scaling.inits == INITS
    for i, init in enumerate(INITS):
        for scaled, j in ((True, 0), (False, 2)):
            config = AttentionConfig(mask=mask, temperature=0.5, init=init, scaled=scaled)
            layer = TypedText(TEXT, config).trace().layers[0]
            np.testing.assert_array_equal(scaling.weights[i, j], layer.weights[0].numpy())
            rows = torch.distributions.Categorical(layer.weights[0].double()).entropy()
            assert scaling.entropy[i, j] == approx(float(rows.mean()), scale=1, dtype="float32")


def test_middle_column_divides_by_the_root_of_d_model() -> None:
    scaling = measure(TypedText(TEXT, AttentionConfig(d_model=64, n_heads=4)))
    layer = TypedText(TEXT, AttentionConfig(d_model=64, n_heads=4)).trace().layers[0]
    twice_as_hot = attend(layer.query, layer.key, layer.value, temperature=2.0)  # √64 is 2 · √16
    assert scaling.weights[0, 1] == approx(twice_as_hot.weights[0].numpy())
    assert scaling.spread[:, 2] / scaling.spread[:, 1] == approx(8)
    np.testing.assert_array_equal(scaling.weights[4, 0], scaling.weights[4, 1])  # identity: d_k is d_model


def test_inits_fail_as_documented() -> None:
    entropy = dict(zip(INITS, measure(TypedText(TEXT)).entropy, strict=True))
    maximum = math.log(9)
    assert 0.5 * maximum < entropy["scaled normal"][0] < entropy["scaled normal"][1] < maximum
    assert entropy["uniform"].max() < 0.1
    assert entropy["normal"].max() < 0.5 * maximum
    assert entropy["linear"][0] > 0.95 * maximum
    assert entropy["scaled normal"][2] < 0.6 * maximum


def test_long_text_is_cut_with_a_note() -> None:
    scaling = measure(TypedText("word " * 600))
    assert scaling.weights.shape == (5, 3, 32, 32)
    assert "600 tokens" in scaling.notes[0]


def test_row_that_sees_no_key_does_not_spoil_the_mean() -> None:
    config = AttentionConfig(mask="window", window=0)
    scaling = measure(TypedText("one two three four", config, text2="a b"))
    assert not scaling.weights[:, :, 2:].any()
    np.testing.assert_array_equal(scaling.entropy, 0)


def test_naive_exp_overflows_and_the_stable_softmax_does_not() -> None:
    lesson = softmax.overflow(ROW, 200)
    assert lesson.failed
    assert math.isinf(lesson.powers[3])
    assert math.isnan(lesson.naive[3])
    assert lesson.stable == approx((0, 0, 0, 1))
    assert "overflows" in lesson.words
    assert "inf (infinity)" in lesson.frame()["exp(x)"].tolist()
    assert "nan (not a number)" in lesson.frame()["naive share"].tolist()


def test_both_softmaxes_agree_with_torch_for_small_numbers() -> None:
    lesson = softmax.overflow(ROW, 8)
    assert not lesson.failed
    assert "agree" in lesson.words
    expected = torch.softmax(torch.tensor(ROW) * 8, dim=0).tolist()
    assert lesson.naive == approx(expected)
    assert lesson.stable == approx(expected)


def test_overflowing_and_vanishing_sums_are_distinguished() -> None:
    total = softmax.overflow((88.5, 88.6), 1)
    assert total.failed
    assert total.naive == (0, 0)
    assert "their sum" in total.words
    nothing = softmax.overflow((-200, -201), 1)
    assert nothing.failed
    assert all(map(math.isnan, nothing.naive))
    assert "underflows" in nothing.words
    assert sum(nothing.stable) == approx(1)


@pytest.mark.slow
def test_importing_the_lessons_and_charts_does_not_import_torch() -> None:
    code = "import sys; import attention.lessons.softmax, attention.explanation.glossary; assert 'torch' not in sys.modules; assert 'streamlit' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
