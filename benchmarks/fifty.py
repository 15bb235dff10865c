"""Fifty sessions change controls of one process: the Lab and the notebook author's app, in alternating phases of one run.

usage: python -m benchmarks.fifty [--sessions 50] [--seconds 30] [--phases 3] [--think 5] [--tokens 22] [--quick]

Each session turns temperature, d_model or seed through the server, waits until the rest of the page has followed, and
pauses. A step is measured until its figure has arrived. Both servers run all the time, and only one of them works at a time. Exits with 1 if a bound is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from urllib.parse import quote

from benchmarks.server import Server
from benchmarks.session import Session
from benchmarks.texts import natural

KNOBS = {
    "temperature": tuple(round(0.05 * i, 2) for i in range(1, 201)),
    "d_model": (32, 48, 64, 96, 128),
    "seed": tuple(range(1000)),
}
MOST_SHARE = 1 / 50  # p95 of ours against p95 of the other
MOST_MB = 2.0  # a session, beyond the shared memory


@dataclass
class Side:
    """One app, its sessions, their times and errors."""

    name: str
    server: Server
    sessions: list[Session] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # until the figure of a step
    whole: list[float] = field(default_factory=list)  # until the end of its run
    errors: list[str] = field(default_factory=list)
    healthy: float = 0
    alone: float = 0  # MB with one session that has changed every control
    together: float = 0  # MB with all sessions

    async def open(self, how_many: int, text: str, stack: AsyncExitStack) -> None:
        """Opens one session, which fills the shared caches; then the others, which make the same changes."""
        self.healthy = self.server.memory()
        for number in range(how_many):
            session = Session(self.server.base, "text=" + quote(text), timeout=600)
            self.sessions.append(await stack.enter_async_context(session))
            await session.open()
            for turn in ({"temperature": 2.0}, {"d_model": 32}, {"seed": 1}):
                await self._turn(session, turn)
            if number == 0:
                self.alone = self.server.memory()
        self.together = self.server.memory()
        self.seconds.clear()
        self.whole.clear()

    async def phase(self, seconds: float, think: float, seed: int) -> None:
        """Runs all sessions at once for `seconds`; a started run is completed."""
        until = time.monotonic() + seconds
        await asyncio.gather(
            *(
                self._person(session, random.Random(f"{seed} {i}"), until, think)
                for i, session in enumerate(self.sessions)
            )
        )

    async def _person(self, session: Session, dice: random.Random, until: float, think: float) -> None:
        await asyncio.sleep(dice.uniform(0, think))
        while time.monotonic() < until:
            knob = dice.choice(list(KNOBS))
            await self._turn(session, {knob: dice.choice(KNOBS[knob])})
            await asyncio.sleep(dice.uniform(0.5, 1.5) * think)

    async def _turn(self, session: Session, knobs: dict[str, float]) -> None:
        try:
            run = await session.turn(**knobs)
        except Exception as error:  # any error is one that a visitor would have met
            self.errors.append(f"{self.name}: {type(error).__name__} {error}")
            return
        self.seconds.append(run.drawn)
        self.whole.append(run.seconds)
        self.errors += [f"{self.name}: {text}" for text in run.exceptions]

    def at(self, share: float, whole: bool = False) -> float:
        """The milliseconds that `share` of the steps did not exceed."""
        times = sorted(self.whole if whole else self.seconds)
        return 1000 * times[min(len(times) - 1, int(share * len(times)))]

    def a_session(self) -> float:
        """The MB of one additional session."""
        return (self.together - self.alone) / max(1, len(self.sessions) - 1)


async def measure(sides: list[Side], sessions: int, seconds: float, phases: int, think: float, tokens: int) -> None:
    """Opens all sessions of both sides, then measures the sides alternately."""
    async with AsyncExitStack() as stack:
        for side in sides:
            await side.open(sessions, natural(tokens), stack)
        for number in range(phases):
            for side in sides:
                await side.phase(seconds, think, number)


def main() -> int:
    """Prints the table; 1 if a bound is broken."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--sessions", type=int, default=50)
    ask.add_argument("--seconds", type=float, default=30, help="of a phase; there are as many phases of each side")
    ask.add_argument("--phases", type=int, default=3)
    ask.add_argument("--think", type=float, default=5, help="seconds between two turns of one person, on average")
    ask.add_argument("--tokens", type=int, default=22)
    ask.add_argument("--quick", action="store_true", help="one phase of twenty seconds")
    args = ask.parse_args()
    seconds, phases = (20, 1) if args.quick else (args.seconds, args.phases)
    with Server() as ours, Server(script="naive_app.py") as naive:
        sides = [Side("ours", ours), Side("notebook author's", naive)]
        asyncio.run(measure(sides, args.sessions, seconds, phases, args.think, args.tokens))
    print(
        f"\n| {args.sessions} sessions, {args.tokens} tokens, {args.think:g} s of thinking "
        "| steps | p50 | p95 | p95, whole page | MB a session | errors |\n|---|---|---|---|---|---|---|"
    )
    for side in sides:
        print(
            f"| {side.name} | {len(side.seconds)} | {side.at(0.5):.0f} ms | {side.at(0.95):.0f} ms | {side.at(0.95, whole=True):.0f} ms "
            f"| {side.a_session():.2f} | {len(side.errors)} |"
        )
    lab, other = sides
    print(
        f"\nOurs answers {other.at(0.5) / lab.at(0.5):.0f} times faster at the median, {other.at(0.95) / lab.at(0.95):.0f} times at p95."
    )
    broken = lab.errors[:20]
    if lab.at(0.95) > MOST_SHARE * other.at(0.95):
        broken.append(f"p95 is 1/{other.at(0.95) / lab.at(0.95):.0f} of the other's, more than 1/{1 / MOST_SHARE:.0f}")
    if lab.a_session() > MOST_MB:
        broken.append(f"a session takes {lab.a_session():.2f} MB, more than {MOST_MB:g}")
    for text in broken:
        print(f"not reached: {text}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
