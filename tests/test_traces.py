"""What many people ask for at once: made once, one after the other, and what is large by one run at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from cachetools import LRUCache
from test_turns import in_threads

from attention import AttentionConfig, ConfigError, Matrices, Source, TextError, Trace, TypedText
from pages.ui.server import traces, turns
from pages.ui.server.traces import trace_of

MANY = 30


@pytest.fixture(autouse=True)
def an_empty_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(turns, "LONGEST", 600.0)  # nobody loses a turn because the machine is slow
    monkeypatch.setattr(
        traces.gc, "collect", lambda: 0
    )  # of all that the tests have imported it takes a third of a second
    traces._KEPT.clear()
    yield
    traces._KEPT.clear()


class Seen:
    """How many traces were made, and how many of them at the same time at most."""

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


seen = Seen()


@dataclass(frozen=True)
class Counted(TypedText):
    """A text that counts how often it is worked out."""

    text: str = "a b c"
    fails: bool = False
    large: bool = False

    @property
    def needs(self) -> int:
        return 2**30 if self.large else super().needs

    def trace(self, scores: Trace | None = None) -> Trace:
        with seen:
            if self.fails:
                raise TextError("no tokens")
            return super().trace(scores)


def at_once(work: Callable[[int], Any]) -> Seen:
    """What was seen while so many runs of scripts did this at the same moment."""
    global seen
    seen, begin = Seen(), threading.Barrier(MANY)

    def run(number: int) -> None:
        begin.wait(60)
        with turns.turn():
            work(number)

    in_threads(*[lambda number=number: run(number) for number in range(MANY)])
    return seen


def test_a_link_that_thirty_people_open_at_once_is_worked_out_once() -> None:
    got: list[Trace] = []
    assert at_once(lambda _: got.append(trace_of(Counted()))).made == 1
    assert len(got) == MANY
    assert len(set(map(id, got))) == 1


def test_different_links_are_worked_out_one_after_the_other() -> None:
    found = at_once(lambda seed: trace_of(Counted(config=AttentionConfig(seed=seed))))
    assert (found.made, found.most) == (MANY, 1)


def test_turns_of_the_same_scores_wait_for_nobody_in_a_circle() -> None:
    found = at_once(lambda i: trace_of(Counted(config=AttentionConfig(temperature=1 + i % 3, seed=i % 2))))
    assert found.made == 6


def test_an_error_leaves_nobody_waiting() -> None:
    errors: list[str] = []

    def work(_: int) -> None:
        with pytest.raises(TextError) as error:
            trace_of(Counted(fails=True))
        errors.append(str(error.value))

    at_once(work)
    assert errors == ["no tokens"] * MANY


def test_what_is_large_belongs_to_one_run_until_that_ends_and_the_small_pass_by() -> None:
    large, most, lock = [0], [0], threading.Lock()

    def work(number: int) -> None:
        if number % 2:
            trace_of(Counted(config=AttentionConfig(seed=number)))
            return
        for seed in (number, number, number + 100):
            trace_of(Counted(config=AttentionConfig(seed=seed), large=True))
        with lock:
            large[0] += 1
            most[0] = max(most[0], large[0])
        with turns.aside():
            threading.Event().wait(0.002)
        with lock:
            large[0] -= 1

    assert at_once(work).made == MANY // 2 * 3
    assert most == [1]
    assert not traces._KEPT or turns._large.acquire(blocking=False)
    turns._large.release()


def test_a_trace_that_the_cache_cannot_hold_is_made_once_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_kept", lambda key: None)
    at_once(lambda _: None)
    with turns.turn():
        one, other = (trace_of(Counted(large=True)) for _ in range(2))
    assert one is other
    traces._KEPT.clear()
    before = seen.made
    trace_of(Counted(large=True))
    assert seen.made == before + 1  # the next run makes its own


def test_there_is_room_for_a_trace_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    before: list[float] = []
    made = TypedText.trace

    def trace(self: TypedText, scores: Trace | None = None) -> Trace:
        before.append(traces._KEPT.currsize + self.needs)
        return made(self, scores)

    small = LRUCache[Any, Any](2**20, getsizeof=traces._weight)
    for one in (traces._trace_of, traces._scores_of):
        monkeypatch.setattr(one, "cache", small)
    monkeypatch.setattr(traces, "_KEPT", small)
    monkeypatch.setattr(TypedText, "trace", trace)
    for seed in range(8):
        trace_of(TypedText("w " * 100, AttentionConfig(n_heads=1, seed=seed)))
    assert len(before) == 8
    assert max(before) <= small.maxsize
    assert small


def test_what_is_refused_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TypedText, "scores", lambda self: pytest.fail("scores were made for what is refused"))
    source = TypedText("a b c", AttentionConfig(mask="causal", dropout=0.5))
    with pytest.raises(ConfigError, match="All steps need at most"):
        trace_of(replace(source, max_bytes=source.unturned.needs))  # the scores alone would fit


def test_of_many_temperatures_the_scores_and_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_LAST_ONLY", 0)
    rows = tuple((float(i), 1.0) for i in range(40))
    for temperature in range(1, 101):
        trace = trace_of(Matrices(query=rows, key=rows, value=rows, config=AttentionConfig(temperature=temperature)))
    assert traces._kept(
        traces._key(Matrices(query=rows, key=rows, value=rows, config=AttentionConfig(temperature=100)))
    )
    assert len(traces._KEPT) == 2
    assert traces._KEPT.currsize < 3 * (trace.nbytes + 20_000)


def test_a_key_is_short_and_the_same_for_the_same_numbers() -> None:
    numbers: list[Source] = [
        Matrices(query=rows, key=rows, value=rows) for rows in (((1.0, 2.0),), ((1.0, float("2")),), ((1.0, 3.0),))
    ]
    one, same, other = map(traces._key, numbers)
    assert one == same != other
    assert traces._key(TypedText("a" * 20_000)) != traces._key(TypedText("a" * 20_000, only=0))
    assert len(traces._key(TypedText("a" * 20_000))) == 16
    assert len({traces._key(numbers[0], what) for what in ("trace", "scores", "scaling")}) == 3


def test_the_smallest_trace_counts_for_what_it_weighs() -> None:
    trace_of(TypedText("a", AttentionConfig(d_model=4)))
    assert traces._KEPT.currsize > len(traces._KEPT) * 20_000
