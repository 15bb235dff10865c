"""How many visitors one replica and three replicas behind nginx serve, in steps, until one run of twenty takes a second.

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
    """Prints a row for each step; returns the largest number of people within the bound, and all runs and errors."""
    seen, people, served = Seen(), list[asyncio.Task[None]](), 0
    for server in servers:
        async with Session(server.base, timeout=120) as first:
            await first.open()  # the first session imports everything
    until = time.monotonic() + patience
    for people_now in steps:
        people += [
            asyncio.create_task(person(base, number, think, until + patience, seen))
            for number in range(len(people), people_now)
        ]
        await asyncio.sleep(2 * think)  # all have opened the page and changed a control
        seen.turns.clear()  # they include the first run of the page
        used, began = sum(each.processor() for each in servers), time.monotonic()
        await asyncio.sleep(seconds)
        while not seen.turns and time.monotonic() < until:  # on a machine so busy that nobody has had an answer
            await asyncio.sleep(seconds)
        turns, took = list(seen.turns), time.monotonic() - began
        complete, drawn = (sorted(times) for times in zip(*((run.seconds, run.drawn) for run in turns), strict=True))
        p50, p95, picture = (
            complete[len(complete) // 2],
            complete[int(0.95 * len(complete))],
            drawn[int(0.95 * len(drawn))],
        )
        cores = (sum(each.processor() for each in servers) - used) / took
        print(
            f"| {len(servers)} | {people_now} | {len(turns) / took:.1f} | {1000 * p50:.0f} ms | {1000 * p95:.0f} ms | {1000 * picture:.0f} ms "
            f"| {cores:.2f} | {max(each.memory() for each in servers):.0f} | {len(seen.errors)} |",
            flush=True,
        )
        if p95 > MOST_SECONDS:
            break
        served = people_now
        if time.monotonic() + 2 * think + seconds > until:
            print(f"stopped after {patience:g} s, not because it was slow")
            break
    for task in people:
        task.cancel()
    await asyncio.gather(*people, return_exceptions=True)
    return served, seen


def main() -> int:
    """Prints the table; returns 1 if a session met an error."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--replicas", type=int, nargs="+", choices=(1, 3), default=(1, 3))
    ask.add_argument("--people", type=int, nargs="+", default=STEPS, help="how many at each step")
    ask.add_argument("--think", type=float, default=5, help="seconds between two turns of one person, on average")
    ask.add_argument("--seconds", type=float, default=15, help="of a step that are measured")
    ask.add_argument("--patience", type=float, default=160, help="seconds, for all steps of as many replicas")
    args = ask.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before; {args.think:g} s of thinking\n")
    print(
        "| replicas | people | turns a second | p50 | p95 | p95, picture | cores the replicas use | MB, the largest | errors |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    messages, errors, served = [], [], 0
    for replicas in args.replicas:
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
            steps = [count for count in args.people if count >= served]  # more replicas serve at least as many
            served, seen = asyncio.run(climb(base, servers, steps, args.think, args.seconds, args.patience))
            messages.append(f"{replicas} × the Lab: {served} people with a p95 under {MOST_SECONDS:g} s")
            errors += seen.errors
    print("\n" + "\n".join(messages))
    for text in errors[:20]:
        print(f"broken: {text}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
