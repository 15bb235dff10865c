"""All heads over many texts in one picture: a cell for each head, coloured by its mean, with a small histogram over the texts in it.

The colours are one heatmap, the bars of all heads two paths: the picture has as many elements for 320 heads as for one.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.base.printed import format_number, plural
from attention.corpus.labels import compared, compared_words, declared
from attention.corpus.run_plan import CONTROL_WORDS
from attention.formula.names import POSITION
from attention.metrics.metric import RANDOM
from attention.pictures import scales
from attention.pictures.look import LIGHT, TYPE
from attention.pictures.marks import Mark, Panel, Spec, axis, cells, draw, frame, joined, outline, points

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from attention.corpus.labels import Label
    from attention.corpus.result import HeadsResult

_MARKS = {
    "previous token": "prev", "induction": "ind", "duplicate token": "dup", "first token": "1st", "punctuation": ".,;", "local": "near",
    POSITION: "pos",
}  # fmt: skip
"""The marks of labels in the mosaic."""
COLORS = scales.COLORS[:2]
"""The colour ranges of a mean from 0 to 1: 0 … 1, or 0 … the largest."""
_MAX_BARS, _MAX_FINE = 16, 400
"""The bars of a small histogram, half as many beyond this number of heads; neighbouring bins are added where the histogram has more."""
CHANCE_COLOR = LIGHT["chance"]
"""The colour of a value by chance in all pictures of many texts."""
_DARK_BARS, _LIGHT_BARS = LIGHT["ink"], LIGHT["ground"]
_MAX_TEXT = 20  # the largest number of heads in a layer whose cells have room for marks of labels

_SIDE, _TOP, _BOTTOM = 0.07, 0.12, 0.06  # space beside the bars, as a part of the cell
_ROW_HEIGHTS, _USUAL_HEIGHT = (26, 62), 660  # pixels of a row; of all rows


class HeadDistributions:
    """One metric of all heads over many texts.

    Attributes:
        heads: as (layer, head), in the order of the arrays.
        mean: [head]; NaN where no text has a value.
        sd: the standard deviation over the texts, [head].
        count: the number of texts, [head].
        histogram: the number of texts in each bin, [head bin].
        null: the name of its null, such as "uniform attention"; empty if it has none.
        control: the name of its positive control, such as "shuffled words"; empty if it has none.
        compared: the values under the null and on the controls by name, [head]; that of the null is drawn.
        gain: the value of a text minus that under its null, the mean over the texts, [head]; NaN if it is unknown.
        gain_error: the standard error of this mean, [head].
        marks: the short marks of labelled heads.
        words: further words about single heads, for the pointer.
    """

    def __init__(self, result: HeadsResult, metric: str, labels: Sequence[Sequence[Label]] = ()) -> None:
        """One metric of a result, with the `labels` of its heads.

        Raises:
            MissingError: the result has no such metric.
        """
        self.metric, self.heads = metric, result.heads
        self.mean, self.sd, self.count = (result.column(metric, name) for name in ("mean", "sd", "count"))
        self.histogram, self.limits = result.histogram(metric), result.limits(metric)
        self.null, control = declared(metric)
        self.control, self.compared = CONTROL_WORDS.get(control, ""), compared(result, metric)
        self.gain, spread, n_texts = (result.column(metric, f"excess_{name}") for name in ("mean", "sd", "count"))
        self.gain_error = spread / np.sqrt(np.maximum(n_texts, 1))
        labelled = [(head, each) for head, each in zip(self.heads, labels, strict=False) if each]
        self.marks = {head: _MARKS.get(each[0].name, each[0].name[:4]) for head, each in labelled}
        self.words = {head: "; ".join(label.sentence for label in each) for head, each in labelled}

    @cached_property
    def layers(self) -> list[int]:
        """The layer of each row of the picture; hybrid models have layers without heads."""
        return sorted({layer for layer, _ in self.heads})

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The row of the picture, [head]."""
        return np.array([self.layers.index(layer) for layer, _ in self.heads])

    @cached_property
    def columns(self) -> NDArray[np.int64]:
        """The column of the picture, [head]."""
        return np.array([head for _, head in self.heads])

    @property
    def order(self) -> list[int]:
        """The indices of the heads, the largest first by what ranks them; those without a value are last."""
        return [int(i) for i in np.argsort(-np.nan_to_num(self.ranked, nan=-np.inf), kind="stable")]

    @property
    def ranked(self) -> NDArray[np.float64]:
        """What ranks the heads, [head]: the mean over random tokens that repeat where these are the positive control, otherwise over the texts."""
        random = self.compared.get(self.control) if self.control == CONTROL_WORDS[RANDOM] else None
        return self.mean if random is None or np.isnan(random).all() else random

    def legend(self) -> str:
        """What the marks of labels mean, and how many heads have each; empty without labels."""
        counts = Counter(self.marks.values())
        names = {mark: name for name, mark in _MARKS.items()}
        said = [f"{mark}: {names.get(mark, mark)} ({plural(count, 'head')})" for mark, count in counts.most_common()]
        return f"Labels, where a head stands out of its model: {', '.join(said)}." if said else ""

    def frame(self) -> pd.DataFrame:
        """The heads in this order as a table: mean, spread, number of texts, and the values under the null and on the controls."""
        import pandas as pd

        order = self.order
        columns: dict[str, Any] = {
            "head": [f"L{layer} H{head}" for layer, head in (self.heads[i] for i in order)],
            "mean": self.mean[order],
            "sd": self.sd[order],
            "texts": self.count[order].astype(np.int64),
        }
        columns |= {
            f"by chance: {name}" if name == self.null else name: each[order]
            for name, each in self.compared.items()
            if np.isfinite(each).any()
        }
        if np.isfinite(self.gain).any():
            columns |= {"more than chance": self.gain[order], "± standard error": self.gain_error[order]}
        if self.words:
            columns["label"] = [self.words.get(self.heads[i], "") for i in order]
        return pd.DataFrame(columns)

    @property
    def is_probability(self) -> bool:
        """Whether the values are from 0 to 1."""
        return self.limits == (0.0, 1.0)

    def bars(self) -> tuple[NDArray[np.int64], tuple[float, float]]:
        """The histogram with at most `_MAX_BARS` bars, [head bar], and its ends: empty bins above the largest value are left out where values may exceed 1."""
        bins, (low, high) = self.histogram, self.limits
        if not self.is_probability:
            used = np.flatnonzero(bins.any(0))
            n_used = int(used[-1]) + 1 if len(used) else bins.shape[1]
            high, bins = low + (high - low) * n_used / bins.shape[1], bins[:, :n_used]
        most = _MAX_BARS if len(self.heads) <= _MAX_FINE else _MAX_BARS // 2
        if bins.shape[1] <= most:
            return bins, (low, high)
        together = -(-bins.shape[1] // most)
        n_bars = -(-bins.shape[1] // together)
        padded = np.zeros((len(bins), n_bars * together), np.int64)
        padded[:, : bins.shape[1]] = bins
        high = low + (high - low) * n_bars * together / bins.shape[1]
        return padded.reshape(len(bins), n_bars, together).sum(2), (low, high)


def distribution_mosaic_json(
    numbers: HeadDistributions,
    facts: Sequence[str] = (),
    chosen: tuple[int, int] | None = None,
    name: str = "",
    colors: str = COLORS[0],
) -> Spec:
    """Returns the picture; a click on a cell has the head as x and the row of the layer as y.

    Args:
        facts: what was read, for the subtitle.
        name: distinguishes pictures of different results.
    """
    layers, shape = numbers.layers, (len(numbers.layers), int(numbers.columns.max()) + 1)
    mean = np.full(shape, np.nan, np.float32)
    mean[numbers.rows, numbers.columns] = numbers.mean
    low, high, scale = _scale(numbers, colors)
    _, (bar_low, bar_high) = numbers.bars()
    chance = numbers.compared.get(numbers.null, np.full(len(numbers.heads), np.nan))
    has_chance = bool(np.isfinite(chance).any())
    ends = f"{format_number(bar_low)} (left) to {format_number(bar_high)} (right)"
    stretched = f", full colour = {format_number(high)}" if numbers.is_probability and high < 1 else ""
    subtitle = [*facts, f"colour: the mean{stretched}; bars: the texts, from {ends}"]
    subtitle += [f"orange: by chance ({numbers.null})"] * has_chance
    height = 110 + round(shape[0] * min(_ROW_HEIGHTS[1], max(_ROW_HEIGHTS[0], _USUAL_HEIGHT / shape[0])))
    dark_from = 0.5 if numbers.is_probability else 2.0  # a share of the scale
    pale = (np.nan_to_num(numbers.mean) - low) / ((high - low) or 1.0) < dark_from
    by_chance = _ticks((chance - bar_low) / (bar_high - bar_low), numbers.columns, numbers.rows)
    at = (layers.index(chosen[0]), chosen[1]) if chosen in numbers.heads and chosen else None
    meta = {
        "step": numbers.metric, "panels": [asdict(Panel(0, 0, 0, *shape))], "axes": ["layer", "head"],
        "file": ["heads-over-texts", numbers.metric.split(maxsplit=1)[0]], "chosen": at and [*at],
        "rows": {"labelalias": {str(row): f"layer {layer}" for row, layer in enumerate(layers)}},
        "columns": {"labelalias": {str(head): f"head {head}" for head in range(shape[1])}},
    }  # fmt: skip
    shown_heads = {head: f"H{head}" for head in range(0, shape[1], 1 if shape[1] <= 24 else 4)}
    shown_layers = {row: f"L{layer}" for row, layer in enumerate(layers)}
    bar = scales.color_bar({place: f"{place:.3g}" for place in (low, (low + high) / 2, high)}, 0.25)
    return draw(
        frame(
            html.escape(numbers.metric), " · ".join(subtitle), _alt(numbers, shape),
            axis("", (-0.5, shape[1] - 0.5), shown_heads, grid=False), axis("", (shape[0] - 0.5, -0.5), shown_layers, grid=False),
            height, meta=meta, uirevision=f"{name} {numbers.metric} {shape}", margin={"l": 44, "r": 12, "t": 86, "b": 34},
        ),
        cells(mean, "%{text}", scales.between(low, high, scale, bar), 2, text=_hover(numbers, shape)),
        *_histograms(numbers, pale),
        joined(*by_chance, color=CHANCE_COLOR) if has_chance else None,
        _marks(numbers, pale) if shape[1] <= _MAX_TEXT and numbers.marks else None,
        outline(at[1], at[0], 1, 1, 3) if at else None,
    )  # fmt: skip


def _scale(numbers: HeadDistributions, colors: str) -> tuple[float, float, Any]:
    """Both ends of the colours, and their scale: 0 to 1 for probabilities, otherwise up to the largest mean."""
    largest = float(np.nanmax(np.abs(numbers.mean), initial=0.0)) or 1.0
    if numbers.is_probability:
        return 0.0, largest if colors == COLORS[1] else 1.0, scales.PROBABILITY
    if np.nanmin(numbers.mean, initial=0.0) < 0:
        return -largest, largest, scales.SIGNED
    return 0.0, largest, scales.POSITIVE


def _histograms(numbers: HeadDistributions, pale: NDArray[np.bool_]) -> list[Mark]:
    """The histograms of all heads: dark ones on `pale` cells [head], and light ones on the others."""
    bars, _ = numbers.bars()
    marks = []
    for has_ink, color in ((False, _LIGHT_BARS), (True, _DARK_BARS)):
        picked = np.flatnonzero((pale == has_ink) & (bars.sum(1) > 0))
        if len(picked):
            path = _paths(bars[picked], numbers.columns[picked], numbers.rows[picked])
            marks.append(joined(*path, color=color, width=0, fill="toself", fillcolor=color, opacity=0.78))
    return marks


def _paths(bars: NDArray[np.int64], columns: NDArray[Any], rows: NDArray[Any]) -> tuple[Any, Any]:
    """The outlines of the histograms of some heads as one path with gaps, in cells; the largest bar of a head fills its cell."""
    n_heads, n_bars = bars.shape
    heights = bars / bars.max(1, keepdims=True)
    edges = -0.5 + _SIDE + (1 - 2 * _SIDE) * np.arange(n_bars + 1) / n_bars
    x = np.full((n_heads, 2 * n_bars + 3), np.nan, np.float32)
    y = x.copy()
    x[:, 1:-2] = columns[:, None] + np.repeat(edges, 2)[1:-1]
    y[:, 1:-2] = rows[:, None] + 0.5 - _BOTTOM - np.repeat(heights, 2, axis=1) * (1 - _TOP - _BOTTOM)
    x[:, 0], x[:, -2] = columns + edges[0], columns + edges[-1]
    y[:, 0] = y[:, -2] = rows + 0.5 - _BOTTOM
    return x.ravel(), y.ravel()


def _ticks(shares: NDArray[np.float64], columns: NDArray[Any], rows: NDArray[Any]) -> tuple[Any, Any]:
    """An upright line in the cell of each head, at a share of its width, as one path with gaps."""
    inside = np.isfinite(shares) & (shares >= 0) & (shares <= 1)
    x = columns[inside] - 0.5 + _SIDE + (1 - 2 * _SIDE) * shares[inside]
    y = rows[inside]
    gap = np.full(len(x), np.nan)
    ends = (x, x, gap), (y - 0.5 + _TOP / 2, y + 0.5 - _BOTTOM, gap)
    return np.stack(ends[0], 1, dtype=np.float32).ravel(), np.stack(ends[1], 1, dtype=np.float32).ravel()


def _marks(numbers: HeadDistributions, pale: NDArray[np.bool_]) -> Mark:
    shown = [numbers.heads.index(head) for head in numbers.marks]
    x, y = numbers.columns[shown] + 0.45, numbers.rows[shown] - 0.46
    font = {"size": TYPE["axis"], "color": [_DARK_BARS if pale[i] else _LIGHT_BARS for i in shown]}
    texts = [f"<b>{html.escape(mark)}</b>" for mark in numbers.marks.values()]
    return points(
        x.tolist(), y.tolist(), "", mode="text", text=texts, textposition="bottom left", textfont=font, cliponaxis=True
    )


def _hover(numbers: HeadDistributions, shape: tuple[int, int]) -> list[list[str]]:
    texts = [[""] * shape[1] for _ in range(shape[0])]
    for i, head in enumerate(numbers.heads):
        row, column = numbers.rows[i], numbers.columns[i]
        texts[row][column] = html.escape(describe_distribution(numbers, i), quote=False).replace("\n", "<br>")
        if head in numbers.words:
            texts[row][column] += f"<br>{html.escape(numbers.words[head], quote=False)}"
    return texts


def describe_distribution(numbers: HeadDistributions, i: int) -> str:
    """The numbers of one head by its index, in lines: mean and spread, then the values under the null and on the controls."""
    layer, head = numbers.heads[i]
    if not numbers.count[i]:
        return f"L{layer} H{head}\n{numbers.metric}: not defined in any text"
    spread = f" ± {numbers.sd[i]:.2g}" if np.isfinite(numbers.sd[i]) else ""
    mean = f"{numbers.metric} {format_number(numbers.mean[i])}{spread}, {int(numbers.count[i]):,} texts"
    of_head = {name: float(values[i]) for name, values in numbers.compared.items()}
    return "\n".join([f"L{layer} H{head}", mean, *compared_words(of_head, numbers.null, numbers.control)])


def _alt(numbers: HeadDistributions, shape: tuple[int, int]) -> str:
    defined = np.isfinite(numbers.mean)
    extremes = ""
    if defined.any():
        ends = int(np.nanargmax(numbers.mean)), int(np.nanargmin(numbers.mean))
        top, bottom = ("L{} H{} with {}".format(*numbers.heads[i], format_number(numbers.mean[i])) for i in ends)
        extremes = f"; largest mean: {top}, smallest: {bottom}"
    return f"Heatmap of the mean of {numbers.metric} over texts, {shape[0]} layers by up to {shape[1]} heads, each cell with a histogram over the texts{extremes}."


def largest_words(numbers: HeadDistributions) -> str:
    """The first head of the ranking in words, with its spread, its null and its controls; empty if no head has a value."""
    if not np.isfinite(numbers.mean).any():
        return ""
    head, values, *more = describe_distribution(numbers, numbers.order[0]).split("\n")
    by = "Largest mean" if numbers.ranked is numbers.mean else f"Largest on {numbers.control}"
    return f"{by}: {head}, {values}{''.join(f'; {words}' for words in more)}."
