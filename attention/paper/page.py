"""A page with text, boxes and lines, saved as PNG, SVG or PDF. This is the only module that uses matplotlib.

Lengths are CSS pixels (1/96 inch), measured from the upper left corner downwards. A page is laid out 7 to 30 cm
wide (times the number of its parts). A smaller or larger page is the same layout, scaled as a whole including its text.
"""

from __future__ import annotations

import copy
import io
import math
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.textpath import TextToPath
from matplotlib.transforms import Affine2D

from attention.paper.markup import parse_color
from attention.pictures.look import LIGHT

if TYPE_CHECKING:
    from numpy.typing import NDArray

Align = Literal["left", "center", "right"]

INK = LIGHT["ink"]
_DPI = 300
_MAX_DOTS = 25_000_000  # of a PNG: 100 MB of memory while it is rendered

_NARROWEST, _WIDEST = 7 / 2.54 * 96, 30 / 2.54 * 96
_POINTS = 0.75  # points per pixel
_SEAM = 0.27  # pixels: the width of a cell's edge in the colour of the cell, which hides hairlines between cells

# DejaVu Sans comes with matplotlib. The others, if installed, provide the characters it lacks; the Docker image has the next two.
_FONTS = (
    "DejaVu Sans", "WenQuanYi Micro Hei", "FreeSerif", "Noto Sans CJK JP", "Noto Sans CJK SC", "Droid Sans Fallback", "WenQuanYi Zen Hei", "Hiragino Sans",
    "Yu Gothic", "Microsoft YaHei", "Malgun Gothic", "Noto Sans Devanagari", "Noto Sans Bengali", "Noto Sans Tamil",
    "Noto Sans Thai", "Noto Sans Ethiopic", "Noto Emoji", "Segoe UI Emoji",
)  # fmt: skip

SETTINGS: Any = {
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,
    "svg.hashsalt": "attention",
    "font.sans-serif": ["DejaVu Sans"],
    "text.hinting": "no_hinting",  # so that the measured width equals the drawn width
    "text.usetex": False,
    "path.simplify": False,
}


@cache
def _fonts() -> list[str]:
    return [name for name in _FONTS if name in installed_fonts()]


def installed_fonts() -> set[str]:
    """The font families on this machine."""
    return {font.name for font in fontManager.ttflist}


