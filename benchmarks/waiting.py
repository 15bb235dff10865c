"""How long other visitors of models wait while one opens a long link: 20 generated tokens, 100 interventions, every token computed anew.

usage: python -m benchmarks.waiting [--of FOLDER] [--generated 20] [--changes 100]

Both models must be installed (`make models ALL=1`). `--of` starts another checkout of the Lab, for the numbers before a change.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from urllib.parse import urlencode

from benchmarks.models import FOLDER, MINILM, SMOLLM
from benchmarks.server import ROOT, Server
from benchmarks.session import Run, Session

TEXT = "The quiet harbor watched the copper moon. The quiet harbor watched the"
MOST_TIMES = 10  # times as long as alone: a pass or two of the others come first


async def visit(server: Server, model: str, text: str, **knobs: str) -> tuple[float, Run]:
    """The seconds until a visitor sees the page of a text, and its messages."""
    began = time.monotonic()
    query = urlencode({"source": "model", "model": model, "text": text} | knobs)
    async with Session(server.base, query, timeout=600) as session:
        run = await session.open()
    return time.monotonic() - began, run


async def measure(server: Server, generated: int, changes: int) -> dict[str, tuple[float, float]]:
    """The seconds that a visitor waits for each model, alone and beside the long link."""
    alone, beside_link = {}, {}
    for name in (MINILM, SMOLLM):
        await visit(server, name, TEXT)  # loads the model
        alone[name], _ = await visit(server, name, f"{TEXT} first")
    codes = ";".join(f"{i % 30}.{i // 30}.t0.5" for i in range(changes))
    long = asyncio.create_task(visit(server, SMOLLM, TEXT, generate=str(generated), interventions=codes))
    await asyncio.sleep(1)
    waits = await asyncio.gather(*[visit(server, name, f"{TEXT} second") for name in (MINILM, SMOLLM)])
    for name, (seconds, _) in zip((MINILM, SMOLLM), waits, strict=True):
        beside_link[name] = alone[name], seconds
    seconds, run = await long
    print(f"the long link itself: {seconds:.1f} s {' '.join(run.sentences)}")
    return beside_link


def main() -> int:
    """Prints the table; returns 1 if a visitor waits too long."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--of", type=Path, default=ROOT)
    ask.add_argument("--generated", type=int, default=20, help="tokens of the long link")
    ask.add_argument("--changes", type=int, default=100, help="its interventions, at most 270")
    args = ask.parse_args()
    with Server(of=args.of.resolve(), LAB_MODELS=str(FOLDER)) as server:
        waits = asyncio.run(measure(server, args.generated, args.changes))
    print("\n| another visitor of | alone | beside the long link |\n|---|---|---|")
    for name, (alone, beside) in waits.items():
        print(f"| {name} | {alone:.1f} s | {beside:.1f} s |")
    return int(any(beside > MOST_TIMES * alone for alone, beside in waits.values()))


if __name__ == "__main__":
    sys.exit(main())
