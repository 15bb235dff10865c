"""What a notebook shows: the HTML of each kind of object, a trace at a chosen cell, and a trace written to a file, with the page that opens it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from attention.base.errors import AttentionError, FileError
from attention.base.printed import format_number
from attention.export.packing import MAX_BYTES, pack_trace
from attention.features import features
from attention.formula.names import WEIGHTS, Cell
from attention.metrics import MetricsTable, all_metrics
from attention.notebook.first_picture import first_picture
from attention.notebook.output import frame
from attention.pictures.charts import LAYER, head_scatter_json
from attention.pictures.marks import Spec
from attention.pictures.message import Surroundings, pack
from attention.pictures.mosaic import heads_json, layers_json
from attention.pictures.view import OVERVIEW
from attention.trace.layer import Layer
from attention.trace.trace import AllHeads, Trace

_TRACE_HEIGHT = 640  # pixels: strip, controls, maps and line on a wide page
_CHARTED_METRICS = 3
_TABLE_HEADS = 12  # rows of the table of metrics
_OWN_LAB = "http://localhost:8501"
"""Where `make run` and `attention-lab` serve the Lab."""


def html(displayed: object) -> str | None:
    """The HTML of an object; None for one that a notebook shows as plain text."""
    try:
        match displayed:
            case Trace(layers=()) | Layer(steps=()):
                return None
            case Trace():
                return _trace_html(displayed, repr(displayed))
            case Layer():
                return _trace_html(Trace(displayed.tokens, (displayed,), displayed.key_tokens), repr(displayed))
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


def _trace_html(
    trace: Trace, text: str, cell: Cell | None = None, view: str = OVERVIEW, max_bytes: int = MAX_BYTES, standalone: bool | None = None
) -> str:  # fmt: skip
    packed = pack_trace(trace, cell, view, max_bytes)
    picture = first_picture(trace, cell or Cell(trace.attention_layers[0], WEIGHTS, 0, 0, 0))
    return frame("trace", packed, text, _TRACE_HEIGHT, standalone, picture)


def _heads_html(heads: AllHeads) -> str:
    trace, step = heads.trace, heads.step
    shows_layers = heads.layer is None and len(heads.layers) > 1
    figure = layers_json(trace, step) if shows_layers else heads_json(trace, step, heads.layers[0])
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


def show(
    trace: Trace,
    layer: int | None = None,
    head: int = 0,
    step: str = WEIGHTS,
    q: int = 0,
    k: int = 0,
    view: str = OVERVIEW,
    max_mb: float = MAX_BYTES / 1e6,
    standalone: bool | None = None,
) -> Shown:
    """A trace as a notebook shows it, beginning at a cell.

    Args:
        trace: to show.
        layer: the layer on display, by default the first with attention; head, step, q (row) and k (column) choose the cell.
        head: the head on display.
        step: the chosen step.
        q: the row of the chosen cell.
        k: its column.
        view: "overview" or "factors".
        max_mb: the limit of its numbers in millions of bytes; layers and heads beyond it are left out, nearest first.
        standalone: whether the output carries its scripts, so that it needs no other output; by default the first output of a
            notebook carries them for all.

    Raises:
        MissingError: the trace has no such layer, step or head.
    """
    layer = trace.attention_layers[0] if layer is None else layer
    trace.layer(layer).matrix(step, head)
    return Shown(trace, Cell(layer, step, head, q, k), view, int(max_mb * 1e6), standalone)


def open_in_lab(trace: Trace, path: str | Path = "trace.npz", lab: str = _OWN_LAB) -> LabFile:
    """Writes a trace to a file, and returns it with the address of the Lab's page that opens such files.

    Nothing is sent anywhere: the browser opens the address when it is clicked, and the file is uploaded by hand.

    Args:
        trace: to write.
        path: the file to write, as in `Trace.save`.
        lab: the address of a Lab.

    Raises:
        FileError: another extension, an address without http(s)://, or a file that cannot be written.
    """
    parts = urlsplit(lab)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise FileError(f"The address of a Lab is like {_OWN_LAB}; got {lab!r}: begin it with http:// or https://.")
    trace.save(path)
    return LabFile(Path(path), f"{lab.rstrip('/')}/?{urlencode({'source': 'file'})}")


@dataclass(frozen=True, eq=False, repr=False)
class Shown:
    """A trace at a cell, as a notebook shows it."""

    trace: Trace
    cell: Cell
    view: str
    max_bytes: int
    standalone: bool | None

    def __repr__(self) -> str:
        return repr(self.trace)

    def _repr_html_(self) -> str:
        return _trace_html(self.trace, repr(self.trace), self.cell, self.view, self.max_bytes, self.standalone)


@dataclass(frozen=True)
class LabFile:
    """A file with all numbers of a trace, and the address of the Lab's page that opens it."""

    path: Path
    address: str

    def __repr__(self) -> str:
        return f"LabFile: open {self.address} and upload {self.path} there"

    def _repr_html_(self) -> str:
        link = f'<a href="{escape(self.address)}" target="_blank" rel="noopener">Open the Lab</a>'
        return f"{link} and upload <code>{escape(str(self.path))}</code> there: it shows the same digits."
