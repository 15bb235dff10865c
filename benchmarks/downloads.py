"""Many downloads at once: late fetches while others work, abandoned bursts, and clients that do not read."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import time
from contextlib import AsyncExitStack, suppress
from http.client import HTTPResponse, IncompleteRead

from benchmarks.attack import Attack
from benchmarks.server import Server
from benchmarks.session import Session
from benchmarks.wire import Status, ask, http

LONG = "text=" + "+".join(f"w{i}" for i in range(2048))
TABLE = "text=" + "+".join(f"w{i}" for i in range(512))
CSV, NPZ, SAFETENSORS = "weights.csv", "attention.npz", "attention.safetensors"

BUSY = 0.4  # processor seconds in a second; another visitor takes fewer
GRACE = 30  # seconds of an orchestrator after SIGTERM, as compose.yaml has them
RETRY = 20  # seconds after which a busy server wants to be asked again, as its answer says
PATIENCE = 300  # seconds for one file, while many others are made


async def opened(stack: AsyncExitStack, server: Server, query: str = "", page: str = "") -> Session:
    """A session whose page is drawn."""
    session = await stack.enter_async_context(Session(server.base, query, page, timeout=120))
    await session.open()
    return session


async def fetched(url: str) -> Status:
    """The status of a file that is read to its end."""
    return await asyncio.to_thread(http, "GET", url, None, None, "", PATIENCE)


async def fetched_late(server: Server, people: int = 50, downloads: int = 20, delay: float = 0.3) -> list[str]:
    """While all sessions change controls, some fetch a file by a link that was drawn `delay` seconds before."""
    async with AsyncExitStack() as stack:
        sessions = [await opened(stack, server) for _ in range(people)]
        done = asyncio.Event()

        async def works(session: Session, number: int) -> None:
            while not done.is_set():
                await session.turn(temperature=0.5 + number % 7 / 10)
                number += 1
                await asyncio.sleep(1)

        async def takes(session: Session) -> Status:
            link = session.export(CSV)
            await asyncio.sleep(delay)
            return await fetched(link)

        workers = [asyncio.create_task(works(session, i)) for i, session in enumerate(sessions[downloads:])]
        statuses = []
        for session in sessions[:downloads]:
            statuses.append(asyncio.create_task(takes(session)))
            await asyncio.sleep(0.2)
        statuses_received = [await status for status in statuses]
        done.set()
        await asyncio.gather(*workers)
        return [
            f"a download ended with status {status} {status.words}" for status in statuses_received if status != 200
        ]


async def while_it_runs(server: Server, tries: int = 10) -> list[str]:
    """Clicks a cell and fetches a file by an earlier link while the page runs."""
    count = 0
    async with AsyncExitStack() as stack:
        one, other = await opened(stack, server), await opened(stack, server)
        for i in range(tries):
            link = one.export(CSV)
            status, *_ = await asyncio.gather(fetched(link), one.turn(q=i % 3), other.turn(q=i % 3))
            count += status == 200
    return [] if count == tries else [f"of {tries} downloads {count} came"]


async def at_once(server: Server, people: int = 30) -> list[str]:
    """Many visitors of one address fetch two files each at the same moment; all files must arrive."""
    async with AsyncExitStack() as stack:
        sessions = [await opened(stack, server, f"{TABLE}&seed={i}") for i in range(people)]
        statuses = await asyncio.gather(*(fetched(session.export(name)) for session in sessions for name in (CSV, NPZ)))
    return [f"a download ended with status {status} {status.words}" for status in statuses if status != 200]


async def hang_up(server: Server, requests: int = 30, query: str = LONG) -> list[str]:
    """Requests many long CSV files at once and closes the connections; ends when the server is idle apart from another visitor."""
    async with AsyncExitStack() as stack:
        session = await opened(stack, server, query)
        asking = [await asyncio.to_thread(ask, session.export(CSV, seed=str(i))) for i in range(requests)]
        await asyncio.sleep(0.5)
        for each in asking:
            each.close()
    used, quiet, began = server.processor(), 0, time.monotonic()
    while quiet < 3:
        await asyncio.sleep(1)
        processor = server.processor()
        quiet, used = (quiet + 1 if processor - used < BUSY else 0), processor
    busy = time.monotonic() - began - 3
    return [] if busy < 10 else [f"worked for {busy:.0f} s for somebody who has gone"]


async def everything(server: Server, query: str = LONG) -> list[str]:
    """Fetches all files of a long text in turn, without a session; each arrives or is refused with a reason."""
    broken = []
    for name in (NPZ, SAFETENSORS, CSV, "weights-heads.csv", "weights.pdf", "attention_steps.py"):
        status = await fetched(f"{server.base}/export/{name}?{query}")
        broken += [] if status in (200, 413, 503) else [f"{name} ended with status {status}"]
    return broken


async def many_numbers(server: Server, tokens: int = 1024, heads: int = 32) -> list[str]:
    """Fetches the metrics and then all steps of many heads: files that take many seconds. Asks again once, where the server says that it is busy."""
    query = f"heads={heads}&d_model={32 * heads}&text=" + "+".join(f"w{i}" for i in range(tokens))
    broken = []
    for name in ("heads-metrics.csv", NPZ):
        status = await fetched(f"{server.base}/export/{name}?{query}")
        if status == 503:
            print(name, status, status.words)
            await asyncio.sleep(RETRY)
            status = await fetched(f"{server.base}/export/{name}?{query}")
        broken += [] if status == 200 else [f"a file ended with status {status} {status.words}"]
    return broken


async def ends(server: Server, queued: int = 12, query: str = LONG) -> list[str]:
    """Sends SIGTERM while `queued` files are requested."""
    asking = [await asyncio.to_thread(ask, f"{server.base}/export/{CSV}?{query}&seed={i // 2}") for i in range(queued)]
    await asyncio.sleep(0.3)
    code, seconds = await asyncio.to_thread(server.terminate)
    for connection in asking:
        connection.close()
    return [] if code == 0 and seconds < GRACE else [f"SIGTERM: exit {code} after {seconds:.1f} s"]


async def read_to_the_end(server: Server, long: int = 1024, short: int = 90, seconds: float = 5) -> list[str]:
    """SIGTERM while one file is being made and sent, and another lies in the system's buffers: both come whole."""

    def whole(connection: socket.socket) -> bool:
        answer = HTTPResponse(connection)
        answer.begin()
        try:
            return answer.read().endswith(b"\n")
        except (IncompleteRead, OSError):
            return False

    def ends() -> list[str]:
        sent, made = (
            ask(f"{server.base}/export/{CSV}?heads=1&text={'+'.join(f'w{i}' for i in range(size))}")
            for size in (short, long)
        )
        with sent, made:
            for connection in (sent, made):
                connection.recv(1, socket.MSG_PEEK)  # the answer has begun
            server.process.send_signal(signal.SIGTERM)
            while http("GET", server.base):
                time.sleep(0.1)
            broken = [] if whole(made) else ["a file that was being made was cut"]
            with suppress(subprocess.TimeoutExpired):
                server.process.wait(seconds)
                broken.append("the server ended before a file was read")
            broken += [] if whole(sent) else ["a file that was made was cut"]
        code = server.process.wait(PATIENCE)
        return [*broken, f"exit {code}"] if code else broken

    return await asyncio.to_thread(ends)


