"""A figure for a paper: some heads side by side, with letters, one colour bar, and labels of six points or more, exactly as wide as a column.

    heads, trace ──▶ panels (the marks of `drawn_map_json`) ──▶ plan: labels, cells, titles at this width ──▶ page ──▶ file, caption

Sizes are points and the page is as wide as asked, so nothing is scaled: what does not fit is turned, thinned or cut, and the caption says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from attention.base.errors import MissingError, PictureError
from attention.base.pieces import WordRule
from attention.base.tokens import Patch, any_patch, label
from attention.formula.mask import RULES
from attention.formula.names import MAP_AXES, WEIGHTS, Cell
from attention.formula.step import Step
from attention.formula.steps import find_step
from attention.paper import KINDS, NARROWEST, WIDEST, drawing
from attention.paper.marks import colors_of, visible_cells, wrap, write_line
from attention.pictures import scales
from attention.pictures.layout import axis_noun
from attention.pictures.look import LIGHT
from attention.pictures.marks import Spec
from attention.pictures.view import override_words
from attention.trace.layer import Layer
from attention.trace.trace import Trace

ONE_COLUMN, TEXT_WIDTH = 8.4, 17.4
"""The width of one column and of the text of a two-column paper, in centimetres."""

_POINT = 4 / 3  # pixels, which `Page` counts in
_TITLE, _SIZES = 8 * _POINT, (7 * _POINT, 6.5 * _POINT, 6 * _POINT)  # of titles; of labels, the smallest last
_TEXT = _SIZES[0]
_APART = 1.02  # the distance of two labels, in font sizes
_LINE = 1.25  # of two lines of a title, in font sizes
_DOWN = 0.36  # from the middle of a letter to its baseline, in font sizes
_GAP = 3 * _POINT  # between a label and what it labels
_BETWEEN = 8 * _POINT  # between panels
_EDGE = 1 * _POINT  # white around everything, so that no line is cut
_LEAST_PANEL = 75 * _POINT  # of a column of panels, where the number of columns is not given
_LEAST_CELLS = 20 * _POINT  # of a panel: below this nothing can be seen
_LONGEST_LABEL = (0.2, 70 * _POINT)  # a part of the page, and no more than this
_BAR = (44 * _POINT, 5 * _POINT)
_SLICES = 64
_HIGHEST = 22 / 2.54 * 96  # a page of paper
_LONGEST_PATCH = 12  # characters of the label of a patch
_LONGEST_TEXT = 240  # characters of the text in the caption
_BLANK = "·Ġ▁ "  # how a token shows the blank before it


@dataclass(frozen=True)
class _Panel:
    """One head: its title, its layer and head in words, its marks, the labels along its axes, row by row and column by column, and whether these are tokens."""

    title: str
    place: str
    spec: Spec
    labels: tuple[tuple[str, ...], tuple[str, ...]]
    axes: tuple[str, str]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return len(self.labels[0]), len(self.labels[1])


def figure(
    heads: Sequence[tuple[int, int]],
    trace: Trace | Sequence[Trace],
    *,
    step: str = WEIGHTS,
    width: float = ONE_COLUMN,
    rows: int = 0,
    columns: int = 0,
    colors: str = "stretched",
    cross: tuple[int, int] | None = None,
    font: str = "",
    titles: Sequence[str] = (),
    model: str = "",
) -> HeadsFigure:
    """Some heads as a figure for a paper: ``figure([(17, 3), (18, 6)], trace).save("heads.pdf", width=8.4)``.

    Args:
        heads: pairs (layer, head) or `HeadIndex`es, a panel each, in this order.
        trace: of these heads; or a trace for each of them, such as one before and one after an ablation.
        step: whose matrix is drawn, by its name here or in another library.
        width: in centimetres; 8.4 is one column, 17.4 the width of the text.
        rows: of the grid of panels; by default as `columns` has it.
        columns: of the grid of panels; by default as many as are 75 points wide or more.
        colors: of a probability: "stretched", from 0 to the largest of all panels, rounded up to one digit; "fixed", from 0 to 1; or "log".
        cross: a query and a key, whose row, column and cell are outlined; by default nothing is.
        font: a font family on this machine, such as "Times New Roman"; by default DejaVu Sans.
        titles: of the panels; by default "Layer 17, head 3".
        model: its name in the caption; by default what the trace knows.

    Raises:
        PictureError: there are no heads, more than the grid has places, or other titles or traces than heads; no such font; a width out of range.
        MissingError: the trace has no such layer, head or step.
        ConfigError: there are no such colours.
    """
    from attention.pictures.drawing import Drawn
    from attention.pictures.heatmap import drawn_map_json  # imports Plotly

    heads = [heads] if heads and isinstance(heads[0], int) else list(heads)
    traces = [trace] * len(heads) if isinstance(trace, Trace) else list(trace)
    declaration = find_step(step)
    if not heads or any(len(head) != 2 for head in heads):
        raise PictureError(f"A figure has pairs (layer, head), one for each panel; got {heads!r}: give one or more.")
    for name, items in (("traces", traces), ("titles", titles or heads)):
        if len(items) != len(heads):
            raise PictureError(
                f"{len(heads)} heads have {len(heads)} {name}; got {len(items)}: give one for each head."
            )
    if rows * columns and rows * columns < len(heads):
        raise PictureError(f"{rows} × {columns} places are too few for {len(heads)} heads: omit rows or columns.")
    chosen = [(each, each.layer(layer), layer, head) for each, (layer, head) in zip(traces, heads, strict=True)]
    span = scales.joined_span([scales.drawn_span(of_layer, declaration.name, head) for _, of_layer, _, head in chosen])
    if span and declaration.kind == "probability":
        span = span[0], _rounded_up(span[1])
    panels, largest = [], 0.0
    for i, (each, of_layer, layer, head) in enumerate(chosen):
        matrix = of_layer.matrix(declaration.name, head)
        largest = max(largest, float(matrix[matrix.isfinite()].abs().max()) if bool(matrix.isfinite().any()) else 0.0)
        if cross is not None and not all(0 <= at < size for at, size in zip(cross, matrix.shape, strict=True)):
            rows_, columns_ = matrix.shape
            raise PictureError(
                f"cross is a row and a column of {rows_} × {columns_}, from 0; got {cross}: choose one of these cells."
            )
        cell = None if cross is None else Cell(layer, declaration.name, head, *cross)
        spec = drawn_map_json(Drawn.of_head(each, declaration.name, layer, head, colors, span), cell)
        axes = declaration.row_axis, declaration.column_axis
        rows_and_columns = _labels(of_layer, axes[0], matrix.shape[0]), _labels(of_layer, axes[1], matrix.shape[1])
        own_name = f" ({of_layer.name})" * (of_layer.name not in ("", f"layer {layer}"))
        place = f"Layer {layer}{own_name}" + f", head {head}" * declaration.per_head
        panels.append(_Panel(titles[i] if titles else place, place, spec, rows_and_columns, axes))
    words = declaration.name.split("_")
    if declaration.axes == MAP_AXES:
        words.insert(-1, "attention")
    what = " ".join(words)
    across = columns or (-(-len(heads) // rows) if rows else 0)
    made = HeadsFigure(tuple(panels), what, largest, _facts(chosen, declaration, model), width, across, font)
    made.check()
    return made


@dataclass(frozen=True)
class HeadsFigure:
    """A figure for a paper of one width; `figure` makes it."""

    panels: tuple[_Panel, ...]
    what: str
    largest: float
    facts: tuple[str, str]
    width: float
    columns: int
    font: str

    def save(self, path: str | Path, width: float = 0) -> HeadsFigure:
        """Writes the figure to a file .pdf, .svg or .png, `width` centimetres wide; returns the figure at this width, which has the caption.

        Raises:
            PictureError: another kind of file, or a width that is out of range or too small for the panels.
        """
        sized = self.at(width or self.width)
        Path(path).write_bytes(sized.picture(Path(path).suffix.lstrip(".").lower()))
        return sized

    def at(self, width: float) -> HeadsFigure:
        """The same figure at another width in centimetres."""
        sized = replace(self, width=width)
        sized.check()
        return sized

    def picture(self, kind: str) -> bytes:
        """The content of a file of a kind: pdf, svg or png. The same figure always gives the same bytes.

        Raises:
            PictureError: another kind, or the width is too small for the panels.
        """
        if kind not in KINDS:
            why = ": PGF needs LaTeX to measure its text, and a PDF with its fonts inside goes in as it is" * (
                kind == "pgf"
            )
            raise PictureError(
                f"A figure is saved as {', '.join(KINDS[:-1])} or {KINDS[-1]}; got {kind!r}{why}: choose one of these."
            )
        with drawing():
            plan = _Plan(self, kind)
            _draw(plan)
            title = "; ".join(panel.title for panel in self.panels)
            alts = " ".join(panel.spec["layout"]["meta"]["alt"] for panel in self.panels)
            return plan.page.render(f"{title}: {self.what}", alts)

    @cached_property
    def caption(self) -> str:
        """The caption for LaTeX: what is shown, of which heads, model and text, the mask, the colours, and what is left out at this width."""
        with drawing():
            plan = _Plan(self, "pdf")
        named = [
            panel.title if panel.title == panel.place else f"{panel.title}: {panel.place[0].lower()}{panel.place[1:]}"
            for panel in self.panels
        ]
        panels = [f"({letter}) {name}" if letter else name for letter, name in zip(plan.letters, named, strict=True)]
        row, column = map(axis_noun, self.panels[0].axes)
        before, after = self.facts
        sentences = [
            f"{_capital(self.what)}{before}.", f"{'; '.join(panels)}.", f"Each row is a {row}, each column a {column}.", after,
            f"One colour scale for all panels, {_range_words(self)}." if len(panels) > 1 else f"Colours {_range_words(self)}.", *plan.notes,
        ]  # fmt: skip
        return _latex(" ".join(filter(None, sentences)))

    def latex(self, file: str) -> str:
        """The figure environment that includes this file with its caption."""
        stem = re.sub(r"\W+", "-", Path(file).stem)
        place = "figure" if self.width <= (ONE_COLUMN + TEXT_WIDTH) / 2 else "figure*"
        return f"\\begin{{{place}}}\n  \\centering\n  \\includegraphics[width={self.width:g}cm]{{{file}}}\n  \\caption{{{self.caption}}}\n  \\label{{fig:{stem}}}\n\\end{{{place}}}\n"

    def _repr_png_(self) -> bytes:
        return self.picture("png")

    def check(self) -> None:
        """Raises a `PictureError` if the width is out of range, or there is no such font."""
        if not NARROWEST <= self.width <= WIDEST:
            raise PictureError(
                f"A picture is {NARROWEST} to {WIDEST} cm wide; got {self.width:g} cm: choose a width in this range."
            )
        if self.font:
            from attention.paper.page import installed_fonts

            if self.font not in installed_fonts():
                raise PictureError(
                    f"The font {self.font!r} is not on this machine; it has {', '.join(sorted(installed_fonts()))}: choose one of these, or omit it."
                )


@dataclass(frozen=True)
class _Labels:
    """The labels along an axis: every n-th text at one size, beside or below the cells, and how far they reach."""

    texts: tuple[str, ...]
    every: int
    size: float
    upright: bool
    reach: float


class _Plan:
    """Where everything stands on a page: chosen by the room that there is, before anything is drawn."""

    def __init__(self, figure: HeadsFigure, kind: str) -> None:
        from attention.paper.page import Page

        self.figure, self.panels = figure, figure.panels
        self.page = page = Page(figure.width, kind, exact=True, font=figure.font)
        n = len(self.panels)
        self.letters = _letters(n)
        self.across = figure.columns or min(n, max(1, int((page.width - 40 * _POINT) // (_LEAST_PANEL + _BETWEEN))))
        self.across = figure.columns or -(-n // -(-n // self.across))  # rows of equal length
        self.axis_room = _TEXT + _GAP
        self.longest = min(_LONGEST_LABEL[0] * page.width, _LONGEST_LABEL[1])
        self.is_cut = False
        for self.size in _SIZES:
            self._fit()
            if self.pitch >= self.size * _APART:
                break
        if self.pitch * max(max(panel.shape) for panel in self.panels) < _LEAST_CELLS:
            raise PictureError(
                f"{self.across} panels side by side need more than {figure.width:g} cm: make the figure wider, or give it fewer columns."
            )
        self.heading = self._titles()

    def _fit(self) -> None:
        """The labels at this size, and the sides of the cells beside them."""
        page, across = self.page, self.across
        every = 1
        for _ in range(3):  # fewer labels are less wide, and leave the cells more room
            sides = [self._beside(i, every) for i in range(len(self.panels))]
            rooms = [
                max(sides[i].reach for i in range(column, len(sides), across))
                for column in range(min(across, len(sides)))
            ]
            room = page.width - 2 * _EDGE - self.axis_room - sum(reach + _GAP * bool(reach) for reach in rooms)
            self.panel_width = (room - _BETWEEN * (across - 1)) / across
            down = -(-len(self.panels) // across)
            self.cells = [
                min(self.panel_width / panel.shape[1], 0.8 * _HIGHEST / down / panel.shape[0]) for panel in self.panels
            ]
            self.pitch = min(self.cells)
            needed = max(1, math.ceil(self.size * _APART / self.pitch - 1e-9))
            if needed == every or self.size > _SIZES[-1]:
                break
            every = needed
        self.sides, self.rooms = sides, rooms
        self.below = [self._under(i) for i in range(len(self.panels))]

    def _beside(self, i: int, every: int) -> _Labels:
        """The labels left of a panel; none if the panel before it has the same."""
        labels = self.panels[i].labels[0]
        if (
            i % self.across
            and self.panels[i - 1].labels[0] == labels
            and self.panels[i - 1].shape == self.panels[i].shape
        ):
            return _Labels((), 1, self.size, False, 0)
        texts = self._cut(labels)
        return _Labels(texts, every, self.size, False, max(map(self._width, texts[::every])))

    def _under(self, i: int) -> _Labels:
        """The labels below a panel, side by side if they fit, or upright; none if the panel below it has the same."""
        labels = self.panels[i].labels[1]
        if i + self.across < len(self.panels) and self.panels[i + self.across].labels[1] == labels:
            return _Labels((), 1, self.size, False, 0)
        texts, pitch = self._cut(labels), self.cells[i]
        widths = [*map(self._width, texts)]
        if all((a + b) / 2 + 0.5 * self.size <= pitch for a, b in pairwise(widths)) and max(widths) <= 1.2 * pitch:
            return _Labels(texts, 1, self.size, False, self.size)
        every = max(1, math.ceil(self.size * _APART / pitch - 1e-9))
        return _Labels(texts, every, self.size, True, max(map(self._width, texts[::every])))

    def _cut(self, labels: Sequence[str]) -> tuple[str, ...]:
        return tuple(self._shortened(text) for text in labels)

    def _shortened(self, text: str) -> str:
        if self._width(text) <= self.longest:
            return text
        self.is_cut = True
        return next(
            cut for n in range(len(text) - 1, 0, -1) if self._width(cut := text[:n] + "…") <= self.longest or n == 1
        )

    def _width(self, text: str) -> float:
        return self.page.width_of(text, self.size)

    def _titles(self) -> list[list[Any]]:
        """The lines of every title: with what is drawn if all fit on a line; otherwise the colour bar says it."""
        indents = [self.indent(i) for i in range(len(self.panels))]
        full = [f"{panel.title}: {self.figure.what}" for panel in self.panels]
        self.is_full = all(
            self.page.width_of(text, _TITLE) + indent <= self.panel_width
            for text, indent in zip(full, indents, strict=True)
        )
        texts = full if self.is_full else [panel.title for panel in self.panels]
        return [
            wrap(self.page, escape(text, quote=False), _TITLE, self.panel_width - indent)
            for text, indent in zip(texts, indents, strict=True)
        ]

    def indent(self, i: int) -> float:
        """The width of a panel's letter."""
        return self.page.width_of(self.letters[i], _TITLE, True) + 0.6 * _TITLE if self.letters[i] else 0

    @property
    def notes(self) -> list[str]:
        """What is left out at this width, as sentences."""
        every = {
            labels.every
            for i, panel in enumerate(self.panels)
            for labels, axis in zip((self.sides[i], self.below[i]), panel.axes, strict=True)
            if labels.texts and axis in MAP_AXES
        }
        thinned = [f"Every {_ordinal(n)} token is labelled." for n in sorted(every) if n > 1]
        pooled = {_block(panel) for panel in self.panels} - {(1, 1)}
        blocks = [f"Each cell is the largest of {down} × {across} numbers." for down, across in sorted(pooled)]
        return thinned[:1] + ["Long tokens are cut."] * self.is_cut + blocks


