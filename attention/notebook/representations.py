"""What a notebook shows for each kind of object: the HTML of its output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from attention.base.errors import AttentionError
from attention.base.printed import format_number
from attention.export.packing import MAX_BYTES, pack_trace
from attention.features import features
from attention.formula.names import Cell
from attention.metrics import MetricsTable, all_metrics
from attention.notebook.output import frame
from attention.pictures.charts import LAYER, head_scatter_json
from attention.pictures.layout import Spec
from attention.pictures.message import Surroundings, pack
from attention.pictures.mosaic import heads_json, layers_json
from attention.pictures.view import OVERVIEW
from attention.trace.layer import Layer
from attention.trace.trace import AllHeads, Trace

_TRACE_HEIGHT = 640  # pixels: strip, controls, maps and line on a wide page
_CHARTED_METRICS = 3
_TABLE_HEADS = 12  # rows of the table of metrics


def html(displayed: object) -> str | None:
    """The HTML of an object; None for one that a notebook shows as plain text."""
    try:
        match displayed:
            case Trace():
                return trace_html(displayed) if displayed.layers else None
            case Layer():
                return _layer_html(displayed) if displayed.steps else None
            case AllHeads():
                return _heads_html(displayed)
            case MetricsTable():
                return _metrics_html(displayed)
        for feature in features():
            if feature.figures is not None and (figures := feature.figures(displayed)):
                return _figures_html(figures, repr(displayed))
    except AttentionError:
        return None
    return None


def trace_html(
    trace: Trace,
    cell: Cell | None = None,
    view: str = OVERVIEW,
    max_bytes: int = MAX_BYTES,
    standalone: bool | None = None,
) -> str:
    """A trace with its controls, at a cell."""
    return frame("trace", pack_trace(trace, cell, view, max_bytes), repr(trace), _TRACE_HEIGHT, standalone)


def _layer_html(layer: Layer) -> str:
    """A layer alone, as a trace of one layer."""
    return frame("trace", pack_trace(Trace(layer.tokens, (layer,), layer.key_tokens)), repr(layer), _TRACE_HEIGHT)


def _heads_html(heads: AllHeads) -> str:
    """Every head as a small map."""
    trace, step = heads.trace, heads.step
    if heads.layer is None and len(heads.layers) > 1:
        figure = layers_json(trace, step)
    else:
        figure = heads_json(trace, step, heads.layers[0])
    return _figures_html([figure], repr(heads))


def _metrics_html(table: MetricsTable) -> str:
    """The first metrics as charts with a point for every head, and all metrics as a table."""
    defined = [name for name in all_metrics() if not all(math.isnan(value) for value in table.column(name).tolist())]
    charts = [head_scatter_json(table, LAYER, name) for name in defined[:_CHARTED_METRICS]]
    return (_figures_html(charts, repr(table)) if charts else "") + _metrics_table(table, defined)


def _figures_html(figures: Sequence[Spec], text: str) -> str:
    height = max(int(figure["layout"].get("height") or 400) for figure in figures) + 20
    return frame("figures", pack(figures, Surroundings()), text, height)


def _metrics_table(table: MetricsTable, names: Sequence[str]) -> str:
    """The metrics of the heads with the largest first metric, as a plain table that every viewer shows."""
    heads = table.sorted_by(names[0])[:_TABLE_HEADS] if names else ()
    columns = {name: dict(zip(table.heads, table.column(name).tolist(), strict=True)) for name in names}
    head = "".join(f"<th>{escape(name)}</th>" for name in ("head", *names))
    rows = "".join(
        f"<tr><th>L{layer} H{index}</th>"
        + "".join(f"<td>{_number(columns[name][layer, index])}</td>" for name in names)
        + "</tr>"
        for layer, index in heads
    )
    more = len(table.heads) - len(heads)
    caption = f"by {names[0]}" + (f", and {more} more heads" if more > 0 else "") if names else "no metric is defined"
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _number(value: float) -> str:
    return format_number(value) if not math.isnan(value) else "–"