class Page:
    """A white page `width` centimetres wide. Its `height` in pixels is set once everything is placed.

    It has `parts` of equal width side by side; each is drawn on like a page of its own. With `exact` sizes, nothing is scaled. `font` is the family
    of its texts, before those that have the characters it lacks.
    """

    def __init__(self, width: float, kind: str, parts: int = 1, exact: bool = False, font: str = "") -> None:
        # A character may be missing from every font; it is drawn as a box (SVG keeps it as text).
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from font", UserWarning)
        requested = width / 2.54 * 96
        self.width = requested if exact else min(max(requested, parts * _NARROWEST), parts * _WIDEST)
        self.height = 0.0
        self._points = requested / self.width * _POINTS
        self._kind = kind
        self._inches = width / 2.54
        # In SVG the reader's fonts are the fallback; the fonts installed here do not matter.
        own = [font] if font else []
        self._measured_family = own + _fonts()
        self._family = [*(own or ["DejaVu Sans"]), "sans-serif"] if kind == "svg" else self._measured_family
        self._figure = Figure(facecolor="white", edgecolor="none")
        self._down = Affine2D()
        self._place = self._down + self._figure.dpi_scale_trans
        self._measured: dict[tuple[str, bool], float] = {}
        self._name = ""
        self.parts = [copy.copy(self) for _ in range(parts)]
        for i, part in enumerate(self.parts):
            part.width = self.width / parts
            part._place = Affine2D().translate(round(i * part.width * self._points, 2), 0) + self._place
            part._name = f"part-{i}-" if i else ""  # ids must be unique in a file

    def width_of(self, text: str, size: float, bold: bool = False) -> float:
        """The width of a text at this size."""
        key = (text, bold)
        if key not in self._measured:
            font = FontProperties(family=self._measured_family, size=100, weight="bold" if bold else "normal")
            self._measured[key] = TextToPath().get_text_width_height_descent(text, font, ismath=False)[0]
        return self._measured[key] * size / 100

    def write(
        self, x: float, y: float, text: str, size: float, align: Align = "left", bold: bool = False, upright: bool = False,
        color: str = INK,
    ) -> None:  # fmt: skip
        """Writes a text with its baseline at `y` (an upright text is read upwards, with its baseline at `x`).

        A text below one point is skipped, as fonts cannot be drawn that small.
        """
        if size * self._points < 1:
            return
        weight, points = "bold" if bold else "normal", round(size * self._points, 3)
        self._figure.add_artist(Text(
            self._scaled(x), self._scaled(y), text, fontproperties=FontProperties(family=self._family, weight=weight, size=points),
            color=color, horizontalalignment=align, verticalalignment="baseline",
            rotation=90 if upright else 0, rotation_mode="anchor",
            parse_math=False,  # "$" is an ordinary character
            transform=self._place,
        ))  # fmt: skip

    def boxes(
        self, boxes: NDArray[np.float64], colors: Sequence[str] | NDArray[np.str_], name: str, seam: bool, opacity: float = 1
    ) -> None:  # fmt: skip
        """Fills boxes [box 4] (x0 y0 x1 y1), one shape per colour; with `seam` neighbours touch without a gap."""
        corners = self._scaled(boxes[:, [0, 1, 2, 1, 2, 3, 0, 3, 0, 1]].reshape(-1, 5, 2))
        codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
        edge = _SEAM * self._points if seam and self._kind != "png" else 0
        for i, (color, indices) in enumerate(_by_color(colors)):
            path = Path(corners[indices].reshape(-1, 2), codes * len(indices))
            patch = self._shape(path, f"{name}-{i}", fill=color, edge=color if edge else "none", points=edge)
            if opacity < 1:
                patch.set_alpha(opacity)

    def picture(self, left: float, top: float, right: float, bottom: float, rgb: NDArray[np.uint8], name: str) -> None:
        """Draws pixels [row column 3] into a box: each pixel as a rectangle, without smoothing."""
        corners = self._scaled(((left, top), (right, bottom)))
        self._figure.add_artist(_Pixels(rgb, corners, self._place, self._name + name))

    def outline(
        self, x0: float, y0: float, x1: float, y1: float, color: str, width: float, dash: str | None = None
    ) -> None:
        """Draws a frame."""
        self.line([x0, x1, x1, x0, x0], [y0, y0, y1, y1, y0], color, width, dash, closed=True)

    def line(
        self, x: Iterable[float], y: Iterable[float], color: str, width: float, dash: str | None = None,
        closed: bool = False, within: tuple[float, float, float, float] | None = None, fill: str = "none",
    ) -> None:  # fmt: skip
        """Draws a line through points, clipped to the box `within`; NaN interrupts it, and `fill` is the colour of what it encloses."""
        points = self._scaled(np.stack([np.asarray(list(x)), np.asarray(list(y))], axis=1))
        path = Path(points, closed=closed)
        if fill != "none":
            kept = np.isfinite(points).all(axis=1)
            begins = kept & ~np.concatenate([[False], kept[:-1]])
            path = Path(points[kept], np.where(begins, Path.MOVETO, Path.LINETO)[kept])
        dashes = {"dot": (0, (1, 1.6)), "dash": (0, (4, 2.5))}.get(dash or "", "solid")
        patch = self._shape(path, None, fill, color, width * self._points, dashes)
        patch.set_capstyle("butt" if dash else "round")
        patch.set_joinstyle("miter" if closed else "round")
        if within is not None:
            left, top, right, bottom = within
            box = self._scaled(((left, top), (right, top), (right, bottom), (left, bottom), (left, top)))
            patch.set_clip_path(Path(box, closed=True), self._place)

    def dot(self, x: float, y: float, color: str, size: float, edge: str, width: float, symbol: str = "") -> None:
        """Draws a filled circle with the diameter `size`, or Plotly's symbol of open lines: "line-ns-open" or "x-thin-open"."""
        half = size / 2
        if symbol:
            slants = (0,) if symbol == "line-ns-open" else (-half, half)
            for slant in slants:
                self.line([x - slant, x + slant], [y - half, y + half], color, width)
            return
        path = Path.circle(self._scaled((x, y)), size / 2 * self._points)
        self._shape(path, None, fill=color, edge=edge, points=width * self._points)

    def render(self, title: str, alt: str) -> bytes:
        """The page as a file. Its metadata hold the title and the description, but no date or place."""
        height = round(self.height * self._points, 2) / 72
        dpi = min(_DPI, math.floor(math.sqrt(_MAX_DOTS / (self._inches * height)))) if self._kind == "png" else 72
        # Whole dots, so that the width of a PNG is exact to half a dot.
        width = self._inches
        if self._kind == "png":
            width, height = round(width * dpi) / dpi, math.ceil(height * dpi) / dpi
        self._figure.set_size_inches(width + 1e-9, height + 1e-9)
        self._down.clear().scale(1 / 72, -1 / 72).translate(0, height)
        metadata: dict[str, Any] = {
            "png": {"Title": title, "Description": alt, "Software": None},
            "svg": {"Title": title, "Description": alt, "Creator": "Attention Lab", "Date": None},
            "pdf": {"Title": title, "Subject": alt, "Creator": "Attention Lab", "Producer": None, "CreationDate": None},
        }[self._kind]
        file = io.BytesIO()
        self._figure.savefig(file, format=self._kind, dpi=dpi, metadata=metadata)
        return file.getvalue()

    def _scaled(self, pixels: Any) -> Any:
        """Pixels as points, rounded to 1/100, so that neighbours share edges and files stay small."""
        return np.round(np.asarray(pixels, dtype=float) * self._points, 2)

    def _shape(
        self, path: Path, name: str | None, fill: str = "none", edge: str = "none", points: float = 0, linestyle: Any = "solid"
    ) -> PathPatch:  # fmt: skip
        (fill, fill_alpha), (edge, edge_alpha) = parse_color(fill), parse_color(edge)
        patch = PathPatch(
            path,
            facecolor=fill if fill == "none" else mpl.colors.to_rgba(fill, fill_alpha),
            edgecolor=edge if edge == "none" else mpl.colors.to_rgba(edge, edge_alpha),
            linewidth=points,
            linestyle=linestyle,
            transform=self._place,
            snap=fill != "none" and name is not None,  # in a PNG, cells end on pixel borders
            gid=name and self._name + name,
        )
        self._figure.add_artist(patch)
        return patch


