"""Uploads beyond the limits: under invented names, too many, too slow, too large. Each must be refused, and others continue."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import numpy as np

from benchmarks.attack import Attack
from benchmarks.hostile_files import bomb, npy, tensors
from benchmarks.server import Server
from benchmarks.session import Session
from benchmarks.wire import http, multipart

LARGE = 15 * 2**20  # bytes of one file; the server takes 16 MB
SMALL = b"1,0\n0,1\n"
FIELD = "matrices_file_x"
SAVED = "file_upload"
MATRICES = "source=matrices"
TAKEN = 204
SHOWN = ""
"""The words of a file that is drawn."""
REFUSED = (0, *range(400, 500))  # 0: the connection was closed in the middle of a body that is too long


def unrefused(statuses: list[int], *allowed: int) -> list[str]:
    """The statuses that are not refusals."""
    return [f"an upload ended with status {status}" for status in statuses if status not in (*REFUSED, *allowed)]


async def each_ends(server: Server, query: str, field: str, files: Iterable[tuple[str, bytes, str]]) -> list[str]:
    """Uploads each file (name, content, words) of a medium: it must be drawn (`SHOWN`), or refused by the sentence with its words, and the map stays."""
    broken = []
    for name, content, words in files:
        async with Session(server.base, query, timeout=120) as session:
            await session.open()
            status, run = await session.upload(field, name, content)
            broken += unrefused([status], TAKEN)
            if run is None:
                continue
            broken += [f"{name}: {text}" for text in run.exceptions]
            is_taken = field not in run.widgets  # which brings a new field
            is_refused = any(words in text.replace("\\", "") for text in run.sentences)
            if not (run.figures and (is_taken if words == SHOWN else is_refused and not is_taken)):
                broken.append(f"{name}: {run.seconds:.1f} s, {run.figures} figures, sentences {run.sentences}")
    if "Traceback" in server.errors():
        broken.append(f"the server's log after hostile files: {server.errors()[-1500:]}")
    return broken


async def invented(server: Server, files: int = 49) -> list[str]:
    """Large files under names that the server has not issued."""
    body, kind = multipart("x.csv", b"1" * LARGE)
    async with Session(server.base, MATRICES) as session:
        await session.open()
        place = f"{server.base}/_stcore/upload_file/{session.id}"
        return unrefused(
            [
                await asyncio.to_thread(http, "PUT", f"{place}/{i}", body, {"Content-Type": kind}, session.xsrf)
                for i in range(files)
            ]
        )


async def too_many(server: Server, people: int = 12, files: int = 3) -> list[str]:
    """Many visitors upload large files at once."""

    async def person() -> list[int]:
        async with Session(server.base, MATRICES, timeout=300) as session:
            await session.open()
            return [(await session.upload(FIELD, "x.csv", b"1" * LARGE))[0] for _ in range(files)]

    return unrefused(
        [status for each in await asyncio.gather(*(person() for _ in range(people))) for status in each], TAKEN
    )


async def stalled(server: Server, people: int = 8) -> list[str]:
    """Uploads that stop in the middle, and a small upload of another visitor meanwhile."""
    async with AsyncExitStack() as stack:
        stalling = []
        for _ in range(people):
            session = await stack.enter_async_context(Session(server.base, MATRICES))
            await session.open()
            stalling.append(asyncio.create_task(_stall(session)))
        await asyncio.sleep(1)
        other = await stack.enter_async_context(Session(server.base, MATRICES, timeout=120))
        await other.open()
        status, _ = await other.upload(FIELD, "x.csv", SMALL)
        broken = unrefused(await asyncio.gather(*stalling))
        return broken if status == TAKEN else [*broken, f"another's small file ended with status {status}"]


async def _stall(session: Session) -> int:
    """Sends a large file without its end; returns the status, 0 if the server closes the connection."""
    body, kind = multipart("x.csv", b"1" * LARGE)
    place = urlsplit(await session.place("x.csv"))
    head = (
        f"PUT {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    )
    head += f"X-Xsrftoken: {session.xsrf}\r\nCookie: _streamlit_xsrf={session.xsrf}\r\n\r\n"
    answer, request = await asyncio.open_connection(place.hostname, place.port)
    try:
        request.write(head.encode() + body[:-1000])
        line = await asyncio.wait_for(answer.readline(), 120)
        return int(line.split()[1]) if line else 0
    except OSError:
        return 0
    finally:
        request.close()


async def slow_to_read(server: Server, people: int = 12) -> list[str]:
    """Sessions of one address upload files that take long to read; somebody else's matrix of some bytes is shown meanwhile."""
    slow = b"\n".join([b",".join([b"0.001"] * 1400)] * 1400)
    async with AsyncExitStack() as stack:

        async def person(address: str, query: str) -> Session:
            session = await stack.enter_async_context(Session(server.base, query, timeout=300, address=address))
            await session.open()
            return session

        greedy = [await person("203.0.113.1", "source=file") for _ in range(people)]
        other = await person("203.0.113.2", MATRICES)
        reading = [asyncio.create_task(session.upload(SAVED, "x.csv", slow)) for session in greedy]
        await asyncio.sleep(0.5)
        began = time.monotonic()
        status, run = await other.upload(FIELD, "x.csv", b"1,0,0\n0,1,0\n0,0,1\n")
        server.waited = max(server.waited, time.monotonic() - began)
        statuses = [status for status, _ in await asyncio.gather(*reading)]
    return unrefused(statuses, TAKEN) + ([] if run and run.figures else [f"a small file ended with status {status}"])


