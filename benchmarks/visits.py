"""Hostile inputs, one after the other, each in a session of its own: a picture or a sentence must come of it, and nothing else.

Never a traceback, to the person or in the server's log; never a connection to the outside, a pickle or a process
(the server runs under `benchmarks.guard`); and of some of them a real Chromium executes nothing.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.attack import Attack
from benchmarks.hostile import LESSONS, STATE_FILE, Hostile, inputs
from benchmarks.server import ROOT, Server
from benchmarks.session import Run, Session
from benchmarks.uploads import REFUSED

MOST_SECONDS = 20  # of one run, on a machine with other work to do
_HOURS = 7200.0  # for all inputs; on a quiet machine a quarter of an hour


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
                # What the figure of this page has not, anybody can send in its name all the same.
                run = await (session.act if one.kind == "knob" else session.turn)(**dict(one.turn))
                problem = _wrong(run)
            for key, name, data in one.files if not problem else ():
                field_ = uploader(session.last, key)
                status, after = await session.upload(field_, name, data)
                if after is None and status not in REFUSED:
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


async def takes(server: Server, query: str, key_or_label: str) -> bool:
    """Whether this version has an uploader of that name."""
    async with Session(server.base, query) as session:
        run = await session.open()
    with suppress(LookupError):
        return bool(uploader(run, key_or_label))
    return False


async def hostile(server: Server, how_many: int = 1000, painted: int = 60) -> list[str]:
    """Gives the server so many hostile inputs, and Chromium some of them: what must not have happened."""
    verdict, touched = Verdict(), [ROOT / "pwned", Path("/tmp/pwned.csv")]
    newer = {
        "file": ("source=file", "file_upload"),
        "state": ("", STATE_FILE),
        "lesson": ("", LESSONS),
        "ask": ("", LESSONS),
    }
    kinds = ("url", "text", "knob", "upload", *[kind for kind, there in newer.items() if await takes(server, *there)])
    given = inputs(how_many, kinds)
    await judge(server, given, verdict)
    if painted and server.process.poll() is None:
        from benchmarks.painted import paint

        painted = await asyncio.to_thread(paint, server, given, painted, verdict.broken)
    verdict.broken += [f"{file} was written by what an upload brought along" for file in touched if file.exists()]
    each = ", ".join(f"{sum(one.kind == kind for one in given)} {kind}s" for kind in kinds)
    print(
        f"{each}: {verdict.pictures} pictures, {verdict.sentences} only a sentence, {verdict.refused} refused uploads"
    )
    print(f"painted by Chromium {painted}, slowest {verdict.slowest:.1f} s: {verdict.slowest_input[:300]}")
    return verdict.broken


ATTACKS = (
    Attack(
        "hostile addresses, texts, knobs and files",
        hostile,
        guard=True,
        slice={"how_many": 24, "painted": 0},
        patience=_HOURS,
    ),
)
