"""One row or column of a map, drawn over the picture whose patches are the tokens of the axis; other tokens are boxes in lines above it.

What a model saw of a sound or a series is a picture with axes, in seconds and hertz.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.base.errors import MissingError, check_index
from attention.base.tokens import NEWLINE, BoxToken, Patch, any_patch, label, place_label, shows_several_pictures
from attention.formula.names import KEY, QUERY
from attention.formula.steps import Step, find_step
from attention.metrics.patterns import CLS, kind_of
from attention.pictures import scales
from attention.pictures.drawing import hidden_cells, hidden_ground, layer_label
from attention.pictures.layout import AXIS_TITLES, axis_noun, base_layout, position_name, short_axis_name
from attention.pictures.look import LIGHT, TYPE
from attention.pictures.marks import Mark, Spec, cells, draw, image, note, outline, rule
from attention.pictures.message import plotly_variant
from attention.pictures.message_contract import NO_TOKEN, Meta
from attention.trace.stats import finite_range
from attention.trace.trace import SeenPicture, Trace

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray
    from torch import Tensor

    from attention.explanation.derived import DerivedMap

_MAX_SIDE = 1024
"""The largest height and width in pixels of a picture in a figure."""
EDGE: dict[str, Any] = {"color": "rgba(128,128,128,0.55)", "width": 1}  # visible on dark and on bright pictures
"""The line between patches and around other tokens."""
_MAX_LINES = 6
"""The largest number of lines of other tokens; the grid leaves out the tokens after them."""
_SMALL_SIDE = 256  # pixels; smaller pictures are enlarged without smoothing, so that their pixels are seen as they are
_CELL = 26  # pixels of height of a cell
_HEIGHTS = (240, 640)  # pixels, the lowest and the highest grid
_FRAME = 96  # pixels of height of the title and the edge below
_LABEL_CELLS = 56  # characters that fit side by side over the width of a grid
_MIN_COLUMNS = 8  # of a grid; narrower pictures have a free space beside them
_BAND = 6  # columns for each row of a band, such as a sound
_MIN_ROWS = 6  # of a grid that is no band
_MAX_EDGES = 256  # lines between patches; more would hide what is below them
_TICKS = 8  # of an axis, about
BOX = "predicted box"
"""The name of the outlines of `box_marks`."""
_BOX_COLOR = LIGHT["yes"]
_GUTTER = 1  # cells between pictures, and between the lines and the pictures
_MAX_COLUMNS = 200  # cells side by side; more pictures stand in further lines
_FILM = 1.5  # about the width of a strip of frames with a large one, relative to its height
_CAPTION = 16  # pixels of height, below the frames of a strip
LARGE = "large"
"""The name of the image of a large frame, which stands in the strip too."""


def over_picture_json(
    line: MapLine,
    colors: str = "fixed",
    opacity: float = scales.OPACITY,
    chosen: int | None = None,
    exact: bool = True,
) -> Spec:
    """Returns the row of one query over the picture of its keys, or the column of one key over the picture of its queries.

    Each patch has the colour of its number, without smoothing between patches; the other tokens of the axis, such as [CLS],
    stand above the picture as boxes. The query or key itself is outlined with dots if it is a token of the drawn axis.

    Args:
        line: what is drawn.
        colors: one of `scales.COLORS`, as for a heatmap; or `scales.FITTED`, as a single row of many patches has small numbers.
        opacity: of the colours, from 0 (only the picture) to 1 (only the colours).
        chosen: the position of the chosen token of the drawn axis, which is outlined.
        exact: whether the pixels of the picture are exact; otherwise a large picture is compressed, for pages that send it often.

    Raises:
        MissingError: the layer has no such step or head.
        ConfigError: `colors` is not one of `COLORS`.
    """
    trace, step, layer, tokens = line.trace, line.step, line.layer, line.tokens
    matrix, span = line.matrix()
    numbers, mask = line.along(matrix.numpy()), hidden_cells(trace, step, layer, line.head or 0)
    hidden = np.zeros(len(tokens), bool) if mask is None else line.along(mask)
    shown = np.where(np.isfinite(numbers) & ~hidden, numbers, np.nan)
    grid = _film(line, shown, chosen)
    color_keys, extra_traces = fitted_colors(step, colors, span, shown[grid.patches])
    where = f" H{line.head or 0}" if step.per_head else ""
    hover = f"{step.name} L{layer}{where}<br>{line.name}<br>{axis_noun(line.axis)} %{{text}}<br>"
    several = shows_several_pictures(tokens)
    texts = [["" if at == NO_TOKEN else f"{at} {place_label(tokens[at], several)}" for at in row] for row in grid.positions]  # fmt: skip
    facts = [
        line.name,
        f"{layer_label(trace.layer(layer), layer)}{where}",
        *_shares(line, numbers),
    ]
    facts += [f"{grid.n_left_out} more tokens are not drawn"] * bool(grid.n_left_out)
    meta: Meta = {
        "alt": f"{step.name} over the {line.noun}, {', '.join(facts)}: {grid.words}.",
        "step": step.name, "layer": layer, "panels": [], "axes": [short_axis_name(each) for each in (step.row_axis, step.column_axis)],
        "file": [step.name, f"L{layer}{where.replace(' ', '-')}", f"over-picture-{line.at}"],
        "hidden_trace": hidden_ground(step, hover, opacity=opacity),
        "grid": {
            "positions": grid.positions.astype(np.int32), "top": grid.pictures[0].y, "reads": line.reads, "at": line.at, "same": line.is_same,
        },
    }  # fmt: skip
    layout = base_layout(grid.positions.shape, f"<b>{step.symbol}</b>  {step.name} over the {line.noun}", facts, meta)
    height = min(_HEIGHTS[1], max(_HEIGHTS[0], _CELL * grid.positions.shape[0]))
    # Right: half of a number of the bar.
    layout |= {"height": height + _FRAME, "margin": {"l": 12, "r": 22, "t": 78, "b": 18}}
    layout["xaxis"] |= {"showticklabels": False, "constrain": "domain"}
    layout["yaxis"] |= {"showticklabels": False, "scaleanchor": "x", "constrain": "domain"}  # square cells
    _draw_axes(layout, line)
    if boxes := _boxes(line):
        meta["grid"]["boxes"] = boxes
    own_boxes, chosen_boxes = grid.boxes(line.at) if line.is_same else [], [] if chosen is None else grid.boxes(chosen)
    meta["chosen"] = [chosen_boxes[0][1], chosen_boxes[0][0]] if chosen_boxes else None
    return draw(
        layout,
        cells(grid.fill(shown), f"{hover}<b>%{{z:.9g}}</b>", color_keys, text=texts, opacity=opacity),
        hidden_ground(step, hover, np.isfinite(grid.fill(np.where(hidden, 1, np.nan))), text=texts, opacity=opacity) if hidden.any() else None,
        *extra_traces, *layout_images(grid, trace, exact), *_edges(grid), *box_marks(boxes, line.at),
        *(outline(*box, 3, dash="dot") for box in own_boxes),
        *(outline(*box, 3) for box in chosen_boxes),
        *(_token_label(token) for token in grid.others), *_captions(grid, line),
    )  # fmt: skip


over_picture = plotly_variant(over_picture_json)
"""`over_picture_json` as a Plotly figure."""


@dataclass(frozen=True)
class MapLine:
    """A line of a map: the row of a query or the column of a key (`reads`) at a position of its own axis; `tokens` are along it, on `axis`.

    Attributes:
        head: whose map it is; None is the first, and among all heads no one is outlined.
        derived: the map, if it is not that of a step of the layer.
    """

    trace: Trace
    step: Step
    layer: int
    head: int | None
    reads: str
    at: int
    axis: str
    own_axis: str
    tokens: tuple[str, ...]
    own_tokens: tuple[str, ...] | None
    derived: DerivedMap | None

    @classmethod
    def of(
        cls, trace: Trace, step: str | DerivedMap, layer: int = 0, head: int | None = None, query: int | None = None, key: int | None = None
    ) -> MapLine:  # fmt: skip
        """The row of `query`, or the column of `key` or of another axis such as d_v; by default the row of `default_query`.

        Raises:
            MissingError: both are given, there is no such layer, step or position, or no token of the line is a patch.
        """
        derived, declaration = (None, find_step(step)) if isinstance(step, str) else (step, step.step)
        if query is not None and key is not None:
            raise MissingError(
                "A picture shows the row of one query or the column of one key; got both: give query= or key=."
            )
        drawn, axes = trace.layer(layer), (declaration.row_axis, declaration.column_axis)
        own_axis, axis = axes[:: 1 if key is None else -1]
        tokens, own_tokens = drawn.labels_of(axis) or (), drawn.labels_of(own_axis)
        if not any_patch(tokens):
            raise MissingError(
                f"The tokens along {axis} of {declaration.name} in layer {layer} are no patches of a picture: choose a layer and a step whose tokens are."
            )
        at = key if key is not None else query if query is not None else default_query(own_tokens or ())
        check_index("queries" if key is None else "keys", at, drawn.sizes[own_axis])
        reads = QUERY if key is None else KEY
        return cls(trace, declaration, layer, head, reads, at, axis, own_axis, tokens, own_tokens, derived)

    def matrix(self) -> tuple[Tensor, tuple[float, float] | None]:
        """The map [row column], and the range of the numbers that its colours cover."""
        if self.derived is not None:
            matrix = self.derived.matrix(self.trace, self.layer, self.head or 0)
            return matrix, finite_range(matrix)
        layer = self.trace.layer(self.layer)
        return layer.matrix(self.step.name, self.head or 0), layer.finite_range(self.step.name)

    def along(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """The line of a matrix [row column]."""
        return matrix[self.at] if self.reads == QUERY else matrix[:, self.at]

    @property
    def name(self) -> str:
        """Its position in words."""
        return position_name(self.own_axis, self.at, self.own_tokens)

    @property
    def is_same(self) -> bool:
        """Whether its own token is one of `tokens`."""
        return self.own_axis in AXIS_TITLES and self.own_tokens == self.tokens

    @property
    def noun(self) -> str:
        """What it is drawn over, such as "picture" or "sound"."""
        seen = self.seen
        return seen[0].noun if seen else "picture"

    @property
    def seen(self) -> list[SeenPicture]:
        """What the model saw, of each picture of the grid; none of a layer alone, which has its tokens, and not the pixels."""
        pictures = self.trace.pictures
        return [pictures[placed.picture] for placed in self.grid.pictures if placed.picture < len(pictures)]

    @cached_property
    def grid(self) -> TokenGrid:
        """Its tokens in a plane."""
        grid = TokenGrid.of(self.tokens)
        assert grid is not None  # one of them is a patch
        return grid


def default_query(tokens: Sequence[str]) -> int:
    """Returns the query whose rows are drawn unless another is chosen: that of the surest object, or [CLS] if there is one, otherwise the last word, otherwise the first patch."""
    if objects := [position for position, token in enumerate(tokens) if isinstance(token, BoxToken)]:
        return max(objects, key=lambda position: tokens[position].place.score)  # type: ignore[attr-defined]  # a box
    names = [position for position, token in enumerate(tokens) if not isinstance(token, Patch)]
    return next((at for at in names if kind_of(tokens[at]) == CLS), names[-1] if names else 0)


def _film(line: MapLine, numbers: NDArray[Any], chosen: int | None) -> TokenGrid:
    """The grid of a line; of a film with the frame of the chosen token, or with that on which most weight lies, once more and large."""
    grid, frames = line.grid, [each for each in line.seen if each.time is not None]
    if len(frames) < 2 or len(frames) < len(grid.pictures):
        return grid
    token = None if chosen is None else line.tokens[chosen]
    weight = {each.picture: float(np.nansum(abs(grid.fill(numbers)[each.area]))) for each in grid.pictures}
    return grid.with_large(token.picture if isinstance(token, Patch) else max(weight, key=lambda each: weight[each]))


def _captions(grid: TokenGrid, line: MapLine) -> list[Mark]:
    """The frames and the seconds below each picture of a strip, and beside the large one."""
    if grid.large is None:
        return []
    words = {}
    for placed in grid.pictures:
        time = line.trace.pictures[placed.picture].time
        assert time is not None  # `_film` has asked
        frames = "–".join(dict.fromkeys((time.names[0], time.names[-1]))) if time.names else ""
        words[placed.picture] = f"{frames} · {time.start:.3g} s" if time.unit == "s" else frames
    below = (note(words[each.picture], x=each.x + (each.columns - 1) / 2, y=each.y + each.rows - 0.5, yanchor="top", yshift=1) for each in grid.pictures)  # fmt: skip
    beside = note(words[grid.large.picture], x=grid.large.columns - 0.5, y=grid.large.y - 0.5, xanchor="left", yanchor="top", xshift=6)  # fmt: skip
    return [*below, beside]


def layout_images(grid: TokenGrid, trace: Trace, exact: bool = True, max_side: int = _MAX_SIDE) -> list[Mark]:
    """Returns what the model saw of each picture of a grid, at the place of its patches, as the ``images`` of a Plotly layout."""
    images = []
    for placed in (*grid.pictures, *([grid.large] if grid.large else ())):
        if placed.picture >= len(trace.pictures):  # a layer alone has its tokens, and not the pixels
            continue
        seen, (height, width) = trace.pictures[placed.picture], placed.patch_size
        # The pixels that fill no whole patch are cut, so that the patches lie on the pixels that they were made of.
        sides = round(placed.rows * height), round(placed.columns * width)
        source = image_source(seen, *sides, exact, max_side)
        of_large = {"name": LARGE} if placed is grid.large else {}
        images.append(image(source, placed.x, placed.y, placed.columns, placed.rows) | of_large)
    return images


def image_source(seen: SeenPicture, height: int, width: int, exact: bool = True, max_side: int = _MAX_SIDE) -> str:
    """Returns the upper left pixels of what a model saw as a PNG in a data URI, which a figure carries with it; above `max_side`, it is reduced.

    A small picture is enlarged by a whole number. Unless it is `exact`, a picture that is not small is a JPEG, with a tenth of the bytes.
    """
    from PIL import Image

    # Black where merged patches reach beyond the picture.
    image, file = Image.fromarray(np.ascontiguousarray(seen.rgb)).crop((0, 0, width, height)), BytesIO()
    image.thumbnail((max_side, max_side))
    if (factor := min(_SMALL_SIDE, max_side) // max(image.size)) > 1:
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    kind = "PNG" if exact or factor > 1 else "JPEG"
    image.save(file, kind, quality=80)
    return f"data:image/{kind.lower()};base64,{b64encode(file.getvalue()).decode()}"


def fitted_colors(
    step: Step, colors: str, span: tuple[float, float] | None, on_patches: NDArray[Any], many: bool = False
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns the keys of a heatmap for its colours as `scales.color_keys`; with `scales.FITTED` they reach up to the largest number `on_patches`."""
    if colors != scales.FITTED:
        return scales.color_keys(step, *scales.scale_range(step, span, colors), colors, many)
    ends = scales.scale_range(step, span_of(on_patches), "stretched")
    keys, extra_traces = scales.color_keys(step, *ends, "stretched", many)
    return keys | {"meta": {"colors": scales.FITTED}}, extra_traces


