"""How many snapshots of a training the page paints in a second while the model learns.

usage: python -m benchmarks.training_film [task ...] [--seeds 5]

Presses Train on the page Training, with a new seed each time, and reads every frame that Chromium paints until the last step is
there. Exits with 1 where the median of a task's seeds is fewer than 10 pictures a second.
"""

from __future__ import annotations

import argparse
import sys
from statistics import median
from typing import Any

from playwright.sync_api import Page

from attention.training import TASKS
from benchmarks.chromium import chromium
from benchmarks.server import Server

LEAST = 10  # pictures a second
_SEEN = """() => {
  const seen = window.seen = [], look = () => {
    const { figureState } = document.querySelector('.figures') ?? {};
    const step = Number(figureState?.figures?.[0].layout.meta.file?.[1].match(/step(\\d+)/)?.[1]);
    if (figureState?.painted && figureState.painted === figureState.figures && seen.at(-1)?.step !== step) seen.push({ at: performance.now(), step });
    requestAnimationFrame(look);
  };
  look();
}"""


def film(page: Page, steps: int) -> list[dict[str, Any]]:
    """The painted steps and their times in milliseconds, from the step before the first trained one to the last."""
    page.wait_for_selector(".js-plotly-plot .heatmaplayer image", state="attached", timeout=120_000)
    page.evaluate(_SEEN)
    page.get_by_role("button", name="Train", exact=True).click()
    page.wait_for_function("(steps) => window.seen.at(-1)?.step === steps", arg=steps, timeout=120_000)
    painted_steps: list[dict[str, Any]] = page.evaluate("window.seen")
    return painted_steps


def main() -> int:
    """Prints a table; 1 if a bound is broken."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("tasks", nargs="*", default=["reverse", "induction"])
    ask.add_argument("--seeds", type=int, default=5)
    ask.add_argument("--quick", action="store_true", help="two seeds")
    args = ask.parse_args()
    seeds = 2 if args.quick else args.seeds
    broken = []
    print(
        "| task | pictures of it, median | pictures a second, smallest / median / largest | seconds |\n|---|---|---|---|"
    )
    with Server() as server, chromium() as browser:
        for task in args.tasks:
            counts, rates, took = [], [], []
            for seed in range(1000, 1000 + seeds):
                page = browser.new_page(viewport={"width": 1440, "height": 1000})
                page.goto(f"{server.base}/training?train_task={task}&train_seed={seed}")
                painted = film(page, TASKS[task].steps)
                page.close()
                seconds = (painted[-1]["at"] - painted[1]["at"]) / 1000
                counts.append(len(painted) - 1)
                rates.append((len(painted) - 2) / seconds)
                took.append(seconds)
            print(f"| {task} | {median(counts):.0f} | {min(rates):.1f} / {median(rates):.1f} / {max(rates):.1f} | {median(took):.1f} |", flush=True)  # fmt: skip
            if median(rates) < LEAST:
                broken.append(f"{task}: {median(rates):.1f} pictures a second, fewer than {LEAST}")
    for text in broken:
        print(f"broken: {text}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
