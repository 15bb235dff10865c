"""Packs figures and what surrounds them into one message, which figure/message.js reads; and makes Plotly figures of the same JSON."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import plotly.graph_objects as go

from attention.pictures.downsample import MAX_SENT_BLOCKS, keep_only_gaps, pool_for_screen
from attention.pictures.look import PROJECTED, TYPE
from attention.pictures.marks import CHOSEN_COLOR, Spec
from attention.pictures.message_contract import Control, Line, Live, Message, OverrideNote, Screen, StepTab
from attention.trace.large_map import MAX_SIDE

SCRIPTS_DIR = Path(__file__).parent / "figure"
"""The folder of the scripts that draw a message, their styles (``figure.css``) and Plotly's script (``vendor/``)."""
CONTAINERS_HTML = "<div class='screen'></div><div class='knobs'><div class='controls'></div><div class='tools'></div></div><div class='override'></div><div class='steps'><div class='strip'></div><div class='figures'></div><div class='answer-line'></div></div>"
"""The elements that these scripts draw into."""

_MAX_SENT_CELLS = 112 * 112  # three maps of this size are 150 kB
_ARRAY_BYTES = 125_000  # the maximum for arrays; with labels, titles, axes and outlines a step stays under 150 kB
_PIXEL_KEYS = ("size", "standoff", "thickness", "xshift", "yshift", "ypad")
_PIXEL_OBJECTS = ("margin", "pad")  # every number in these is in pixels

P = ParamSpec("P")


@dataclass(frozen=True)
class Surroundings:
    """What one component draws around its figures.

    Attributes:
        live: the data from which the page computes scores and weights, see `attention.pictures.live_inputs`.
        controls: the row of controls above the figures, see `pages.ui.state.control_row.control_row`.
        override: the note under that row where the source has its own formula, see `pages.ui.state.control_row.override_line`.
        strip: the steps above that row, see `attention.pictures.steps_view.step_strip`.
        line: the line of the chosen cell under the figures, see `attention.pictures.steps_view.cell_line`.
        screen: the first screen above all of it, see `attention.pictures.first_screen`.
        defaults: the value of each knob that the address omits. The page then writes the address itself after each
            user action; None on a page whose clicks lead elsewhere.
        large: whether letters are enlarged for a projector.
    """

    live: Live | None = None
    controls: Sequence[Control] = ()
    override: OverrideNote | None = None
    strip: Sequence[StepTab] | None = None
    line: Line | None = None
    screen: Screen | None = None
    defaults: Mapping[str, str] | None = None
    large: bool = False


@dataclass(frozen=True)
class Reply:
    """Whom a message answers: the last user action of a component, `act_number` (None where no action is possible), which carries its `key`; in a film, the serial number of the picture in its session."""

    key: str = ""
    act_number: int | None = None
    session: str = ""
    film_frame: int = 0


