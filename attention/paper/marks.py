"""What is drawn on a page: the axes and cells of a figure with their numbers, curves, points, bars, shapes, pictures, the legend, the colour bar, titles and notes."""

from __future__ import annotations

import math
import re
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.base.errors import PictureError
from attention.paper import markup
from attention.pictures.look import LIGHT, text_color_on
from attention.pictures.marks import Mark, Spec
from attention.trace.large_map import pool_blocks

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

    from attention.paper.page import Align, Page

INK = LIGHT["ink"]
_MAX_CELLS_PER_SIDE = 256  # along one side of a matrix
_MAX_CELLS = 4 * _MAX_CELLS_PER_SIDE**2  # in one picture: a PDF reader still opens this many at once
LINE = 1.22  # the distance between baselines, in font sizes
MIDDLE = 0.36  # the distance from the middle of a line down to its baseline, in font sizes
_SMALLEST_NOTE = 5  # pixels: notes that would still overlap at this size are left out
_SMALLEST_NUMBER = 6.5  # pixels (4.9 points): numbers in cells are left out rather than drawn smaller
_SWATCH = 9  # pixels: the side of a legend's coloured square
_SLICES = 128
_PAD = 2  # pixels beside a note that has a ground
_NO_BREAK = "\xa0"  # a space that does not break lines


@dataclass(frozen=True)
class Area:
    """The area of the plot on the page."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """The right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.top + self.height

    def x(self, fraction: Any) -> Any:
        """The pixel at a fraction of the x axis."""
        return self.left + fraction * self.width

    def y(self, fraction: Any) -> Any:
        """The pixel at a fraction of the y axis, counted from the bottom."""
        return self.bottom - fraction * self.height


@dataclass(frozen=True)
class Tick:
    """A label and its position: 0 at the start of the axis, 1 at its end."""

    at: float
    lines: list[list[markup.Run]]


@dataclass(frozen=True)
class Axis:
    """One axis: from left to right, or from bottom to top."""

    start: float
    end: float
    log: bool
    ticks: list[Tick]
    title: str
    title_size: float
    size: float
    standoff: float
    opposite: bool
    grid: str | None

    def at(self, value: Any) -> Any:
        """The positions of numbers along the axis: 0 at its start, 1 at its end."""
        scaled = np.log10(value) if self.log else np.asarray(value, dtype=float)
        return (scaled - self.start) / (self.end - self.start)

    def fraction(self, value: float, reference: str, exponents: bool = False) -> float:
        """The position of a note or shape along the axis; on a log axis, notes give `exponents` of ten."""
        if reference == "paper" or reference.endswith("domain"):
            return value
        if exponents and self.log:
            return (value - self.start) / (self.end - self.start)
        return float(self.at(value))


def read_axis(figure: Spec, letter: str) -> Axis:
    """The axis "x" or "y" of a figure.

    Raises:
        PictureError: it has no range that can be drawn.
    """
    settings = figure["layout"][f"{letter}axis"]
    base = figure["layout"]["font"]["size"]
    log = settings.get("type") == "log"
    start, end = settings["range"]
    if not 0 < abs(end - start) < math.inf:
        raise PictureError(
            f"An axis of a picture runs between two different finite numbers; got {start} to {end} for {letter}: "
            "give the traces such numbers, or save this figure as HTML instead."
        )
    values, texts = settings.get("tickvals"), settings.get("ticktext")
    if settings.get("showticklabels") is False:
        values, texts = [], []
    elif values is None:
        values, texts = _round_numbers(min(start, end), max(start, end))
    axis = Axis(
        float(start), float(end), log, [], settings.get("title", {}).get("text", ""), round(1.2 * base),
        settings.get("tickfont", {}).get("size", base), settings.get("ticklabelstandoff", 0), settings.get("side") == "top",
        None if settings.get("showgrid") is False else settings["gridcolor"],
    )  # fmt: skip
    for value, text in zip(values, texts, strict=True):
        if -1e-6 <= (at := float(axis.at(value))) <= 1 + 1e-6:
            axis.ticks.append(Tick(at, markup.parse_lines(str(text))))
    return axis