class _Pixels(Artist):
    """A picture between two corners (upper left, lower right), as the file holds it or, in a PNG, with its pixels as dots."""

    def __init__(self, rgb: NDArray[np.uint8], corners: NDArray[np.float64], place: Any, name: str) -> None:
        super().__init__()
        self._rgb, self._corners, self._place_of_page = rgb, corners, place
        self.set_gid(name)

    def draw(self, renderer: Any) -> None:
        """Draws it; matplotlib counts upwards, also the rows of an image."""
        (left, top), (right, bottom) = self._place_of_page.transform(self._corners)
        context = renderer.new_gc()
        context.set_gid(self.get_gid())
        if renderer.option_scale_image():
            placed = Affine2D().scale(right - left, top - bottom).translate(left, bottom)
            renderer.draw_image(context, 0, 0, _opaque(self._rgb)[::-1], placed)
        else:
            x, y = round(left), round(bottom)
            dots = _resized(self._rgb, max(1, round(right) - x), max(1, round(top) - y))
            renderer.draw_image(context, x, y, _opaque(dots)[::-1])
        context.restore()


def _opaque(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.concatenate([rgb, np.full((*rgb.shape[:2], 1), 255, np.uint8)], axis=-1)


def _resized(rgb: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    """The pixels at another size: repeated, or averaged where there are fewer."""
    from PIL import Image

    is_smaller = width < rgb.shape[1] or height < rgb.shape[0]
    way = Image.Resampling.BOX if is_smaller else Image.Resampling.NEAREST
    return np.asarray(Image.fromarray(rgb).resize((width, height), way))


def _by_color(colors: Sequence[str] | NDArray[np.str_]) -> Iterable[tuple[str, NDArray[np.intp]]]:
    """Each colour with the indices of its boxes."""
    unique, inverse = np.unique(np.asarray(colors, dtype="<U32"), return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    for color, indices in zip(unique, np.split(order, np.cumsum(np.bincount(inverse))[:-1]), strict=True):
        yield str(color), indices
