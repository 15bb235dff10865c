"""The start of the Lab and of the notebook author's app, alternately: until the server is healthy, and until the first figure.

usage: python -m benchmarks.start [--rounds 9] [--quick]

Every round begins with a new process and a browser that has measured nothing. The files are in the machine's cache.
Exits with 1 if ours is slower.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from playwright.sync_api import Browser

from benchmarks.chromium import Tab, chromium
from benchmarks.server import Server

SLACK = 1.05  # the variation of the same app


def cold(browser: Browser, script: str) -> tuple[float, float]:
    """Seconds from the start of the process until it is healthy, and until its first picture is painted."""
    began = time.monotonic()
    with Server(script=script) as server, Tab(browser, f"{server.base}/", settled=False):
        return server.seconds_to_healthy, time.monotonic() - began


def main() -> int:
    """Prints the table; 1 if ours is slower."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--rounds", type=int, default=9)
    ask.add_argument("--quick", action="store_true", help="three rounds")
    args = ask.parse_args()
    sides = {"ours": "", "notebook author's": "naive_app.py"}
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    with chromium() as browser:
        rounds = 3 if args.quick else args.rounds
        for round_ in range(rounds + 1):
            for name, script in sides.items():
                took = cold(browser, script)
                if round_ or not rounds:  # the first fills the machine's cache
                    measured[name].append(took)
    print("\n| cold start, median | healthy | first picture painted |\n|---|---|---|")
    medians = {name: [statistics.median(times) for times in zip(*took, strict=True)] for name, took in measured.items()}
    for name, (healthy, painted) in medians.items():
        print(f"| {name} | {healthy:.2f} s | {painted:.2f} s |")
    broken = [
        f"{measure} after {lab:.2f} s, the other after {other:.2f} s"
        for measure, lab, other in zip(("healthy", "painted"), *medians.values(), strict=True)
        if lab > SLACK * other
    ]
    for text in broken:
        print(f"not reached: {text}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