async def crowded(
    server: Server, query: str, field: str, files: Sequence[tuple[str, bytes]], words: str = SHOWN
) -> list[str]:
    """Sessions of one address upload a file each (name, content) at once; each must be drawn, or refused by the sentence with these words or by its status.

    No two files are equal, since what was read of one is remembered for another.
    """
    async with AsyncExitStack() as stack:

        async def person() -> Session:
            session = await stack.enter_async_context(Session(server.base, query, timeout=600, address="203.0.113.1"))
            await session.open()
            return session

        sessions = [await person() for _ in files]
        uploads = (session.upload(field, *file) for session, file in zip(sessions, files, strict=True))
        broken = []
        for status, run in await asyncio.gather(*uploads):
            broken += unrefused([status], TAKEN) + (run.exceptions if run else [])
            if run and not (run.figures or any(words in text.replace("\\", "") for text in run.sentences)):
                broken.append(f"{run.figures} figures, sentences {run.sentences}")
        return broken


def dense(n_rows: int, n_columns: int, last: int) -> bytes:
    """A table with as many cells as may be in its bytes, whose last number is given."""
    row = b",".join([b"1"] * n_columns)
    return b"\n".join([row] * n_rows + [row[:-1] + str(last).encode()])


async def many_cells(server: Server, people: int = 12, side: int = 2000) -> list[str]:
    """Tables of attention of four million numbers each, by many people at once."""
    return await crowded(server, "source=file", SAVED, [("x.csv", dense(side - 1, side, n + 2)) for n in range(people)])


async def many_digits(server: Server, people: int = 12, rows: int = 512) -> list[str]:
    """Matrices as large as they may be, with all digits of each number, by many people at once."""

    def numbers(seed: int) -> bytes:
        stream = io.BytesIO()
        np.save(stream, np.random.default_rng(seed).random((rows, 1024)))
        return stream.getvalue()

    return await crowded(server, MATRICES, FIELD, [("x.npy", numbers(seed)) for seed in range(people)], "too large for")


