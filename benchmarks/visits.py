"""Hostile inputs in turn, each in a separate session: the result must be a figure or a message and nothing else.

Never a traceback on the page or in the server's log; never an outside connection, a pickle or a process
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

MOST_SECONDS = 20  # of one run, on a busy machine
_HOURS = 7200.0  # for all inputs; an idle machine takes a quarter of an hour


@dataclass
class Verdict:
    """The outcomes of all inputs with their counts, and all failures."""

    pictures: int = 0
    sentences: int = 0
    refused: int = 0
    slowest: float = 0.0
    slowest_input: str = ""
    broken: list[str] = field(default_factory=list)


async def judge(server: Server, inputs_of_kind: list[Hostile], verdict: Verdict) -> None:
    """Sends the server all inputs in turn, each in a separate session."""
    read = len(server.errors())
    refused = len(server.refused())
    for hostile_input in inputs_of_kind:
        problem = await _visit(server, hostile_input, verdict)
        logged = server.errors()[read:]
        read += len(logged)
        if "Traceback" in logged or "Error" in logged:
            problem = f"{problem} The server's log: {logged[-1500:]}"
        if new := server.refused()[refused:]:
            problem, refused = f"{problem} Refused by the guard: {new}", refused + len(new)
        if server.process.poll() is not None:
            verdict.broken.append(f"the server is dead (exit {server.process.returncode}) after {hostile_input}")
            return
        if problem:
            verdict.broken.append(f"{problem.strip()} — {hostile_input}")


async def _visit(server: Server, hostile_input: Hostile, verdict: Verdict) -> str:
    """The failure with this input, or an empty string."""
    problem, began = "", time.monotonic()
    try:
        async with Session(server.base, hostile_input.query, hostile_input.page, timeout=60) as session:
            run, outcome = await session.open(), ""
            problem = _wrong(run)
            if hostile_input.turn and not problem:
                # What the figure of this page has not, anybody can send in its name all the same.
                run = await (session.act if hostile_input.kind == "knob" else session.turn)(**dict(hostile_input.turn))
                problem = _wrong(run)
            for key, name, data in hostile_input.files if not problem else ():
                field_ = uploader(session.last, key)
                status, next_run = await session.upload(field_, name, data)
                if next_run is None and status not in REFUSED:
                    problem = f"the upload ended with status {status}"
                elif next_run is None:
                    outcome = "refused"
                else:
                    run, problem = next_run, _wrong(next_run)
    except Exception as error:  # any error is caused by the input
        return f"{type(error).__name__} {error}"
    seconds = time.monotonic() - began
    if seconds > verdict.slowest:
        verdict.slowest, verdict.slowest_input = seconds, str(hostile_input)
    if seconds > MOST_SECONDS and not problem:
        problem = f"took {seconds:.0f} s"
    verdict.refused += bool(outcome)
    picture = bool(run.figures) or not run.sentences  # the Reference page has tables only
    verdict.pictures += not outcome and picture
    verdict.sentences += not outcome and not picture
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
    """Sends the server `how_many` hostile inputs, and some of them to Chromium; returns the failures."""
    verdict, forbidden_files = Verdict(), [ROOT / "pwned", Path("/tmp/pwned.csv")]
    newer = {
        "file": ("source=file", "file_upload"),
        "state": ("", STATE_FILE),
        "lesson": ("", LESSONS),
        "ask": ("", LESSONS),
    }
    kinds = ("url", "text", "knob", "upload", *[kind for kind, upload in newer.items() if await takes(server, *upload)])
    chosen = inputs(how_many, kinds)
    await judge(server, chosen, verdict)
    if painted and server.process.poll() is None:
        from benchmarks.painted import paint

        painted = await asyncio.to_thread(paint, server, chosen, painted, verdict.broken)
    verdict.broken += [
        f"{file} was written by what an upload brought along" for file in forbidden_files if file.exists()
    ]
    each = ", ".join(f"{sum(hostile_input.kind == kind for hostile_input in chosen)} {kind}s" for kind in kinds)
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
