"""Every head over many texts: one process against 1, 2 and 4 workers, in seconds, texts a second, and memory of a worker.

usage: python -m benchmarks.corpus [--texts 500 5000] [--times 3] [--workers 1 2 4] [--quick]

The texts are sentences of this repository's documents, and the model is MiniLM (`make models`). Every run is a process of its own, and the
runs alternate, since others may use the machine: the ratios count. A run begins with its first chunk done: what starts before, the imports
and the model, is a column of its own. Its overhead is the time of a text with one worker, divided by that of the loop, minus 1. Each run gives the
same SHA-256 of heads.parquet.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "models" / "all-MiniLM-L6-v2"
MOST_OVERHEAD = 0.15  # of one worker, issue 31
SHORTEST = 20  # characters of a sentence


class Measured(NamedTuple):
    """One run: `workers` is 0 for the plain loop."""

    workers: int
    start: float
    seconds: float
    texts: int
    processor: float
    megabytes: float
    parts_kb: float
    merging: float
    digest: str

    @property
    def rate(self) -> float:
        """Texts a second, after the first chunk."""
        return self.texts / self.seconds


def sentences(count: int) -> list[str]:
    """Sentences of the documents in their order, from the start again where there are too few."""

    def found() -> Iterator[str]:
        for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("attention/lessons/**/*.md")]):
            words = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
            for text in re.split(r"(?<=[.!?:])\s+|\n\s*\n|\n\* |\n- |\|", words):
                if len(sentence := " ".join(text.split())) >= SHORTEST:
                    yield sentence

    return list(islice(cycle(list(found())), count))


def run(workers: int, count: int, chunk_size: int) -> Measured:
    """One run in this process."""
    import psutil

    from attention.corpus import scan
    from attention.corpus.cluster import scan_on_cluster
    from attention.corpus.scan import PartsFolder
    from attention.models.library import LIBRARY

    texts = sentences(count)
    plan, _ = scan.make_plan(LIBRARY.get(str(MODEL)), texts, chunk_size=chunk_size)
    times: list[float] = []
    peaks: dict[int, float] = {}
    processor: list[float] = []

    def report(_: int) -> None:
        times.append(time.monotonic())
        family = [psutil.Process(), *psutil.Process().children(recursive=True)]
        spent = [process.cpu_times() for process in family]
        processor.append(sum(each.user + each.system for each in spent))
        for process in family[1 if workers else 0 :]:
            status = Path(f"/proc/{process.pid}/status").read_text()
            (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
            peaks[process.pid] = int(peak) / 1024

    with TemporaryDirectory() as folder:
        began = time.monotonic()
        scan_on_cluster(plan, texts, folder, workers=workers, report=report)
        size = sum(path.stat().st_size for path in Path(folder).glob("parts/*")) / plan.n_chunks / 1000
        merged = time.monotonic()
        scan.merge(folder)
        merging = time.monotonic() - merged
        digest = sha256(PartsFolder(folder).read(scan.TABLE)).hexdigest()
    return Measured(
        workers,
        times[0] - began,
        times[-1] - times[0],
        count - chunk_size,
        processor[-1] - processor[0],
        max(peaks.values()),
        size,
        merging,
        digest,
    )


def in_process(workers: int, count: int, chunk_size: int) -> Measured:
    """One run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.corpus", "--one", str(workers), str(count), str(chunk_size)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return Measured(*json.loads(done.stdout.splitlines()[-1]))


def table(count: int, chunk_size: int, times: int, workers: list[int]) -> list[str]:
    """Prints the rows of one number of texts; the broken bounds."""
    from attention.models.library import LIBRARY

    heads = sum(site.n_heads for site in LIBRARY.get(str(MODEL)).sites)
    print(
        f"\n{count:,} sentences, {heads} heads, parts of {chunk_size}, {times} times, load {os.getloadavg()[0]:.1f}\n"
    )
    print(
        "| | until the first part | a text | texts a second | heads × texts a second | against the loop | processor against the loop | MB of a worker |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    runs: dict[int, list[Measured]] = {n: [] for n in (0, *workers)}
    for _ in range(times):
        for n, of_workers in runs.items():
            of_workers.append(in_process(n, count, chunk_size))
    for n, measured in runs.items():
        ratios = [one.seconds / loop.seconds for one, loop in zip(measured, runs[0], strict=True)]
        busy = [one.processor / loop.processor for one, loop in zip(measured, runs[0], strict=True)]
        rate = statistics.median(one.rate for one in measured)
        start, memory = (statistics.median(getattr(one, name) for one in measured) for name in ("start", "megabytes"))
        name = "the plain loop" if n == 0 else "1 worker" if n == 1 else f"{n} workers"
        print(
            f"| {name} | {start:.1f} s | {1000 / rate:.1f} ms | {rate:.0f} | {heads * rate:,.0f} | {statistics.median(ratios):.2f} "
            f"| {statistics.median(busy):.2f} | {memory:.0f} |",
            flush=True,
        )
    everything = [one for measured in runs.values() for one in measured]
    part = statistics.median(one.parts_kb for one in everything)
    merging = statistics.median(one.merging for one in everything) * 1000 * chunk_size / count
    print(f"\nA part has {part:.0f} kB, and merging it takes {merging:.0f} ms.")
    broken = [f"{count} texts gave different tables"] * (len({one.digest for one in everything}) > 1)
    overheads = [one.seconds / loop.seconds - 1 for one, loop in zip(runs.get(1, []), runs[0], strict=False)]
    if overheads and (overhead := statistics.median(overheads)) > MOST_OVERHEAD:
        broken.append(
            f"one worker took {overhead:.0%} more than the loop with {count} texts, at most {MOST_OVERHEAD:.0%}"
        )
    return broken


def main() -> int:
    """Prints the tables; 1 if a bound is broken."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--texts", type=int, nargs="+", default=[500, 5000])
    ask.add_argument("--times", type=int, default=3)
    ask.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    ask.add_argument("--quick", action="store_true", help="500 texts, once, with one and two workers")
    ask.add_argument("--one", type=int, nargs=3, help=argparse.SUPPRESS)
    args = ask.parse_args()
    if args.one:
        print(json.dumps(run(*args.one)))
        return 0
    if args.quick:
        args.texts, args.times, args.workers = [500], 1, [1, 2]
    broken: list[str] = []
    for count in args.texts:
        broken += table(count, 32 if count <= 1000 else 128, args.times, args.workers)
    for text in broken:
        print(f"broken: {text}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
