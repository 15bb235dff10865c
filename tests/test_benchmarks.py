"""The basis of the speed benchmarks: texts, reference apps, and equal results on both sides."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from streamlit.testing.v1 import AppTest

from attention import tokens
from benchmarks import backend, fifty, texts

FOLDER = Path(backend.__file__).parent


@pytest.mark.parametrize("length", [1, 22, 257, 2048])
@pytest.mark.parametrize("text", [texts.natural, texts.distinct])
def test_benchmark_texts_tokenize_equally_for_us_and_the_notebook_author(text, length):
    assert tokens.tokenize(text(length)) == tuple(text(length).split())
    assert len(text(length).split()) == length
    assert text(length) == text(length)


def test_benchmark_texts_repeat_words_or_never_do():
    assert len(set(texts.natural(512).split())) < 256
    assert len(set(texts.distinct(2048).split())) == 2048


@pytest.mark.parametrize(("script", "charts"), [("naive_app.py", 3), ("naive_heads.py", 36)])
def test_notebook_authors_app_redraws_everything_at_every_knob(script, charts):
    app = AppTest.from_file(str(FOLDER / script), default_timeout=60).run()
    runs = [[chart.proto.spec for chart in app.get("plotly_chart")]]
    for knob in ("temperature", "d_model", "seed"):
        slider = app.slider(knob)
        slider.set_value(slider.value + slider.step).run()
        runs.append([chart.proto.spec for chart in app.get("plotly_chart")])
    assert not app.exception
    assert {len(drawn) for drawn in runs} == {charts}
    for previous, following in pairwise(runs):
        assert all(old != new for old, new in zip(previous, following, strict=True))


def test_our_trace_and_the_torch_module_compute_the_same():
    job = backend.Job(9, n_heads=3, d_model=12)
    causal = torch.ones(9, 9, dtype=torch.bool).tril()
    with torch.no_grad():
        for mask in (None, causal):
            layer = job.trace(mask)
            output, weights = job.multihead(None if mask is None else ~mask)
            torch.testing.assert_close(layer.output, output)
            torch.testing.assert_close(layer.weights, weights[0] if weights.ndim == 4 else weights)


def test_tensor_shared_by_two_steps_is_counted_once():
    layer = backend.Job(8, n_heads=2, d_model=8).trace()
    assert layer.masked_scores is layer.scaled_scores
    floats = 3 * 2 * 8 * 4 + 3 * 2 * 8 * 8 + 2 * 8 * 4 + 8 * 8  # Q K V, S S′ A, Z, O
    assert backend.recorded_bytes(layer) == 4 * floats


def test_quantiles_of_the_load_test_match_its_interactions():
    side = fifty.Side("any", None, seconds=[i / 1000 for i in range(100, 0, -1)])
    assert (side.at(0.5), side.at(0.95), side.at(1)) == (51, 96, 100)
