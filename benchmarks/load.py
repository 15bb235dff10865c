"""Many visitors at once on one server process: the time of a change, its memory, and how the process ends.

usage: python -m benchmarks.load [--sessions 50] [--minutes 5] [--think 3] [--default-cache] [--memory 300] [--train 4] [--sweep 2]

Each session turns one knob, waits for the picture, thinks for `--think` seconds on average (0: not at all) and turns
the next. With `--default-cache` their texts are long, so that the cache of traces is full in the end: in a control group of 1 GiB
nobody may be killed. With `--memory MB` the server only has to start and draw its first page in that much memory. With
`--train PEOPLE` so many have tiny models trained, one after the other, while somebody else turns knobs; with `--sweep PEOPLE` they silence
every head of MiniLM in turn. Exits with 1 if a bound is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.server import Server
from benchmarks.session import Run, Session
from benchmarks.texts import natural

# A turn is one of these, with one of these values; every one of them is what a person can choose on the Lab.
KNOBS: dict[str, tuple[Any, ...]] = {
    "temperature": tuple(round(0.05 * i, 2) for i in range(1, 201)),
    "mask": ("none", "causal", "window", "causal window", "prefix"),
    "d_model": (16, 32, 64, 128),
    "heads": ("1", "2", "4", "8"),
    "seed": tuple(range(1000)),
    "head": (0, 1, 2, 3),
    "step": ("query", "key", "scores", "scaled_scores", "weights", "output"),
    "q": tuple(range(9)),
    "k": tuple(range(9)),
}
# The cache of traces fills up to its limit and stays there; small, it is full before the warm-up ends, and what
# grows afterwards is a leak.
SMALL_CACHE = {"LAB_TRACE_CACHE_MB": "8", "LAB_MAX_TRACE_MB": "4"}
LONG = {"text": natural(256)}  # 4 MB a trace: the default cache holds about sixty
REPLICA = 1024  # MB, the limit in the manifests
MOST_SECONDS_TO_END = 10
MOST_SLOWER = 2  # times, a run while others train or ablate every head
MOST_GROWTH_PER_MINUTE = 2.0  # MB of the process; faster growth is not flat
WARM_UP = 0.2  # the share of the run after which memory must be flat
SAMPLE_EVERY = 2.0  # seconds


@dataclass
class Seen:
    """All runs and errors of the sessions, and the server's memory over time."""

    turns: list[Run] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)  # (seconds, MB)


async def person(base: str, number: int, think: float, until: float, seen: Seen, link: str = "") -> None:
    """One session, from the page of its link to the end of the time; the changes are the same in every run with as many sessions."""
    dice = random.Random(number)
    try:
        await asyncio.sleep(dice.uniform(0, max(think, 0.1)))
        async with Session(base, link, timeout=120) as session:
            run = await session.open()
            while True:
                _judge(run, number, seen)
                await asyncio.sleep(dice.uniform(0.5, 1.5) * think)
                if time.monotonic() > until:
                    return
                knob = dice.choice([key for key in KNOBS if key in run.knobs()])
                run = await session.turn(**{knob: dice.choice(offered(run, knob))})
                seen.turns.append(run)
    except Exception as error:  # any error is one that a visitor would have met
        if until < float("inf"):  # without an end SIGTERM ends the session
            seen.errors.append(f"session {number}: {type(error).__name__} {error}")


def offered(run: Run, knob: str) -> list[Any]:
    """The values of a control that a visitor can choose now."""
    if knob in run.widgets:
        options, high = run.widgets[knob][1].options, None
    else:
        control = run.figure.knobs[knob] if run.figure else {}
        options, high = control.get("options"), control.get("high")
    values = [value for value in KNOBS[knob] if not options or str(value) in options]
    return [value for value in values if high is None or value <= high]


def _judge(run: Run, number: int, seen: Seen) -> None:
    seen.errors += [f"session {number}: {text}" for text in run.exceptions]
    if not run.figures:
        seen.errors.append(f"session {number}: no picture; said {run.sentences}")


async def load(server: Server, sessions: int, seconds: float, think: float, link: str = "") -> Seen:
    """Runs all sessions for `seconds`."""
    seen, began = Seen(), time.monotonic()

    async def watch() -> None:
        while True:
            seen.memory.append((time.monotonic() - began, server.memory()))
            await asyncio.sleep(SAMPLE_EVERY)

    watcher = asyncio.create_task(watch())
    await asyncio.gather(*(person(server.base, i, think, began + seconds, seen, link) for i in range(sessions)))
    watcher.cancel()
    return seen