def span_of(numbers: NDArray[Any]) -> tuple[float, float] | None:
    """Returns the smallest and the largest of some numbers; None if none is finite."""
    finite = numbers[np.isfinite(numbers)]
    return (float(finite.min()), float(finite.max())) if finite.size else None


def _token_label(token: _PlacedToken) -> Mark:
    place = {"x": token.x + (token.columns - 1) / 2, "y": token.y}
    return note(escape(token.text, quote=False), **place, bgcolor="rgba(255,255,255,0.8)", font={"size": TYPE["axis"], "color": "#111111"})  # fmt: skip


def _edges(grid: TokenGrid) -> list[Mark]:
    """Returns the edges between patches as lines, and those of the boxes of other tokens, which lines do not cross."""
    lines = []
    for placed in (*grid.pictures, *([grid.large] if grid.large else ())):
        left, top = placed.x - 0.5, placed.y - 0.5
        right, bottom = left + placed.columns, top + placed.rows
        if placed.columns + placed.rows > _MAX_EDGES:
            continue
        step = grid.factor if placed is grid.large else 1
        lines += [rule((left + i, left + i), (top, bottom), **EDGE) for i in range(0, placed.columns + 1, step)]
        lines += [rule((left, right), (top + i, top + i), **EDGE) for i in range(0, placed.rows + 1, step)]
    return lines + [outline(token.x, token.y, token.columns, 1, **EDGE) for token in grid.others]


