"""Every control at its maximum: pairs of controls on every page, and many visitors at once."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from functools import partial
from urllib.parse import urlencode

from benchmarks.attack import Attack
from benchmarks.hostile import PAGES
from benchmarks.server import Server
from benchmarks.session import Run, Session
from benchmarks.texts import natural
from pages.ui.server import limits

PATIENCE = 300  # seconds, for the slowest of many visitors
_REPORTED = 100  # links
_HOURS = 7200.0  # seconds, for all pairs; an idle machine takes a tenth
MOST_ADDED = 20  # MB, for all temperatures of one text

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
    """Every pair of controls at their maxima, then with all wide controls, then at the largest allowed values."""
    for knob, other in itertools.combinations(KNOBS, 2):
        yield {knob: KNOBS[knob], other: KNOBS[other]}
    for knob, value in KNOBS.items():
        yield {**WIDE, knob: value}
    for tokens, d_model in ((2048, 768), (2000, 768), (2048, 512), (1024, 1024), (600, 1024), (300, 1024)):
        for more in ({}, {"mask": "causal"}, {"dropout": "0.5", "mask": "causal window", "window": "2000"}):
            for heads in ("1", "8", "32"):
                yield {"text": natural(tokens), "d_model": str(d_model), "heads": heads, **more}


async def opened(server: Server, page: str, link: dict[str, str]) -> Run:
    """The run of a visitor who opens this link."""
    async with Session(server.base, urlencode(link), page, timeout=PATIENCE) as session:
        return await session.open()


def label(link: dict[str, str]) -> str:
    """The link in a few words."""
    return " ".join(
        f"{key}={value if len(value) < 20 else f'{len(value.split())} words'}" for key, value in link.items()
    )


async def all_pairs(server: Server, share: float = 1.0, at_once: int = 3) -> list[str]:
    """Opens all pairs on all pages, a few at a time; returns the failures. A smaller `share` takes the same few each time."""
    links = [(page, link) for link in pairs() for page in PAGES]
    links = random.Random(0).sample(links, max(1, round(share * len(links))))
    queue, broken, began = iter(enumerate(links, 1)), list[str](), time.monotonic()

    async def visitor() -> None:
        for number, (page, link) in queue:
            try:
                run = await opened(server, page, link)
            except Exception as error:  # any error is one that a visitor would have met
                broken.append(f"/{page} {label(link)}: {type(error).__name__} {error}")
                if server.process.poll() is not None:
                    return
            else:
                if run.exceptions or not (run.figures or run.tables or run.sentences):
                    broken.append(f"/{page} {label(link)}: {run.exceptions or 'nothing was shown'}")
            if number % _REPORTED == 0:
                peak, seconds = server.memory("VmHWM"), time.monotonic() - began
                print(f"{number} of {len(links)} links, {seconds:.0f} s, {peak:.0f} MB, broken {broken}", flush=True)

    await asyncio.gather(*(visitor() for _ in range(at_once)))
    return broken


async def open_at_once(server: Server, page: str, links: list[dict[str, str]]) -> tuple[list[float], list[str]]:
    """Opens all links at once; returns their seconds and the failures."""
    began, broken = time.monotonic(), []

    async def open_one(link: dict[str, str]) -> float:
        try:
            run = await opened(server, page, link)
            broken.extend(run.exceptions)
        except Exception as error:  # as above
            broken.append(f"/{page} {label(link)}: {type(error).__name__} {error}")
        return time.monotonic() - began

    return sorted(await asyncio.gather(*map(open_one, links))), broken


async def crowd(server: Server, page: str = "", people: int = 30, seeds: bool = True, **link: str) -> list[str]:
    """Many visitors at once, each with another seed unless all have the same link."""
    links = [link | ({"seed": str(seed)} if seeds else {}) for seed in range(people)]
    seconds, broken = await open_at_once(server, page, links)
    print(f"{people} on /{page} {label(link)}: median {seconds[len(seconds) // 2]:.1f} s, slowest {seconds[-1]:.1f} s")
    return broken


async def widest(server: Server) -> list[str]:
    """Opens in turn links that ask for the maximum and for more."""
    wide = {key: KNOBS[key] for key in ("d_model", "heads", "d_k", "d_v")}
    links = [(page, wide | more) for page in PAGES for more in ({}, {"text": natural(300)}, {"text": KNOBS["text"]})]
    return [text for page, link in links for text in (await open_at_once(server, page, [link]))[1]]


async def texts(server: Server, how_many: int = 150) -> list[str]:
    """One visitor with many long texts in turn."""
    words = natural(2048).split()
    broken = []
    for i in range(how_many):
        broken += (await open_at_once(server, "", [{"text": " ".join((f"w{i}", *words[i:])), "heads": "1"}]))[1]
    return broken


async def own_matrices(server: Server, temperatures: int = 100) -> list[str]:
    """One visitor with uploaded matrices of 1 MB who drags the temperature."""
    drawn = random.Random(0)
    broken: list[str] = []
    async with Session(
        server.base, urlencode({"source": "matrices", "matrix_kind": "Q, K and V"}), timeout=PATIENCE
    ) as session:
        await session.open()
        for name in ("query", "key", "value"):
            rows = (" ".join(f"{drawn.gauss(0, 1):.17g}" for _ in range(128)) for _ in range(340))
            await session.upload(f"matrices_file_{name}", f"{name}.csv", "\n".join(rows).encode())
        used, memory = server.processor(), []
        for number in range(temperatures):
            broken += (await session.turn(temperature=round(0.05 * (number + 1), 2))).exceptions
            memory.append(server.memory())
        seconds = (server.processor() - used) / temperatures
        group = temperatures // 5  # the minimum of a group, since garbage collection varies
        added = min(memory[-group:]) - min(memory[:group])
    print(f"{temperatures} temperatures of own matrices: {added:+.0f} MB, {seconds:.2f} s of processor each")
    return broken + [f"{temperatures} temperatures added {added:.0f} MB"] * (added > MOST_ADDED)


LONG = {"text": natural(2048)}
ATTACKS = (
    Attack("one link with everything at its widest, on every page", widest, 700),
    Attack("every pair of knobs at their largest, on every page", all_pairs, 1024, {"share": 0.004}, patience=_HOURS),
    Attack("30 people open one link, 2,048 tokens", partial(crowd, seeds=False, **LONG), 1000, {"people": 8}),
    Attack("30 people open one link, 200 tokens", partial(crowd, seeds=False, text=natural(200)), 700),
    Attack("30 people, 30 seeds, 2,048 tokens", partial(crowd, **LONG), 1000),
    Attack("30 people, 30 seeds, as wide as may be", partial(crowd, **WIDE), 1000),
    Attack(
        "30 people, 30 seeds, all that is largest",
        partial(crowd, text=natural(2000), d_model="768", mask="causal"),
    ),
    Attack(
        "30 people, 30 seeds, as wide as may be, on the chapter on softmax",
        partial(crowd, page="learn", chapter="softmax", **WIDE),
    ),
    Attack("30 people, 30 seeds, 2,048 tokens, with the mask to click", partial(crowd, explore_mask="true", **LONG)),
    Attack("6 people, 6 seeds, 2,048 tokens, on Heads", partial(crowd, page="heads", people=6, **LONG)),
    Attack("150 long texts", texts, 800),
    Attack("own matrices of 1 MB, 100 temperatures", own_matrices, 600),
)
