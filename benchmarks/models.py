"""What a real model costs: loaded, a text let go until its first map can be drawn, another head, another layer.

usage: python -m benchmarks.models [--times 5]

One thread, in this process, with nothing painted: the seconds are those of the processor, so that a busy machine does not count.
A first map is the trace and everything a page shows of one head of one layer; what is kept is counted as well. Needs `make models`;
`make models ALL=1` brings the second one, which is measured where it is there.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from attention import Layer, Model, Trace
from attention.formula.kept import KEPT
from attention.models.library import LIBRARY, Settings
from benchmarks.texts import natural

FOLDER = Path(__file__).parents[1] / "models"
MINILM, SMOLLM = "all-MiniLM-L6-v2", "SmolLM2-135M-Instruct"
MOST_FIRST, MOST_OTHER = 0.5, 0.1  # seconds of MiniLM with 256 tokens, issue 14


def seconds(act: Callable[[], object]) -> float:
    """What it takes of the processor."""
    began = time.process_time()
    act()
    return time.process_time() - began


def look(layer: Layer, head: int) -> None:
    """Everything that a page shows of a head."""
    for step in layer.steps:
        layer.matrix(step.name, head)
        layer.facts(step.name)


def measured(name: str, tokens: int, times: int) -> tuple[list[float], Trace]:
    """The medians of a first map, of another head and of another layer, and the trace."""
    rows = []
    for _ in range(times):
        source = Model(name, natural(tokens), max_tokens=tokens)
        KEPT.hold(2**28)
        found: list[Trace] = []
        first = seconds(lambda source=source, found=found: (found.append(source.trace()), look(found[0].layers[0], 0)))
        trace = found[0]
        head = seconds(lambda trace=trace: look(trace.layers[0], 1))
        other = seconds(lambda trace=trace: look(trace.layers[3], 1))
        rows.append((first, head, other))
    return [statistics.median(column) for column in zip(*rows, strict=True)], trace


def main() -> int:
    """Prints the table; 1 if a bound is broken."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--times", type=int, default=5)
    asked = ask.parse_args()
    torch.set_num_threads(1)
    LIBRARY.hold(Settings(FOLDER))
    broken = []
    print(f"import of transformers and the like, with the first load: {seconds(lambda: LIBRARY.get(MINILM)):.2f} s")
    print("\n| | load | tokens | first map | another head | another layer | kept |\n|---|---|---|---|---|---|---|")
    for name in (MINILM, *([SMOLLM] if (FOLDER / SMOLLM).is_dir() else [])):
        LIBRARY.hold(Settings(FOLDER))
        load = seconds(lambda name=name: LIBRARY.get(name))
        for tokens in (32, 256):
            (first, head, other), trace = measured(name, tokens, asked.times)
            kept = trace.nbytes / 2**20
            print(
                f"| {name} | {load:.2f} s | {len(trace.tokens)} | {first * 1000:.0f} ms | {head * 1000:.0f} ms | {other * 1000:.0f} ms | {kept:.1f} MB |",
                flush=True,
            )
            if name == MINILM and first > MOST_FIRST:
                broken.append(f"the first map of {tokens} tokens took {first:.2f} s, more than {MOST_FIRST}")
            if name == MINILM and max(head, other) > MOST_OTHER:
                broken.append(
                    f"another head or layer at {tokens} tokens took {max(head, other):.2f} s, more than {MOST_OTHER}"
                )
    for text in broken:
        print(f"broken: {text}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