async def end_under_load(server: Server, sessions: int) -> tuple[int, float, int]:
    """Sends SIGTERM while all sessions work without a pause; returns the exit code, the seconds, and the runs before it."""
    seen = Seen()
    people = [asyncio.create_task(person(server.base, i, 0, float("inf"), seen)) for i in range(sessions)]
    while len(seen.turns) < sessions:
        await asyncio.sleep(0.1)
    code, seconds = await asyncio.to_thread(server.terminate)
    for task in people:
        task.cancel()
    await asyncio.gather(*people, return_exceptions=True)
    return code, seconds, len(seen.turns)


def slope(memory: list[tuple[float, float]]) -> float:
    """By how many MB a minute the memory grew after the warm-up, by least squares."""
    late = [(at / 60, size) for at, size in memory if at >= WARM_UP * memory[-1][0]]
    return statistics.linear_regression(*zip(*late, strict=True)).slope if len(late) > 1 else 0.0


def by_minute(memory: list[tuple[float, float]]) -> str:
    """The median memory of each minute, in MB."""
    minutes = [[size for at, size in memory if at // 60 == minute] for minute in range(int(memory[-1][0] // 60) + 1)]
    return " ".join(f"{statistics.median(sizes):.0f}" for sizes in minutes if len(sizes) > 5)


def start_in(limit: int) -> list[str]:
    """Starts the server in `limit` MB and opens its first page; prints a table and returns the broken bounds."""

    async def first_page(server: Server) -> Run:
        async with Session(server.base, timeout=120) as session:
            return await session.open()

    try:
        with Server(limit=limit) as server:
            healthy = server.memory()
            run = asyncio.run(first_page(server))
            way = "a control group's limit" if server.group else "none could be set: the peak is compared"
            peak, anonymous = server.memory("VmHWM"), server.memory("RssAnon")
    except (OSError, RuntimeError, TimeoutError) as error:
        return [f"with {limit} MB the first page was not drawn: {type(error).__name__} {error}"]
    print("| memory of the server | MB |\n|---|---|")
    print(f"| limit ({way}) | {limit} |\n| healthy | {healthy:.0f} |\n| peak at the first page | {peak:.0f} |")
    print(f"| of it not backed by a file | {anonymous:.0f} |")
    broken = [] if run.figures and not run.exceptions else [f"no first page: {run.exceptions or run.sentences}"]
    if not server.group and peak > limit:
        broken.append(f"the peak is {peak:.0f} MB, more than {limit}")
    return broken


@dataclass(frozen=True)
class Work:
    """Long work that visitors start in turn while another visitor changes controls.

    Attributes:
        named: what it is called, one and many.
        link: of its n-th time by one of them, as a query; `page` where.
        button: the key of what starts it; empty: the link does.
        environment: of the server.
    """

    named: tuple[str, str]
    link: Callable[[int, int], dict[str, object]]
    page: str = ""
    button: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


TASKS = ("induction", "dates", "sort", "reverse")
TRAIN = Work(
    ("train", "trainings"),
    lambda number, time: {"source": "trained", "task": TASKS[number % 4], "seed": 1000 * number + time},
)
SWEEP = Work(
    ("silence each of 72 heads in turn", "sweeps"),
    lambda number, time: {"source": "model", "text": f"{natural(40)} {number} {time}"},
    "heads", "matters_ask", {"LAB_MODELS": str(Path(__file__).parents[1] / "models")},
)  # fmt: skip


async def beside_others(
    server: Server, work: Work, people: int, seconds: float
) -> tuple[list[float], list[float], list[float], Seen]:
    """The times of a visitor's runs alone and beside `people` others, and the times of the long work."""
    seen, done = Seen(), list[float]()

    async def other_visitor(number: int) -> None:
        for at in count(1):
            began = time.monotonic()
            async with Session(server.base, urlencode(work.link(number, at)), work.page, timeout=120) as session:
                run = await session.open()
                _judge(await session.turn(**{work.button: True}) if work.button else run, number, seen)
            done.append(time.monotonic() - began)

    times = []
    for many in (0, people):
        tasks = [asyncio.create_task(other_visitor(number)) for number in range(many)]
        start = len(seen.turns)
        await person(server.base, 0, 0.5, time.monotonic() + seconds, seen)
        times.append([run.seconds for run in seen.turns[start:]])
        for other in tasks:
            other.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        seen.errors += [
            f"{work.named[1]}: {result!r}" for result in results if not isinstance(result, asyncio.CancelledError)
        ]
    return times[0], times[1], done, seen


def beside(work: Work, people: int, minutes: float) -> list[str]:
    """Prints the cost of long work for others; returns the broken bounds."""
    with Server(**work.environment) as server:
        alone, beside, done, seen = asyncio.run(beside_others(server, work, people, 60 * minutes))
        logged = server.errors()
    verb, those = work.named
    rows = {
        f"p50 / p95 of {len(alone)} turns alone": _ends(alone),
        f"p50 / p95 of {len(beside)} turns while {people} {verb}": _ends(beside),
        f"p50 / p95 of {len(done)} {those}, page and all": _ends(done),
    }
    print("| measured | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows.items()))
    broken = seen.errors[:20] + (["the server printed a traceback"] if "Traceback" in logged else [])
    if len(done) < people:
        broken.append(f"only {len(done)} {those} were finished")
    if not (alone and beside):
        broken.append("nobody has turned a knob in that time: give it more minutes")
    elif statistics.median(beside) > MOST_SLOWER * statistics.median(alone):
        broken.append(f"a turn takes more than {MOST_SLOWER} times as long while others {verb}")
    return broken


def _ends(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    times = sorted(1000 * second for second in seconds)
    return f"{statistics.median(times):.0f} / {times[min(len(times) - 1, int(0.95 * len(times)))]:.0f} ms"


def measure(sessions: int, minutes: float, think: float, default_cache: bool) -> list[str]:
    """Runs all and prints the table; returns the broken bounds."""
    with Server(limit=REPLICA) if default_cache else Server(**SMALL_CACHE) as server:
        healthy = server.memory()
        link = urlencode(LONG) if default_cache else ""
        seen = asyncio.run(load(server, sessions, 60 * minutes, think, link))
        peak = server.memory("VmHWM")
        code, seconds, runs_before = asyncio.run(end_under_load(server, sessions))
        logged = server.errors()
    times = sorted(1000 * run.seconds for run in seen.turns)
    at = {share: times[min(len(times) - 1, int(share * len(times)))] for share in (0.5, 0.95, 0.99)}
    warm = next(size for second, size in seen.memory if second >= WARM_UP * seen.memory[-1][0])
    end, growth = seen.memory[-1][1], slope(seen.memory)
    turns_a_second = len(times) / seen.memory[-1][0]
    rows = {
        "sessions × minutes, pause": f"{sessions} × {minutes:g}, {think:g} s",
        "turns": f"{len(times):,} ({turns_a_second:.1f} a second)",
        "errors": len(seen.errors),
        "p50 / p95 / p99 of a turn": " / ".join(f"{value:.0f}" for value in at.values()) + " ms",
        "bytes of a turn, median": f"{statistics.median(run.bytes for run in seen.turns) / 1000:.0f} kB",
        "memory: healthy / warm / end / peak": f"{healthy:.0f} / {warm:.0f} / {end:.0f} / {peak:.0f} MB",
        "… growth after the warm-up": f"{growth:+.1f} MB a minute (median of each minute: {by_minute(seen.memory)})",
        "… a session": f"{(end - healthy) / sessions:.1f} MB, the imports and caches of all in it",
        "SIGTERM under load": f"exit {code} after {seconds:.1f} s ({runs_before} turns had come before)",
    }
    print("| measured | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows.items()))
    broken = seen.errors[:20]
    if code != 0 or seconds >= MOST_SECONDS_TO_END:
        broken.append(f"SIGTERM: exit {code} after {seconds:.1f} s, expected 0 in under {MOST_SECONDS_TO_END} s")
    if peak > REPLICA:
        broken.append(f"the memory rose to {peak:.0f} MB, more than {REPLICA}")
    if growth > MOST_GROWTH_PER_MINUTE and not default_cache:  # which still fills
        broken.append(f"memory grew by {growth:.1f} MB a minute, more than {MOST_GROWTH_PER_MINUTE}")
    if "Traceback" in logged:
        broken.append(f"the server printed a traceback: {logged[logged.index('Traceback') :][:2000]}")
    return broken


def main() -> int:
    """Runs the chosen measurements; returns 1 if a bound is broken."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--sessions", type=int, default=50)
    ask.add_argument("--minutes", type=float, default=5)
    ask.add_argument("--think", type=float, default=3, help="seconds between two turns of one person, on average")
    ask.add_argument("--default-cache", action="store_true", help="with long texts, in 1 GiB")
    ask.add_argument("--memory", type=int, default=0, help="only start, with this many MB")
    ask.add_argument("--train", type=int, default=0, help="so many people train meanwhile")
    ask.add_argument("--sweep", type=int, default=0, help="so many people ask which heads of MiniLM matter meanwhile")
    args = ask.parse_args()
    if args.train or args.sweep:
        broken = beside(TRAIN if args.train else SWEEP, args.train or args.sweep, args.minutes)
    elif args.memory:
        broken = start_in(args.memory)
    else:
        broken = measure(args.sessions, args.minutes, args.think, args.default_cache)
    for text in broken:
        print(f"broken: {text}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