def _round_numbers(low: float, high: float) -> tuple[list[float], list[str]]:
    """About six round numbers within a range, with their texts."""
    approximate_step = (high - low) / 6
    step = 10 ** math.floor(math.log10(approximate_step))
    step *= next(factor for factor in (1, 2, 5, 10) if factor * step >= approximate_step * 0.999)
    decimals = max(0, -math.floor(math.log10(step)))
    numbers = [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return numbers, [f"{place:.{decimals}f}" if place else "0" for place in numbers]


def draw_cells(page: Page, cells: list[Cells], x: Axis, y: Axis, area: Area) -> None:
    """Fills the cells of every heatmap and writes their numbers; the first heatmap is named "cells", the others "ground"."""
    for i, layer in enumerate(cells):
        if not len(layer.boxes):
            continue
        left, right = area.x(x.at(layer.boxes[:, 0])), area.x(x.at(layer.boxes[:, 2]))
        top, bottom = area.y(y.at(layer.boxes[:, 1])), area.y(y.at(layer.boxes[:, 3]))
        across, down = (gap / 2 for gap in layer.gap)
        boxes = np.stack([left + across, top + down, right - across, bottom - down], axis=1)
        page.boxes(
            boxes, layer.colors, "ground" if i else "cells", not any(layer.gap) and layer.opacity == 1, layer.opacity
        )
        if layer.number:
            _write_numbers(page, layer, boxes)


def _write_numbers(page: Page, cells: Cells, boxes: Any) -> None:
    """Writes the number of each cell into it, if the cells are large enough for the widest number."""
    texts = [format(number, cells.number) for number in cells.numbers.tolist()]
    texts = [text.removeprefix("-") if float(text) == 0 else text for text in texts]
    widest = max(page.width_of(text, 1) for text in texts)
    width, height = (boxes[:, 2] - boxes[:, 0]).min(), (boxes[:, 3] - boxes[:, 1]).min()
    size = min(cells.number_size, 0.9 * width / widest, 0.8 * height)
    if size < _SMALLEST_NUMBER:
        return
    middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    for text, (x, y), color in zip(texts, middles, cells.colors, strict=True):
        page.write(x, y + MIDDLE * size, text, size, "center", color=text_color_on(str(color)))


def draw_grid(page: Page, x: Axis, y: Axis, area: Area) -> None:
    """Draws a line at each tick of the axes that have grid lines."""
    for tick in x.ticks if x.grid else ():
        pixel = area.x(tick.at)
        page.line([pixel, pixel], [area.top, area.bottom], x.grid or INK, 1)
    for tick in y.ticks if y.grid else ():
        pixel = area.y(tick.at)
        page.line([area.left, area.right], [pixel, pixel], y.grid or INK, 1)


def draw_curves(page: Page, figure: Spec, x: Axis, y: Axis, area: Area) -> None:
    """Draws the lines, filled outlines, points and texts of a chart, in their order."""
    for curve in curves_of(figure):
        xs, ys = (np.asarray(curve[letter], dtype=float) for letter in "xy")
        xs, ys, mode = area.x(x.at(xs)), area.y(y.at(ys)), curve["mode"]
        if "lines" in mode:
            line = curve["line"]
            bounds = (area.left, area.top, area.right, area.bottom)
            fill = curve["fillcolor"] if curve.get("fill") else "none"
            page.line(xs, ys, line.get("color", "none"), line["width"], line.get("dash"), within=bounds, fill=fill)
        if "markers" in mode:
            marker, edge = curve["marker"], curve["marker"].get("line", {})
            for i, (px, py) in enumerate(zip(xs, ys, strict=True)):
                color, rim, symbol = (
                    _css(marker["color"], i),
                    _css(edge.get("color", "none"), i),
                    marker.get("symbol", ""),
                )
                page.dot(px, py, color, marker["size"], rim, edge.get("width", 0), symbol)
        if "text" in mode:
            for i, (px, py, text) in enumerate(zip(xs, ys, curve["text"], strict=True)):
                size = curve["textfont"]["size"]
                line_ = markup.plain(text)
                page.write(px, py + 1.1 * size, line_, size, "right", color=_css(curve["textfont"]["color"], i))


def curves_of(figure: Spec) -> list[Mark]:
    """The points and lines of a figure, without the mark that carries a colour bar."""
    return [
        mark for mark in figure["data"] if mark["type"] == "scatter" and not mark.get("marker", {}).get("showscale")
    ]


def draw_bars(page: Page, figure: Spec, x: Axis, y: Axis, area: Area) -> None:
    """Draws the bars of a chart, upright or lying; bars at the same position stand side by side, unless they overlay each other."""
    bars = [mark for mark in figure["data"] if mark["type"] == "bar"]
    layout = figure["layout"]
    abreast = 1 if layout.get("barmode") == "overlay" else len(bars)
    for i, mark in enumerate(bars):
        is_lying = mark.get("orientation") == "h"
        places, lengths = (np.asarray(mark[letter], dtype=float) for letter in ("yx" if is_lying else "xy"))
        slot = mark.get("width") or (1 - layout.get("bargap", 0.2)) * np.diff(places).min(initial=1) / abreast
        middle = places + (i % abreast - (abreast - 1) / 2) * slot
        half = slot * (1 - layout.get("bargroupgap", 0)) / 2
        along, across = (x, y) if is_lying else (y, x)
        ends = along.at(np.minimum(lengths, 0)), along.at(np.maximum(lengths, 0))
        sides = across.at(middle - half), across.at(middle + half)
        (left, right), (low, high) = (ends, sides) if is_lying else (sides, ends)
        boxes = np.stack([area.x(left), area.y(high), area.x(right), area.y(low)], axis=1)
        colors = [_css(mark["marker"]["color"], j) for j in range(len(places))]
        page.boxes(boxes, colors, f"bars-{i}", seam=False, opacity=mark["marker"].get("opacity", 1))
        if mark.get("textposition") == "auto":
            _write_lengths(page, mark["text"], boxes, colors, layout["font"]["size"])


def _write_lengths(
    page: Page, texts: Sequence[str], boxes: NDArray[np.float64], colors: Sequence[str], size: float
) -> None:
    """Writes a number into the end of each lying bar, or beside a bar that is too short for it."""
    for text, (left, top, right, bottom), color in zip(texts, boxes.tolist(), colors, strict=True):
        line, fits = markup.plain(text), page.width_of(markup.plain(text), size) + 6 < right - left
        ink = text_color_on(color) if fits else INK
        page.write(
            right + (-3 if fits else 3),
            (top + bottom) / 2 + MIDDLE * size,
            line,
            size,
            "right" if fits else "left",
            color=ink,
        )


def largest_dot(figure: Spec) -> float:
    """The diameter of the largest point in pixels; up to half of it may extend beyond the plot."""
    markers = [mark["marker"] for mark in curves_of(figure) if "markers" in mark["mode"]]
    return max((marker["size"] + marker.get("line", {}).get("width", 0) for marker in markers), default=0)


def draw_shapes(page: Page, figure: Spec, x: Axis, y: Axis, area: Area) -> None:
    """Draws the outlines and straight lines of a figure."""
    for shape in figure["layout"].get("shapes", ()):
        x0, x1 = (area.x(x.fraction(shape[side], shape.get("xref", "x"))) for side in ("x0", "x1"))
        y0, y1 = (area.y(y.fraction(shape[side], shape.get("yref", "y"))) for side in ("y0", "y1"))
        line = shape["line"]
        if shape["type"] == "rect":
            page.outline(x0, y0, x1, y1, line["color"], line["width"], line.get("dash"))
        else:
            page.line([x0, x1], [y0, y1], line["color"], line["width"], line.get("dash"))


def draw_images(page: Page, figure: Spec, x: Axis, y: Axis, area: Area) -> None:
    """Draws the pictures of a figure, each from its upper left corner over `sizex` columns and `sizey` rows."""
    for i, image in enumerate(figure["layout"].get("images", ())):
        left, right = (float(area.x(x.at(position))) for position in (image["x"], image["x"] + image["sizex"]))
        top, bottom = (float(area.y(y.at(position))) for position in (image["y"], image["y"] + image["sizey"]))
        page.picture(left, top, right, bottom, _pixels(image["source"]), f"picture-{i}")


def _pixels(source: str) -> NDArray[uint8]:
    """Red, green and blue, [row column 3], of a PNG or JPEG in a data URI."""
    from PIL.JpegImagePlugin import JpegImageFile
    from PIL.PngImagePlugin import PngImageFile

    head, _, content = source.partition(",")
    reader = PngImageFile if "png" in head else JpegImageFile
    return np.asarray(reader(BytesIO(b64decode(content))).convert("RGB"))


def draw_legend(page: Page, figure: Spec, left: float, right: float, top: float, size: float) -> float:
    """Writes the legend on as many lines as it needs, if the figure has one; returns its height."""
    entries = [mark for mark in figure["data"] if mark["type"] in ("bar", "scatter") and mark.get("showlegend", True)]
    if len(entries) < 2:
        return 0.0
    x, y = left, top + LINE * size / 2
    if title := markup.plain(figure["layout"].get("legend", {}).get("title", {}).get("text")).strip():
        page.write(x, y + MIDDLE * size, title, size)
        x += page.width_of(title, size) + size
    for entry in entries:
        name = markup.plain(entry["name"])
        entry_width = _SWATCH + 5 + page.width_of(name, size)
        if x > left and x + entry_width > right:
            x, y = left, y + 1.4 * size
        swatch = np.array([[x, y - _SWATCH / 2, x + _SWATCH, y + _SWATCH / 2]])
        color = (
            entry["line"]["color"]
            if "line" in entry["mode" if entry["type"] == "scatter" else "type"]
            else entry["marker"]["color"]
        )
        page.boxes(swatch, [_css(color)], "legend", seam=False)
        page.write(x + _SWATCH + 5, y + MIDDLE * size, name, size)
        x += entry_width + 1.3 * size
    return y + LINE * size / 2 - top


def _css(color: Any, i: int = 0) -> str:
    """The colour of the i-th point, from one colour for all points or one for each."""
    return color if isinstance(color, str) else str(color[i])


@dataclass(frozen=True)
class Cells:
    """The visible cells of one heatmap: their boxes [cell 4] (x0 y0 x1 y1, in axis units), numbers and colours.

    Attributes:
        gap: the gap between two cells in pixels, across and down.
        opacity: of the colours, over a picture below them.
        number: the format of a cell's number, such as ".2f"; empty if cells show no numbers.
    """

    boxes: NDArray[np.float64]
    numbers: NDArray[np.float64]
    colors: NDArray[np.str_]
    gap: tuple[float, float]
    opacity: float
    number: str
    number_size: float


def visible_cells(figure: Spec) -> tuple[list[Cells], tuple[int, int]]:
    """The cells of each heatmap that no later heatmap covers, and the number of rows and columns per drawn cell.

    A matrix of more than `_MAX_CELLS_PER_SIDE` rows or columns is drawn as block maxima. A block is a gap, or covered, only
    if all of it is.

    """
    maps = [mark for mark in figure["data"] if mark["type"] == "heatmap"]
    if not maps:
        return [], (1, 1)
    layers = [np.asarray(mark["z"], dtype=np.float64) for mark in maps]
    whole = {"x": 0, "y": 0, "rows": layers[0].shape[0], "columns": layers[0].shape[1]}
    described = figure["layout"]["meta"].get("panels") or [whole]
    panels = [(panel["x"], panel["y"], panel["rows"], panel["columns"]) for panel in described]
    down, across = _block_size(max(p[2] for p in panels), max(p[3] for p in panels), len(panels))
    boxes: list[list[NDArray[np.float64]]] = [[] for _ in maps]
    numbers: list[list[NDArray[np.float64]]] = [[] for _ in maps]
    for x, y, rows, columns in panels:
        region = np.s_[y : y + rows, x : x + columns]
        right = np.append(np.arange(0, columns, across), columns) + (x - 0.5)
        lower = np.append(np.arange(0, rows, down), rows) + (y - 0.5)
        uncovered = np.ones((len(lower) - 1, len(right) - 1), dtype=bool)
        for i in reversed(range(len(maps))):
            matrix = layers[i][region]
            block_maxima = pool_blocks(matrix, down, across)
            is_covered = ~np.isfinite(block_maxima) if i == 0 else pool_blocks(~np.isfinite(matrix), down, across)
            is_visible = uncovered & ~is_covered
            uncovered &= ~is_visible
            row, column = np.nonzero(is_visible)
            boxes[i].append(np.stack([right[column], lower[row], right[column + 1], lower[row + 1]], axis=1))
            numbers[i].append(block_maxima[row, column])
    drawn = zip(maps, map(np.concatenate, boxes), map(np.concatenate, numbers), strict=True)
    return [_cells(*each) for each in drawn], (down, across)


def _block_size(rows: int, columns: int, panels: int) -> tuple[int, int]:
    """The number of rows and columns per drawn cell that keeps the picture within its limits."""
    down, across = -(-rows // _MAX_CELLS_PER_SIDE), -(-columns // _MAX_CELLS_PER_SIDE)
    excess = math.sqrt(panels * -(-rows // down) * -(-columns // across) / _MAX_CELLS)
    if excess > 1:
        down, across = min(rows, math.ceil(down * excess)), min(columns, math.ceil(across * excess))
    return down, across


def colors_of(numbers: NDArray[np.float64], scale: Any, low: float, high: float) -> NDArray[np.str_]:
    """The colour of each number as #rrggbb, interpolated like Plotly's scale between `low` and `high`."""
    position = np.clip((numbers - low) / (high - low or 1), 0, 1)
    stops = [stop for stop, _ in scale]
    rgb = np.array([[int(css[i : i + 2], 16) for i in (1, 3, 5)] for _, css in scale], dtype=float)
    mixed = np.stack([np.floor(np.interp(position, stops, part) + 0.5) for part in rgb.T], axis=-1).astype(int)
    return np.array([f"#{r:02x}{g:02x}{b:02x}" for r, g, b in mixed.reshape(-1, 3)], dtype="<U7")


def _cells(mark: Mark, boxes: NDArray[np.float64], numbers: NDArray[np.float64]) -> Cells:
    """The cells of a heatmap; without a range of numbers it is a ground, whose cells have one colour."""
    number_format = mark.get("texttemplate", "").partition("%{z:")[2].partition("}")[0]
    colors = colors_of(numbers, mark["colorscale"], mark.get("zmin", 0), mark.get("zmax", 1))
    gap, size = (mark.get("xgap", 0), mark.get("ygap", 0)), mark.get("textfont", {}).get("size", 0)
    return Cells(boxes, numbers, colors, gap, mark.get("opacity", 1.0), number_format, size)


@dataclass(frozen=True)
class ColorBar:
    """A colour bar: Plotly's settings, the colour scale, its range, and the words beside it."""

    settings: Any
    scale: Any
    low: float
    high: float
    caption: str

    @property
    def below(self) -> bool:
        """Whether the bar lies below the plot."""
        return bool(self.settings.get("y") == 0)

    @property
    def height(self) -> float:
        """The height of the bar with its numbers."""
        return float(self.settings["thickness"] + LINE * self.settings["tickfont"]["size"] + 4)


def read_colorbar(figure: Spec) -> ColorBar | None:
    """The colour bar of a figure, taken from its heatmap or from the mark that carries it."""
    words = next((note["text"] for note in figure["layout"].get("annotations", ()) if note.get("name") == "colors"), "")
    for mark in figure["data"]:
        if mark["type"] == "heatmap" and mark.get("showscale") is not False:
            return ColorBar(mark["colorbar"], mark["colorscale"], mark["zmin"], mark["zmax"], words)
        if mark["type"] == "scatter" and (marker := mark.get("marker", {})).get("showscale"):
            return ColorBar(marker["colorbar"], marker["colorscale"], marker["cmin"], marker["cmax"], words)
    return None


def draw_colorbar(page: Page, bar: ColorBar, area: Area, top: float) -> None:
    """Draws a horizontal colour bar at the right end of the plot, with its upper edge at `top` and its numbers below."""
    settings = bar.settings
    size = settings["tickfont"]["size"]
    values = settings.get("tickvals", [bar.low, bar.high])
    texts = list(map(markup.plain, settings.get("ticktext", [f"{value:.3g}" for value in values])))
    fractions = [(value - bar.low) / (bar.high - bar.low or 1) for value in values]
    text_width = _text_width([page.width_of(text, size) for text in texts], fractions, size)
    length = min(area.width, max(settings.get("len", 1) * area.width, text_width))
    size *= min(1, length / text_width)
    left = area.right - length
    edges = np.linspace(left, area.right, _SLICES + 1)
    thickness = settings["thickness"]
    if bar.caption:
        room = max(1.0, left - size / 2)
        fitted = min(size, size * room / page.width_of(bar.caption, size))
        page.write(left - fitted / 2, top + thickness, bar.caption, fitted, "right")
    rows = [np.full(_SLICES, top), edges[1:], np.full(_SLICES, top + thickness)]
    middles = (np.arange(_SLICES) + 0.5) / _SLICES * (bar.high - bar.low) + bar.low
    colors = colors_of(middles, bar.scale, bar.low, bar.high)
    page.boxes(np.stack([edges[:-1], *rows], axis=1), colors, "colorbar", seam=True)
    for fraction, text in zip(fractions, texts, strict=True):
        half = page.width_of(text, size) / 2
        middle = min(max(left + fraction * length, left + half), area.right - half)  # within the ends of the bar
        align: Align = "left" if fraction == 0 else "right" if fraction == 1 else "center"
        x = {"left": left, "right": area.right, "center": middle}[align]
        page.write(x, top + thickness + 1.05 * size, text, size, align)


def _text_width(widths: Sequence[float], fractions: Sequence[float], space: float) -> float:
    """The length of a bar whose numbers have this space between them, also where one in the middle is nearer to one end."""
    lengths = [sum(widths) + space * len(widths)]
    for width, fraction in [*zip(widths, fractions, strict=True)][1:-1]:
        if 0 < fraction < 1:
            lengths += [(widths[0] + space + width / 2) / fraction, (width / 2 + space + widths[-1]) / (1 - fraction)]
    # A number close to an end would need a bar of any length; it is moved within the ends instead.
    return min(max(lengths), 2 * lengths[0])


@dataclass(frozen=True)
class Note:
    """An annotation: its position in the plot as fractions, its shift in pixels, and its anchor."""

    lines: list[list[markup.Run]]
    x: float
    y: float
    shift: tuple[float, float]
    align: Align
    above: float  # the fraction of its height above its position
    size: float
    color: str
    ground: str = ""

    def box(self, page: Page, area: Area) -> tuple[float, float, float, float]:
        """The note's bounding box: x0 y0 x1 y1."""
        width = max(width_of(page, line, self.size) for line in self.lines)
        height = LINE * self.size * len(self.lines)
        x = area.x(self.x) + self.shift[0] - width * {"left": 0, "center": 0.5, "right": 1}[self.align]
        y = area.y(self.y) - self.shift[1] - height * self.above
        return x, y, x + width, y + height


def read_notes(figure: Spec, x: Axis, y: Axis) -> list[Note]:
    """The annotations of a figure, except for the one beside its colour bar."""
    return [
        Note(
            markup.parse_lines(note["text"]),
            x.fraction(note["x"], note.get("xref", "x"), exponents=True),
            y.fraction(note["y"], note.get("yref", "y"), exponents=True),
            (note.get("xshift", 0), note.get("yshift", 0)),
            note.get("xanchor", "center"),
            {"top": 0.0, "bottom": 1.0}.get(note.get("yanchor", ""), 0.5),
            note["font"]["size"],
            note["font"].get("color", INK),
            note.get("bgcolor", ""),
        )
        for note in figure["layout"].get("annotations", ())
        if note["text"] and note.get("name") != "colors"
    ]


def fit_notes(page: Page, notes: list[Note], area: Area, room: float) -> list[Note]:
    """The notes at the largest size at which none overlaps another or is higher than `room`."""
    scale = min([1.0, *(room / (LINE * note.size * len(note.lines)) for note in notes)])
    while True:
        scaled_notes = [replace(note, size=note.size * scale) for note in notes]
        boxes = np.array([note.box(page, area) for note in scaled_notes]).reshape(-1, 4)
        overlaps = _overlaps(boxes)
        if not overlaps.any() or max((note.size for note in scaled_notes), default=0) < _SMALLEST_NOTE:
            break
        scale *= 0.93
    selected: list[int] = []
    for i in range(len(scaled_notes)):
        if not overlaps[i, selected].any():
            selected.append(i)
    return [scaled_notes[i] for i in selected]


def write_note(page: Page, note: Note, area: Area, name: str) -> None:
    """Writes a note at its position, on its ground if it has one; `name` is that of the ground in the file."""
    left, top, right, bottom = note.box(page, area)
    if note.ground:
        page.boxes(np.array([[left - _PAD, top, right + _PAD, bottom]]), [note.ground], name, seam=False)
    x = {"left": left, "center": (left + right) / 2, "right": right}[note.align]
    for i, line in enumerate(note.lines):
        y = top + LINE * note.size * (i + 0.5) + MIDDLE * note.size
        write_line(page, x, y, line, note.size, note.align, note.color)


def write_line(
    page: Page, x: float, y: float, line: list[markup.Run], size: float, align: Align = "left", color: str = INK
) -> None:
    """Writes the runs of a line one after the other, each in its weight."""
    if len(line) == 1:
        page.write(x, y, line[0].text, size, align, line[0].bold, color=color)
        return
    position = x - width_of(page, line, size) * {"left": 0, "center": 0.5, "right": 1}[align]
    for run in line:
        text = run.text.lstrip()
        position += page.width_of(run.text, size, run.bold) - page.width_of(text, size, run.bold)
        if text:
            page.write(position, y, text.rstrip(), size, bold=run.bold, color=color)
        position += page.width_of(text, size, run.bold)


def width_of(page: Page, line: list[markup.Run], size: float) -> float:
    """The width of a line."""
    return sum(page.width_of(run.text, size, run.bold) for run in line)


def wrap(page: Page, text: str, size: float, room: float) -> list[list[markup.Run]]:
    """A text in as few lines as fit into `room`, of similar length, broken at " · " where possible."""
    lines = _break_lines(page, text, size, room)
    # A text of lines or words that cannot be broken has as many lines in any room.
    while (
        len(lines) > 1
        and room > 1
        and len(narrower := _break_lines(page, text, size, room := 0.97 * room)) == len(lines)
    ):
        lines = narrower
    return lines


def _break_lines(page: Page, text: str, size: float, room: float) -> list[list[markup.Run]]:
    text = f"{_NO_BREAK}· ".join(
        part if page.width_of(markup.plain(part), size) > room else part.replace(" ", _NO_BREAK)
        for part in text.split(" · ")
    )
    lines: list[list[markup.Run]] = []
    for line in markup.parse_lines(text):
        lines.append([])
        line_width = 0.0
        for piece in (markup.Run(part, run.bold) for run in line for part in re.findall(r" +|[^ ]+", run.text)):
            width = page.width_of(piece.text, size, piece.bold)
            if line_width + width > room and piece.text.strip() and line_width:
                lines.append([])
                line_width = 0.0
            if line_width or piece.text.strip():
                lines[-1].append(piece)
                line_width += width
    return [_merge_runs(line) for line in lines if line]


def _merge_runs(line: list[markup.Run]) -> list[markup.Run]:
    """A line with neighbouring runs of equal weight merged."""
    merged: list[markup.Run] = []
    for run in line:
        if merged and merged[-1].bold == run.bold:
            merged[-1] = markup.Run(merged[-1].text + run.text, run.bold)
        else:
            merged.append(run)
    return [markup.Run(run.text.replace(_NO_BREAK, " "), run.bold) for run in merged]


def _overlaps(boxes: Any) -> Any:
    """Whether each box overlaps each other box, [box box]."""
    x0, y0, x1, y1 = boxes.T
    overlaps = ~((x1[:, None] <= x0) | (x1 <= x0[:, None]) | (y1[:, None] <= y0) | (y1 <= y0[:, None]))
    np.fill_diagonal(overlaps, False)
    return overlaps
