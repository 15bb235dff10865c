"""Hostile inputs against the running app: each must end in a picture or a sentence, and in nothing else.

usage: python -m benchmarks.harm [--inputs 1000] [--painted 60]

Never a traceback, to the person or in the server's log; never a connection to the outside, a pickle or a process
(the server runs under `benchmarks.guard`); the memory stays bounded; and of `--painted` inputs a real Chromium
executes nothing. Exits with 1 if anything else happened, and says with which input.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.hostile import STATE_FILE, Hostile, inputs
from benchmarks.server import ROOT, Server
from benchmarks.session import Run, Session
from benchmarks.wire import http, multipart

MOST_SECONDS = 20  # of one run, on a machine with other work to do
MOST_MEMORY = 1024  # MB at the peak, what the manifests give a replica
REFUSED_STATUS = (0, *range(400, 500))  # 0: the connection was closed in the middle of a body that is too long


@dataclass
class Verdict:
    """What came of all inputs: how many ended how, and everything that must not have happened."""

    pictures: int = 0
    sentences: int = 0
    refused: int = 0
    slowest: float = 0.0
    slowest_input: str = ""
    broken: list[str] = field(default_factory=list)


async def judge(server: Server, given: list[Hostile], verdict: Verdict) -> None:
    """Gives the server one input after the other, each to a session of its own."""
    read = len(server.errors())
    refused = len(server.refused())
    for one in given:
        problem = await _one(server, one, verdict)
        said = server.errors()[read:]
        read += len(said)
        if "Traceback" in said or "Error" in said:
            problem = f"{problem} The server's log: {said[-1500:]}"
        if new := server.refused()[refused:]:
            problem, refused = f"{problem} Refused by the guard: {new}", refused + len(new)
        if server.process.poll() is not None:
            verdict.broken.append(f"the server is dead (exit {server.process.returncode}) after {one}")
            return
        if problem:
            verdict.broken.append(f"{problem.strip()} — {one}")


async def _one(server: Server, one: Hostile, verdict: Verdict) -> str:
    """What must not have happened with this input, or nothing."""
    problem, began = "", time.monotonic()
    try:
        async with Session(server.base, one.query, one.page, timeout=60) as session:
            run, ended = await session.open(), ""
            problem = _wrong(run)
            if one.turn and not problem:
                run = await session.turn(**dict(one.turn))
                problem = _wrong(run)
            for key, name, data in one.files if not problem else ():
                field_ = uploader(session.last, key)
                status, after = await session.upload(field_, name, data)
                if after is None and status not in REFUSED_STATUS:
                    problem = f"the upload ended with status {status}"
                elif after is None:
                    ended = "refused"
                else:
                    run, problem = after, _wrong(after)
    except Exception as error:  # whatever it is, the input has brought it about
        return f"{type(error).__name__} {error}"
    seconds = time.monotonic() - began
    if seconds > verdict.slowest:
        verdict.slowest, verdict.slowest_input = seconds, str(one)
    if seconds > MOST_SECONDS and not problem:
        problem = f"took {seconds:.0f} s"
    verdict.refused += bool(ended)
    picture = bool(run.figures) or not run.sentences  # the Reference page has tables only
    verdict.pictures += not ended and picture
    verdict.sentences += not ended and not picture
    return problem


def uploader(run: Run, key_or_label: str) -> str:
    """The key of the uploader with this key, or whose label begins so."""
    for key, (kind, element) in run.widgets.items():
        if kind == "file_uploader" and (key == key_or_label or element.label.startswith(key_or_label)):
            return key
    raise LookupError(f"there is no uploader {key_or_label!r}")


def _wrong(run: Run) -> str:
    if run.exceptions:
        return f"an exception was shown: {run.exceptions}"
    return "" if run.figures or run.tables or run.sentences else "neither a picture nor a sentence"


async def has_state_files(server: Server) -> bool:
    """Whether this version opens state files."""
    async with Session(server.base) as session:
        run = await session.open()
    return any(getattr(element, "label", "").startswith(STATE_FILE) for _, element in run.widgets.values())


async def lying_requests(server: Server, verdict: Verdict) -> int:
    """Uploads that are wrong as requests; each must be refused by its status. How many there were."""
    async with Session(server.base, "source=matrices") as session:
        await session.open()
        place = f"{server.base}/_stcore/upload_file/{session.id}"
        body, kind = multipart("x.csv", b"1,2")
        large, _ = multipart("x.csv", b"1," * (17 * 2**19))
        asked = {
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
        for name, request in asked.items():
            status = await asyncio.to_thread(http, *request)
            if status not in REFUSED_STATUS:
                verdict.broken.append(f"a request with {name} ended with status {status}, not with a refusal")
    if "Traceback" in server.errors():
        verdict.broken.append(f"the server's log after the lying requests: {server.errors()[-1500:]}")
    return len(asked)


def main() -> int:
    """Runs everything and prints the table; 1 if something else happened than may."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--inputs", type=int, default=1000)
    ask.add_argument("--painted", type=int, default=60, help="how many of them Chromium opens too")
    asked = ask.parse_args()
    verdict, touched = Verdict(), ROOT / "pwned"
    with Server(guard=True) as server:
        kinds = ("url", "text", "knob", "upload", *(["state"] if asyncio.run(has_state_files(server)) else []))
        given = inputs(asked.inputs, kinds)
        before = server.memory()
        lies = asyncio.run(lying_requests(server, verdict))
        asyncio.run(judge(server, given, verdict))
        painted = 0
        if asked.painted and server.process.poll() is None:
            from benchmarks.painted import paint

            painted = paint(server, given, asked.painted, verdict.broken)
        after, peak = server.memory(), server.memory("VmHWM")
        refused = server.refused()
    if touched.exists() or Path("/tmp/pwned.csv").exists():
        verdict.broken.append("a file was written by what an upload brought along")
    if peak > MOST_MEMORY:
        verdict.broken.append(f"memory rose to {peak:.0f} MB, more than {MOST_MEMORY}")
    each = ", ".join(f"{sum(one.kind == kind for one in given)} {kind}s" for kind in kinds)
    rows = {
        "inputs": f"{len(given)} ({each}) and {lies} lying requests",
        "a picture / only a sentence / refused upload": f"{verdict.pictures} / {verdict.sentences} / {verdict.refused}",
        "painted by Chromium, nothing executed": painted,
        "slowest input": f"{verdict.slowest:.1f} s",
        "memory: before / after / peak": f"{before:.0f} / {after:.0f} / {peak:.0f} MB",
        "refused by the guard": len(refused),
        "broken": len(verdict.broken),
    }
    print("| measured | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows.items()))
    print(f"slowest: {verdict.slowest_input[:300]}")
    for text in verdict.broken:
        print(f"broken: {text[:3000]}", file=sys.stderr)
    return 1 if verdict.broken else 0


if __name__ == "__main__":
    sys.exit(main())
