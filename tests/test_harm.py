"""A quick slice of `benchmarks.harm` and `benchmarks.load`, so that the scripts keep working and find what they look for."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from benchmarks import fifty, guard, harm, load
from benchmarks.hostile import Hostile, inputs
from benchmarks.server import Server
from benchmarks.session import Run, Session


def finished(work: Coroutine[Any, Any, Any]) -> Any:
    """What the coroutine gives; in a thread of its own, for Playwright's loop runs in this one while a browser is open."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    with Server(guard=True) as server:
        yield server


def test_hostile_inputs_end_in_a_picture_or_a_sentence(guarded: Server) -> None:
    verdict = harm.Verdict()
    given = inputs(36, ("url", "text", "knob", "upload"))
    assert len(set(given)) == 36
    finished(harm.judge(guarded, given, verdict))
    assert not verdict.broken
    assert verdict.pictures
    assert verdict.sentences
    assert guarded.memory("VmHWM") < harm.MOST_MEMORY
    assert not guarded.refused()


def test_lying_upload_requests_are_refused(guarded: Server) -> None:
    verdict = harm.Verdict()
    assert finished(harm.lying_requests(guarded, verdict))
    assert not verdict.broken


def test_the_inputs_are_the_same_in_every_run() -> None:
    assert inputs(12) == inputs(12)


def test_what_must_not_happen_is_found(guarded: Server) -> None:
    verdict = harm.Verdict()
    finished(harm.judge(guarded, [Hostile("text", "", "", (("no such knob", "x"),))], verdict))
    assert "no such knob" in verdict.broken[0]
    assert harm._wrong(Run(figures=1, exceptions=["x"]))
    assert harm._wrong(Run())


def test_true_is_not_taken_for_a_whole_number(guarded: Server) -> None:
    verdict = harm.Verdict()
    finished(harm.judge(guarded, [Hostile("knob", "", "", (("seed", True),))], verdict))
    assert not verdict.broken


def test_a_session_turns_knobs_as_a_page_does(guarded: Server) -> None:
    async def turned() -> tuple[Run, str]:
        async with Session(guarded.base, "mask=causal&heads=8") as session:
            await session.open()
            run = await session.turn(temperature=2.0, step="scores")
            assert run.figure
            assert run.figure.knobs["mask"]["value"] == "causal"  # what the link said still holds
            assert run.figure.knobs["temperature"]["value"] == "2.0"
            assert 0 < run.drawn < run.seconds
            return run, session.query

    run, query = finished(turned())
    assert load.KNOBS.keys() | fifty.KNOBS.keys() <= run.knobs()
    assert all(load.offered(run, knob) for knob in load.KNOBS)
    assert load.offered(run, "d_model") == list(load.KNOBS["d_model"])
    assert run.figures == run.tables == 1  # the fragment and the rest of the page
    assert run.widgets["heads"][1].raw_value in ("", "8")
    assert query == "mask=causal&heads=8&temperature=2.0&step=scores"


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("socket.connect", (None, ("192.0.2.1", 80))),
        ("socket.getaddrinfo", ("attacker.invalid", 80, 0, 0, 0)),
        ("os.system", (b"true",)),
        ("pickle.find_class", ("os", "system")),
    ],
)
def test_the_guard_refuses_and_writes_it_down(event: str, arguments: tuple[object, ...]) -> None:
    log = io.StringIO()
    with pytest.raises(PermissionError, match=event):
        guard.hook(log)(event, arguments)
    assert event in log.getvalue()


def test_the_guard_lets_loopback_through() -> None:
    log = io.StringIO()
    guard.hook(log)("socket.connect", (None, ("127.0.0.1", 80)))
    guard.hook(log)("socket.getaddrinfo", ("localhost", 80, 0, 0, 0))
    assert not log.getvalue()


def test_memory_that_grows_is_seen() -> None:
    flat = [(float(second), 300.0 + (200 if second > 5 else 0)) for second in range(60)]
    growing = [(float(second), 300.0 + second / 10) for second in range(60)]
    assert load.slope(flat) == pytest.approx(0, abs=1e-9)
    assert load.slope(growing) == pytest.approx(6)