def pack(
    figures: Sequence[Spec],
    surroundings: Surroundings | None = None,
    windows: Mapping[str, Sequence[int] | None] | None = None,
    defer_rest: bool = False,
    reply: Reply = Reply(),
) -> bytes:
    """Returns the figures as one message: the length of the header, the header (JSON), the arrays as raw bytes.

    Arrays are not part of the JSON, where Plotly would encode them as base64.

    Args:
        figures: the figures; a map of more than `_MAX_SENT_CELLS` cells that the page can compute is sent without its numbers.
        surroundings: what surrounds them.
        windows: by ``layout.uirevision``, the cells to which the page is zoomed, see `attention.pictures.downsample`.
        defer_rest: whether the page requests the rest of itself after the figures are painted, after a user action.
        reply: whom the message answers.
    """
    surroundings = surroundings or Surroundings()
    live = surroundings.live
    # Of two states, the first screen alone follows a knob: the maps show both.
    compares = surroundings.screen is not None and "compared" in surroundings.screen
    computable = live["computable"] if live and not compares else ()
    packed = _Packed()
    screen = packed.with_arrays(surroundings.screen)
    sent_live = packed.with_arrays(live)  # before the maps, which share the remaining bytes
    specs = _sent_figures(figures, computable, windows or {}, packed.size)
    if surroundings.large:
        specs = [_enlarge(spec) for spec in specs]
    message: Message = {
        "figures": [{**spec, "layout": packed.with_pictures(packed.with_labels(spec["layout"]))} for spec in specs],
        "names": [_compact_labels(alias) for alias in packed.names],
        "sources": list(packed.sources),
        "live": sent_live,
        "controls": surroundings.controls,
        "override": surroundings.override,
        "strip": surroundings.strip,
        "line": surroundings.line,
        "screen": screen,
        "defaults": None if surroundings.defaults is None else dict(surroundings.defaults),
        "defer_rest": defer_rest,
        "large": surroundings.large,
        "film_frame": reply.film_frame,
        "session": reply.session,
        "key": reply.key,
        "act_number": reply.act_number,
    }
    text = json.dumps(message, default=packed.append, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    header = text.encode(errors="replace")
    header += b" " * (-(4 + len(header)) % 8)  # typed arrays must start on a multiple of their size
    return struct.pack("<I", len(header)) + header + b"".join(packed.arrays)


class _Packed:
    """What the JSON of a message refers to by a place or an index: arrays as raw bytes, and what its figures share, labels and pictures."""

    def __init__(self) -> None:
        self.arrays: list[bytes] = []
        self.size = 0
        self.names: list[dict[str, str]] = []
        self.sources: dict[str, int] = {}

    def append(self, value: Any) -> dict[str, Any]:
        """Appends an array and returns its place; the JSON encoder calls this for every array."""
        if isinstance(value, bytes):  # 16-bit integers
            raw, dtype, shape = value, "u2", [len(value) // 2]
        elif getattr(value, "ndim", False):
            # Types without a usual typed array in JavaScript.
            narrower_type = {"i8": "i4", "u8": "u4", "b1": "u1"}.get(value.dtype.str[1:])
            value = value.astype(narrower_type) if narrower_type else value
            raw, dtype, shape = value.tobytes(), value.dtype.str.lstrip("<|"), list(value.shape)
        else:
            name = type(value).__name__
            raise TypeError(f"a message to the page holds numbers, texts and arrays; got {name}: convert it first")
        self.arrays.append(raw + b"\0" * (-len(raw) % 8))
        at, self.size = self.size, self.size + len(self.arrays[-1])
        return {"array": {"dtype": dtype, "at": at, "shape": shape}}

    def with_arrays(self, value: Any) -> Any:
        """The same with the place of each array."""
        if isinstance(value, dict):
            return {name: self.with_arrays(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.with_arrays(inner) for inner in value]
        return self.append(value) if isinstance(value, bytes) or getattr(value, "ndim", False) else value

    def with_labels(self, part: Any) -> Any:
        """The same with the index of the labels of an axis, the longest texts of a message; most axes share theirs."""
        if not isinstance(part, dict):
            return part
        if "labelalias" in part:
            alias = part["labelalias"]
            if alias not in self.names:
                self.names.append(alias)
            part = {**part, "labelalias": self.names.index(alias)}
        return {name: self.with_labels(inner) for name, inner in part.items()}

    def with_pictures(self, layout: dict[str, Any]) -> dict[str, Any]:
        """The same with the index of each picture below a figure: those of all heads are the same."""
        if "images" not in layout:
            return layout
        known = self.sources
        images = [{**image, "source": known.setdefault(image["source"], len(known))} for image in layout["images"]]
        return {**layout, "images": images}


def _sent_figures(
    figures: Sequence[Spec], computable: Sequence[str], windows: Mapping[str, Sequence[int] | None], n_bytes: int
) -> list[Spec]:
    """The figures as they are sent, reduced to what fits beside `n_bytes` of other arrays."""
    # Bytes left for maps that the page cannot compute: five bytes a number, with its offset in its block.
    n_server_maps = sum(figure["layout"]["meta"]["step"] not in computable for figure in figures)
    max_blocks = max(MAX_SENT_BLOCKS // 4, min(MAX_SENT_BLOCKS, (_ARRAY_BYTES - n_bytes) // 5 // max(1, n_server_maps)))
    sent = [_sent(figure, computable, windows, max_blocks) for figure in figures]
    maps = [spec for spec in sent if spec["layout"]["meta"]["panels"]]
    return [keep_only_gaps(spec, maps) if any(spec is later for later in maps[2:]) else spec for spec in sent]


def _sent(
    figure: Spec, computable: Sequence[str], windows: Mapping[str, Sequence[int] | None], max_blocks: int
) -> dict[str, Any]:
    """Returns a figure as it is sent: a map that the page can compute is marked `live`, and has no numbers if it is large."""
    data = [dict(trace) for trace in figure["data"]]
    layout = {name: part for name, part in figure["layout"].items() if name != "template"}  # the page has none
    if (step := layout["meta"]["step"]) in computable:
        data[0]["live"] = step
        sides = [(panel["rows"], panel["columns"]) for panel in layout["meta"]["panels"][:1]]
        # The page pools these itself: its blocks are squares, those of `pool_for_screen` need not be.
        if any(rows * columns > _MAX_SENT_CELLS or max(rows, columns) > MAX_SIDE for rows, columns in sides):
            data[1:] = [trace for trace in data[1:] if trace["type"] != "heatmap"]
            del data[0]["z"]
    return pool_for_screen({"data": data, "layout": layout}, windows.get(layout.get("uirevision", "")), max_blocks)


def _compact_labels(alias: dict[str, str]) -> dict[str, Any]:
    """Returns labels that begin with their position without it, each word once: {"0": "0 the"} has the word "the"."""
    labels = enumerate(alias.items())
    if not all(position == str(i) and f"{name} ".startswith(f"{i} ") for i, (position, name) in labels):
        return {"all": alias}
    words: dict[str, int] = {}
    index = [words.setdefault(name[len(position) + 1 :], len(words)) for position, name in alias.items()]
    return {"words": list(words), "index": struct.pack(f"<{len(index)}H", *index)}


def _enlarge(spec: Spec, by: float = PROJECTED["axis"] / TYPE["axis"]) -> Spec:
    """Returns a figure for a projector: letters and the space that they need are `by` times as large."""

    def scale(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: scale(inner, key if key in _PIXEL_OBJECTS else name) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [scale(inner, key) for inner in value]
        return value * by if key in (*_PIXEL_KEYS, *_PIXEL_OBJECTS) and isinstance(value, int | float) else value

    height = spec["layout"].get("height")
    layout = scale({name: part for name, part in spec["layout"].items() if name != "meta"})
    layout |= {"meta": spec["layout"]["meta"]} | ({"height": round(height * (1 + by) / 2)} if height else {})
    letters = ("textfont", "colorbar", "marker")
    data = [trace | scale({name: trace[name] for name in letters if name in trace}) for trace in spec["data"]]
    return {"data": data, "layout": layout}


def to_plotly(spec: Spec) -> go.Figure:
    """Returns a specification as a Plotly figure, which copies everything; pages send the JSON itself.

    Validating every key takes ten times as long as everything else; a test does it instead.
    """
    return go.Figure(spec, _validate=False)


def plotly_variant(make: Callable[P, Spec]) -> Callable[P, go.Figure]:
    """Returns a function that returns a Plotly figure where `make` returns its JSON, with the same arguments."""
    return wraps(make)(lambda *args, **kwargs: to_plotly(make(*args, **kwargs)))


def without_outlines(figure: go.Figure) -> go.Figure:
    """Returns the figure without the outlines of the chosen cell, its row and its column."""
    layout = figure.layout.to_plotly_json()
    layout["shapes"] = [shape for shape in layout.get("shapes", ()) if shape["line"].get("color") != CHOSEN_COLOR]
    if "file" in layout["meta"]:
        layout["meta"] = {**layout["meta"], "file": layout["meta"]["file"][:2]}  # without the chosen cell
    return to_plotly({"data": figure.data, "layout": layout})
