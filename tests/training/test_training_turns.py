"""Concurrent trainings: limits for a visitor and an address, the order of the pieces, and the end of unwatched ones."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable, Iterator
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from test_turns import in_threads

from attention import ConfigError
from attention.base.progress import Watcher, watching
from attention.training import Plan, learning
from attention.training import jobs as films
from attention.training.jobs import _RUNNING, _Film, get_film
from pages.ui.exports import route
from pages.ui.server import scheduler


class Step:
    """A job of `pieces` pieces that notes each of them."""

    def __init__(self, name: str, group: Hashable, pieces: int, notes: list[str]) -> None:
        self.name, self.group, self.left, self.notes = name, group, pieces, notes
        self.failed = ""

    def step(self) -> bool:
        self.notes.append(self.name)
        self.left -= 1
        return self.left > 0

    def fail(self, error: Exception) -> None:
        self.failed = str(error)


class Blocked:
    """A job that keeps the training thread busy until it is left."""

    group: Hashable = "a block"

    def __init__(self, worker: learning._Worker = learning.TRAINING_WORKER) -> None:
        self.worker, self.inside, self.open = worker, threading.Event(), threading.Event()

    def step(self) -> bool:
        self.inside.set()
        assert self.open.wait(60)
        return False

    def fail(self, error: Exception) -> None:
        raise error

    def __enter__(self) -> None:
        self.worker.add(self)
        assert self.inside.wait(60)

    def __exit__(self, *_: object) -> None:
        self.open.set()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    until_all_have_ended()


def until_all_have_ended() -> None:
    while _RUNNING:
        threading.Event().wait(0.001)


def person(key: Hashable, group: Hashable = "home", here: list[bool] | None = None) -> Watcher:
    return Watcher(key, group, lambda: here is None or here[0])


def begin(watcher: Watcher, seed: int) -> _Film:
    with watching(watcher):
        return get_film(Plan("reverse", seed, 20))


def test_groups_share_the_time_not_the_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(learning, "time", SimpleNamespace(monotonic=lambda: next(clock)))  # a piece takes a second
    worker, notes = learning._Worker(), list[str]()
    jobs = [Step(str(number), "many", 2, notes) for number in range(4)] + [Step("another", "one", 3, notes)]
    with Blocked(worker):
        for job in jobs:
            worker.add(job)
    while any(job.left for job in jobs):
        threading.Event().wait(0.001)
    worker.close()
    assert notes[:6].count("another") == 3  # one job gets half of the time beside four
    assert notes[6:] == ["3", "0", "1", "2", "3"]


def test_closed_worker_notifies_everyone_waiting() -> None:
    worker, notes = learning._Worker(), list[str]()
    waiting, late = Step("waiting", "a", 1, notes), Step("late", "a", 1, notes)
    block = Blocked(worker)
    with block:
        worker.add(waiting)
        closing = threading.Thread(target=worker.close)
        closing.start()
        while not waiting.failed:
            threading.Event().wait(0.001)
        worker.add(late)
    in_threads(closing.join)
    assert not notes
    assert "trains no more models" in waiting.failed == late.failed
    assert worker._thread is not None
    assert worker._thread.daemon
    assert not worker._thread.is_alive()


def test_training_without_viewers_ends_before_its_first_step() -> None:
    here = [True]
    with Blocked():
        # Seeds of this test alone: a film that another test trained would be complete.
        abandoned = [begin(person(number, here=here), 900 + number) for number in range(8)]
        stays = begin(person("stays"), 100)
        here[0] = False
    with watching(person("stays")):
        assert stays.wait()[-1].step == 20
    until_all_have_ended()
    assert [film.snapshots for film in abandoned] == [[]] * 8
    assert begin(person("comes later"), 900) is not abandoned[0]  # it is trained anew


def test_waiting_for_the_first_snapshot_counts_as_viewing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(films, "_BEAT", 0.001)
    me, steps = person("waits"), list[int]()

    def wait() -> None:
        with watching(me):
            steps.append(get_film(Plan("reverse", 200, 20)).wait()[-1].step)

    with Blocked():
        thread = threading.Thread(target=wait)
        thread.start()
        while not _RUNNING:
            threading.Event().wait(0.001)
        (film,) = _RUNNING.values()
        first = film.last_look(me)
        while film.last_look(me) == first:
            threading.Event().wait(0.001)
    in_threads(thread.join)
    assert steps == [20]


def test_visitor_with_one_training_too_many_drops_the_oldest() -> None:
    me, here = person("me"), [True]
    with Blocked():
        films_of_visitor = [begin(me, 300 + number) for number in range(films._MAX_PER_USER)]
        begin(person("another", here=here), 301)  # also watches the second
        begin(me, 300)  # watched again, it is no longer the oldest
        more = [begin(me, 310 + number) for number in range(2)]
        assert [bool(film.watchers) for film in (*films_of_visitor, *more)] == [True, True, False, True, True]
        assert [film.last_look(me) is not None for film in (*films_of_visitor, *more)] == [
            True,
            False,
            False,
            True,
            True,
        ]
        here[0] = False
        with watching(me):
            for film in (*films_of_visitor, *more):
                film.leave(me)


def test_one_address_leaves_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(films, "_MAX_PER_GROUP", 4)
    monkeypatch.setattr(films, "_MAX_TRAININGS", 5)
    here = [True]
    with Blocked():
        for number in range(4):
            begin(person(number, "one machine", here), 400 + number)
        with pytest.raises(
            ConfigError, match="At most 4 models are trained at once for one address; 4 are running: try again"
        ):
            begin(person(4, "one machine", here), 404)
        begin(person(4, "one machine", here), 400)  # a running training may be watched
        begin(person(5, "another machine", here), 405)
        here[0] = False  # all have left before the first step
        begin(person(7, "a third"), 407).leave(person(7))


def test_largest_group_gives_way_when_all_places_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(films, "_MAX_TRAININGS", 5)
    here = [True]
    with Blocked():
        trainings = [begin(person(number, "one machine", here), 500 + number) for number in range(5)]
        for number, group in enumerate(("another", "a third", "a third", "a fourth")):
            begin(person(10 + number, group, here), 510 + number)
        assert [bool(film.watchers) for film in trainings] == [False] * 4 + [True]
        with watching(person(0, "one machine", here)):
            trainings[0].watch()  # as waiting for the first snapshot does every second
        assert not trainings[0].watchers
        for group in ("one machine", "another", "a fourth"):  # each has 1 of 5, and no group has 2 more
            with pytest.raises(ConfigError, match="5 models are being trained here, which is the limit: try again"):
                begin(person(20, group, here), 520)
        restarted = begin(
            person(21, "a fifth", here), 500
        )  # the plan of an ended training, begun by a group without one
        assert restarted is not trainings[0]
        with watching(person(21, "a fifth", here)):
            assert get_film(Plan("reverse", 500, 20)) is restarted
    with (
        watching(person(0, "one machine", here)),
        pytest.raises(ConfigError, match="was stopped for another; it stopped at step 0"),
    ):
        trainings[0].snapshots_so_far()
    with watching(person(21, "a fifth", here)):
        assert restarted.wait()[-1].step == 20


@pytest.mark.quick
@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("", "", ""),
        ("", "203.0.113.9", "203.0.113.9"),
        ("172.18.0.2", "198.51.100.1, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.7", "", "10.0.0.7"),
        ("8.8.8.8", "203.0.113.9", "8.8.8.8"),
        ("10.0.0.7", "unknown", "10.0.0.7"),
        ("10.0.0.7", "2a02:8071:1:2:3:4:5:6", "2a02:8071:1:2::/64"),
        ("2a02:8071:1:2:ffff::1", "", "2a02:8071:1:2::/64"),
        ("testclient", "", "testclient"),
    ],
)
def test_visitor_address_comes_from_the_last_proxy(peer: str, forwarded: str, address: str) -> None:
    assert scheduler.request_address(peer, forwarded) == address


@pytest.mark.quick
def test_viewer_without_a_session_is_anonymous() -> None:
    assert scheduler.watcher().key is None


def test_training_for_a_file_ends_with_its_visitor(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from attention.base.progress import current_watcher
    from attention.training import jobs

    watchers: list[Watcher] = []
    wait = jobs._Film.wait
    monkeypatch.setattr(jobs._Film, "wait", lambda self: (watchers.append(current_watcher()), wait(self))[1])
    state = {"source": "trained", "task": "reverse", "steps": "40", "seed": "4711"}
    with TestClient(Starlette(routes=route.routes()), client=("203.0.113.9", 1)) as distant:
        assert distant.get("/export/weights.csv", params=state).status_code == 200
    assert watchers
    assert {(watcher.key, watcher.group) for watcher in watchers} == {
        (("export", "address 203.0.113.9"), "203.0.113.9")
    }
    assert not any(watcher.is_connected() for watcher in watchers)  # false since the request has ended
