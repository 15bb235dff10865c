"""An attack: work against a separate server with 1 GiB of memory, while another visitor changes a control."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from benchmarks.server import Server
from benchmarks.session import Session

WAIT, WAIT_OF_MODELS = 1.0, 3.0
"""Seconds that a visitor of texts, matrices and lessons waits at most for a turn while others attack, and one of a model for the next head."""
MINILM = "all-MiniLM-L6-v2"
PATIENCE = 1800  # seconds for a complete attack
MOST_SECONDS = 30  # for a run of another visitor, on a busy machine


@dataclass(frozen=True)
class Attack:
    """One way to make the Lab unusable for others.

    Attributes:
        does: what is done to a server, as sizes say; it gives what must not have happened, and only that.
        mb: what the process may weigh at its peak.
        slice: the sizes of the part that the tests run, or None where they run none.
        guard: whether connections to the outside, pickles and processes are refused meanwhile.
        environment: what else the server is started with.
        model: whose heads the other visitor looks at; without it they change a knob of a typed text.
        patience: seconds, for all of it.
        front: whether the server stands behind nginx, as in the image.
        descriptors: that a process of the server may have; 0 for as many as this one.
    """

    name: str
    does: Callable[..., Awaitable[list[str]]]
    mb: int = 1024
    slice: Mapping[str, Any] | None = None
    guard: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    patience: float = PATIENCE
    front: bool = False
    descriptors: int = 0

    @property
    def wait(self) -> float:
        """The seconds that the other visitor may wait."""
        return WAIT_OF_MODELS if self.model else WAIT


@dataclass
class Cost:
    """The cost of an attack: MB before and at the peak, processor seconds, and the seconds of the slowest run of others."""

    before: float = 0
    peak: float = 0
    processor: float = 0
    slowest: float = 0
    ended: str = ""  # how the process ended, if it did
    broken: list[str] = field(default_factory=list)


async def suffer(server: Server, attack: Attack, **sizes: Any) -> Cost:
    """Attacks the server; returns the cost and the broken bounds, one of which may be that the process has ended."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(64))
    cost, began = Cost(), 0.0

    async def watches() -> None:
        while server.process.poll() is None:
            with suppress(OSError, StopIteration):  # the process has just ended
                cost.peak = max(cost.peak, server.memory("VmHWM"))
                cost.processor = server.processor() - used
            await asyncio.sleep(0.1)

    async def lives() -> None:
        for number in itertools.count():
            if attack.model:
                run = await other.turn(head=number % 12)
            else:
                run = await other.turn(temperature=0.5 + number % 7 / 10)
            cost.slowest = max(cost.slowest, run.drawn if attack.model else run.seconds)
            cost.broken += [f"somebody else sees {text}" for text in run.exceptions]
            if work.done():
                return
            await asyncio.sleep(1)

    link = urlencode({"source": "model", "model": attack.model} if attack.model else {})
    async with Session(server.base, link, timeout=attack.patience) as other:
        await other.open()  # the cost of the first page does not count
        cost.before, used, began = server.memory(), server.processor(), time.monotonic()
        work = asyncio.ensure_future(attack.does(server, **sizes))
        life, death = asyncio.create_task(lives()), asyncio.create_task(watches())
        await asyncio.wait((work, death), timeout=attack.patience, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(
            (work, life), timeout=0 if server.process.poll() else MOST_SECONDS
        )  # the attack may be a SIGTERM
        seconds, code = time.monotonic() - began, server.process.poll()
        if not code and work.done():
            cost.broken += (
                work.result() if not work.exception() else [f"{type(work.exception()).__name__} {work.exception()}"]
            )
        elif not code:
            cost.broken.append(f"it did not end within {attack.patience:.0f} s")
        if code is None and (not life.done() or life.exception()):
            cost.broken.append(f"somebody else got no answer: {life.exception() if life.done() else cost.slowest}")
        cost.slowest = max(cost.slowest, server.waited)
        for task in (work, life, death):
            task.cancel()
        await asyncio.gather(work, life, death, return_exceptions=True)
    if code or server.kills():
        cost.ended = f"killed after {seconds:.0f} s"
        cost.broken.append(f"{cost.ended}: exit {code}, {server.kills()} times for its memory")
    return cost
