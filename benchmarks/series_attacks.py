"""Hostile series: tables of too many rows, columns and cells, quotes without an end, bytes that are no text, numbers that no model reads."""

from __future__ import annotations

from benchmarks.attack import Attack
from benchmarks.server import Server
from benchmarks.session import Session
from benchmarks.uploads import TAKEN, unrefused

FIELD = "series_upload_0"
QUERY = "source=model&model=tiny-patchtst"
_REFUSED = ("series", "reads 2 columns")
"""Words of the sentences that refuse one, or an ordinary one that the model does not read."""


def files() -> dict[str, bytes]:
    """Each hostile file, by its name."""
    return {
        "rows.csv": b"1\n" * 2**22,
        "blank rows.csv": b"\n" * 2**23,
        "columns.csv": b"1," * 8000 + b"1\n" + b"2," * 8000 + b"2",
        "one line.csv": b"1," * 2**21,
        "long line.csv": b"a,b\n" + b"1" * 2**22 + b",2\n",
        "wide and long.csv": (b"1," * 200 + b"1\n") * 20_000,
        "quote.csv": b'a,b\n"' + b"1\n" * 50_000,
        "quotes.csv": b'"' * 2**20,
        "cells in quotes.csv": b'"\n","\n",' * 100_000,
        "zeros.csv": bytes(2**20),
        "zip.csv": b"PK\x03\x04" + bytes(range(256)) * 1000,
        "half of UTF-16.csv": b"\xff\xfe" + b"1,2\n" * 1000 + b"3",
        "digits.csv": b"a,b\n" + b"1" * 5000 + b",2\n",
        "infinite.csv": b"a,b\n1e999,2\n",
        "words.csv": b"a,b\n" + b"x,y\n" * 1000,
        "separators.csv": b";,|\t" * 1000 + b"\n" + b"1\n" * 10,
        "thousands of dots.csv": b"a;b\n" + b"1." * 4000 + b"1;2\n",
        "nothing.csv": b"",
    }


def ordinary() -> bytes:
    """A table as long as ETTh1, of 17,420 hours and seven columns."""
    rows = (
        f"2016-07-{1 + hour // 24 % 28:02d} {hour % 24:02d}:00:00" + ",5.827000141143799" * 7 for hour in range(17_420)
    )
    return "\n".join(("date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT", *rows)).encode()


async def show_hostile(server: Server) -> list[str]:
    """Uploads each hostile file; each must be refused by its sentence, and the map stays."""
    broken = []
    for name, content in [*files().items(), ("ordinary.csv", ordinary())]:
        async with Session(server.base, QUERY, timeout=120) as session:
            await session.open()
            status, run = await session.upload(FIELD, name, content)
            broken += unrefused([status], TAKEN)
            if run is None:
                continue
            broken += [f"{name}: {text}" for text in run.exceptions]
            if not (run.figures or run.sentences) or not any(
                words in text for text in run.sentences for words in _REFUSED
            ):
                broken.append(f"{name}: {run.seconds:.1f} s, {run.figures} figures, sentences {run.sentences}")
    # A large file is read in a job, whose refusal is logged with the place where it was raised.
    if "Traceback" in server.errors() and "FileError" not in server.errors():
        broken.append(f"the server's log after hostile series: {server.errors()[-1500:]}")
    return broken


ATTACKS = (Attack("tables of too many rows, columns and cells, and other files", show_hostile, 900, guard=True),)
