"""The live view of a trace: what is clicked and set in the notebook is an attribute in Python, and the other way round."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

from attention.base.errors import AttentionError, MissingError
from attention.explanation.explanation import Explanation, explain
from attention.export.packing import MAX_BYTES, pack_trace
from attention.formula.names import WEIGHTS, Cell
from attention.formula.override import SOURCE_MASK, Override
from attention.notebook.first_picture import first_picture
from attention.notebook.output import PAGE_DIR, document, packed_scripts, scripts_hash
from attention.pictures.view import OVERVIEW, clamp_cell
from attention.trace.trace import Trace

_HEIGHT = 640  # pixels, until the frame knows its own
_CELL = ("layer", "head", "step", "q", "k")
_KNOBS = ("mask", "window", "prefix", "temperature")


def view(
    trace: Trace, layer: int | None = None, head: int = 0, step: str = WEIGHTS, max_mb: float = MAX_BYTES / 1e6
) -> Any:
    """The live view of a trace: a widget whose `cell`, `explanation`, `head`, … follow every click; `observe` calls a function at each.

        v = view(trace)
        v                       # the last expression of a cell
        v.cell, v.explanation   # in a later cell: what was clicked, and its arithmetic
        v.head = 3              # the picture follows

    Attributes of the view: layer, head, step, q (row), k (column), view, mask, window, prefix, temperature, all of them
    traitlets; and cell, explanation, `trace` under the knobs of the view.

    Raises:
        MissingError: the package anywidget is not installed, or the trace has no such layer, step or head.
    """
    layer = trace.attention_layers[0] if layer is None else layer
    first = trace.layer(layer)
    first.matrix(step, head)
    cell = Cell(layer, step, head, 0, 0)
    page = document("trace", pack_trace(trace, cell, OVERVIEW, int(max_mb * 1e6)), picture=first_picture(trace, cell))
    widget = _widget_class()(document=page, layer=layer, head=head, step=step, temperature=first.temperature)
    widget.start(trace)
    return widget


@cache
def _widget_class() -> type[Any]:
    """The class of the widget: anywidget is an optional dependency, the extra “notebook”."""
    try:
        anywidget: Any = import_module("anywidget")
    except ImportError:
        raise MissingError(
            "view() needs the package anywidget, which is not installed: pip install 'attention-lab[notebook]', "
            "or show(trace), which draws the same without telling Python about clicks."
        ) from None
    traitlets: Any = import_module("traitlets")

    class TraceView(anywidget.AnyWidget):  # type: ignore[misc]  # anywidget is imported at first use
        """A trace on display: its cell and its knobs are traitlets."""

        _esm = PAGE_DIR / "widget.js"
        document = traitlets.Unicode().tag(sync=True)
        height = traitlets.Int(_HEIGHT).tag(sync=True)
        arithmetic = traitlets.Dict().tag(sync=True)
        layer = traitlets.Int(0, min=0).tag(sync=True)
        head = traitlets.Int(0, min=0).tag(sync=True)
        step = traitlets.Unicode(WEIGHTS).tag(sync=True)
        q = traitlets.Int(0, min=0).tag(sync=True)
        k = traitlets.Int(0, min=0).tag(sync=True)
        view = traitlets.Unicode(OVERVIEW).tag(sync=True)
        mask = traitlets.Unicode(SOURCE_MASK).tag(sync=True)
        window = traitlets.Int(0, min=0).tag(sync=True)
        prefix = traitlets.Int(0, min=0).tag(sync=True)
        temperature = traitlets.Float(1.0).tag(sync=True)

        def start(self, trace: Trace) -> None:
            """Begins to follow the picture of a trace."""
            self._trace = trace
            self.on_msg(self._send_scripts)
            self.observe(self._explain, names=[*_CELL, *_KNOBS])
            self._explain()

        def __repr__(self) -> str:
            cell = self.cell
            return f"TraceView({cell.step} L{cell.layer} H{cell.head} [{cell.row}, {cell.column}] of {self._trace!r})"

        @property
        def cell(self) -> Cell:
            """The chosen cell."""
            chosen = Cell(self.layer, self.step, self.head, self.q, self.k)
            return clamp_cell(chosen, self._trace.layer(self.layer))

        @property
        def trace(self) -> Trace:
            """The trace with the mask and the temperature of the view."""
            plain = Override(window=self.window, prefix=self.prefix)
            own = self._trace.layer(self.layer).temperature
            config = replace(plain, mask=self.mask, temperature=self.temperature / own if own else 1.0)
            return self._trace if config == plain else self._trace.with_config(config)

        @property
        def explanation(self) -> Explanation:
            """The arithmetic of the chosen cell."""
            return explain(self.trace, *self.cell.address)

        def _explain(self, _: object = None) -> None:
            try:
                found = self.explanation
            except AttentionError:  # between two changes that belong together
                return
            cell = found.cell
            self.arithmetic = {
                "layer": cell.layer, "step": cell.step, "head": cell.head, "q": cell.row, "k": cell.column,
                "shown": found.displayed_value, "sign": found.sign, "short": found.short,
            }  # fmt: skip

        def _send_scripts(self, _: object, content: Any, buffers: object) -> None:
            if isinstance(content, dict) and content.get("kind") == "scripts":
                self.send({"kind": "scripts", "hash": scripts_hash()}, [packed_scripts()])

    return TraceView
