"""From the moved control to the painted picture: the Lab against a notebook author's app and against bertviz.

usage: python -m benchmarks.speed [--quick] [--steps 9] [--tokens 22 256 512 1024 2048] [--text natural|distinct]
                                  [--no-bertviz] [--no-heads]

All sides stand in the same Chromium and take turns, step by step, so that they meet the same noise; the medians
are compared. Exits with 1 if a floor of ours is not reached. With `--quick` three steps of up to 512 tokens.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from urllib.parse import quote

from playwright.sync_api import Browser
from torch import Tensor

from attention import AttentionConfig, TypedText
from benchmarks import texts
from benchmarks.bertviz import Bertviz
from benchmarks.chromium import STOPWATCH, Naive, Ours, chromium
from benchmarks.server import Server

# By what factor the Lab must be faster.
FLOORS = {
    "drag": {22: 7, 256: 7, 512: 9, 1024: 20, 2048: 50},
    "server": {22: 2, 256: 2.5, 512: 9, 1024: 15, 2048: 35},
    "bertviz": {22: 5, 256: 20, 512: 50},
    "heads": {22: 5, 256: 10, 512: 10},
}
NAMES = {
    "drag": "a drag step in the page, against the notebook author's app",
    "server": "a step through the server (seed, d_model, above the maps), against the same",
    "bertviz": "a drag step, against bertviz's head view of one head",
    "heads": "twelve heads as one mosaic, a step through the server, against 12 × 3 charts",
}
FRAMES = {22: 20, 256: 20, 2048: 5}  # a second while dragging, at the least
MOST_BYTES = 190_000  # of a step through the server: 147,456 of what the page computes from at d_model = 144, the first screen, and the maps below


@dataclass
class Row:
    """The measurements at one length: the milliseconds of every step of every side, bytes and frames."""

    tokens: int
    times: dict[str, list[float]] = field(default_factory=dict)
    drag_bytes: int = 0
    server_bytes: list[int] = field(default_factory=list)
    rest_bytes: list[int] = field(default_factory=list)
    frames: float = 0

    def take(self, side: str, step: Callable[[], float]) -> None:
        """Measures one step of a side."""
        self.times.setdefault(side, []).append(step())

    def median(self, side: str) -> float:
        """The median of a side's steps without the first, which warms up."""
        return statistics.median(self.times[side][1:])


def lab(browser: Browser, ours: Server, naive: Server, bertviz: Bertviz | None, text: str, steps: int) -> Row:
    """The Lab at one length, step by step with the others."""
    tokens = text.split()
    row, query = Row(len(tokens)), "?text=" + quote(text)
    heads = AttentionConfig().n_heads
    with Ours(browser, f"{ours.base}/{query}") as lab, Naive(browser, f"{naive.base}/{query}") as other:
        for step in range(steps + 1):
            wire = lab.wire()
            row.take("drag", lambda s=step: lab.drag("temperature", (s * 0.37 + 0.1) % 1))
            row.drag_bytes += lab.wire() - wire
            row.take("naive drag", lambda: other.step("Temperature"))
            if step == 0:
                lab.release("temperature")
            knob, value, slider = (
                ("seed", step + 1, "Seed") if step % 2 else ("d_model", 64 + heads * (step + 1), "d_model")
            )
            start = lab.received()
            row.take("server", lambda k=knob, v=value: lab.step(k, v))
            row.server_bytes.append(lab.received(until_painted=True) - start)
            row.rest_bytes.append(lab.received() - lab.received(until_painted=True))
            row.take("naive server", lambda s=slider: other.step(s))
            if bertviz and len(tokens) in FLOORS["bertviz"]:
                weights = _weights(text, step)
                row.take("bertviz", lambda w=weights: bertviz.step(w, tuple(tokens)))
        row.frames = lab.frames_a_second("temperature")
    return row


def mosaic(browser: Browser, ours: Server, naive: Server, text: str, steps: int) -> Row:
    """The Heads page with twelve heads at one length, step by step with the other."""
    row, query = Row(len(text.split())), "?text=" + quote(text)
    address = f"{ours.base}/heads{query}&heads=12&d_model=96&step=weights"
    with Ours(browser, address) as heads, Naive(browser, f"{naive.base}/{query}") as other:
        for step in range(steps + 1):
            row.take("heads", lambda s=step: heads.step("seed", s + 1))
            row.take("naive heads", lambda: other.step("Seed"))
    return row