def _block(panel: _Panel) -> tuple[int, int]:
    return visible_cells(panel.spec)[1]


def _draw(plan: _Plan) -> None:
    """Draws a plan from top to bottom: the colour bar, then each row of panels with its titles and labels."""
    page, across = plan.page, plan.across
    lefts, x = [], _EDGE + plan.axis_room
    for reach in plan.rooms:
        x += reach + _GAP * bool(reach)
        lefts.append(x)
        x += plan.panel_width + _BETWEEN
    y = _EDGE + _draw_bar(plan, lefts[min(across, len(plan.panels)) - 1] + plan.panel_width) + 1.5 * _GAP
    for first in range(0, len(plan.panels), across):
        row = range(first, min(first + across, len(plan.panels)))
        lines = max(len(plan.heading[i]) for i in row)
        top = y + lines * _LINE * _TITLE + 0.5 * _GAP
        for i in row:
            _draw_title(plan, i, lefts[i - first], y)
            _draw_panel(plan, i, lefts[i - first], top)
        heights = [plan.panels[i].shape[0] * plan.cells[i] for i in row]
        page.write(
            _EDGE + 0.8 * _TEXT,
            top + heights[0] / 2,
            _capital(axis_noun(plan.panels[first].axes[0])),
            _TEXT,
            "center",
            upright=True,
        )
        reach = max(
            height + (_GAP + plan.below[i].reach) * bool(plan.below[i].texts)
            for i, height in zip(row, heights, strict=True)
        )
        y = top + reach
        for i in row:
            if plan.below[i].texts:
                bottom = top + plan.panels[i].shape[0] * plan.cells[i] + _GAP + plan.below[i].reach
                width = plan.panels[i].shape[1] * plan.cells[i]
                page.write(
                    lefts[i - first] + width / 2,
                    bottom + 0.5 * _GAP + 0.8 * _TEXT,
                    _capital(axis_noun(plan.panels[i].axes[1])),
                    _TEXT,
                    "center",
                )
                y = max(y, bottom + 0.5 * _GAP + 1.05 * _TEXT)
        y += _BETWEEN
    page.height = y - _BETWEEN + _EDGE


