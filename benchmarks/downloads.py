"""Many downloads at once: files that are fetched late while others are at work, bursts that nobody waits for, and readers that read nothing."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from benchmarks.server import Server
from benchmarks.session import Session
from benchmarks.wire import http

LONG = "text=" + "+".join(f"w{i}" for i in range(2048))
TABLE = "text=" + "+".join(f"w{i}" for i in range(512))
CSV, NPZ, SAFETENSORS = (f"share_{name}" for name in ("weights-L0-H0.csv", "attention.npz", "attention.safetensors"))


async def shared(stack: AsyncExitStack, server: Server, query: str = "", page: str = "") -> Session:
    """A session whose Share is open."""
    one = await stack.enter_async_context(Session(server.base, query, page, timeout=120))
    await one.open()
    await one.turn(share=True)
    return one


async def fetched_late(
    server: Server, people: int = 50, downloads: int = 20, delay: float = 0.3, key: str = CSV
) -> list[int]:
    """While all of them turn knobs, some click a download and fetch it after `delay` seconds: the statuses, 0 where there is no file."""
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
        return came


async def while_it_runs(server: Server, tries: int = 10, key: str = CSV) -> int:
    """A cell is clicked, and 0 to 0.2 s later a download whose button the page still shows as it was: how many came."""
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
    return came


async def hang_up(server: Server, requests: int = 30, query: str = LONG) -> tuple[float, float]:
    """Asks for so many long CSV files at once and hangs up: the server's seconds of processor afterwards, and the slowest turn of another."""
    slowest, quiet = 0.0, 0
    async with AsyncExitStack() as stack:
        other = await shared(stack, server)
        async with AsyncExitStack() as leaving:
            one = await shared(leaving, server, query)
            for _ in range(requests):
                await one.ask_for(CSV)
            await asyncio.sleep(0.5)
        before = used = _processor(server)
        for i in range(300):
            slowest = max(slowest, (await other.turn(temperature=0.5 + i % 7 / 10)).seconds)
            await asyncio.sleep(0.5)
            now = _processor(server)
            quiet = quiet + 1 if now - used < 0.3 else 0
            used = now
            if quiet == 3:
                break
    return used - before, slowest


async def everything(server: Server, query: str = LONG) -> list[str]:
    """All files of a long text, one after the other: what came of each, and the memory at its peak."""
    said = []
    async with AsyncExitStack() as stack:
        one = await shared(stack, server, query)
        for key in (NPZ, SAFETENSORS, CSV):
            await one.ask_for(key)
            try:
                status = str(await asyncio.to_thread(http, "GET", one.base + await one.answer()))
            except LookupError as error:
                status = str(error)
            said.append(f"{key}: {status}, {server.memory('VmHWM'):.0f} MB")
    return said


async def ends(server: Server, queued: int = 12, query: str = LONG) -> tuple[int, float]:
    """SIGTERM while so many files are asked for: the exit code, and after how many seconds."""
    async with AsyncExitStack() as stack:
        for _ in range(queued // 2):
            one = await shared(stack, server, query)
            await one.ask_for(CSV)
            await one.ask_for(CSV)
        await asyncio.sleep(0.3)
        ended = await asyncio.to_thread(server.terminate)
        stack.pop_all()  # nobody is there any more to say good-bye to
        return ended


async def read_nothing(server: Server, readers: int = 5, runs: int = 100, query: str = TABLE) -> tuple[float, float]:
    """Sockets whose peers unfold a table, run the page again and again, and read nothing: the highest memory in MB, and another's slowest turn."""
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(Session(server.base, timeout=120))
        await other.open()
        hostile = []
        for i in range(readers):
            one = await stack.enter_async_context(Session(server.base, f"{query}&seed={i}", timeout=120))
            await one.open()
            await one.turn(table=True)
            hostile.append(one)
        slowest = 0.0
        for i in range(runs):
            for one in hostile:
                with suppress(Exception):  # the server may have hung up
                    await asyncio.wait_for(one.ask_to_run(), 1)
            await asyncio.sleep(0.15 * readers)  # two that come at once would be one run
            if i % 10 == 0:
                slowest = max(slowest, (await other.turn(temperature=0.5 + i % 7 / 10)).seconds)
        peak = server.memory("VmHWM")
        stack.pop_all()
        return peak, slowest


def _processor(server: Server) -> float:
    """The seconds of processor that the server has used so far."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