def _boxes(line: MapLine) -> list[list[float]]:
    """Returns the boxes that tokens of its own axis predict: position, left, top, right, bottom, in cells, and whether it is an object."""
    placed_pictures = {placed.picture: placed for placed in line.grid.pictures}
    boxes = list[list[float]]()
    for position, token in enumerate(line.own_tokens or ()):
        if isinstance(token, BoxToken) and (placed := placed_pictures.get(token.place.picture)):
            sides = zip(token.place.box, (placed.x, placed.y) * 2, placed.patch_size[::-1] * 2, strict=True)
            ends = (round(first - 0.5 + side / size, 3) for side, first, size in sides)
            boxes.append([position, *ends, int(token.is_object)])
    return boxes


def box_marks(boxes: Sequence[Sequence[float]], at: int) -> list[Mark]:
    """Returns the boxes of objects as thin outlines, and the box of the token at a position, whatever it is, as a strong one; `boxOutlines` of picture_grid.js draws the same."""
    drawn = sorted((box for box in boxes if box[-1] or box[0] == at), key=lambda box: box[0] == at)
    return [
        {"type": "rect", "x0": x0, "y0": y0, "x1": x1, "y1": y1, "name": BOX, "line": {"color": _BOX_COLOR, "width": 4}}
        if position == at else
        {"type": "rect", "x0": x0, "y0": y0, "x1": x1, "y1": y1, "name": BOX, "opacity": 0.6, "line": {"color": _BOX_COLOR, "width": 1.5}}
        for position, x0, y0, x1, y1, _ in drawn
    ]  # fmt: skip


