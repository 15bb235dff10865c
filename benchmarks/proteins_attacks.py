"""Hostile sequences: as many headers as characters, masks without an end, letters of no alphabet, and a chain as long as a text may be."""

from __future__ import annotations

from urllib.parse import urlencode

from benchmarks.attack import Attack
from benchmarks.server import Server
from benchmarks.session import Session


def texts() -> dict[str, str]:
    """Each hostile sequence, by what it is."""
    return {
        "headers": ">\n" * 700,
        "comments": ";\n" * 700,
        "a header alone": ">" * 1400,
        "half masks": "<mask" * 280,
        "masks": "<mask>" * 230,
        "numbers": "1 " * 700,
        "marks": "\u0301" * 500,
        "right to left": "\u202e" + "MKT" * 100,
        "lower case of two letters": "\u0130" * 500,
        "markup": "<script>alert(1)</script>" * 50,
        "nothing": "\n \t",
        "stops": "*" * 1400,
    }


async def show_hostile(server: Server) -> list[str]:
    """Opens each hostile sequence; each ends in its map or in a sentence, and none in an error of the program."""
    broken = []
    for name, text in [*texts().items(), ("a long chain", "MKTAYIAKQR" * 100)]:
        query = urlencode({"source": "model", "model": "tiny-esm", "view": "contacts", "text": text})
        async with Session(server.base, query, timeout=120) as session:
            run = await session.open()
            broken += [f"{name}: {problem}" for problem in run.exceptions]
            if not (run.figures or any(said.startswith("error") for said in run.sentences)):
                broken.append(f"{name}: {run.seconds:.1f} s, {run.figures} figures, sentences {run.sentences}")
    if "Traceback" in server.errors():
        broken.append(f"the server's log after hostile sequences: {server.errors()[-1500:]}")
    return broken


ATTACKS = (Attack("sequences of headers, masks and letters of no alphabet", show_hostile, guard=True),)
