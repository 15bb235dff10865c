"""The time to paint all heads of all layers, against one map: 6 × 12 and 12 × 12 heads of 32 tokens.

usage: python -m benchmarks.mosaic [--steps 9]

The figures are those of the Heads page and of the Lab; both stand in one Chromium and take turns. Exits with 1 where the
median of the mosaic is more than twice that of one map.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

import plotly.io

from attention import AttentionConfig, Trace, TypedText
from attention.pictures.heatmap import heatmap_json
from attention.pictures.mosaic import SCREEN_CELLS, layers_json
from benchmarks.chromium import chromium

MOST = 2.0
TOKENS = 32
PLOTLY = Path(__file__).parents[1] / "attention" / "pictures" / "figure" / "vendor" / "plotly-cartesian.min.js"
_PAINT = """async (name) => {
  const figure = JSON.parse(window.figures[name]), div = document.createElement("div");
  document.body.replaceChildren(div);
  const start = performance.now();
  await Plotly.newPlot(div, figure.data, {...figure.layout, width: 900});
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - start;
}"""


def figures() -> dict[str, str]:
    """One map, and the mosaics, as JSON for Plotly."""
    text = " ".join(f"w{i}" for i in range(TOKENS))
    layers = [TypedText(text, AttentionConfig(d_model=96, n_heads=12, seed=i)).trace().layers[0] for i in range(12)]
    traces = {name: Trace(layers[0].tokens, tuple(layers[:count])) for name, count in (("6 × 12", 6), ("12 × 12", 12))}
    drawn = {"one map": heatmap_json(traces["6 × 12"], "weights")}
    drawn |= {name: layers_json(trace, "weights", cells=SCREEN_CELLS) for name, trace in traces.items()}
    return {name: str(plotly.io.to_json(figure, validate=False)) for name, figure in drawn.items()}


def main() -> int:
    """Paints them alternately and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="three steps")
    args = parser.parse_args()
    steps = 3 if args.quick else args.steps
    drawn = figures()
    with chromium() as browser:
        page = browser.new_page()
        page.set_content("<body></body>")
        page.add_script_tag(path=str(PLOTLY))
        page.evaluate("(figures) => { window.figures = figures; }", drawn)
        times: dict[str, list[float]] = {name: [] for name in drawn}
        for step in range(steps + 1):
            for name in drawn:
                taken = page.evaluate(_PAINT, name)
                if step:  # the first step compiles
                    times[name].append(taken)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    one = medians.pop("one map")
    print(f"| {TOKENS} tokens | painted | times one map |\n|---|---|---|\n| one map | {one:.0f} ms | 1 |")
    for name, median in medians.items():
        print(f"| {name} heads | {median:.0f} ms | {median / one:.1f} |")
    late = [name for name, median in medians.items() if median > MOST * one]
    print(json.dumps({"not reached": late}) if late else "")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