def _draw_axes(layout: dict[str, Any], line: MapLine) -> None:
    """Writes seconds, hertz or names beside what is more than a picture; its cells need not be square then."""
    seen = line.seen
    if len(seen) != 1 or seen[0].x is None:
        return
    (one,), (placed,) = seen, line.grid.pictures
    del layout["yaxis"]["scaleanchor"], layout["yaxis"]["constrain"]
    height, width = one.rgb.shape[:2]
    ends = {
        "xaxis": (one.x, placed.x, width / placed.patch_size[1]),
        "yaxis": (one.y, placed.y, height / placed.patch_size[0]),
    }
    for name, (axis, first, n_cells) in ends.items():
        if axis is None:
            continue
        if axis.names:
            ticks = [(first + row, escape(each, quote=False)) for row, each in enumerate(axis.names[: placed.rows])]
        else:
            per_unit = n_cells / (axis.stop - axis.start)
            ticks = [
                (first - 0.5 + (at - axis.start) * per_unit, f"{at:g}") for at in round_numbers(axis.start, axis.stop)
            ]
        values, texts = zip(*ticks, strict=True)
        layout[name] |= {"tickvals": list(values), "ticktext": list(texts), "showticklabels": True}
        if axis.unit:
            layout[name]["title"] = {"text": axis.unit, "standoff": 4}
    layout["margin"] |= {"b": 44} | ({"l": 64} if one.y is not None else {})
    layout["height"] += 26


