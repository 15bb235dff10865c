"""A trace shown at a chosen cell; or written to a file, with the address of the page of the Lab that opens it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from attention.base.errors import FileError
from attention.export.packing import MAX_BYTES
from attention.formula.names import WEIGHTS, Cell
from attention.notebook.representations import trace_html
from attention.pictures.view import OVERVIEW
from attention.trace.trace import Trace

_OWN_LAB = "http://localhost:8501"
"""Where `make run` and `attention-lab` serve the Lab."""


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
        trace: the trace.
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
        trace: the trace.
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
        return trace_html(self.trace, self.cell, self.view, self.max_bytes, self.standalone)


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
