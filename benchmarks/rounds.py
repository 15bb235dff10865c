"""One visitor opens ordinary large links in turn, each with another seed: memory must stay below the limit.

usage: python -m benchmarks.rounds [--minutes 30] [--limit 1024] [--model NAME …] [--of FOLDER] [NAME=VALUE …]

Each socket is closed before the next link opens. Prints a row every half minute, and exits with 1 if the server was killed or
anything but a picture or a sentence came back. `--model` adds a link with that model; `--of` runs another checkout;
NAME=VALUE are environment variables of the server.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

from streamlit.proto.WidgetStates_pb2 import WidgetState

from benchmarks.attack import MINILM, Attack, suffer
from benchmarks.maxima import PATIENCE, label, opened
from benchmarks.server import ROOT, Server
from benchmarks.session import Session
from benchmarks.texts import natural

MINUTES = 30
_REPORTED = 30  # seconds
_MORE = 120  # seconds, for the link that is open at the end

# Without models and uploads; every link is within the limits of one trace.
LINKS: tuple[tuple[str, dict[str, str]], ...] = (
    (
        "heads",
        {"text": natural(1024), "d_model": "1024", "heads": "32", "dropout": "0.5", "mask": "causal window"},
    ),
    ("", {"text": natural(1024), "d_model": "1024", "heads": "32"}),
    ("heads", {"text": natural(2000), "d_model": "768", "heads": "8", "mask": "causal"}),
    ("learn", {"chapter": "softmax", "text": natural(2048), "d_model": "512", "heads": "1", "mask": "causal"}),
    ("", {"compare": "1", "d_model": "1024", "heads": "32", "d_k": "128", "d_v": "128"}),
    ("", {"explore_mask": "true", "text": natural(2048), "init": "uniform"}),
    ("", {"text": natural(2048), "view": "factors"}),
)


async def rounds(
    server: Server, minutes: float = MINUTES, visits: int = sys.maxsize, models: tuple[str, ...] = ()
) -> list[str]:
    """Opens the links in turn for `minutes`, or until `visits` are done; returns the failures."""
    broken: list[str] = []
    ends = Counter[str]()
    links = [
        *LINKS,
        *(
            (page, {"source": "model", "model": name, "text": natural(256)})
            for name in models
            for page in ("", "heads")
        ),
    ]
    began = reported = time.monotonic()

    def report(peak: str) -> None:
        answers = f"{ends['pictures']} pictures, {ends['sentences']} sentences"
        print(f"| {ends.total()} | {time.monotonic() - began:.0f} | {peak} | {answers} |", flush=True)

    print("| visits | seconds | MB resident (anonymous), at most so far | answers |\n|---|---|---|---|")
    try:
        for visit, (page, link) in zip(range(visits), itertools.cycle(links), strict=False):
            run = await opened(server, page, link if "model" in link else link | {"seed": str(visit)})
            ends["pictures" if run.figures else "sentences"] += 1
            if run.exceptions or not (run.figures or run.sentences):
                broken.append(f"/{page} {label(link)}: {run.exceptions or 'nothing was shown'}")
            if (now := time.monotonic()) - began > 60 * minutes:
                break
            if now - reported > _REPORTED:
                reported = now
                report(", ".join(f"{server.memory(field):.0f}" for field in ("VmRSS", "RssAnon", "VmHWM")))
    finally:  # also when the server is killed, which cancels this
        report("the end")
    return broken


async def sweeps(server: Server, people: int = 15, model: str = MINILM) -> list[str]:
    """Visitors start the sweep of all heads, each over another text, and leave at once; then memory also holds their traces."""
    broken: list[str] = []
    words = natural(200)
    for number in range(people):
        link = {"source": "model", "model": model, "text": f"w{number} {words}"}
        async with Session(server.base, urlencode(link), "heads", timeout=PATIENCE) as session:
            run = await session.open()
            broken += run.exceptions
            _, button = session.last.widgets["matters_ask"]
            await session.ask_to_run([WidgetState(id=button.id, trigger_value=True)])
            await asyncio.sleep(1)  # the sweep has begun
    return broken + await rounds(server, visits=2 * len(LINKS))


async def keep_sweeping(server: Server, people: int = 6, seconds: float = 40, model: str = MINILM) -> list[str]:
    """Visitors start the sweep of all heads, each over another text, and wait for it."""
    async with AsyncExitStack() as stack:
        for number in range(people):
            link = {"source": "model", "model": model, "text": f"w{number} {natural(200)}"}
            session = Session(server.base, urlencode(link), "heads", timeout=PATIENCE, address=f"203.0.113.{number}")
            await stack.enter_async_context(session)
            if broken := (await session.open()).exceptions:
                return broken
            _, button = session.last.widgets["matters_ask"]
            await session.ask_to_run([WidgetState(id=button.id, trigger_value=True)])
        await asyncio.sleep(seconds)
    return []


async def circuits(server: Server, people: int = 30, model: str = MINILM, tokens: int = 64) -> list[str]:
    """Visitors open what is inside a head at the same time, each another head and another text."""

    async def visit(number: int) -> list[str]:
        link = {
            "source": "model",
            "model": model,
            "text": f"w{number} {natural(tokens)}",
            "layer": str(number % 6),
            "head": str(number % 9),
        }
        run = await opened(server, "heads", link | {"heads_inside": "true", "q": "5", "k": str(number % 5)})
        shown = bool(run.figures or run.sentences)
        return [*run.exceptions, *([] if shown else [f"/heads {label(link)}: nothing was shown"])]

    return list(itertools.chain(*await asyncio.gather(*(visit(number) for number in range(people)))))


ATTACKS = (
    Attack("Circuits of MiniLM, 30 visitors at once", circuits, 600),
    Attack("6 sweeps of MiniLM while somebody looks at its heads", keep_sweeping, 960, model=MINILM),
    Attack("15 sweeps of MiniLM, started and left, then 14 large links", sweeps, 960),
    Attack("one visitor, large links one after the other, 10 minutes", partial(rounds, minutes=10), 900, {"visits": 7}),
)


def main() -> int:
    """Runs the round on a separate server."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--minutes", type=float, default=MINUTES)
    ask.add_argument("--limit", type=int, default=1024, help="MB of memory, where a control group can be made")
    ask.add_argument("--model", action="append", default=[], help="a model whose link is one of the round")
    ask.add_argument("--of", type=Path, default=ROOT, help="the checkout whose app.py runs")
    ask.add_argument("environment", nargs="*", metavar="NAME=VALUE", help="for the server")
    args = ask.parse_args()
    attack = Attack(
        "", partial(rounds, minutes=args.minutes, models=tuple(args.model)), patience=60 * args.minutes + _MORE
    )
    environment = dict(setting.split("=", 1) for setting in args.environment)
    began = time.monotonic()
    with Server(limit=args.limit, of=args.of.resolve(), **environment) as server:
        print(f"control group: {server.group or 'none could be made, so nothing was killed'}")
        cost = asyncio.run(suffer(server, attack))
    print(f"{cost.ended or 'alive'} after {time.monotonic() - began:.0f} s; at the peak {cost.peak:.0f} MB")
    print(f"{cost.processor:.0f} s of processor, somebody else's slowest turn {cost.slowest:.1f} s")
    for text, times in Counter(cost.broken).items():
        print(f"broken, {times} times: {text[:1000]}", file=sys.stderr)
    return 1 if cost.broken else 0


if __name__ == "__main__":
    sys.exit(main())