def _draw_title(plan: _Plan, i: int, left: float, top: float) -> None:
    plan.page.write(left, top + 0.85 * _TITLE, plan.letters[i], _TITLE, bold=True)
    for n, line in enumerate(plan.heading[i]):
        write_line(plan.page, left + plan.indent(i), top + (0.85 + _LINE * n) * _TITLE, line, _TITLE)


def _draw_panel(plan: _Plan, i: int, left: float, top: float) -> None:
    """Draws the cells of a panel, its outlines, its frame and its labels."""
    page, panel, cell = plan.page, plan.panels[i], plan.cells[i]
    rows, columns = panel.shape
    layers, _ = visible_cells(panel.spec)
    corner = np.array([left, top, left, top])
    for name, layer in zip(("cells", "ground"), layers, strict=False):
        if len(layer.boxes):
            page.boxes((layer.boxes + 0.5) * cell + corner, layer.colors, f"{name}-{i}", seam=True)
    for shape in panel.spec["layout"].get("shapes", ()):
        x0, x1, y0, y1 = ((shape[side] + 0.5) * cell for side in ("x0", "x1", "y0", "y1"))
        page.outline(
            left + x0, top + y0, left + x1, top + y1, shape["line"]["color"], 0.4 * _POINT * shape["line"]["width"]
        )
    page.outline(left, top, left + columns * cell, top + rows * cell, LIGHT["edge"], 0.4 * _POINT)
    beside, below = plan.sides[i], plan.below[i]
    tick = 1.2 * _POINT  # of thinned labels, at their cells
    for row in range(0, rows if beside.texts else 0, beside.every):
        if beside.every > 1:
            page.line([left - tick, left], [top + (row + 0.5) * cell] * 2, LIGHT["edge"], 0.4 * _POINT)
        page.write(left - _GAP, top + (row + 0.5) * cell + _DOWN * beside.size, beside.texts[row], beside.size, "right")
    for column in range(0, columns if below.texts else 0, below.every):
        x, y = left + (column + 0.5) * cell, top + rows * cell + _GAP
        if below.every > 1:
            page.line([x, x], [y - _GAP, y - _GAP + tick], LIGHT["edge"], 0.4 * _POINT)
        if below.upright:
            page.write(x + _DOWN * below.size, y, below.texts[column], below.size, "right", upright=True)
        else:
            page.write(x, y + 0.8 * below.size, below.texts[column], below.size, "center")


