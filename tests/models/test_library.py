"""The models in memory: loaded once for all requests, safe for several threads, and evicted above a limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from typing import Any, TypeVar

import pytest
import torch
from margins import approx
from tiny_models import TinyModels

from attention import Model, ModelError, Trace
from attention.base.cache import CACHE
from attention.models import library, loading
from attention.models.library import LIBRARY, Settings
from attention.models.loaded import LoadedModel

Result = TypeVar("Result")
OWL, HARBOR = "the owl asked the moon and the moon blinked", "a quiet harbor watched the copper moon"


@pytest.fixture(autouse=True)
def small_library(tiny: TinyModels) -> Iterator[None]:
    LIBRARY.hold(Settings(tiny.folder))
    yield
    LIBRARY.hold(Settings())


def at_once(jobs: list[Callable[[], Result]]) -> list[Result]:
    """The results of jobs that start at the same moment, each in its own thread."""
    gate = threading.Barrier(len(jobs))

    def begin(job: Callable[[], Result]) -> Result:
        gate.wait(60)
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(begin, jobs))


def same(actual: Trace, expected: Trace) -> bool:
    return all(
        torch.equal(tensor, expected_layer.recorded[name])
        for layer, expected_layer in zip(actual.layers, expected.layers, strict=True)
        for name, tensor in layer.recorded.items()
    )


def test_many_threads_record_the_same_as_one(tiny: TinyModels) -> None:
    for family in ("Gemma 2", "T5"):
        tiny(family)
    sources = [Model(family, text, "the cat") for family in ("Gemma 2", "T5") for text in (OWL, HARBOR)]
    concurrent = at_once([source.trace for source in sources * 2])  # also loads both models concurrently
    LIBRARY.hold(Settings(tiny.folder))
    alone = [source.trace() for source in sources]
    for trace, expected in zip(concurrent, alone * 2, strict=True):
        assert trace.tokens == expected.tokens
        assert same(trace, expected)


def test_two_models_are_never_loaded_at_once(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers patches itself while it loads: two overlapping loads would break all later ones."""
    names, original, inside, counts = ("Gemma 2", "T5", "BERT", "BART"), loading.load, [], []
    for name in names:
        tiny(name)

    def load(folder: Any, name: str, about: str = "", *_: Any) -> LoadedModel:
        inside.append(name)
        counts.append(len(inside))
        try:
            return original(folder, name, about)
        finally:
            inside.remove(name)

    monkeypatch.setattr(loading, "load", load)
    at_once([partial(LIBRARY.get, name) for name in names])
    assert counts == [1] * len(names)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the loaded models, in order."""
    names: list[str] = []

    def load(folder: Any, name: str, about: str = "", *_: Any) -> LoadedModel:
        names.append(name)
        return original(folder, name, about)

    original = loading.load
    monkeypatch.setattr(loading, "load", load)
    return names


def test_model_requested_by_thirty_threads_is_loaded_once(tiny: TinyModels, loads: list[str]) -> None:
    tiny("BERT")
    models = at_once([lambda: LIBRARY.get("BERT")] * 30)
    assert len({id(model) for model in models}) == 1
    assert loads == ["BERT"]


def test_failed_model_load_reaches_every_waiter_and_leaves_nothing(loads: list[str]) -> None:
    def ask(name: str) -> str:
        with pytest.raises(ModelError) as caught:
            LIBRARY.get(name)
        return str(caught.value)

    assert len(set(at_once([lambda: ask("none")] * 8))) == 1
    for number in range(50):
        ask(f"none {number}")
    assert not LIBRARY._loading
    assert not loads


def test_least_recently_used_model_is_evicted_with_its_traces(tiny: TinyModels, loads: list[str]) -> None:
    sizes = sorted((tiny(family) / "model.safetensors").stat().st_size for family in ("BERT", "GPT-2", "Llama"))
    LIBRARY.hold(Settings(tiny.folder, kept_mb=sum(sizes[1:]) / 2**20))
    for name in ("BERT", "GPT-2"):
        CACHE.get_or_compute(f"trace of {name}", Model(name, OWL).trace)
    LIBRARY.get("BERT")
    assert loads == ["BERT", "GPT-2"]
    LIBRARY.get("Llama")
    assert CACHE.get("trace of GPT-2") is None
    assert CACHE.get("trace of BERT") is not None
    LIBRARY.get("BERT")
    assert loads == ["BERT", "GPT-2", "Llama"]
    LIBRARY.get("GPT-2")
    assert loads == ["BERT", "GPT-2", "Llama", "GPT-2"]


def test_model_names_on_offer(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny("BERT")
    monkeypatch.setattr(library, "_cached", lambda: {"some/cached": tiny.folder / "BERT"})
    LIBRARY.hold(Settings(tiny.folder, paths=False, hub={"some/allowed": "abc"}))
    assert "BERT" in LIBRARY.names()
    assert LIBRARY.names()[-1] == "some/allowed"
    LIBRARY.hold(Settings(tiny.folder))
    assert LIBRARY.names()[-1] == "some/cached"
    assert Model("some/cached", OWL).trace().layers


def test_twelve_times_twelve_heads_of_1000_tokens_keep_little(tiny: TinyModels) -> None:
    """Heads of a real width in two layers; twelve layers would keep six times as much."""
    wide = {"n_embd": 768, "n_layer": 2, "n_head": 12, "n_positions": 1024, "n_inner": 1, "vocab_size": 400}
    tiny.save(tiny.folder / "wide", "GPT2Config", "GPT2LMHeadModel", wide)
    trace = Model("wide", "the moon " * 511 + "the moon").trace()
    assert [layer.shape("weights") for layer in trace.layers] == [(12, 1024, 1024)] * 2
    assert 6 * trace.nbytes < 500 * 2**20
    old_size, limit = CACHE.cache.maxsize, 2**26
    CACHE.reset(limit)
    try:
        for layer, head in product(trace.layers, range(3, 12, 2)):
            assert float(layer.matrix("weights", head).sum()) == approx(1024)
            assert CACHE.cache.currsize <= limit
    finally:
        CACHE.reset(old_size)
