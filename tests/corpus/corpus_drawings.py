"""The figures of many texts, each from small numbers."""

from __future__ import annotations

import numpy as np
from drawings import numbers

from attention.corpus import figures
from attention.corpus.distribution_mosaic import HeadDistributions, distribution_mosaic_json
from attention.corpus.examples import _ExampleLink, examples_html
from attention.corpus.labels import HeadChanges
from attention.corpus.result import Example

HEADS = ((0, 0), (0, 1), (2, 0), (2, 1))
SHARES = numbers(4, low=0)
COUNTS = numbers(5, low=0, high=40).astype(np.int64)
OFFSETS = np.where(np.arange(9) > 5, np.nan, numbers(9, low=0)).astype(np.float32)
LINES = [
    figures._MetricLine(
        "first token", 0.42, 0.2, "uniform attention", {"uniform attention": 0.3, "shuffled words": 0.5}, 0.6, 0.1
    ),
    figures._MetricLine("previous", 0.8, 0.1, "by distance", {"by distance": 0.4}, 0.7, np.nan),
    figures._MetricLine("induction", np.nan, np.nan, "", {}, np.nan, np.nan),
]
ALONE = [line._replace(other=np.nan, other_sd=np.nan) for line in LINES]
NAMES = ("run <1>", "run 2")
CHANGES = HeadChanges("induction", HEADS, SHARES, SHARES[::-1], SHARES / 10, SHARES / 9, SHARES / 20)
MEAN_MAP = np.tril(numbers(5, 5, low=0)).astype(np.float32)
EXAMPLE = Example(0.8234, 3, 2, 1, (1, 0), (0.7, 0.2), "the <owl> asked", ("the", "·<owl>", "·asked"))


def _distributions(metric: str = "previous", limits: tuple[float, float] = (0.0, 1.0)) -> HeadDistributions:
    made = object.__new__(HeadDistributions)  # without a file of results
    made.metric, made.heads, made.limits = metric, HEADS, limits
    made.mean, made.sd, made.count = SHARES * limits[1], SHARES / 10, np.array([9, 9, 0, 9])
    made.histogram = numbers(4, 8, low=0, high=9).astype(np.int64)
    made.null, made.control = "uniform attention", "shuffled words"
    made.compared = {"uniform attention": SHARES / 2, "shuffled words": SHARES / 3}
    made.gain = made.gain_error = SHARES / 30
    made.marks, made.words = {(0, 1): "prev", (2, 0): "ind"}, {(0, 1): "looks <back>"}
    return made


DRAWINGS = {
    "metric_lines_json": lambda: figures.metric_lines_json(ALONE, "L0 H2", "previous"),
    "metric_lines_json, of two": lambda: figures.metric_lines_json(LINES, "L0 H2", "", NAMES),
    "head_histogram_json": lambda: figures.head_histogram_json(figures.Histogram(COUNTS, (0.0, 1.0)), "induction", "L0 H1", {"mean": 0.4, "uniform attention": 0.2}),
    "head_histogram_json, of two": lambda: figures.head_histogram_json(figures.Histogram(COUNTS, (0.0, 2.0), COUNTS[::-1]), "entropy", "L0 H1", {"mean": 0.4}, NAMES, 200),
    "mean_map_json": lambda: figures.mean_map_json(MEAN_MAP, "L0 H1", 12),
    "offset_chart_json": lambda: figures.offset_chart_json(OFFSETS, "L0 H1"),
    "offset_chart_json, of two": lambda: figures.offset_chart_json(OFFSETS, "L0 H1", OFFSETS[::-1], NAMES),
    "change_map_json": lambda: figures.change_map_json(CHANGES, NAMES, (2, 1)),
    "change_scatter_json": lambda: figures.change_scatter_json(CHANGES, NAMES, (2, 1)),
    "distribution_mosaic_json": lambda: distribution_mosaic_json(_distributions(), ["12 texts"], (2, 1), "a run"),
    "distribution_mosaic_json, beyond 1": lambda: distribution_mosaic_json(_distributions("entropy", (0.0, 3.0))),
    "examples_html": lambda: examples_html([EXAMPLE, EXAMPLE], [_ExampleLink({"q": "2"}), _ExampleLink(None, "No model.")]),
}  # fmt: skip
