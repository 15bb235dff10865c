"""Large links on every page of the menu, in rounds, until memory is flat: visits must not accumulate memory."""

from __future__ import annotations

from benchmarks.attack import Attack
from benchmarks.maxima import label, opened
from benchmarks.server import Server
from benchmarks.texts import natural
from pages.ui.address import names

ROUNDS = 20  # at most; each opens every page once
WINDOW = 4  # rounds; garbage collection varies, so the smallest of the window counts
MOST_GROWTH = 6  # MB, from one window to the next: 0.2 MB a visit

# A cache that the first two rounds fill, and sessions that end soon after their sockets have closed.
ENVIRONMENT = {
    "LAB_MAX_TRACE_MB": "32",
    "LAB_TRACE_CACHE_MB": "64",
    "STREAMLIT_SERVER_DISCONNECTED_SESSION_TTL": "1",
}
# Every page reads its own parameters; with a new seed the cache is empty.
LINK = {
    "text": natural(512),
    "d_model": "512",
    "heads": "8",
    "mask": "causal",
    "dropout": "0.5",
    "train_task": "copy",
    "train_at": "10",
}
_SEEDS = ("seed", "train_seed")


def growth(memory: list[float]) -> float | None:
    """How many MB the last window of rounds exceeds the previous one; None before there are two."""
    last, previous = memory[-WINDOW:], memory[-2 * WINDOW : -WINDOW]
    return min(last) - min(previous) if len(previous) == WINDOW else None


async def until_flat(server: Server, rounds: int = ROUNDS) -> list[str]:
    """Opens every page once a round until memory is flat; returns the broken bounds, with the memory of each round if it never is."""
    broken: list[str] = []
    memory: list[float] = []
    for number in range(rounds):
        for page in names().values():
            link = LINK | dict.fromkeys(_SEEDS, str(number))
            run = await opened(server, page, link)
            if run.exceptions or not (run.figures or run.tables or run.sentences):
                broken.append(f"/{page} {label(link)}: {run.exceptions or 'nothing was shown'}")
        memory.append(server.memory("RssAnon"))
        if (grown := growth(memory)) is not None and grown < MOST_GROWTH:
            print(f"flat after {number + 1} rounds: {' '.join(f'{mb:.0f}' for mb in memory)} MB")
            return broken
    each = " ".join(f"{mb:.0f}" for mb in memory)
    return [*broken, f"memory is not flat after {rounds} rounds of {len(names())} pages: {each} MB"]


ATTACKS = (
    Attack("every page of the menu again and again, until memory is flat", until_flat, 700, environment=ENVIRONMENT),
)