def _draw_bar(plan: _Plan, right: float) -> float:
    """Draws the colour bar on one line, at its right end the largest number, and what is drawn before it; returns its height."""
    page, (length, thickness) = plan.page, _BAR
    scale, low, high, is_log = _scale(plan.figure)
    ends = _ends(plan.figure)
    baseline = _EDGE + 0.8 * _TEXT
    page.write(right, baseline, ends[1], _TEXT, "right")
    right -= page.width_of(ends[1], _TEXT) + _GAP
    left, top = right - length, baseline - 0.72 * _TEXT / 2 - thickness / 2
    edges = np.linspace(left, right, _SLICES + 1)
    shares = (np.arange(_SLICES) + 0.5) / _SLICES
    middles = scales.LOG_FLOOR * (high / scales.LOG_FLOOR) ** shares if is_log else low + shares * (high - low)
    boxes = np.stack([edges[:-1], np.full(_SLICES, top), edges[1:], np.full(_SLICES, top + thickness)], axis=1)
    page.boxes(boxes, colors_of(middles, scale, low, high), "colorbar", seam=True)
    page.outline(left, top, right, top + thickness, LIGHT["edge"], 0.4 * _POINT)
    left -= _GAP
    page.write(left, baseline, ends[0], _TEXT, "right")
    words = "" if plan.is_full else _capital(plan.figure.what)
    left -= page.width_of(ends[0], _TEXT) + _GAP
    if page.width_of(words, _TEXT) > left - _EDGE:  # on a line of its own, below
        page.write(plan.page.width - _EDGE, baseline + 1.15 * _TEXT, words, _TEXT, "right")
        return 2.2 * _TEXT
    page.write(left, baseline, words, _TEXT, "right")
    return 1.05 * _TEXT


