"""A quick slice of `benchmarks.harm` and `benchmarks.load`, so that the scripts keep working and report the failures they look for."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import pytest

from benchmarks import fifty, flat, guard, harm, hostile_pictures, load, visits
from benchmarks.attack import Attack, suffer
from benchmarks.hostile import Hostile, inputs
from benchmarks.server import Server
from benchmarks.session import Run, Session
from pages.ui.address import names

LIMIT = 1024  # MB, the memory of a replica in the manifests


def finished(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine, run in a separate thread, because Playwright's loop runs in this one while a browser is open."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    with Server(guard=True, limit=LIMIT) as server:
        yield server


@pytest.fixture(scope="module")
def front() -> Iterator[Server]:
    """The server as the image starts it, where a process may have few descriptors."""
    with Server(front=True, limit=LIMIT, descriptors=1024) as server:
        yield server


@pytest.mark.long  # attacks on a server
@pytest.mark.parametrize(
    "attack", [attack for attack in harm.ATTACKS if attack.slice is not None], ids=lambda attack: attack.name
)
def test_attack_ends_in_pictures_and_sentences_unnoticed_by_others(
    request: pytest.FixtureRequest, attack: Attack
) -> None:
    server = request.getfixturevalue("front" if attack.front else "guarded")
    cost = finished(suffer(server, attack, **attack.slice or {}))
    assert not cost.broken
    assert cost.peak < LIMIT
    assert cost.slowest
    assert not server.refused()


@pytest.mark.long
def test_hostile_pictures_are_shown_or_refused_in_a_sentence() -> None:
    with Server(guard=True, limit=LIMIT, **hostile_pictures.ENVIRONMENT) as server:
        for attack, sizes in zip(hostile_pictures.ATTACKS, ({}, {"people": 5, "width": 1600}), strict=True):
            cost = finished(suffer(server, attack, **sizes))
            assert not cost.broken
            assert cost.peak < attack.mb
        assert not server.refused()


@pytest.mark.long
@pytest.mark.parametrize(
    "attack", [each for each in harm.of_features() if each.guard and each.slice is None], ids=lambda attack: attack.name
)
def test_hostile_files_of_a_feature_are_shown_or_refused_in_a_sentence(attack: Attack) -> None:
    with Server(guard=True, limit=LIMIT) as server:
        cost = finished(suffer(server, attack))
        assert not cost.broken
        assert cost.peak < attack.mb
        assert not server.refused()


@pytest.mark.long
def test_large_links_on_every_page_leave_memory_flat() -> None:
    with Server(limit=LIMIT, **flat.ENVIRONMENT) as server:
        assert not finished(flat.until_flat(server))


def test_memory_that_never_flattens_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[str] = []

    async def opened(server: Server, page: str, link: dict[str, str]) -> Run:
        pages.append(page)
        return Run(figures=1)

    def leaking(mb_a_round: float) -> Any:
        return SimpleNamespace(memory=lambda field: 300 + mb_a_round * len(pages) / len(names()))

    monkeypatch.setattr(flat, "opened", opened)
    assert finished(flat.until_flat(leaking(0.9))) == []
    assert pages == [*names().values()] * 2 * flat.WINDOW
    pages.clear()
    (broken,) = finished(flat.until_flat(leaking(2.25)))
    assert broken.startswith(f"memory is not flat after {flat.ROUNDS} rounds")


def test_attack_reports_every_kind_of_failure(guarded: Server) -> None:
    async def fails(server: Server) -> list[str]:
        return ["no such file"]

    async def raises(server: Server) -> list[str]:
        raise OSError("no socket")

    assert finished(suffer(guarded, Attack("fails", fails))).broken == ["no such file"]
    assert finished(suffer(guarded, Attack("raises", raises))).broken == ["OSError no socket"]


def test_killed_process_is_noticed_and_not_waited_for(guarded: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies(server: Server) -> list[str]:
        monkeypatch.setattr(server.process, "poll", lambda: -9)
        await asyncio.Event().wait()
        raise AssertionError

    cost = finished(suffer(guarded, Attack("dies", dies)))
    assert cost.ended.startswith("killed after")
    assert "exit -9" in cost.broken[0]


def test_attack_inputs_are_reproducible(monkeypatch: pytest.MonkeyPatch) -> None:
    first = inputs(12)
    monkeypatch.setattr(
        "zipfile.time.localtime", lambda *_: (1999, 12, 31, 23, 59, 58, 0, 0, 0)
    )  # archives contain the time
    assert inputs(12) == first


def test_forbidden_outcomes_are_reported(guarded: Server) -> None:
    verdict = visits.Verdict()
    finished(visits.judge(guarded, [Hostile("text", "", "", (("no such knob", "x"),))], verdict))
    assert "no such knob" in verdict.broken[0]
    assert visits._wrong(Run(figures=1, exceptions=["x"]))
    assert visits._wrong(Run())


def test_true_is_not_accepted_as_a_whole_number(guarded: Server) -> None:
    verdict = visits.Verdict()
    finished(visits.judge(guarded, [Hostile("knob", "", "", (("seed", True),))], verdict))
    assert not verdict.broken


def test_benchmark_session_changes_knobs_like_a_page(guarded: Server) -> None:
    async def changed_run() -> tuple[Run, str]:
        async with Session(guarded.base, "mask=causal&heads=8") as session:
            await session.open()
            run = await session.turn(temperature=2.0, step="scores")
            assert run.figure
            assert run.figure.knobs["mask"]["value"] == "causal"  # the value of the link
            assert run.figure.knobs["temperature"]["value"] == "2.0"
            assert 0 < run.drawn < run.seconds
            return run, session.query

    run, query = finished(changed_run())
    assert load.KNOBS.keys() | fifty.KNOBS.keys() <= run.knobs()
    assert all(load.offered(run, knob) for knob in load.KNOBS)
    assert load.offered(run, "d_model") == list(load.KNOBS["d_model"])
    assert run.figures == run.tables == 1  # of the fragment and of the rest of the page
    assert run.figure
    assert run.figure.knobs["heads"]["value"] == "8"
    assert dict(parse_qsl(query)) == {"mask": "causal", "heads": "8", "temperature": "2.0", "step": "scores"}


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("socket.connect", (None, ("192.0.2.1", 80))),
        ("socket.getaddrinfo", ("attacker.invalid", 80, 0, 0, 0)),
        ("os.system", (b"true",)),
        ("subprocess.Popen", ("true", ["true"], None, None)),
        ("pickle.find_class", ("os", "system")),
    ],
)
def test_network_guard_refuses_and_logs_requests(event: str, arguments: tuple[object, ...]) -> None:
    log = io.StringIO()
    with pytest.raises(PermissionError, match=event):
        guard.hook(log)(event, arguments)
    assert event in log.getvalue()


def test_network_guard_allows_loopback() -> None:
    log = io.StringIO()
    guard.hook(log)("socket.connect", (None, ("127.0.0.1", 80)))
    guard.hook(log)("socket.getaddrinfo", ("localhost", 80, 0, 0, 0))
    assert not log.getvalue()


def test_memory_growth_is_reported() -> None:
    flat = [(float(second), 300.0 + (200 if second > 5 else 0)) for second in range(60)]
    growing = [(float(second), 300.0 + second / 10) for second in range(60)]
    assert load.slope(flat) == pytest.approx(0, abs=1e-9)
    assert load.slope(growing) == pytest.approx(6)
