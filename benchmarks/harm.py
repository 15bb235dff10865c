"""Attacks that could make the Lab unusable for a class, each on a separate server with 1 GiB of memory and no swap.

usage: python -m benchmarks.harm [--only WORDS] [--limit 1024] [--wait SECONDS] [--of FOLDER]

Allowed requests must end in a figure, a file or a message, all others in a refusal; no process may be killed, none may
use more memory than its attack allows, and another visitor, who changes a control meanwhile, waits no longer than docs/limits-and-privacy.md
says. Exits with 1 if anything else happened, and names the attack. `--of` attacks another checkout of the Lab, for the numbers before a change;
`--wait` allows the other visitor more seconds, on a machine that does other work.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from importlib import import_module
from pathlib import Path

from attention.features import NAMES, is_here
from benchmarks import (
    connections,
    downloads,
    ending,
    flat,
    garbage,
    hostile_models,
    hostile_pictures,
    in_flight,
    many_trainings,
    maxima,
    rounds,
    uploads,
    visits,
)
from benchmarks.attack import Attack, Cost, suffer
from benchmarks.server import ROOT, Server


def of_features() -> tuple[Attack, ...]:
    """Those on the features that are here: `ATTACKS` of the module of benchmarks that ends with “_attacks” after the name of the feature."""
    modules = (f"benchmarks.{name}_attacks" for name in NAMES if is_here(f"attention.{name}"))
    return tuple(attack for module in modules if is_here(module) for attack in import_module(module).ATTACKS)


ATTACKS: tuple[Attack, ...] = (
    *maxima.ATTACKS,
    *rounds.ATTACKS,
    *flat.ATTACKS,
    *uploads.ATTACKS,
    *downloads.ATTACKS,
    *visits.ATTACKS,
    *hostile_models.ATTACKS,
    *hostile_pictures.ATTACKS,
    *of_features(),
    *garbage.ATTACKS,
    *ending.ATTACKS,
    *many_trainings.ATTACKS,
    *in_flight.ATTACKS,
    *connections.ATTACKS,
)


def server_of(attack: Attack, limit: int, of: Path = ROOT) -> Server:
    """The server that the attack is made on."""
    return Server(
        guard=attack.guard,
        limit=limit,
        of=of,
        front=attack.front,
        descriptors=attack.descriptors,
        **attack.environment,
    )


def judged(attack: Attack, limit: int, wait: float | None, of: Path) -> Cost:
    """The cost of the attack on a separate server, and whether it is within its bounds."""
    wait = attack.wait if wait is None else wait
    with server_of(attack, limit, of) as server:
        cost = asyncio.run(suffer(server, attack))
    if not cost.ended and cost.peak > attack.mb:
        cost.broken.append(f"rose to {cost.peak:.0f} MB, more than {attack.mb}")
    if cost.slowest > wait:
        cost.broken.append(f"somebody else waited {cost.slowest:.1f} s, more than {wait:g}")
    return cost


def main() -> int:
    """Runs the chosen attacks and prints the table; returns 1 if a bound is broken."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--only", default="", help="attacks with these words in their names")
    ask.add_argument("--limit", type=int, default=1024, help="MB of memory, where a control group can be made")
    ask.add_argument("--wait", type=float, help="seconds that somebody else may wait, on a busy machine")
    ask.add_argument("--of", type=Path, default=ROOT, help="the checkout whose app.py runs")
    args = ask.parse_args()
    attacks = [attack for attack in ATTACKS if args.only in attack.name]
    if not attacks:
        ask.error(f"no attack has “{args.only}” in its name")
    broken = 0
    print(
        "| attack | may weigh, MB | MB at the peak (before it) | s of processor | s, somebody else's slowest turn | s, all of it | broken |"
    )
    print("|---|---|---|---|---|---|---|")
    began = time.monotonic()
    for attack in attacks:
        start = time.monotonic()
        cost = judged(attack, args.limit, args.wait, args.of.resolve())
        took, waited = time.monotonic() - start, round(cost.slowest, 1) or "none"
        weighed = cost.ended or f"{cost.peak:.0f} ({cost.before:.0f})"
        print(
            f"| {attack.name} | {attack.mb} | {weighed} | {cost.processor:.1f} | {waited} | {took:.0f} | {len(cost.broken)} |",
            flush=True,
        )
        for text, times in Counter(cost.broken).items():
            print(f"broken, {times} times: {attack.name}: {text[:1000]}", file=sys.stderr)
        broken += len(cost.broken)
    print(f"all of it took {(time.monotonic() - began) / 60:.0f} minutes")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
