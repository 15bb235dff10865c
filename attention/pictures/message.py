"""Figures and what stands around them as one message, which the script of the figure reads (figure/message.js)."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attention.pictures.changed import enlarged
from attention.pictures.contract import Control, Line, Live, Message, Own, Tab
from attention.pictures.layout import Spec
from attention.pictures.pooling import MOST_CELLS
from attention.pictures.screen import SENT_NUMBERS, gaps_alone, on_screen

SCRIPTS = Path(__file__).parent / "figure"
"""The folder of the scripts that draw a message, of their styles (``figure.css``) and of Plotly's own (``vendor/``)."""
FRAME = "<div class='strip'></div><div class='hand'></div><div class='own'></div><div class='figures'></div><div class='answer'></div>"
"""The elements that these scripts draw into."""

SENT_CELLS = 112 * 112  # three maps of so many cells are 150 kB
_ROOM = 125_000  # bytes that arrays may take, so that a step stays under 150 kB with names, titles, axes and frames


@dataclass(frozen=True)
class Around:
    """What is drawn around the figures by the same component, and painted with them.

    Attributes:
        live: what the page makes scores and weights from by itself, see `attention.pictures.live`.
        controls: the row of controls above the figures, see `pages.ui.knobs.controls.control_row`.
        own: what stands under that row where the source brings its own formula, see `pages.ui.knobs.controls.override_line`.
        strip: the steps above that row, see `attention.pictures.strip.step_strip`.
        line: the arithmetic of the chosen cell in one line under the figures, see `attention.pictures.line.cell_line`.
        defaults: what each knob of the address is where the address does not name it. The page then writes the address by
            itself as soon as something is turned; None on a page whose clicks lead elsewhere.
        large: whether it is projected, and must be read from the last row.
    """

    live: Live | None = None
    controls: Sequence[Control] = ()
    own: Own | None = None
    strip: Sequence[Tab] | None = None
    line: Line | None = None
    defaults: Mapping[str, str] | None = None
    large: bool = False


LARGE = 1.3
"""How much larger letters are where a picture is projected."""


def pack(
    figures: Sequence[Spec],
    around: Around | None = None,
    windows: Mapping[str, Sequence[int] | None] | None = None,
    rest: bool = False,
    act: int = 0,
    session: str = "",
    key: str = "",
    number: int | None = None,
) -> bytes:
    """The figures as one message: length of the header, header (JSON), arrays as raw bytes.

    Plotly's own JSON would carry arrays as base64; here they leave the JSON.

    Args:
        figures: the figures; a map of more than `SENT_CELLS` cells that the page can make is sent without its numbers.
        around: what stands around them.
        windows: by ``layout.uirevision``, the cells that the page has zoomed to, see `attention.pictures.screen`.
        rest: after a turn or a click, ask for the rest of the page when the figures are painted.
        act: how many pictures of a film there have been.
        session: whose they are.
        key: of the component, for what is turned and clicked in it.
        number: of the last turn or click that this answers; None where nothing can be turned or clicked.
    """
    around = around or Around()
    live = around.live
    arrays: list[bytes] = []
    names: list[dict[str, str]] = []
    size = 0

    def placed(value: Any) -> dict[str, Any]:
        """Where an array stands among the raw bytes: json asks for it as it comes upon one."""
        nonlocal size
        if isinstance(value, bytes):  # whole numbers of two bytes each
            raw, dtype, shape = value, "u2", [len(value) // 2]
        elif getattr(value, "ndim", False):
            wide = {"i8": "i4", "u8": "u4", "b1": "u1"}.get(value.dtype.str[1:])  # what no typed array holds
            value = value.astype(wide) if wide else value
            raw, dtype, shape = value.tobytes(), value.dtype.str.lstrip("<|"), list(value.shape)
        else:
            raise TypeError(f"a message to the page holds numbers, texts and arrays, and no {type(value).__name__}")
        arrays.append(raw + b"\0" * (-len(raw) % 8))
        at, size = size, size + len(arrays[-1])
        return {"array": {"dtype": dtype, "at": at, "shape": shape}}

    def lift(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: lift(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [lift(inner) for inner in value]
        return placed(value) if isinstance(value, bytes) or getattr(value, "ndim", False) else value

    def once(part: Any) -> Any:
        """The names along an axis are the longest texts of all, and most axes have the same."""
        if not isinstance(part, dict):
            return part
        if "labelalias" in part:
            alias = part["labelalias"]
            if alias not in names:
                names.append(alias)
            part = {**part, "labelalias": names.index(alias)}
        return {name: once(inner) for name, inner in part.items()}

    made = live["made"] if live else ()
    sent_live = lift(live)  # before the maps, which share what room it leaves
    # What is left for the maps that the page cannot make: five bytes a number, with its place in its block.
    others = sum(figure["layout"]["meta"]["step"] not in made for figure in figures)
    numbers = max(SENT_NUMBERS // 4, min(SENT_NUMBERS, (_ROOM - size) // 5 // max(1, others)))
    sent = [_sent(figure, made, windows or {}, numbers) for figure in figures]
    drawn = [
        enlarged(one, LARGE) if around.large else one
        for one in (*sent[:2], *(gaps_alone(one, sent) for one in sent[2:]))
    ]
    message: Message = {
        "figures": [{**one, "layout": once(one["layout"])} for one in drawn],
        "names": [_counted(alias) for alias in names],
        "live": sent_live,
        "controls": around.controls,
        "own": around.own,
        "strip": around.strip,
        "line": around.line,
        "defaults": None if around.defaults is None else dict(around.defaults),
        "rest": rest,
        "large": around.large,
        "act": act,
        "session": session,
        "key": key,
        "number": number,
    }
    text = json.dumps(message, default=placed, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    header = text.encode(errors="replace")
    header += b" " * (-(4 + len(header)) % 8)  # typed arrays must start on a multiple of their size
    return struct.pack("<I", len(header)) + header + b"".join(arrays)


def _sent(
    figure: Spec, made: Sequence[str], windows: Mapping[str, Sequence[int] | None], numbers: int
) -> dict[str, Any]:
    """A figure as it is sent: a map that the page can make by itself says so, and a large one has no numbers."""
    data, layout = [dict(trace) for trace in figure["data"]], figure["layout"]
    if (step := layout["meta"]["step"]) in made:
        data[0]["live"] = step
        panel = layout["meta"]["panels"][0]
        # What is drawn as blocks the page cuts by itself: its blocks are squares, those of `on_screen` need not be.
        if panel["rows"] * panel["columns"] > SENT_CELLS or max(panel["rows"], panel["columns"]) > MOST_CELLS:
            data[1:] = [trace for trace in data[1:] if trace["type"] != "heatmap"]
            del data[0]["z"]
    return on_screen({"data": data, "layout": layout}, windows.get(layout.get("uirevision", "")), numbers)


def _counted(alias: dict[str, str]) -> dict[str, Any]:
    """Names that begin with their numbers, from zero, without them, and each once: {"0": "0 the"} has the word "the"."""
    if not all(place == str(i) and f"{name} ".startswith(f"{i} ") for i, (place, name) in enumerate(alias.items())):
        return {"all": alias}
    words: dict[str, int] = {}
    index = [words.setdefault(name[len(place) + 1 :], len(words)) for place, name in alias.items()]
    return {"words": list(words), "index": struct.pack(f"<{len(index)}H", *index)}