def _scale(figure: HeadsFigure) -> tuple[Any, float, float, bool]:
    """The colours of all panels, their ends, and whether they are logarithmic."""
    heat = figure.panels[0].spec["data"][0]
    return heat["colorscale"], heat["zmin"], heat["zmax"], heat.get("meta", {}).get("colors") == "log"


def _ends(figure: HeadsFigure) -> tuple[str, str]:
    """The numbers at both ends of the colours; "≥" where numbers lie beyond, in the colour of the end."""
    _, low, high, is_log = _scale(figure)
    beyond = figure.largest > (1 + 1e-6) * high
    first, last = ("10⁻⁴" if is_log else _number(low)), _number(high)
    return ("≤ " * (is_log or (beyond and low < 0)) + first, "≥ " * beyond + last)


def _range_words(figure: HeadsFigure) -> str:
    first, last = (end.replace("≤ ", "").replace("≥ ", "").replace("10⁻⁴", "0.0001") for end in _ends(figure))
    beyond = "; larger numbers have the colour of the end" if figure.largest > (1 + 1e-6) * _scale(figure)[2] else ""
    return f"from {first} to {last}{', logarithmic; 0 is white' if _scale(figure)[3] else ''}{beyond}"


def _rounded_up(value: float) -> float:
    """A number of one digit that is as large or larger, for the end of a colour bar: 0.4 for 0.31."""
    unit = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return float(f"{math.ceil(value / unit - 1e-6) * unit:.6g}")


