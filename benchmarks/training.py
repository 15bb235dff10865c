"""Whether every seed learns: each task with 20 seeds and its controls with fewer, with their scores and times.

usage: nice python -m benchmarks.training [task ...] [--seeds 20] [--controls 5]

Prints a line of a Markdown table for each. Exits with 1 where fewer than 19 of 20 seeds reach what the task declares.
"""

from __future__ import annotations

import argparse
import sys
import time
from statistics import median

from attention.training import TASKS, train

ENOUGH = 19 / 20


def row(task: str, control: str, seeds: int) -> tuple[str, bool]:
    """A line of the table, and whether enough seeds reach the declared score; a control need not."""
    lasts, firsts, seconds, best = [], [], [], []
    accuracy, score = TASKS[task].reaches
    for seed in range(seeds):
        began = time.thread_time() + _worker()
        snapshots = list(train(task, seed, control=control))
        seconds.append(time.thread_time() + _worker() - began)
        firsts.append(snapshots[0])
        lasts.append(snapshots[-1])
        best.append(next((snapshot.step for snapshot in snapshots if snapshot.score >= 0.9 * score), None))
    successes = sum(round(snapshot.accuracy, 3) >= accuracy and round(snapshot.score, 3) >= score for snapshot in lasts)
    step = "never" if None in best else f"{median(best):.0f}"
    cells = (
        f"*{task}: {control}*" if control else f"**{task}**",
        "" if control else f"{successes} of {seeds}",
        f"{median(snapshot.loss for snapshot in firsts):.2f} → {median(snapshot.loss for snapshot in lasts):.3f}",
        _three([snapshot.accuracy for snapshot in lasts]),
        f"{median(snapshot.score for snapshot in firsts):.3f} → {_three([snapshot.score for snapshot in lasts])}",
        step,
        f"{lasts[0].row.numel() / 1000:.1f}k",
        f"{median(seconds):.1f}",
    )
    return f"| {' | '.join(cells)} |", bool(control) or successes >= ENOUGH * seeds


def _worker() -> float:
    """The processor time of the training thread."""
    from attention.training.learning import run_in_turn

    return run_in_turn(time.thread_time)


def _three(numbers: list[float]) -> str:
    return "/".join(f"{number:.3f}" for number in (min(numbers), median(numbers), max(numbers)))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--controls", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="three seeds and one of each control")
    args = parser.parse_args()
    seeds, controls = (3, 1) if args.quick else (args.seeds, args.controls)
    passed = True
    for task in args.tasks:
        for control in ("", *TASKS[task].controls):
            line, enough = row(task, control, controls if control else seeds)
            print(line, flush=True)
            passed &= enough
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
