"""How long a step of Compare takes through the server, against the same step in the Lab: from the entered number to the painted pictures.

usage: python -m benchmarks.compare [--steps 9] [--tokens 22 256 512 1024] [--both] [--silenced]

With `--silenced` it is how long a head of MiniLM takes with 64 tokens, from the click that silences it to its painted maps: at most 0.4 s.

Both stand in one Chromium, each in a tab, and take turns; another seed is entered above the maps. On Compare it is that of B, as
the page opens, or with `--both` that of both states, which are then both made anew. Exits with 1 where a median is more than 1.6
times the Lab's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from urllib.parse import quote

from benchmarks import texts
from benchmarks.chromium import Ours, chromium
from benchmarks.server import Server

MOST = 1.6
MOST_SILENCED = 400  # milliseconds
MODELS = Path(__file__).parents[1] / "models"
TOKENS = (22, 256, 512, 1024)


def main() -> int:
    """Measures both pages alternately and prints the medians."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--steps", type=int, default=9)
    ask.add_argument("--tokens", type=int, nargs="+", default=TOKENS)
    ask.add_argument("--both", action="store_true")
    ask.add_argument("--silenced", action="store_true", help="a head of MiniLM silenced instead; needs `make models`")
    ask.add_argument("--quick", action="store_true", help="three steps of up to 512 tokens")
    args = ask.parse_args()
    steps = 3 if args.quick else args.steps
    lengths = [tokens for tokens in args.tokens if tokens <= 512] if args.quick else args.tokens
    if args.silenced:
        return silenced(steps)
    late = []
    editing = "&editing=both" if args.both else ""
    print(
        "| a step through the server | the Lab | Compare | times the Lab's | floor | kB until painted |\n|---|---|---|---|---|---|"
    )
    with chromium() as browser, Server() as server:
        for tokens in lengths:
            query = f"?text={quote(texts.natural(tokens))}"
            with (
                Ours(browser, f"{server.base}/{query}") as lab,
                Ours(browser, f"{server.base}/{query}&compare=temperature%3D0.5{editing}") as compare,
            ):
                times: dict[str, list[float]] = {"lab": [], "compare": []}
                kilobytes = 0.0
                for step in range(steps + 1):
                    times["lab"].append(lab.step("seed", step + 1))
                    start = compare.received()
                    times["compare"].append(compare.step("seed", step + 1001))
                    kilobytes = max(kilobytes, (compare.received(until_painted=True) - start) / 1000)
            ours, both_medians = (statistics.median(times[name][1:]) for name in times)  # the first step warms up
            print(
                f"| T = {tokens} | {ours:.0f} ms | {both_medians:.0f} ms | {both_medians / ours:.2f} | {MOST} | {kilobytes:.0f} |",
                flush=True,
            )
            late += [f"T = {tokens}: {both_medians / ours:.2f} times the Lab's"] * (both_medians > MOST * ours)
    for sentence in late:
        print(f"not reached: {sentence}", file=sys.stderr)
    return 1 if late else 0


def silenced(times: int) -> int:
    """Ablates the heads of a model one at a time and prints the median until the maps are painted; returns 1 if it is too slow."""
    took = []
    link = f"?source=model&layer=1&text={quote(texts.natural(64))}"
    with chromium() as browser, Server(LAB_MODELS=str(MODELS), LAB_MAX_TOKENS="64") as server:
        for head in range(times + 1):
            with Ours(browser, f"{server.base}/{link}&head={head}") as lab:
                lab.page.get_by_role("button", name=f"Ablate (silence) L1 H{head}", exact=True).focus()
                took.append(lab.press("Enter"))
    median = statistics.median(took[1:])  # the first step warms up
    print(f"a head of MiniLM silenced, 64 tokens, until its maps are painted: {median:.0f} ms, at most {MOST_SILENCED}")
    return int(median > MOST_SILENCED)


if __name__ == "__main__":
    sys.exit(main())
