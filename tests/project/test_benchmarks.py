"""The benchmarks: the basis of those of speed, with equal results on both sides; and each of them runs."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from margins import approx
from streamlit.testing.v1 import AppTest
from tiny_models import FAMILIES, TinyModels

from attention.base import tokens
from benchmarks import backend, fifty, texts
from benchmarks.models import MINILM, SMOLLM

FOLDER = Path(backend.__file__).parent
SMALLEST = {
    "backend": "--steps 1 --longest 256",
    "capacity": "--replicas 1 --people 1 --think 0.1 --seconds 0.5",
    "circuits": "--times 1 --tokens 13",
    "compare": "--steps 1 --tokens 8",
    "corpus": "--texts 33 --times 1 --workers 0",
    "fifty": "--sessions 1 --seconds 1 --phases 1 --think 0.1 --tokens 8",
    "guard": f"{os.devnull} version",
    "harm": "--only wrong",
    "load": "--memory 1024",
    "mosaic": "--steps 1",
    "models": "--times 1",
    "rounds": "--minutes 0.01",
    "since": "--commit HEAD --steps 1 --tokens 8",
    "speed": "--steps 1 --tokens 22 --no-bertviz --no-heads",
    "start": "--rounds 0",
    "training": "reverse --seeds 1 --controls 1",
    "training_film": "reverse --seeds 1",
    "waiting": "--generated 2 --changes 2",
}
"""The arguments with which a benchmark measures as little as it can."""


@pytest.mark.parametrize("length", [1, 22, 257, 2048])
@pytest.mark.parametrize("text", [texts.natural, texts.distinct])
def test_benchmark_texts_tokenize_equally_for_us_and_the_notebook_author(text, length):
    assert tokens.tokenize(text(length)) == tuple(text(length).split())
    assert len(text(length).split()) == length
    assert text(length) == text(length)


def test_benchmark_texts_repeat_words_or_never_do():
    assert len(set(texts.natural(512).split())) < 256
    assert len(set(texts.distinct(2048).split())) == 2048


@pytest.mark.sample(1)
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
            assert layer.output == approx(output)
            assert layer.weights == approx(weights[0] if weights.ndim == 4 else weights)


def test_tensor_shared_by_two_steps_is_counted_once():
    layer = backend.Job(8, n_heads=2, d_model=8).trace()
    assert layer.masked_scores is layer.scaled_scores
    floats = 3 * 2 * 8 * 4 + 3 * 2 * 8 * 8 + 2 * 8 * 4 + 8 * 8  # Q K V, S S′ A, Z, O
    assert backend.recorded_bytes(layer) == 4 * floats


def test_quantiles_of_the_load_test_match_its_interactions():
    side = fifty.Side("any", None, seconds=[i / 1000 for i in range(100, 0, -1)])
    assert (side.at(0.5), side.at(0.95), side.at(1)) == (51, 96, 100)


@pytest.mark.whole  # a benchmark goes with its feature
def test_each_runnable_benchmark_has_its_smallest_run():
    runnable = {path.stem for path in FOLDER.glob("*.py") if "\nif __name__ ==" in path.read_text(encoding="utf-8")}
    assert runnable == set(SMALLEST)


@pytest.fixture(scope="module")
def small_models(tmp_path_factory):
    """A folder with tiny models under the names of the two that benchmarks use, with as many layers and heads as the larger."""
    tiny = TinyModels(tmp_path_factory.mktemp("models"))
    config, model, knobs = FAMILIES["Llama"]
    sizes = {"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 36}
    for name in (MINILM, SMOLLM):
        tiny.save(tiny.folder / name, config, model, knobs | sizes)
    return tiny.folder


def smallest_runs():
    for name in SMALLEST:
        file = FOLDER / f"{name}.py"
        if not file.exists():
            continue  # taken away with its feature
        paints = "\nfrom benchmarks.chromium import" in file.read_text(encoding="utf-8")
        yield pytest.param(name, marks=[pytest.mark.browser] * paints)


@pytest.mark.long  # each starts servers of its own
@pytest.mark.parametrize("name", [*smallest_runs()])
def test_benchmark_ends_with_numbers_and_without_an_error(name, small_models):
    """Whether it reaches its aims depends on the machine, and is not asked here."""
    run = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *SMALLEST[name].split()],
        cwd=ROOT,
        env={**os.environ, "LAB_MODELS": str(small_models)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode in (0, 1)
    assert re.search(r"\d", run.stdout)
    assert not re.search(r"Traceback|\w(?:Error|Exception)\b", run.stdout + run.stderr), run.stderr