def round_numbers(start: float, stop: float, most: int = _TICKS) -> list[float]:
    """Numbers of one digit, two or five apart, between two others in either order; at most about `most`."""
    low, high = sorted((start, stop))
    rough = (high - low) / most
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough * (1 - 1e-9))
    return [
        float(f"{index * step:.12g}")
        for index in range(int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9)) + 1)
    ]


def _shares(line: MapLine, numbers: np.ndarray[Any, Any]) -> list[str]:
    """Returns how much of a row of weights lies on the pictures and on the other tokens; empty for other numbers."""
    grid = line.grid
    if line.step.kind != "probability" or line.axis != "key_pos":
        return []
    on_pictures = float(numbers[grid.patches].sum())
    # Hidden special tokens may have weight too, which is none of these numbers.
    if not (grid.others or grid.n_left_out):
        return [f"{on_pictures:.2f} on the {line.noun}"]
    return [f"{on_pictures:.2f} on the {line.noun}, {float(numbers.sum()) - on_pictures:.2f} on other tokens"]


@dataclass(frozen=True, eq=False)
class TokenGrid:
    """The tokens of an axis in a plane.

    Attributes:
        positions: the position on the axis of the token at each cell, [row column]; `NO_TOKEN` where there is none.
        pictures: the places of the pictures, side by side.
        others: the places of the other tokens, in the order of the axis; the ends of rows of patches come last.
        n_left_out: how many other tokens have no place.
        large: the place of a picture that stands there once more; each of its patches has `factor` × `factor` cells.
    """

    positions: NDArray[int64]
    pictures: tuple[_PlacedPicture, ...]
    others: tuple[_PlacedToken, ...]
    n_left_out: int = 0
    large: _PlacedPicture | None = None
    factor: int = 1

    @classmethod
    def of(cls, tokens: Sequence[str], with_others: bool = True) -> TokenGrid | None:
        """The grid of the tokens of an axis, without or `with_others` than patches; None if none of them is a patch."""
        patches = [(position, token) for position, token in enumerate(tokens) if isinstance(token, Patch)]
        if not patches:
            return None
        pictures = _placed_pictures([patch for _, patch in patches])
        width = max(_MIN_COLUMNS, *(placed.x + placed.columns for placed in pictures))
        names = [(position, token) for position, token in enumerate(tokens) if not isinstance(token, Patch)]
        names.sort(key=lambda named: named[1] == NEWLINE)  # a page of tiles has dozens of them, and words come first
        others = _placed_others(names if with_others else [], width)
        top = max((token.y + 1 + _GUTTER for token in others), default=0)
        pictures = tuple(replace(placed, y=top + placed.y) for placed in pictures)
        positions = np.full((max(placed.y + placed.rows for placed in pictures), width), NO_TOKEN)
        corners = {placed.picture: placed for placed in pictures}
        for position, patch in patches:
            corner = corners[patch.picture]
            positions[corner.y + patch.row, corner.x + patch.column] = position
        for token in others:
            positions[token.y, token.x : token.x + token.columns] = token.position
        return cls(positions, pictures, others, len(names) - len(others) if with_others else 0)

    @property
    def patches(self) -> NDArray[int64]:
        """The positions of all patches on the axis, picture by picture; a picture of which tokens were cut has fewer, as have tiles."""
        positions = np.concatenate([self.positions[placed.area].ravel() for placed in self.pictures])
        found: NDArray[int64] = positions[positions != NO_TOKEN]
        return found

    @property
    def words(self) -> str:
        """The patches of each picture in words."""
        return ", ".join(f"{placed.rows} rows and {placed.columns} columns of patches" for placed in self.pictures)

    def stretched(self) -> TokenGrid:
        """The grid with each row several cells high, if it is a band of few rows without other tokens: in square cells a sound would be a line."""
        n_rows, n_columns = self.positions.shape
        factor = max(1, round(n_columns / (_BAND * n_rows)))
        if self.others or n_rows >= _MIN_ROWS or factor == 1:
            return self
        pictures = tuple(
            replace(placed, rows=placed.rows * factor, patch_size=(placed.patch_size[0] / factor, placed.patch_size[1]))
            for placed in self.pictures
        )
        return TokenGrid(np.repeat(self.positions, factor, axis=0), pictures, (), self.n_left_out)

    def fill(self, numbers: NDArray[np.floating]) -> NDArray[np.floating]:
        """The numbers of an axis [pos] at the places of their tokens [row column]; NaN where there is no token."""
        dtype = np.promote_types(numbers.dtype, np.float16)
        return np.where(self.positions == NO_TOKEN, np.nan, numbers[self.positions]).astype(dtype)

    def box(self, position: int) -> tuple[int, int, int, int] | None:
        """The cells of the token at a position: x, y, columns, rows; None if it has no place."""
        rows, columns = np.nonzero(self.positions[: self.large.y if self.large else None] == position)
        if not len(rows):
            return None
        x, y = int(columns.min()), int(rows.min())
        return x, y, int(columns.max()) - x + 1, int(rows.max()) - y + 1

    def boxes(self, position: int) -> list[tuple[int, int, int, int]]:
        """`box`, and the place in the large picture."""
        found = [box] if (box := self.box(position)) else []
        if self.large is not None:
            rows, columns = np.nonzero(self.positions[self.large.area] == position)
            if len(rows):
                found.append(
                    (self.large.x + int(columns.min()), self.large.y + int(rows.min()), self.factor, self.factor)
                )
        return found

    def with_large(self, picture: int) -> TokenGrid:
        """The grid with one of its pictures once more, large, below a strip of all of them."""
        own = next(each for each in self.pictures if each.picture == picture)
        n_rows, width = self.positions.shape
        factor = min(max(2, round(width / _FILM / own.rows) - 1), max(1, width // own.columns))
        rows = own.rows * factor
        top = n_rows + max(_GUTTER, math.ceil((n_rows + rows) * _CAPTION / _HEIGHTS[1]))
        height, width_of_patch = own.patch_size
        large = _PlacedPicture(picture, 0, top, rows, own.columns * factor, (height / factor, width_of_patch / factor))
        positions = np.full((top + rows, width), NO_TOKEN)
        positions[:n_rows] = self.positions
        positions[large.area] = self.positions[own.area].repeat(factor, axis=0).repeat(factor, axis=1)
        return replace(self, positions=positions, large=large, factor=factor)


@dataclass(frozen=True)
class _PlacedPicture:
    """The place of a picture in a grid: its upper left corner, and its rows and columns of patches; from one to the next are `patch_size` pixels that the model saw."""

    picture: int
    x: int
    y: int
    rows: int
    columns: int
    patch_size: tuple[float, float]

    @property
    def area(self) -> tuple[slice, slice]:
        return np.s_[self.y : self.y + self.rows, self.x : self.x + self.columns]


@dataclass(frozen=True)
class _PlacedToken:
    """The place of a token that is no patch, with its label: a box one cell high, `columns` cells wide."""

    position: int
    x: int
    y: int
    columns: int
    text: str


def _placed_pictures(patches: Sequence[Patch]) -> tuple[_PlacedPicture, ...]:
    placed, x, y = list[_PlacedPicture](), 0, 0
    for picture in sorted({patch.picture for patch in patches}):
        own = [patch for patch in patches if patch.picture == picture]
        rows, columns = max(patch.row for patch in own) + 1, max(patch.column for patch in own) + 1
        cell = _pitch(own, "row", 1), _pitch(own, "column", 0)
        if x and x + columns > _MAX_COLUMNS:
            x, y = 0, max(each.y + each.rows for each in placed) + _GUTTER
        placed.append(_PlacedPicture(picture, x, y, rows, columns, cell))
        x += columns + _GUTTER
    return tuple(placed)


def _pitch(patches: Sequence[Patch], name: str, side: int) -> int:
    """The pixels from one row or column of patches to the next, which is less than their size where they overlap."""
    first, last = (each(patches, key=lambda patch: getattr(patch, name)) for each in (min, max))
    n_steps: int = getattr(last, name) - getattr(first, name)
    return (last.box[side] - first.box[side]) // n_steps if n_steps else first.box[side + 2] - first.box[side]


def _placed_others(names: Sequence[tuple[int, str]], width: int) -> tuple[_PlacedToken, ...]:
    """The tokens in lines, each as wide as its label needs, as words in a paragraph."""
    placed, x, y = list[_PlacedToken](), 0, 0
    for position, token in names:
        text = label(token, 14, escape=False)
        columns = min(width, max(1, -(-(len(text) + 2) * width // _LABEL_CELLS)))
        if x + columns > width:
            x, y = 0, y + 1
        if y == _MAX_LINES:
            break
        placed.append(_PlacedToken(position, x, y, columns, text))
        x += columns
    return tuple(placed)