async def leave_files_unread(server: Server, readers: int = 8, seconds: float = 30, query: str = LONG) -> list[str]:
    """Clients request long files and do not read them; a later visitor still gets a file."""
    async with AsyncExitStack() as stack:
        for i in range(readers):
            connection = await asyncio.to_thread(ask, f"{server.base}/export/{CSV}?{query}&seed={i}")
            stack.callback(connection.close)
        await asyncio.sleep(seconds)
        until = time.monotonic() + PATIENCE
        while (status := await fetched(f"{server.base}/export/{CSV}?text=a+b")) != 200 and time.monotonic() < until:
            await asyncio.sleep(2)
        return [] if status == 200 else [f"a small file ended with status {status} {status.words}"]


async def read_nothing(server: Server, readers: int = 5, runs: int = 100, query: str = TABLE) -> list[str]:
    """Sessions that open a table, run the page repeatedly and do not read the messages."""
    async with AsyncExitStack() as stack:
        hostile = []
        for i in range(readers):
            session = await stack.enter_async_context(Session(server.base, f"{query}&seed={i}", timeout=120))
            await session.open()
            await session.turn(table=True)
            hostile.append(session)
        for _ in range(runs):
            for session in hostile:
                with suppress(Exception):  # the server may have hung up
                    await asyncio.wait_for(session.ask_to_run(), 1)
            await asyncio.sleep(0.15 * readers)  # two simultaneous requests would be one run
        stack.pop_all()
        return []


ATTACKS = (
    Attack("20 downloads fetched 0.3 s after the click while 50 people work", fetched_late, 700),
    Attack("10 downloads from a page whose run has not ended", while_it_runs, 450, {"tries": 2}),
    Attack("30 people fetch two files of 512 tokens each at once", at_once, 800),
    Attack("30 long CSV files asked for, and gone", hang_up, 700, {"requests": 5, "query": TABLE}),
    Attack("npz, safetensors, CSV of 2,048 tokens", everything, 800),
    Attack("metrics and all steps of 1,024 tokens and 32 heads", many_numbers, 900, {"tokens": 128, "heads": 8}),
    Attack("SIGTERM with 12 files in the queue", ends, 800),
    Attack("SIGTERM while two files are read slowly", read_to_the_end, 700, front=True),
    Attack(
        "8 clients that read nothing of long files",
        leave_files_unread,
        900,
        {"readers": 3, "seconds": 1, "query": TABLE},
    ),
    Attack("5 sockets that read nothing of long tables", read_nothing, 900),
)
