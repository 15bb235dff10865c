"""Many downloads at once: files that are fetched late while others are at work, bursts that nobody waits for, and readers that read nothing."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress

from benchmarks.attack import Attack
from benchmarks.server import Server
from benchmarks.session import Session
from benchmarks.wire import http

LONG = "text=" + "+".join(f"w{i}" for i in range(2048))
TABLE = "text=" + "+".join(f"w{i}" for i in range(512))
CSV, NPZ, SAFETENSORS = (f"share_{name}" for name in ("weights-L0-H0.csv", "attention.npz", "attention.safetensors"))

BUSY = 0.4  # seconds of processor in a second; what one other person takes is less


async def shared(stack: AsyncExitStack, server: Server, query: str = "", page: str = "") -> Session:
    """A session whose Share is open."""
    one = await stack.enter_async_context(Session(server.base, query, page, timeout=120))
    await one.open()
    await one.turn(sharing=True)
    return one


async def fetched_late(
    server: Server, people: int = 50, downloads: int = 20, delay: float = 0.3, key: str = CSV
) -> list[str]:
    """While all of them turn knobs, some click a download and fetch it after `delay` seconds."""
    async with AsyncExitStack() as stack:
        sessions = [await shared(stack, server) for _ in range(people)]
        done = asyncio.Event()

        async def works(one: Session, number: int) -> None:
            while not done.is_set():
                await one.turn(temperature=0.5 + number % 7 / 10)
                number += 1
                await asyncio.sleep(1)

        async def takes(one: Session) -> int:
            try:
                await one.ask_for(key)
                url = await one.answer()
                await asyncio.sleep(delay)
                return await asyncio.to_thread(http, "GET", one.base + url)
            except LookupError:
                return 0

        workers = [asyncio.create_task(works(one, i)) for i, one in enumerate(sessions[downloads:])]
        statuses = []
        for one in sessions[:downloads]:
            statuses.append(asyncio.create_task(takes(one)))
            await asyncio.sleep(0.2)
        came = [await status for status in statuses]
        done.set()
        await asyncio.gather(*workers)
        return [f"a download ended with status {status}" for status in came if status != 200]


async def while_it_runs(server: Server, tries: int = 10, key: str = CSV) -> list[str]:
    """A cell is clicked, and 0 to 0.2 s later a download whose button the page still shows as it was."""
    came = 0
    async with AsyncExitStack() as stack:
        one, other = await shared(stack, server), await shared(stack, server)
        for i in range(tries):
            old = one.last.widgets[key]
            await asyncio.gather(one.turn(q=i % 3), other.turn(q=i % 3))
            new, one.last.widgets[key] = one.last.widgets[key], old
            await one.ask_for(key)
            one.last.widgets[key] = new
            with suppress(LookupError):
                came += await asyncio.to_thread(http, "GET", one.base + await one.answer()) == 200
    return [] if came == tries else [f"of {tries} downloads {came} came"]


async def hang_up(server: Server, requests: int = 30, query: str = LONG) -> list[str]:
    """Asks for so many long CSV files at once and hangs up; it is over when the server rests, apart from what somebody else wants."""
    async with AsyncExitStack() as stack:
        one = await shared(stack, server, query)
        for _ in range(requests):
            await one.ask_for(CSV)
        await asyncio.sleep(0.5)
    used, quiet, began = server.processor(), 0, time.monotonic()
    while quiet < 3:
        await asyncio.sleep(1)
        now = server.processor()
        quiet, used = (quiet + 1 if now - used < BUSY else 0), now
    busy = time.monotonic() - began - 3
    return [] if busy < 10 else [f"worked for {busy:.0f} s for somebody who has gone"]


async def everything(server: Server, query: str = LONG) -> list[str]:
    """All files of a long text, one after the other; each comes, or a sentence says why not."""
    broken = []
    async with AsyncExitStack() as stack:
        one = await shared(stack, server, query)
        for key in (NPZ, SAFETENSORS, CSV):
            await one.ask_for(key)
            with suppress(LookupError):
                status = await asyncio.to_thread(http, "GET", one.base + await one.answer())
                broken += [] if status == 200 else [f"{key} ended with status {status}"]
    return broken


async def ends(server: Server, queued: int = 12, query: str = LONG) -> list[str]:
    """SIGTERM while so many files are asked for."""
    async with AsyncExitStack() as stack:
        for _ in range(queued // 2):
            one = await shared(stack, server, query)
            await one.ask_for(CSV)
            await one.ask_for(CSV)
        await asyncio.sleep(0.3)
        code, seconds = await asyncio.to_thread(server.terminate)
        stack.pop_all()  # nobody is there any more to say good-bye to
        return [] if code == 0 and seconds < 10 else [f"SIGTERM: exit {code} after {seconds:.1f} s"]


async def read_nothing(server: Server, readers: int = 5, runs: int = 100, query: str = TABLE) -> list[str]:
    """Sockets whose peers unfold a table, run the page again and again, and read nothing."""
    async with AsyncExitStack() as stack:
        hostile = []
        for i in range(readers):
            one = await stack.enter_async_context(Session(server.base, f"{query}&seed={i}", timeout=120))
            await one.open()
            await one.turn(table=True)
            hostile.append(one)
        for _ in range(runs):
            for one in hostile:
                with suppress(Exception):  # the server may have hung up
                    await asyncio.wait_for(one.ask_to_run(), 1)
            await asyncio.sleep(0.15 * readers)  # two that come at once would be one run
        stack.pop_all()
        return []


ATTACKS = (
    Attack("20 downloads fetched 0.3 s after the click while 50 people work", fetched_late, 700),
    Attack("10 downloads from a page whose run has not ended", while_it_runs, 450, {"tries": 2}),
    Attack("30 long CSV files asked for, and gone", hang_up, 700, {"requests": 5, "query": TABLE}),
    Attack("npz, safetensors, CSV of 2,048 tokens", everything, 800),
    Attack("SIGTERM with 12 files in the queue", ends, 800),
    Attack("5 sockets that read nothing of long tables", read_nothing, 900),
)
