"""The cost of circuits, as ratios to one plain pass of the model: the linear run, direct effects, score terms, spectra, relevance.

usage: python -m benchmarks.circuits [--times 3] [--tokens 13 256]

One thread, in this process: the seconds are those of the processor, so that a busy machine does not count. Needs `make models ALL=1`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable

import torch

from attention import Model, Trace, circuits
from attention.base.cache import CACHE
from attention.models.library import LIBRARY, Settings
from benchmarks.models import FOLDER, SMOLLM, seconds
from benchmarks.texts import natural

MOST = {"linear run": 6.0, "direct effects of all heads": 6.0, "terms of one score": 4.0}
"""The largest ratios to a plain pass that count as fast; the others are only reported."""


def measured(tokens: int, times: int) -> dict[str, float]:
    """The median seconds of each number, by its name."""
    columns: dict[str, list[float]] = {}
    for _ in range(times):
        CACHE.reset(2**30)
        trace = Model(SMOLLM, natural(tokens), max_tokens=tokens, predict=(tokens - 1,)).trace()
        run = trace.model_run
        assert run is not None
        loaded, inputs = run.source.load_inputs()
        with torch.no_grad():
            columns.setdefault("plain pass", []).append(
                seconds(lambda loaded=loaded, inputs=inputs: loaded.model(**inputs))
            )
        for name, act in acts(trace, tokens - 1):
            columns.setdefault(name, []).append(seconds(act))
    return {name: statistics.median(column) for name, column in columns.items()}


def acts(trace: Trace, last: int) -> list[tuple[str, Callable[[], object]]]:
    """What is measured, one after the other: the first pays for the linear run."""
    run = trace.model_run
    assert run is not None
    return [
        ("linear run", run.linear_run),
        ("a logit as a sum", lambda: circuits.logit_parts(trace, last)),
        ("direct effects of all heads", lambda: circuits.writes(trace)),
        ("terms of one score", lambda: circuits.score_terms(trace, 18, 6, last, last // 2)),
        ("a head's effect on every token", lambda: circuits.head_logits(trace, 18, 6)),
        ("copying scores of all heads", lambda: circuits.copying_score(trace)),
        ("relevance (AttnLRP)", lambda: circuits.relevance(trace)),
    ]


def main() -> None:
    """Prints the table; exits with 1 if a ratio is larger than its aim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--tokens", type=int, nargs="+", default=[13, 256])
    options = parser.parse_args()
    torch.set_num_threads(1)
    LIBRARY.hold(Settings(FOLDER))
    slow = False
    for tokens in options.tokens:
        numbers = measured(tokens, options.times)
        plain = numbers["plain pass"]
        print(f"{SMOLLM}, {tokens} tokens: a plain pass takes {plain:.2f} s of processor")
        for name, value in numbers.items():
            slow |= value / plain > MOST.get(name, float("inf"))
            print(f"  {name:32} {value:7.2f} s {value / plain:7.1f} passes")
    sys.exit(int(slow))


if __name__ == "__main__":
    main()
