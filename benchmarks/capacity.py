"""How many people a replica serves, and how many three behind nginx: they come in steps, until one turn of twenty takes a second.

usage: python -m benchmarks.capacity [--replicas 1 3] [--people 25 50 …] [--think 5] [--seconds 15] [--patience 160]

Everybody turns a knob or clicks a cell as in `benchmarks.load`, every `--think` seconds on average. A turn ends when all
of its page has arrived. The servers, nginx and all those people share this machine: what three replicas serve here is
bounded by its cores. Exits with 1 if somebody met an error.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.load import Seen, person
from benchmarks.proxy import running_proxy
from benchmarks.server import Server
from benchmarks.session import Session

STEPS = (25, 50, 75, 100, 125, 150, 175, 200, 250, 300)
MOST_SECONDS = 1.0  # at p95


async def climb(
    base: str, servers: list[Server], steps: list[int], think: float, seconds: float, patience: float
) -> tuple[int, Seen]:
    """Prints a row for each step; the largest with a p95 that is short enough, and what everybody saw."""
    seen, people, served = Seen(), list[asyncio.Task[None]](), 0
    for server in servers:
        async with Session(server.base, timeout=120) as first:
            await first.open()  # it imports everything
    until = time.monotonic() + patience
    for many in steps:
        people += [
            asyncio.create_task(person(base, number, think, until + patience, seen))
            for number in range(len(people), many)
        ]
        await asyncio.sleep(2 * think)  # all have opened the page and turned something
        seen.turns.clear()  # each holds its picture
        used, began = sum(each.processor() for each in servers), time.monotonic()
        await asyncio.sleep(seconds)
        turns, took = list(seen.turns), time.monotonic() - began
        whole, drawn = (sorted(times) for times in zip(*((run.seconds, run.drawn) for run in turns), strict=True))
        p50, p95, picture = whole[len(whole) // 2], whole[int(0.95 * len(whole))], drawn[int(0.95 * len(drawn))]
        cores = (sum(each.processor() for each in servers) - used) / took
        print(
            f"| {len(servers)} | {many} | {len(turns) / took:.1f} | {1000 * p50:.0f} ms | {1000 * p95:.0f} ms | {1000 * picture:.0f} ms "
            f"| {cores:.2f} | {max(each.memory() for each in servers):.0f} | {len(seen.errors)} |",
            flush=True,
        )
        if p95 > MOST_SECONDS:
            break
        served = many
        if time.monotonic() + 2 * think + seconds > until:
            print(f"stopped after {patience:g} s, not because it was slow")
            break
    for one in people:
        one.cancel()
    await asyncio.gather(*people, return_exceptions=True)
    return served, seen


def main() -> int:
    """Prints the table; 1 if somebody met an error."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--replicas", type=int, nargs="+", choices=(1, 3), default=(1, 3))
    ask.add_argument("--people", type=int, nargs="+", default=STEPS, help="how many at each step")
    ask.add_argument("--think", type=float, default=5, help="seconds between two turns of one person, on average")
    ask.add_argument("--seconds", type=float, default=15, help="of a step that are measured")
    ask.add_argument("--patience", type=float, default=160, help="seconds, for all steps of as many replicas")
    asked = ask.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before; {asked.think:g} s of thinking\n")
    print(
        "| replicas | people | turns a second | p50 | p95 | p95, picture | cores the replicas use | MB, the largest | errors |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    said, errors, served = [], [], 0
    for replicas in asked.replicas:
        with ExitStack() as stack:
            servers = [stack.enter_context(Server(LAB_REPLICA=f"lab-{n}")) for n in range(1, replicas + 1)]
            base = servers[0].base
            if replicas > 1:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    port = free.getsockname()[1]
                addresses = [server.base.removeprefix("http://") for server in servers]
                base, _ = stack.enter_context(running_proxy(folder, port, addresses))
            steps = [many for many in asked.people if many >= served]  # more replicas serve as many at least
            served, seen = asyncio.run(climb(base, servers, steps, asked.think, asked.seconds, asked.patience))
            said.append(f"{replicas} × the Lab: {served} people with a p95 under {MOST_SECONDS:g} s")
            errors += seen.errors
    print("\n" + "\n".join(said))
    for text in errors[:20]:
        print(f"broken: {text}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
