"""The line of heavy jobs: in turn by address, one place for somebody else, bounded memory, and a place that its visitor sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Event, Thread

import pytest
from dask_processes import wait_until
from margins import approx

from attention import AttentionConfig, TypedText, metrics
from attention.base import jobs
from attention.base.errors import BusyError
from attention.base.progress import Watcher
from pages.ui.server import heavy, limits, traces

MB = 2**20


class Visitor(Thread):
    """Somebody with a job that ends when they are told."""

    def __init__(self, line: heavy._Line, session: str, address: str) -> None:
        super().__init__(daemon=True)
        self.line, self.is_here, self.has_place, self.may_end = line, True, Event(), Event()
        self.told: list[str] = []
        self.granted, self.error = 0, None
        self.watcher = Watcher(session, address, lambda: self.is_here)
        self.start()

    error: Exception | None

    def run(self) -> None:
        try:
            with self.line.turn(self.watcher, self.told.append) as self.granted:
                self.has_place.set()
                assert self.may_end.wait(60)
        except (BusyError, jobs.JobError) as error:
            self.error = error

    def waits(self) -> None:
        wait_until(lambda: self.told and not self.has_place.is_set(), "a place in the line")

    def ends(self) -> None:
        self.may_end.set()
        self.join(60)


@pytest.fixture
def join() -> Iterator[Callable[[heavy._Line, str, str], Visitor]]:
    visitors: list[Visitor] = []

    def joined(line: heavy._Line, session: str, address: str) -> Visitor:
        visitors.append(Visitor(line, session, address))
        return visitors[-1]

    yield joined
    for visitor in visitors:
        visitor.may_end.set()
    for visitor in visitors:
        visitor.ends()


Join = Callable[[heavy._Line, str, str], Visitor]


def test_last_place_is_for_another_address(join: Join) -> None:
    line = heavy._Line(2, lambda _: 1)
    first = join(line, "a", "school")
    assert first.has_place.wait(60)
    second = join(line, "b", "school")
    second.waits()
    other = join(line, "c", "home")
    assert other.has_place.wait(60), "a dozen sessions of one address keep nobody else waiting"
    assert second.told[0] == "In line: 1 before yours."
    assert not second.has_place.is_set()
    first.ends()
    assert second.has_place.wait(60)


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def simulated(work: list[tuple[Watcher, float]], places: int = 2, memory: int = 9) -> list[float]:
    """When each job of so many seconds begins, if all are asked for at once; each takes one of `memory`."""
    clock = Clock()
    line = heavy._Line(places, lambda held: int(held < memory), 1, clock)
    watchers = [replace(watcher) for watcher, _ in work]  # each is a job of its own
    for watcher in watchers:
        line._join(watcher)
    began, ends = dict[int, float](), dict[heavy._Place, float]()
    while len(began) < len(work):
        while (mine := next(filter(None, map(line._begin, [*line._waiting])), None)) is not None:
            line._waiting = [other for other in line._waiting if other is not mine.visitor]
        for place in line._running:
            if not place.granted and line._get_granted(place):
                job = next(number for number, watcher in enumerate(watchers) if watcher is place.visitor)
                began[job], ends[place] = clock.now, clock.now + work[job][1]
        gives_way = [place.began + heavy._LONG_SECONDS for place in line._running if not place.is_long(clock.now)]
        clock.now = min([*ends.values(), *gives_way])
        for place in [place for place, end in ends.items() if end <= clock.now]:
            line._end(place)
            del ends[place]
    return [began[job] for job in range(len(work))]


def in_order(work: list[tuple[Watcher, float]]) -> list[Watcher]:
    began = simulated(work, places=1)
    return [work[job][0] for job in sorted(range(len(work)), key=began.__getitem__)]


SCHOOL = [Watcher(f"pupil {number}", "school") for number in range(30)]
HOME = Watcher("at home", "home")


def test_time_is_shared_by_address_and_within_it_by_session() -> None:
    pupil = SCHOOL[0]
    order = in_order([(pupil, 2.0), (pupil, 2.0), (SCHOOL[1], 2.0), (HOME, 2.0), (HOME, 2.0)])
    assert order == [pupil, HOME, SCHOOL[1], HOME, pupil], "in turn, and who has had a job waits behind one who has not"
    other = Watcher("another one", "home")
    order = in_order([(pupil, 2.9), (pupil, 2.9), (HOME, 1.0), (HOME, 1.0), (other, 1.0)])
    assert order == [pupil, HOME, other, HOME, pupil], "of time, not of places"


def test_time_that_was_had_is_forgotten() -> None:
    clock = Clock()
    line = heavy._Line(1, lambda _: 1, 0, clock)
    line._join(HOME)
    place = line._begin(HOME)
    assert place
    line._waiting.clear()
    clock.now = 40.0
    line._end(place)
    clock.now += heavy._HALF_LIFE
    assert line._seconds("home", clock.now) == approx(20)
    clock.now += heavy._FORGOTTEN_SECONDS
    line._end(replace(place, visitor=SCHOOL[0], began=clock.now))
    assert line._used.keys() == {"school", "pupil 0"}, "no address stays for ever"


def test_short_jobs_of_a_school_pass_its_long_one() -> None:
    began = simulated([(SCHOOL[0], 600.0), *((pupil, 1.0) for pupil in SCHOOL[1:])])
    assert began == [0, *(heavy._LONG_SECONDS + number for number in range(29))]


def test_long_jobs_of_one_address_leave_place_and_memory_to_others() -> None:
    work = [*((pupil, 600.0) for pupil in SCHOOL[:6]), (HOME, 1.0)]
    began = simulated(work)
    assert began[-1] == 0
    assert sum(at < 600 for at in began[:-1]) == 2, "one, and one beside it when it is long"
    began = simulated(work, memory=2)
    assert sum(at < 600 for at in began[:-1]) == 1, "a second one would leave no memory to others"


def test_long_jobs_keep_nobody_waiting(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    line = heavy._Line(2, lambda _: 1)
    assert all(join(line, session, session).has_place.wait(60) for session in "ab")
    third = join(line, "c", "c")
    third.waits()
    monkeypatch.setattr(heavy, "_LONG_SECONDS", 0.0)
    assert third.has_place.wait(60)
    assert join(line, "d", "d").has_place.wait(60)
    join(line, "e", "e").waits()  # but not without end


def test_own_machine_may_use_every_place(join: Join) -> None:
    line = heavy._Line(2, lambda _: 1)
    assert all(join(line, session, "").has_place.wait(60) for session in "ab")


def test_session_and_network_have_few_jobs_in_line(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    line = heavy._Line(1, lambda _: 1)
    assert join(line, "a", "school").has_place.wait(60)
    for _ in range(limits.JOBS_WAITING):
        join(line, "b", "school").waits()
    refused = join(line, "b", "school")
    refused.join(60)
    assert isinstance(refused.error, heavy.QueueFullError)
    monkeypatch.setattr(limits, "JOBS_WAITING_OF_ADDRESS", limits.JOBS_WAITING)
    refused = join(line, "c", "school")
    refused.join(60)
    assert isinstance(refused.error, heavy.QueueFullError)
    join(line, "c", "home").waits()


def test_visitor_who_leaves_the_line_is_forgotten(join: Join) -> None:
    line = heavy._Line(1, lambda _: 1)
    assert join(line, "a", "school").has_place.wait(60)
    leaving = join(line, "b", "home")
    leaving.waits()
    leaving.is_here = False
    leaving.join(60)
    assert isinstance(leaving.error, jobs.JobError)
    assert not line.is_wanted
    line.close()
    late = join(line, "c", "home")
    late.join(60)
    assert str(late.error) == heavy._SHUTTING_DOWN


def test_jobs_share_the_memory_that_is_left(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    free = 600 * MB
    monkeypatch.setattr(traces, "room", lambda: free)
    monkeypatch.setattr(jobs, "forker", lambda: 1)
    line = heavy._Line(4, heavy._job_bytes)
    first, second = (join(line, session, address) for session, address in (("a", "x"), ("b", "y")))
    assert first.has_place.wait(60)
    assert second.has_place.wait(60)
    assert sorted((first.granted, second.granted)) == [96 * MB, 408 * MB]
    third = join(line, "c", "z")
    assert third.has_place.wait(60)
    fourth = join(line, "d", "w")
    fourth.waits()  # no memory is left for any job
    first.ends()
    assert fourth.has_place.wait(60)
    wanted: list[int] = []
    monkeypatch.setattr(traces, "make_room", lambda needs: wanted.append(needs) or 0)
    assert heavy._job_bytes(0) == 408 * MB
    assert wanted == [384 * MB], "old traces leave before a job gets too little"
    monkeypatch.setattr(traces, "room", lambda: 10 * MB)
    monkeypatch.setattr(traces, "make_room", lambda needs: needs - 10 * MB)
    with pytest.raises(BusyError, match="This needs 96 MB of memory, and this server has 10 MB left"):
        heavy._job_bytes(0)
    monkeypatch.setattr(traces, "room", lambda: free)
    monkeypatch.setattr(jobs, "forker", lambda: None)
    assert heavy._job_bytes(0) == (free - traces.FORKER_BYTES) // 2, "the process that forks jobs begins, too"


def test_memory_is_granted_when_the_model_is_loaded() -> None:
    free = [300]

    def load() -> None:
        free[0] -= 100

    line = heavy._Line(1, lambda _: free[0])
    with line.turn(Watcher("a", "x", lambda: True), prepare=load) as granted:
        assert granted == 200


def test_place_of_a_model_that_cannot_be_loaded_is_given_away() -> None:
    line = heavy._Line(1, lambda _: 1)

    def refuse() -> None:
        raise BusyError("no room")

    with pytest.raises(BusyError, match="no room"), line.turn(Watcher("a", "x", lambda: True), prepare=refuse):
        pytest.fail("it has no place")
    with line.turn(Watcher("b", "x", lambda: True)) as granted:
        assert granted == 1


def test_small_servers_share_the_imports_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[str] = []
    monkeypatch.setattr(jobs, "share", shared.extend)
    monkeypatch.setattr(traces, "IS_SMALL", False)
    heavy.share_imports()
    assert not shared, "a person who starts the Lab on their own machine waits for no import"
    monkeypatch.setattr(traces, "IS_SMALL", True)
    heavy.share_imports()
    assert {"torch", "matplotlib"} <= set(shared)


def test_short_work_stays_in_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = TypedText("the cat", AttentionConfig()).trace()
    monkeypatch.setattr(jobs, "stream", lambda *_, **__: pytest.fail("no process for so little"))
    assert heavy.run(metrics.of, trace, seconds=0.1, words="Computing").n_heads == (4,)
