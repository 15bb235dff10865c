"""Concurrent use of models: each model runs one forward pass at a time, in order of arrival, and no link blocks it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from test_turns import in_threads
from tiny_models import TinyModels

from attention import ConfigError, Model
from attention.base import progress
from attention.base.cache import CACHE
from attention.models import forward_pass
from attention.models.library import LIBRARY, Settings
from attention.models.loaded import FairLock, LoadedModel
from attention.patching.intervention import parse_codes
from pages.ui.server import scheduler, traces

TEXT = "the owl asked the moon"


@pytest.fixture(autouse=True)
def models(tiny: TinyModels) -> Iterator[None]:
    LIBRARY.hold(Settings(tiny.folder))
    CACHE.reset(2**28)
    yield
    LIBRARY.hold(Settings())


def until_waiting(lock: FairLock, count: int) -> None:
    while len(lock._queue) < count:
        threading.Event().wait(0.001)


def recorded_passes(loaded: LoadedModel, on_pass: Callable[[int], None]) -> list[str]:
    """The names of the threads of all forward passes; before each pass, `on_pass` gets its number."""
    passes: list[str] = []

    def note(*_: Any) -> None:
        passes.append(threading.current_thread().name)
        on_pass(len(passes))

    loaded.model.register_forward_pre_hook(note)
    return passes


def run_together(**works: Callable[[], Any]) -> None:
    """Runs callables in threads with these names."""
    failed: list[BaseException] = []

    def run(work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as error:  # the test asserts below that there is none
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,), name=name, daemon=True) for name, work in works.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert not any(thread.is_alive() for thread in threads)


def test_fair_lock_serves_threads_in_order() -> None:
    lock, order = FairLock(), list[str]()

    def enter(name: str) -> None:
        with lock.hold(), lock.hold():  # the lock is reentrant
            order.append(name)

    with lock.hold():
        threads = []
        for number in range(5):
            threads.append(threading.Thread(target=enter, args=(str(number),)))
            threads[-1].start()
            until_waiting(lock, number + 1)
        lock.pause()
        order.append("first again")
        lock.pause()  # no thread waits
    in_threads(*[thread.join for thread in threads], lambda: enter("last"))
    assert order == ["0", "1", "2", "3", "4", "first again", "last"]


def test_fair_lock_is_free_after_an_error() -> None:
    lock = FairLock()
    with pytest.raises(KeyError), lock.hold():
        raise KeyError
    run_together(a=lambda: lock.hold().__enter__())


@pytest.mark.parametrize("do", ["", "0.1.zero"])
def test_other_forward_passes_run_between_two_generated_tokens(tiny: TinyModels, do: str) -> None:
    tiny("GPT-2")
    loaded, started = LIBRARY.get("GPT-2"), threading.Event()

    def on_pass(number: int) -> None:
        if number == 1:  # the first pass of the generation waits until the other thread waits
            started.set()
            until_waiting(loaded.lock, 1)

    passes = recorded_passes(loaded, on_pass)
    alone = Model("GPT-2", "a quiet harbor")

    def generate() -> None:
        Model("GPT-2", TEXT, generate=4, interventions=parse_codes(do)).prepare()

    def look() -> None:
        assert started.wait(60)
        alone.trace()

    run_together(generates=generate, looks=look)
    assert passes[:3] == ["generates", "looks", "generates"]
    assert passes.count("generates") > 2


def test_generated_text_does_not_depend_on_other_forward_passes(tiny: TinyModels) -> None:
    tiny("Llama")
    loaded = LIBRARY.get("Llama")

    def ids(text: str) -> list[int]:
        return Model("Llama", text, generate=8).load_inputs()[1]["input_ids"][0].tolist()

    texts = (TEXT, "keys and queries meet", "the cat sat on the mat")
    expected = [ids(text) for text in texts]
    CACHE.reset(2**28)
    results: dict[str, list[int]] = {}
    with loaded.lock.hold():
        threads = [threading.Thread(target=lambda text=text: results.update({text: ids(text)})) for text in texts]
        for number, thread in enumerate(threads):
            thread.start()
            until_waiting(loaded.lock, number + 1)
    in_threads(*[thread.join for thread in threads])
    assert [results[text] for text in texts] == expected


@pytest.mark.parametrize("do", ["", "0.1.zero"])
def test_generation_ends_with_the_run_that_waits_for_it(tiny: TinyModels, do: str) -> None:
    tiny("GPT-2")
    loaded = LIBRARY.get("GPT-2")
    passes, shares = recorded_passes(loaded, lambda _: None), list[float]()
    source = Model("GPT-2", TEXT, generate=9, interventions=parse_codes(do))

    def tell(_: str, share: float) -> None:
        shares.append(share)
        if len(shares) == 3:
            raise KeyboardInterrupt  # as Streamlit raises when a page requests the next run, or is left

    with pytest.raises(KeyboardInterrupt), progress.report_progress_to(tell):
        source.prepare()
    assert len(passes) <= 3
    assert shares == sorted(shares)
    source.trace()  # no thread keeps waiting, and no partial result is cached
    assert source.trace().generated


def test_two_models_run_side_by_side(tiny: TinyModels) -> None:
    for name in ("GPT-2", "BERT"):
        tiny(name)
    inside = threading.Barrier(2)
    for name in ("GPT-2", "BERT"):
        recorded_passes(LIBRARY.get(name), lambda _: inside.wait(60) and None)  # neither continues before both run
    run_together(one=Model("GPT-2", TEXT).trace, other=Model("BERT", TEXT).trace)


def test_page_with_a_large_trace_waits_for_no_generation(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_LONGEST", 600.0)
    monkeypatch.setattr(traces, "_LARGE", 0)  # every trace counts as large: one run at a time may hold one
    tiny("GPT-2")
    loaded, started, drawn = LIBRARY.get("GPT-2"), threading.Event(), threading.Event()

    def on_pass(number: int) -> None:
        if number == 1:
            started.set()
            assert drawn.wait(60)

    recorded_passes(loaded, on_pass)
    tiny("BERT")

    def generate() -> None:
        with scheduler.turn():
            traces.trace_of(Model("GPT-2", TEXT, generate=3))

    def look() -> None:
        assert started.wait(60)
        with scheduler.turn():
            traces.trace_of(Model("BERT", TEXT))
        drawn.set()

    run_together(generates=generate, looks=look)


def test_work_is_estimated_before_the_model_runs(tiny: TinyModels) -> None:
    tiny("GPT-2")
    loaded = LIBRARY.get("GPT-2")
    passes = recorded_passes(loaded, lambda _: None)
    cells = ";".join(f"*.*.s{i % 5},{i // 5 % 5}=1" for i in range(100))
    single = forward_pass.estimate_seconds(loaded, 5, forward_pass.PassInterventions(parse_codes("0.1.zero")))
    assert single < forward_pass.estimate_seconds(
        loaded, 5, forward_pass.PassInterventions(parse_codes("0.1.zero"), frozen=True)
    )
    assert (
        single
        < forward_pass.estimate_seconds(loaded, 5, forward_pass.PassInterventions(parse_codes("*.*.zero")))
        < forward_pass.estimate_seconds(loaded, 5, forward_pass.PassInterventions(parse_codes(cells)))
    )
    assert not passes


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"generate": 20}, "20 generated tokens after 5 tokens would take about .* s: generate fewer tokens, or choose"),
        ({"interventions": parse_codes("0.1.zero")}, "1 change after 5 tokens .*: change fewer heads and layers, or choose"),
        (
            {"interventions": parse_codes("0.1.zero;1.*.t2"), "generate": 1},
            "1 generated token, each of which runs the model with 2 changes again, after .*: generate fewer tokens or change fewer heads and layers",
        ),
    ],
)  # fmt: skip
def test_overlong_work_gets_one_sentence_and_no_forward_pass(
    tiny: TinyModels, monkeypatch: pytest.MonkeyPatch, knobs: dict[str, Any], sentence: str
) -> None:
    tiny("GPT-2")
    passes = recorded_passes(LIBRARY.get("GPT-2"), lambda _: None)
    plain = Model("GPT-2", TEXT)
    monkeypatch.setattr(forward_pass, "_MAX_SECONDS", 0.001)
    with pytest.raises(ConfigError, match=sentence) as error:
        replace(plain, **knobs).trace()
    assert str(error.value).count(": ") == 1
    assert not passes
    plain.trace()  # one plain forward pass is always allowed


def test_long_generation_allows_a_few_interventions_but_not_a_hundred(tiny: TinyModels) -> None:
    """With the sizes of SmolLM2, 30 layers of 9 heads: such a generation blocked others for 12 s."""
    tiny("Llama")
    loaded = LIBRARY.get("Llama")
    site = loaded.sites[0]
    wide = replace(site, sizes={**site.sizes, "q": (9, site.sizes["q"][1])})
    large = replace(loaded, nbytes=4 * 106_000_000, sites=tuple(replace(wide, name=f"layer {i}") for i in range(30)))
    cells = ";".join(f"*.*.w{i % 10},0=0.5r" for i in range(100))
    with pytest.raises(ConfigError, match="20 generated tokens, each of which runs the model with 100 changes again"):
        forward_pass.check_time(large, 13, 20, [forward_pass.PassInterventions(parse_codes(cells))])
    forward_pass.check_time(large, 13, 0, [forward_pass.PassInterventions(parse_codes(cells))])
    forward_pass.check_time(
        large, 13, 20, [forward_pass.PassInterventions(parse_codes("17.3.zero;17.4.zero;18.6.zero;23.2.zero"))]
    )
    forward_pass.check_time(large, 400, 20, [forward_pass.PassInterventions()])