def _weights(text: str, step: int) -> Tensor:
    """The weights of the first head of the Lab, with another temperature in every step."""
    config = AttentionConfig(temperature=0.5 + step / 10)
    weights = TypedText(text, config).trace().layers[0].weights
    assert weights is not None
    return weights[0]


def compare(rows: list[Row], name: str, ours: str, theirs: str) -> list[str]:
    """Prints one comparison over all lengths; returns the missed floors."""
    rows = [row for row in rows if theirs in row.times]
    if not rows:
        return []
    print(f"\n| {NAMES[name]} | ours | theirs | times faster | floor |\n|---|---|---|---|---|")
    broken = []
    for row in rows:
        lab_median, other = row.median(ours), row.median(theirs)
        floor = FLOORS[name].get(row.tokens)
        print(
            f"| T = {row.tokens} | {lab_median:.0f} ms | {other:,.0f} ms | {other / lab_median:.1f} | {floor or '–'} |",
            flush=True,
        )
        if floor and other < floor * lab_median:
            broken.append(f"{NAMES[name]}, T = {row.tokens}: {other / lab_median:.1f} times faster, not {floor}")
    return broken


def bounds(rows: list[Row]) -> list[str]:
    """Prints bytes and frames over all lengths; returns the broken bounds."""
    print(
        "\n| | bytes while dragging | kB of a server step until it is painted, most | kB of the rest of the page, most "
        "| frames a second while dragging |\n|---|---|---|---|---|"
    )
    broken = []
    for row in rows:
        largest = max(row.server_bytes)
        largest_rest = max(row.rest_bytes) / 1000
        print(
            f"| T = {row.tokens} | {row.drag_bytes} | {largest / 1000:.0f} | {largest_rest:.0f} | {row.frames:.0f} |",
            flush=True,
        )
        if row.drag_bytes:
            broken.append(f"T = {row.tokens}: {row.drag_bytes} bytes went over the wire while dragging")
        if largest > MOST_BYTES:
            broken.append(f"T = {row.tokens}: a server step took {largest:,} bytes, more than {MOST_BYTES:,}")
        if row.frames < FRAMES.get(row.tokens, 0):
            broken.append(f"T = {row.tokens}: {row.frames:.0f} frames a second, fewer than {FRAMES[row.tokens]}")
    return broken


def measure(lengths: list[int], text: Callable[[int], str], steps: int, bertviz: bool, heads: bool) -> list[str]:
    """Measures all lengths and prints all tables; returns the broken bounds."""
    with ExitStack() as stack:
        browser = stack.enter_context(chromium())
        ours = stack.enter_context(Server())
        naive = stack.enter_context(Server(script="naive_app.py"))
        third = stack.enter_context(Bertviz(browser, STOPWATCH)) if bertviz else None
        rows = [lab(browser, ours, naive, third, text(tokens), steps) for tokens in lengths]
        broken = compare(rows, "drag", "drag", "naive drag") + compare(rows, "server", "server", "naive server")
        broken += compare(rows, "bertviz", "drag", "bertviz") + bounds(rows)
    if heads:
        with chromium() as browser, Server() as ours, Server(script="naive_heads.py") as naive:
            lengths = [tokens for tokens in lengths if tokens in FLOORS["heads"]]
            rows = [mosaic(browser, ours, naive, text(tokens), steps) for tokens in lengths]
            broken += compare(rows, "heads", "heads", "naive heads")
    return broken


def main() -> int:
    """Runs the chosen measurements; returns 1 if a floor is missed."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--quick", action="store_true")
    ask.add_argument("--steps", type=int, default=9)
    ask.add_argument("--tokens", type=int, nargs="+", default=[22, 256, 512, 1024, 2048])
    ask.add_argument("--text", choices=("natural", "distinct"), default="natural")
    ask.add_argument("--bertviz", action=argparse.BooleanOptionalAction, default=True)
    ask.add_argument("--heads", action=argparse.BooleanOptionalAction, default=True)
    args = ask.parse_args()
    lengths = [tokens for tokens in args.tokens if tokens <= 512] if args.quick else args.tokens
    text, steps = getattr(texts, args.text), 3 if args.quick else args.steps
    broken = measure(lengths, text, steps, args.bertviz, args.heads)
    for sentence in broken:
        print(f"not reached: {sentence}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
