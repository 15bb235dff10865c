"""Everything that is allowed at its largest: pairs of knobs on every page, and many people at once, in 1 GiB of memory.

usage: python -m benchmarks.maxima [--limit 1024] [--people 30] [--only pairs|many]

Each must end in a picture or a sentence, and the server must live. Exits with 1 if anything else happened.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import time
from collections.abc import Iterator
from urllib.parse import urlencode

from benchmarks.hostile import PAGES
from benchmarks.server import Server
from benchmarks.session import Run, Session
from benchmarks.texts import natural
from pages.ui import limits

PATIENCE = 300  # seconds, for the slowest of many people

# Every knob that makes a trace larger, at the largest that a link may ask for.
KNOBS: dict[str, str] = {
    "text": natural(limits.MAX_TOKENS),
    "text2": natural(limits.MAX_TOKENS),
    "d_model": str(limits.MAX_D_MODEL),
    "heads": str(limits.MAX_HEADS),
    "d_k": str(limits.MAX_D_MODEL),
    "d_v": str(limits.MAX_D_MODEL),
    "dropout": "0.9",
    "positions": "sinusoidal",
    "mask": "causal",
    "window": str(limits.MAX_TOKENS),
    "prefix": str(limits.MAX_TOKENS),
    "init": "uniform",
    "seed": str(2**32 - 1),
    "pad": "true",
    "temperature": "10.0",
    "colors": "log",
    "step": "output",
    "view": "factors",
}
# As wide as the heads may be together, which the pairs alone do not reach.
WIDE = {"heads": "32", "d_k": "128", "d_v": "128", "d_model": str(limits.MAX_D_MODEL)}


def pairs() -> Iterator[dict[str, str]]:
    """Every knob at its largest, with every other; then with everything that is wide; then as large as is just legal."""
    for one, other in itertools.combinations(KNOBS, 2):
        yield {one: KNOBS[one], other: KNOBS[other]}
    for one, value in KNOBS.items():
        yield {**WIDE, one: value}
    for tokens, d_model in ((2048, 768), (2000, 768), (2048, 512), (1024, 1024), (600, 1024), (300, 1024)):
        for more in ({}, {"mask": "causal"}, {"dropout": "0.5", "mask": "causal window", "window": "2000"}):
            for heads in ("1", "8", "32"):
                yield {"text": natural(tokens), "d_model": str(d_model), "heads": heads, **more}


async def opened(server: Server, page: str, link: dict[str, str]) -> Run:
    """What somebody sees who opens this link."""
    async with Session(server.base, urlencode(link), page, timeout=PATIENCE) as session:
        return await session.open()


def said(link: dict[str, str]) -> str:
    """The link in a few words."""
    return " ".join(
        f"{key}={value if len(value) < 20 else f'{len(value.split())} words'}" for key, value in link.items()
    )


async def all_pairs(server: Server, share: float = 1.0, at_once: int = 3) -> list[str]:
    """Opens all pairs on all pages, a few at a time; what broke. A smaller `share` takes the same few each time."""
    links = [(page, link) for link in pairs() for page in PAGES]
    links = random.Random(0).sample(links, max(1, round(share * len(links))))
    queue, broken = iter(links), []

    async def visitor() -> None:
        for page, link in queue:
            try:
                run = await opened(server, page, link)
            except Exception as error:  # whatever it is, a person would have met it
                broken.append(f"/{page} {said(link)}: {type(error).__name__} {error}")
                if server.process.poll() is not None:
                    return
            else:
                if run.exceptions or not (run.figures or run.tables or run.sentences):
                    broken.append(f"/{page} {said(link)}: {run.exceptions or 'nothing was shown'}")

    await asyncio.gather(*(visitor() for _ in range(at_once)))
    return broken


async def many(server: Server, page: str, links: list[dict[str, str]]) -> tuple[list[float], list[str]]:
    """Opens all of these links at once: how long each took, and what broke."""
    began, broken = time.monotonic(), []

    async def one(link: dict[str, str]) -> float:
        try:
            run = await opened(server, page, link)
            broken.extend(run.exceptions)
        except Exception as error:  # as above
            broken.append(f"/{page} {said(link)}: {type(error).__name__} {error}")
        return time.monotonic() - began

    return sorted(await asyncio.gather(*map(one, links))), broken


def crowds(people: int) -> dict[str, tuple[str, list[dict[str, str]]]]:
    """Many people at once, each by name: the page, and the link of every one of them."""
    text = {"text": natural(2048)}
    return {
        "the same link": ("", [text] * people),
        "the same link, a class": ("", [{"text": natural(200)}] * people),
        "different seeds": ("", [{**text, "seed": str(seed)} for seed in range(people)]),
        "different seeds, as wide as may be": ("", [{**WIDE, "seed": str(seed)} for seed in range(people)]),
        "all that is largest": (
            "", [{"text": natural(2000), "d_model": "768", "mask": "causal", "seed": str(seed)} for seed in range(people)],
        ),
        "different seeds on Softmax": ("softmax", [{**WIDE, "seed": str(seed)} for seed in range(people)]),
        "different seeds on Masks": ("masks", [{**text, "seed": str(seed)} for seed in range(people)]),
        "different seeds on Heads": ("heads", [{**text, "seed": str(seed)} for seed in range(people // 5)]),
    }  # fmt: skip


def main() -> int:
    """Runs what was asked for and prints the table; 1 if something broke."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--limit", type=int, default=1024, help="MB of memory")
    ask.add_argument("--people", type=int, default=30)
    ask.add_argument("--only", choices=("pairs", "many"))
    ask.add_argument("--share", type=float, default=1.0, help="of the pairs")
    asked = ask.parse_args()
    broken: list[str] = []
    print("| in 1 GiB | seconds, median / slowest | peak MB | broken |\n|---|---|---|---|")
    if asked.only != "many":
        with Server(limit=asked.limit) as server:
            began = time.monotonic()
            wrong = asyncio.run(all_pairs(server, asked.share))
            print(f"| pairs of maxima | {time.monotonic() - began:.0f} in all | {peak(server)} | {len(wrong)} |")
            broken += wrong
    for name, (page, links) in crowds(asked.people).items() if asked.only != "pairs" else ():
        with Server(limit=asked.limit) as server:
            asyncio.run(opened(server, page, {}))
            seconds, wrong = asyncio.run(many(server, page, links))
            took = f"{seconds[len(seconds) // 2]:.1f} / {seconds[-1]:.1f}"
            print(f"| {len(links)} people, {name} | {took} | {peak(server)} | {len(wrong)} |", flush=True)
            broken += wrong
    for text in broken:
        print(f"broken: {text[:500]}", file=sys.stderr)
    return 1 if broken else 0


def peak(server: Server) -> str:
    """The most memory that the server ever had, or how it ended."""
    code = server.process.poll()
    return f"{server.memory('VmHWM'):.0f}" if code is None else f"killed, exit {code}"


if __name__ == "__main__":
    sys.exit(main())