def _number(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _ordinal(n: int) -> str:
    words = {
        2: "second",
        3: "third",
        4: "fourth",
        5: "fifth",
        6: "sixth",
        7: "seventh",
        8: "eighth",
        9: "ninth",
        10: "tenth",
    }
    return words.get(n, f"{n}th")


def _labels(layer: Layer, axis: str, size: int) -> tuple[str, ...]:
    """The labels of an axis: its tokens without the mark of a blank before them, or the numbers of its columns."""
    tokens = layer.labels_of(axis)
    if tokens is None:
        return tuple(map(str, range(size)))
    return tuple(name.lstrip(_BLANK) or name for name in _readable(tokens))


def _readable(tokens: Sequence[str]) -> list[str]:
    """The tokens without invisible characters; pieces of bytes, as GPT-2 has them (Ġthe), as texts."""
    rule = WordRule.of_marks(tokens)
    pieces = rule.read(tokens, [False] * len(tokens)) if rule.alphabet else tokens
    return [label(piece, _LONGEST_PATCH if isinstance(piece, Patch) else 0, escape=False) for piece in pieces]


def _facts(chosen: Sequence[tuple[Trace, Layer, int, int]], step: Step, model: str) -> tuple[str, str]:
    """What the caption says of the model and the text; and of the mask, overrides and interventions."""
    traces, layers = [trace for trace, *_ in chosen], [layer.for_head(head) for _, layer, _, head in chosen]
    models = _unique([model] if model else map(_model_of, traces))
    of = f" of {' and '.join(models)}" if models else " with random projections" * traces[0].random
    texts = _unique(_text_of(layer.tokens, layer.key_tokens) for layer in layers)
    sentences = []
    hiding = [layer.formula.mask if layer.formula else None for layer in layers if step.masked and layer.hides_keys]
    if hiding:
        kinds = _unique(mask.kind if mask and mask.kind in RULES else "" for mask in hiding)
        sentences.append(
            f"Grey cells are hidden by the {kinds[0]} mask."
            if len(kinds) == 1
            else "Grey cells are hidden by the mask."
        )
    changes = [
        [*trace.changes, *(f"With {words} instead of the model's own." for words in override_words(layer))]
        for trace, layer in zip(traces, layers, strict=True)
    ]
    if all(each == changes[0] for each in changes):
        sentences += changes[0]
    else:
        sentences += [
            f"In ({letter}): {' '.join(each)}"
            for letter, each in zip(_letters(len(chosen)), changes, strict=True)
            if each
        ]
    return f"{of} on {' and '.join(texts)}", " ".join(sentences)


def _unique(texts: Iterable[str]) -> list[str]:
    return [*dict.fromkeys(filter(None, texts))]


def _letters(n: int) -> list[str]:
    """The letters of several panels; one alone has none."""
    return [""] if n == 1 else [chr(ord("a") + i % 26) * (1 + i // 26) for i in range(n)]


def _model_of(trace: Trace) -> str:
    """The name of the model of a trace; empty if it has none, or the model is no longer in memory."""
    try:
        source = trace.model_run and trace.model_run.source
    except MissingError:
        return ""
    if task := getattr(source, "task", ""):
        return f"a tiny model trained on “{task}”"
    name = getattr(getattr(source, "handle", None) or source, "name", "")
    in_brackets = re.search(r"\(([^()]+)\)$", name)
    return in_brackets[1] if in_brackets else Path(name).name


def _text_of(tokens: Sequence[str], key_tokens: Sequence[str]) -> str:
    """The text of some tokens in quotation marks, and that of the keys if it is another."""
    if tuple(tokens) != tuple(key_tokens):
        return f"{_text_of(tokens, tokens)} (queries) and {_text_of(key_tokens, key_tokens)} (keys)"
    if any_patch(tokens):
        return "a picture"
    pieces = [piece.replace("⏎", " ") for piece in _readable([*map(str, tokens)])]  # not as generated, or of a pair
    if any(piece[0] in _BLANK and piece[1:] for piece in pieces):
        text = re.sub(f"[{_BLANK}]", " ", "".join(pieces)).strip()
    else:
        text = re.sub(r"(?<=[\u3040-\u9fff]) (?=[\u3040-\u9fff])", "", " ".join(pieces).replace(" ##", ""))
    return f"“{text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + '…'}”"


def _latex(text: str) -> str:
    """The text with what LaTeX reads as commands escaped."""
    special = {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "“": "``",
        "”": "''",
        "…": r"\ldots{}",
        "×": r"$\times$",
        "−": "$-$",
    }
    return "".join(
        special.get(character, f"\\{character}" if character in "{}$&#%_" else character) for character in text
    )