async def lying(server: Server) -> list[str]:
    """Malformed upload requests; each must be refused by its status."""
    broken = []
    async with Session(server.base, MATRICES) as session:
        await session.open()
        place = f"{server.base}/_stcore/upload_file/{session.id}"
        body, kind = multipart("x.csv", b"1,2")
        large, _ = multipart("x.csv", b"1," * (17 * 2**19))
        requests = {
            "17 MB": ("PUT", f"{place}/1", large, {"Content-Type": kind}, session.xsrf),
            "no token": ("PUT", f"{place}/1", body, {"Content-Type": kind}, ""),
            "no such session": ("PUT", f"{server.base}/_stcore/upload_file/x/1", body, {"Content-Type": kind}, session.xsrf),
            "no multipart": ("PUT", f"{place}/1", body, {"Content-Type": "text/plain"}, session.xsrf),
            "no boundary": ("PUT", f"{place}/1", body, {"Content-Type": "multipart/form-data"}, session.xsrf),
            "another boundary": ("PUT", f"{place}/1", body, {"Content-Type": f"{kind}x"}, session.xsrf),
            "two files": ("PUT", f"{place}/1", body.replace(b"--edge--\r\n", b"") + body.replace(b"file", b"other", 1), {"Content-Type": kind}, session.xsrf),
            "a way up": ("PUT", f"{place}/..%2f..%2f..%2fx", body, {"Content-Type": kind}, session.xsrf),
            "a static file above": ("GET", f"{server.base}/app/static/..%2f..%2fapp.py", None, {}, session.xsrf),
        }  # fmt: skip
        for name, request in requests.items():
            status = await asyncio.to_thread(http, *request)
            if status not in REFUSED:
                broken.append(f"a request with {name} ended with status {status}, not with a refusal")
    if "Traceback" in server.errors():
        broken.append(f"the server's log after the lying requests: {server.errors()[-1500:]}")
    return broken


async def greedy(server: Server) -> list[str]:
    """Small files that become large when they are decoded: as matrices, as states, and as attention."""
    lines, braces = b"12\n" * (15 * 2**20 // 3), b'{"a":' * (3 * 2**20)
    broken = []
    for key, name, data in (
        (FIELD, "x.csv", lines),
        ("open_state_0", "x.json", braces),
        ("open_state_0", "y.json", lines),
        (SAVED, "x.json", braces),
        (SAVED, "x.json", b"[" + b"[0.5]," * (2**18 - 2) + b"[0.5]]"),
        (SAVED, "x.npz", bomb(60, "weights.npy")),
        (SAVED, "x.npz", b"PK\x01\x02" * (15 * 2**18)),
        (SAVED, "x.safetensors", tensors(b'{"a":{},' * (15 * 2**17))),
        (
            SAVED,
            "x.npy",
            npy("{'descr': '|i1', 'fortran_order': False, 'shape': (15, 1024, 1024), }\n", bytes(15 * 2**20)),
        ),
    ):
        async with Session(server.base, "source=file" if key == SAVED else MATRICES, timeout=300) as session:
            await session.open()
            status, run = await session.upload(key, name, data)
            broken += unrefused([status], TAKEN)
            broken += run.exceptions or ([] if run.sentences else [f"{name}: no sentence"]) if run else []
    return broken


ATTACKS = (
    Attack("49 files of 15 MB under invented names", invented, 500, {"files": 5}),
    Attack("12 people upload three files of 15 MB each", too_many, 800),
    Attack("8 uploads that stop in the middle", stalled, 550),
    Attack("12 files that take long to read, of one address", slow_to_read, 900, {"people": 2}),
    Attack("12 tables of four million numbers, at once, of one address", many_cells, 900, {"people": 3, "side": 1000}),
    Attack("12 matrices of 512 × 1,024 numbers, at once, of one address", many_digits, 900, {"people": 3, "rows": 128}),
    Attack("uploads that are wrong as requests", lying, 450, {}),
    Attack("16 MB of lines, of braces, of arrays, as matrix, as state and as attention", greedy, 600, {}),
)
