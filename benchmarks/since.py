"""A step through the server, without painting, against the same step at an earlier commit; both servers run, and take turns.

usage: python -m benchmarks.since [--commit a787813] [--steps 15] [--tokens 22 256]

A step gives another seed, and lasts until the picture has arrived. Times differ by a third from hour to hour; the ratio counts.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

from benchmarks.server import ROOT, Server
from benchmarks.session import Session
from benchmarks.texts import natural

SLOWER = 1.1  # times the earlier commit; medians of equal servers differ by less


async def measure(servers: tuple[Server, Server], text: str, steps: int) -> tuple[float, float]:
    """The median seconds of a step on each server."""
    async with AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(Session(server.base, urlencode({"text": text}), timeout=600))
            for server in servers
        ]
        for session in sessions:
            await session.open()
        times: list[list[float]] = [[], []]
        for seed in range(1, steps + 3):
            for session, drawn in zip(sessions, times, strict=True):
                run = await session.turn(seed=seed)
                assert run.figures, run.exceptions or run.sentences
                drawn.append(run.drawn)
    first, second = (median(drawn[2:]) for drawn in times)  # the first two import and compile
    return first, second


def main() -> int:
    """Prints the table; returns 1 if a step has become slower."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--commit", default="a787813")
    ask.add_argument("--steps", type=int, default=15)
    ask.add_argument("--tokens", type=int, nargs="+", default=[22, 256])
    ask.add_argument("--quick", action="store_true", help="five steps")
    args = ask.parse_args()
    steps = 5 if args.quick else args.steps
    ratios = []
    with tempfile.TemporaryDirectory(prefix="attention-lab-") as name:
        archive = subprocess.run(["git", "archive", args.commit], cwd=ROOT, capture_output=True, check=False).stdout
        if not archive:
            print(f"{args.commit} is not in the history of this folder: fetch it with git, or name another --commit")
            return 1
        subprocess.run(["tar", "-x"], cwd=name, input=archive, check=True)
        with Server(of=Path(name)) as before, Server() as now:
            print(f"\n| a step through the server | {args.commit} | now | ratio |\n|---|---|---|---|")
            for tokens in args.tokens:
                first, second = asyncio.run(measure((before, now), natural(tokens), steps))
                ratios.append(second / first)
                print(
                    f"| T = {tokens} | {1000 * first:.0f} ms | {1000 * second:.0f} ms | {ratios[-1]:.2f} |", flush=True
                )
    return int(max(ratios) > SLOWER)


if __name__ == "__main__":
    sys.exit(main())
