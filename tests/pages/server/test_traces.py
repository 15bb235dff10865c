"""Concurrent requests for traces: computed once, one after the other, and large ones by one run at a time."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from test_turns import in_threads

from attention import AttentionConfig, ConfigError, Matrices, Source, TextError, Trace, TypedText, find_step
from attention.base import cache
from attention.base.cache import CACHE
from attention.formula.steps import field_values
from attention.trace import compute
from pages.ui.server import limits, scheduler, traces
from pages.ui.server.traces import trace_of

pytestmark = pytest.mark.quick

MANY = 30


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(scheduler, "_LONGEST", 600.0)  # no run loses its turn on a slow machine
    monkeypatch.setattr(
        gc, "collect", lambda: 0
    )  # a collection takes a third of a second with the imports of the tests
    CACHE.cache.clear()
    yield
    CACHE.cache.clear()


class ConcurrencyCounter:
    """Counts computed traces, and the maximum computed at the same time."""

    def __init__(self) -> None:
        self.made = self.now = self.most = 0
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        with self.lock:
            self.made, self.now = self.made + 1, self.now + 1
            self.most = max(self.most, self.now)
        threading.Event().wait(0.005)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.now -= 1


counter = ConcurrencyCounter()


@dataclass(frozen=True)
class CountedText(TypedText):
    """A text that counts how often its trace is computed."""

    text: str = "a b c"
    fails: bool = False
    large: bool = False

    def memory_bytes(self) -> int:
        return 2**30 if self.large else super().memory_bytes()

    def trace(self) -> Trace:
        with counter:
            if self.fails:
                raise TextError("no tokens")
            return super().trace()


def at_once(work: Callable[[int], Any]) -> ConcurrencyCounter:
    """The counter after 30 runs of scripts have done some work at the same moment."""
    global counter
    counter, begin = ConcurrencyCounter(), threading.Barrier(MANY)

    def run(number: int) -> None:
        begin.wait(60)
        with scheduler.turn():
            work(number)

    in_threads(*[lambda number=number: run(number) for number in range(MANY)])
    return counter


def test_link_opened_by_thirty_people_is_computed_once() -> None:
    results: list[Trace] = []
    assert at_once(lambda _: results.append(trace_of(CountedText()))).made == 1
    assert len(results) == MANY
    assert len({trace.layers[0].uid for trace in results}) == 1


def test_different_links_are_computed_one_after_the_other() -> None:
    counts = at_once(lambda seed: trace_of(CountedText(config=AttentionConfig(seed=seed))))
    assert (counts.made, counts.most) == (MANY, 1)


def test_overrides_of_the_same_scores_never_deadlock() -> None:
    counts = at_once(lambda i: trace_of(CountedText(config=AttentionConfig(temperature=1 + i % 3, seed=i % 2))))
    assert counts.made == 2  # the temperature changes no recorded tensor


def test_error_releases_every_waiter() -> None:
    errors: list[str] = []

    def work(_: int) -> None:
        with pytest.raises(TextError) as error:
            trace_of(CountedText(fails=True))
        errors.append(str(error.value))

    at_once(work)
    assert errors == ["no tokens"] * MANY


def test_run_that_returns_a_large_trace_blocks_nobody() -> None:
    waits, done = threading.Event(), threading.Event()

    def long_work() -> None:
        with scheduler.turn():
            trace_of(CountedText(large=True))
            assert scheduler.run_cache()
            scheduler.release_exclusive()
            assert not scheduler.run_cache()
            with scheduler.without_turn():
                waits.set()
                assert done.wait(60)
            trace_of(CountedText(large=True))  # the run may compute another one

    def another() -> None:
        assert waits.wait(60)
        with scheduler.turn():
            trace_of(CountedText(config=AttentionConfig(seed=7), large=True))
        done.set()

    in_threads(long_work, another)
    scheduler.release_exclusive()  # does nothing outside a run


def test_large_traces_wait_for_each_other_small_ones_pass() -> None:
    large, peak, lock = [0], [0], threading.Lock()

    def work(number: int) -> None:
        if number % 2:
            trace_of(CountedText(config=AttentionConfig(seed=number)))
            return
        for seed in (number, number, number + 100):
            trace_of(CountedText(config=AttentionConfig(seed=seed), large=True))
        with lock:
            large[0] += 1
            peak[0] = max(peak[0], large[0])
        with scheduler.without_turn():
            threading.Event().wait(0.002)
        with lock:
            large[0] -= 1

    assert at_once(work).made == MANY // 2 * 3
    assert peak == [1]
    assert not CACHE.cache or scheduler._large.acquire(blocking=False)
    scheduler._large.release()


def test_trace_beyond_the_cache_is_computed_once_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_cached", lambda key, make, kind: make())
    at_once(lambda _: None)
    with scheduler.turn():
        first, second = (trace_of(CountedText(large=True)) for _ in range(2))
    assert first is second
    count = counter.made
    trace_of(CountedText(large=True))
    assert counter.made == count + 1  # the next run computes its own


def test_room_for_a_trace_is_freed_before_it_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[float] = []
    original = TypedText.trace

    def trace(self: TypedText) -> Trace:
        sizes.append(CACHE.cache.currsize + self.memory_bytes())
        return original(self)

    monkeypatch.setattr(TypedText, "trace", trace)
    CACHE.reset(2**20)
    try:
        for seed in range(8):
            result = trace_of(TypedText("w " * 100, AttentionConfig(n_heads=1, seed=seed)))
            traces.compute_head(result.layers[0], 0)
        assert len(sizes) == 8
        assert max(sizes) <= CACHE.cache.maxsize
        assert 0 < CACHE.cache.currsize <= CACHE.cache.maxsize
    finally:
        CACHE.reset(limits.TRACE_CACHE_MB * 2**20)


def test_refused_trace_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TypedText, "_input", lambda *_: pytest.fail("a refused trace must not draw rows"))
    source = TypedText("a b c", AttentionConfig(mask="causal", dropout=0.5))
    with pytest.raises(ConfigError, match="All steps need at most"):
        trace_of(replace(source, max_bytes=1000))


def test_cache_keeps_scores_and_the_last_of_many_temperatures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_LARGE_BYTES", 0)
    rows = tuple((float(i), 1.0) for i in range(40))
    for temperature in range(1, 101):
        config = AttentionConfig(temperature=temperature)
        layer = trace_of(Matrices(query=rows, key=rows, value=rows, config=config)).layers[0]
        assert layer["output" if layer.has("output") else "head_output"].shape
    weights = [key for key in CACHE.cache if isinstance(key, tuple) and key[1] == ("weights", None)]
    assert [key[2] for key in weights] == [field_values(layer.formula, find_step("weights"))]
    assert len([key for key in CACHE.cache if isinstance(key, tuple) and key[1] == ("scores", None)]) == 1


def test_orphaned_traces_are_forgotten() -> None:
    layer = TypedText("a b c").trace().layers[0]
    assert layer.weights is not None
    number = layer.uid
    assert [key for key in CACHE.cache if isinstance(key, tuple) and key[0] == number]
    del layer
    assert TypedText("d e").trace().layers[0].weights is not None
    assert not [key for key in CACHE.cache if isinstance(key, tuple) and key[0] == number]


def test_matrix_is_computed_once_for_all_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, computed = TypedText("a b c").trace().layers[0], []
    original = compute.compute_step

    def counted(*args: Any) -> Any:
        computed.append(args[1])
        threading.Event().wait(0.005)
        return original(*args)

    monkeypatch.setattr(compute, "compute_step", counted)
    at_once(lambda _: layer.output)
    assert sorted(computed) == sorted(set(computed))


def test_cache_key_is_short_and_equal_for_equal_numbers() -> None:
    numbers: list[Source] = [
        Matrices(query=rows, key=rows, value=rows) for rows in (((1.0, 2.0),), ((1.0, float("2")),), ((1.0, 3.0),))
    ]
    first, equal, different = map(traces._key, numbers)
    assert first == equal != different
    assert traces._key(TypedText("a" * 20_000)) != traces._key(TypedText("a" * 20_001))
    assert len(traces._key(TypedText("a" * 20_000))) == 16
    assert len({traces._key(numbers[0], kind) for kind in ("trace", "scores", "scaling")}) == 3


def test_smallest_trace_counts_with_its_true_size() -> None:
    trace_of(TypedText("a", AttentionConfig(d_model=4)))
    assert CACHE.cache.currsize > len(CACHE.cache) * 20_000
