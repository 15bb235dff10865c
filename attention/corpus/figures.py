"""Charts of one head over many texts: metrics beside their nulls and controls, a histogram, the mean map, the weight by distance; and of two results."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attention.base.printed import format_number
from attention.corpus.distribution_mosaic import CHANCE_COLOR
from attention.corpus.labels import compared, declared
from attention.corpus.run_plan import CONTROL_WORDS
from attention.formula.names import KEY, QUERY
from attention.metrics.metric import BY_DISTANCE, RANDOM, SHUFFLED, UNIFORM
from attention.pictures import scales
from attention.pictures.charts import HeadQuantity, head_map_json
from attention.pictures.layout import AXIS_TITLES
from attention.pictures.look import LIGHT, TYPE
from attention.pictures.marks import (
    POINT_COLOR,
    Panel,
    Spec,
    axis,
    bars,
    cells,
    dotted,
    draw,
    frame,
    joined,
    points,
    ring,
)

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from attention.corpus.labels import HeadChanges
    from attention.corpus.result import HeadsResult


_OTHER_COLOR = LIGHT["other-point"]
"""The colour of the second of two results."""
_CHANCE_SYMBOLS = {
    BY_DISTANCE: "circle-open",
    UNIFORM: "line-ns-open",
    CONTROL_WORDS[SHUFFLED]: "x-thin-open",
    CONTROL_WORDS[RANDOM]: "diamond-open",
}
"""The mark of each value that a mean is compared with."""
_DASHES = dict(zip(_CHANCE_SYMBOLS, ("dashdot", "longdash", "dash", "dot"), strict=True))
"""In histograms, the dash of its line."""
_LEGEND = {
    "orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom", "font": {"size": TYPE["axis"]}, "bgcolor": "rgba(0,0,0,0)",
}  # fmt: skip
_LEGEND_BELOW = _LEGEND | {"x": 0, "xanchor": "left", "yanchor": "top"}
_GREY = "rgba(128,128,140,0.9)"


class _MetricLine(NamedTuple):
    """One metric of a head: mean and standard deviation over the texts, its null, what they are compared with by name, and the other result."""

    name: str
    mean: float
    sd: float
    null: str
    compared: Mapping[str, float]
    other: float
    other_sd: float


def metric_lines(result: HeadsResult, head: tuple[int, int], other: HeadsResult | None = None) -> list[_MetricLine]:
    """The metrics of a head whose values are from 0 to 1, with those of a second result that has the same head."""
    place = result.heads.index(head)
    lines = []
    for metric in result.metrics:
        if result.limits(metric) != (0.0, 1.0):
            continue
        values = {name: float(each[place]) for name, each in compared(result, metric).items()}
        mean, sd = (float(result.column(metric, name)[place]) for name in ("mean", "sd"))
        others = np.nan, np.nan
        if other is not None and head in other.heads and metric in other.metrics:
            there = other.heads.index(head)
            others = float(other.column(metric, "mean")[there]), float(other.column(metric, "sd")[there])
        lines.append(_MetricLine(metric, mean, sd, declared(metric)[0], values, *others))
    return lines


def lines_frame(lines: Sequence[_MetricLine], names: tuple[str, str] = ("", "")) -> pd.DataFrame:
    """The metrics as a table."""
    import pandas as pd

    rows = []
    for line in lines:
        row: dict[str, Any] = {"metric": line.name, "mean": line.mean, "sd": line.sd}
        row |= {"by chance": line.compared.get(line.null, np.nan), "null": line.null, **line.compared}
        rows.append(row | ({f"mean, {names[1]}": line.other, f"sd, {names[1]}": line.other_sd} if names[1] else {}))
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


class Histogram(NamedTuple):
    """The number of texts in each bin between the `limits` of a metric of one head, [bin], and that in a second result."""

    counts: NDArray[np.int64]
    limits: tuple[float, float]
    other: NDArray[np.int64] | None = None

    def frame(self) -> pd.DataFrame:
        """It as a table."""
        import pandas as pd

        edges = np.linspace(*self.limits, len(self.counts) + 1)
        columns = {"from": edges[:-1], "to": edges[1:], "texts": self.counts}
        return pd.DataFrame(columns | ({} if self.other is None else {"texts of the second result": self.other}))


def offset_frame(weights: NDArray[Any], other: NDArray[Any] | None = None) -> pd.DataFrame:
    """The mean weight by distance as a table, with that of a second result."""
    import pandas as pd

    columns = {"key position − query position": np.arange(len(weights)) - len(weights) // 2, "mean weight": weights}
    frame = pd.DataFrame(columns | ({} if other is None else {"mean weight in the second result": other}))
    return frame.dropna(subset=frame.columns[1:], how="all")


def map_frame(mean_map: NDArray[Any]) -> pd.DataFrame:
    """The mean map as a table with a row for each query and a column for each key."""
    import pandas as pd

    rows = {QUERY: np.arange(len(mean_map))}
    return pd.DataFrame(rows | {f"key {column}": mean_map[:, column] for column in range(mean_map.shape[1])})


def metric_lines_json(
    lines: Sequence[_MetricLine], head: str, chosen: str = "", names: tuple[str, str] = ("", "")
) -> Spec:
    """Returns the metrics of a head such as "L0 H2", one below the other: mean, spread, null and controls; the chosen metric is in bold."""
    lines = [line for line in lines if np.isfinite(line.mean)]
    rows = np.arange(len(lines), dtype=float)
    two = any(np.isfinite(line.other) for line in lines)
    shift = 0.16 if two else 0.1
    alt = f"Bar chart of the metrics of {head}: " + "; ".join(
        f"{line.name} {format_number(line.mean)}" + "".join(f", {name} {format_number(value)}" for name, value in line.compared.items() if np.isfinite(value))
        for line in lines
    )  # fmt: skip
    subtitle = "mean and standard deviation over the texts; orange: by chance, grey: the other controls"
    metrics = [line.name for line in lines]
    means = [line.mean for line in lines], [line.sd for line in lines]
    marks = _means(*means, rows - shift, metrics, POINT_COLOR, names[0])
    if two:
        others = [line.other for line in lines], [line.other_sd for line in lines]
        marks += _means(*others, rows + shift, metrics, _OTHER_COLOR, names[1])
    for name, symbol in _CHANCE_SYMBOLS.items():
        values = np.array([line.compared.get(name, np.nan) for line in lines])
        if np.isfinite(values).any():
            colors = [CHANCE_COLOR if line.null == name else _GREY for line in lines]
            marker = {"symbol": symbol, "size": 7, "color": colors, "line": {"width": 2, "color": colors}}
            hover = f"%{{text}}<br>{name} <b>%{{x:.4g}}</b>"
            marks.append(
                points(values, rows + (0.42 if two else 0.24), hover, marker, text=metrics, name=name, showlegend=True)
            )
    texts = [html.escape(_short(name), quote=False) for name in metrics]
    ticks = {
        row: f"<b>{text}</b>" if name == chosen else text
        for row, (text, name) in enumerate(zip(texts, metrics, strict=True))
    }
    longest = max(map(len, metrics), default=4)
    return draw(
        frame(
            "Metrics", subtitle, f"{alt}.", axis("", (-0.02, 1.02)), axis("", (len(lines) - 0.4, -0.6), ticks, grid=False),
            max(300, 120 + 23 * len(lines) + 8 * two * len(lines)), legend=_LEGEND_BELOW | {"y": -0.1}, showlegend=True, uirevision=f"metrics {head}",
            margin={"l": 14 + min(170, round(6.2 * longest)), "t": 58, "b": 56},
        ),
        *marks,
    )  # fmt: skip


def _means(
    values: Sequence[float], spreads: Sequence[float], rows: Any, texts: Sequence[str], color: str, name: str
) -> list[dict[str, Any]]:
    """The means as points, and a line under each as long as its spread on both sides."""
    means, sds = np.array(values), np.nan_to_num(np.array(spreads))
    gap = np.full(len(means), np.nan)
    ends = np.stack([np.maximum(means - sds, 0), np.minimum(means + sds, 1), gap], 1).ravel()
    words = [
        f"{html.escape(text)}<br>{name and html.escape(name) + ' '}mean <b>{format_number(mean)}</b> ± {format_number(sd)}"
        for text, mean, sd in zip(texts, means, sds, strict=True)
    ]
    return [
        joined(ends, np.stack([rows, rows, gap], 1).ravel(), color=color, width=3),
        points(
            means,
            rows,
            "%{text}",
            {"size": 9, "color": color},
            text=words,
            name=html.escape(name) or "mean ± sd",
            showlegend=True,
        ),
    ]


def head_histogram_json(
    histogram: Histogram,
    metric: str,
    head: str,
    marks: Mapping[str, float],
    names: tuple[str, str] = ("", ""),
    height: int = 300,
) -> Spec:
    """Returns the histogram of a metric of one head over the texts, with lines at its mean, at its null (orange) and at the controls.

    Args:
        marks: the lines, by name: "mean", the null and the controls; NaN is left out.
        names: of the two results, if there are two, of which the bars are then shares of their texts.
    """
    counts, other, (low, high) = histogram.counts, histogram.other, histogram.limits
    n_bins, used = len(counts), np.flatnonzero(counts if other is None else counts + other)
    n_shown = n_bins if (low, high) == (0.0, 1.0) or not len(used) else int(used[-1]) + 1
    width = (high - low) / n_bins
    centers = low + (np.arange(n_shown) + 0.5) * width
    edges = [f"{format_number(low + i * width)} … {format_number(low + (i + 1) * width)}" for i in range(n_shown)]
    shown_counts = [each[:n_shown].astype(float) for each in (counts, other) if each is not None]
    heights = shown_counts if other is None else [each / max(1.0, each.sum()) for each in shown_counts]
    unit = "texts" if other is None else "share of the texts"
    shown = {name: value for name, value in marks.items() if np.isfinite(value)}
    alt = f"Bar chart of {metric} of {head}: the number of texts by its value, {int(counts.sum()):,} texts; " + ", ".join(f"{name} {format_number(value)}" for name, value in shown.items())  # fmt: skip
    subtitle = f"{head} over {int(counts.sum()):,} texts"
    colors, opacity = (POINT_COLOR, _OTHER_COLOR), 0.85 if other is None else 0.6
    histograms = [
        bars(
            centers, shown_height, "%{text}<br><b>%{customdata}</b> texts", color, opacity, width=width * 0.94, text=edges, textposition="none",
            customdata=count, name=html.escape(name) or "texts", showlegend=other is not None,
        )
        for shown_height, count, color, name in zip(heights, shown_counts, colors, names, strict=False)
    ]  # fmt: skip
    top = max((float(each.max(initial=0)) for each in heights), default=0) or 1.0
    values = [
        joined(
            [value, value], [0, 1.05 * top], f"{name} <b>{format_number(value)}</b>", CHANCE_COLOR if name == declared(metric)[0] else _GREY,
            dash=_DASHES.get(name, "solid"), name=f"{name} {format_number(value)}", showlegend=True,
        )
        for name, value in shown.items()
    ]  # fmt: skip
    return draw(
        frame(
            html.escape(_short(metric, 44)), subtitle, f"{alt}.", axis("", (low, low + n_shown * width), grid=False), axis(unit, (0, 1.06 * top)), height,
            barmode="overlay", showlegend=True, legend=_LEGEND_BELOW | {"y": -0.2}, uirevision=f"histogram {head} {metric}", margin={"t": 58, "b": 78, "l": 50},
        ),
        *histograms, *values,
    )  # fmt: skip


def mean_map_json(mean_map: NDArray[Any], head: str, n_texts: int) -> Spec:
    """Returns the mean weights [query_pos key_pos] of a head over texts of one length; axes are positions, since the tokens differ."""
    rows, columns = mean_map.shape
    place = divmod(int(np.nanargmax(mean_map)), columns)
    alt = f"Heatmap of the mean weights of {head} over {n_texts:,} texts of {rows} tokens, query (attends from) by key (attends to); largest: query {place[0]} to key {place[1]} with {format_number(float(mean_map[place]))}"
    subtitle = f"{head}, the {n_texts:,} text{'s' * (n_texts != 1)} of {rows} tokens; axes are positions"
    step = 1 if rows <= 12 else 4 if rows <= 24 else 8
    ticks = {i: str(i) for i in range(0, rows, step)}
    bar = scales.color_bar({0: "0", 0.5: "0.5", 1: "1"}, 0.4)
    return draw(
        frame(
            "Mean map", subtitle, f"{alt}.",
            axis(AXIS_TITLES["key_pos"], (-0.5, columns - 0.5), ticks, grid=False), axis(AXIS_TITLES["query_pos"], (rows - 0.5, -0.5), ticks, grid=False),
            meta={"step": "mean weights", "axes": [QUERY, KEY], "file": ["mean-map"], "panels": [asdict(Panel(0, 0, 0, rows, columns))]},
            uirevision=f"mean map {head} {rows}", margin={"t": 74, "l": 46, "b": 40},
        ),
        cells(mean_map.astype(np.float32), "query %{y}<br>key %{x}<br>mean weight <b>%{z:.4g}</b>", scales.between(0.0, 1.0, scales.PROBABILITY, bar)),
    )  # fmt: skip


def offset_chart_json(
    weights: NDArray[Any], head: str, other: NDArray[Any] | None = None, names: tuple[str, str] = ("", "")
) -> Spec:
    """Returns the mean weight of a head by the distance from query to key, from an array [offset] with offset 0 in its middle."""
    middle = len(weights) // 2
    offsets = np.arange(len(weights)) - middle
    every = [weights] if other is None else [weights, other]
    defined = np.isfinite(np.stack(every)).any(0)
    reach = int(np.abs(offsets[defined]).max(initial=1))
    causal = bool(defined.any()) and int(offsets[defined].max()) <= 0
    top = float(np.nanmax(np.stack(every), initial=0.0)) or 1.0
    largest = int(offsets[int(np.nanargmax(weights))]) if np.isfinite(weights).any() else 0
    alt = f"Bar chart of the mean weight of {head} by distance from query to key; largest at offset {largest} with {format_number(float(weights[largest + middle]))}"
    subtitle = f"{head}; −1 is the token before the query, 0 the query itself"
    opacity = 0.9 if other is None else 0.6
    weights_by_offset = [
        bars(
            offsets[np.isfinite(each)], each[np.isfinite(each)].astype(np.float64), "offset %{x}<br>mean weight <b>%{y:.4g}</b>", color, opacity, width=0.9,
            name=html.escape(name) or "mean weight", showlegend=other is not None,
        )
        for each, color, name in zip(every, (POINT_COLOR, _OTHER_COLOR), names, strict=False)
    ]  # fmt: skip
    return draw(
        frame(
            "Mean weight by distance", subtitle, f"{alt}.",
            axis("key position − query position", (-reach - 0.6, 0.6 if causal else reach + 0.6), grid=False), axis("mean weight", (0, 1.06 * top)),
            barmode="overlay", uirevision=f"offsets {head}", legend=_LEGEND, margin={"t": 74, "l": 50, "b": 40},
        ),
        *weights_by_offset,
    )  # fmt: skip


def change_map_json(changes: HeadChanges, names: tuple[str, str], chosen: tuple[int, int]) -> Spec:
    """Returns the map [layer head] of the change of the mean from the first to the second result; its standard error under the pointer."""
    shape = tuple(1 + max(head[side] for head in changes.heads) for side in (0, 1))
    numbers, errors = np.full(shape, np.nan), np.full(shape, np.nan)
    for head, change, error in zip(changes.heads, changes.change, changes.error, strict=True):
        numbers[head], errors[head] = change, error
    metric, first, second = map(html.escape, (changes.metric, *names))
    description = f"{second} minus {first}, difference of the means over the texts"
    quantity = HeadQuantity(f"Change of {metric}", "change", description, "heads-change", "standard error")
    return head_map_json(numbers, quantity, chosen, errors)


def change_scatter_json(changes: HeadChanges, names: tuple[str, str], chosen: tuple[int, int]) -> Spec:
    """Returns a point for each head: its mean in the first result (x) and in the second (y); heads on the line have not changed."""
    metric, first, second = map(html.escape, (changes.metric, *names))
    x, y = changes.first, changes.second
    top = 1.06 * (float(np.nanmax(np.abs(np.stack([x, y])), initial=0.0)) or 1.0)
    low = -top if np.nanmin(np.stack([x, y]), initial=0.0) < 0 else -0.03 * top
    heads = [f"L{layer} H{head}" for layer, head in changes.heads]
    defined = np.isfinite(changes.change)
    alt = f"Scatter chart of the heads: mean of {metric} in {first} and in {second}"
    if defined.any():
        most = int(np.nanargmax(np.abs(changes.change)))
        alt += f"; largest change: {heads[most]}, from {format_number(x[most])} to {format_number(y[most])}"
    subtitle = "a point for each head; heads on the line have not changed"
    at = [i for i, head in enumerate(changes.heads) if head == chosen and defined[i]]
    ends = (low, top)
    return draw(
        frame(
            f"{metric} in both",
            subtitle,
            f"{alt}.",
            axis(first, ends),
            axis(second, ends),
            380,
            uirevision=f"both {metric}",
        ),
        dotted(ends, ends),
        points(x, y, f"%{{text}}<br>{first} <b>%{{x:.4g}}</b><br>{second} <b>%{{y:.4g}}</b>", text=heads),
        ring(x[at], y[at]) if at else None,
    )


def _short(name: str, longest: int = 26) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"
