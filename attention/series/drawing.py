"""What a model saw of a series, as a picture: a line for each column over the time axis, on the grid of its patches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.base.tokens import Patch
from attention.trace.trace import Axis, SeenPicture

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    from attention.series.table import Series

NOUN = "series"
STEP = "step"
"""The unit of the time axis: rows of the table, counted from zero."""
_WIDTH, _HEIGHT = 1000, 420  # pixels, about
_WIDEST = 2**13  # pixels
_CELL, _ROW = (2, 160), (16, 120)  # pixels, the narrowest and the widest
_FINE = 2  # samples of a pixel in each direction, so that lines are smooth
_PAPER, _UNREAD, _LINE, _EDGE = 250, 216, 10, 190  # grey
_MARGIN = 0.08  # of the height of a row, above and below its line
_PREVIEWED = 6  # columns


class SeriesPlace(NamedTuple):
    """Where a patch of a series is: its column, its first step, and the one after its last; steps are rows of the table, counted from zero."""

    column: str
    start: int
    stop: int


@dataclass(frozen=True)
class Patches:
    """The patches of each column of a series along the time axis.

    Attributes:
        columns: the names of the columns.
        first: the first step of the first patch; below zero where the model has padding before the series.
        count: how many patches each column has.
        length: the steps of a patch.
        stride: the steps from the beginning of a patch to that of the next.
        stop: the step after the last of the series.
    """

    columns: tuple[str, ...]
    first: int
    count: int
    length: int
    stride: int
    stop: int

    @property
    def cell_width(self) -> int:
        """The width in pixels of a cell of the grid, which has the steps of one stride."""
        about = min(_CELL[1], max(_CELL[0], _WIDTH // self.count))
        whole = self.stride // gcd(self.stride, self.length)  # so that patches that overlap end at whole pixels
        return about if whole * self.count > _WIDEST else -(-about // whole) * whole

    @property
    def row_height(self) -> int:
        """The height in pixels of the row of a column."""
        return min(_ROW[1], max(_ROW[0], _HEIGHT // len(self.columns)))

    @property
    def width(self) -> int:
        """The width in pixels of all steps: patches that overlap reach beyond the last cell."""
        return -(-(self.count * self.stride + max(0, self.length - self.stride)) * self.cell_width // self.stride)

    @property
    def words(self) -> str:
        """The patches in words."""
        steps = "step" if self.length == 1 else "steps"
        words = f"{self.count} {'patch' if self.count == 1 else 'patches'} of {self.length} {steps} for each column"
        if self.count == 1 or self.stride == self.length:
            return words
        if self.stride < self.length:
            return (
                f"{words}, which overlap: one begins every {self.stride} steps, and its cell ends where the next begins"
            )
        return f"{words}, one every {self.stride} steps; the steps between them, in grey, are in no patch"

    def of_column(self, row: int) -> Iterator[Patch]:
        """The tokens of a column."""
        name, width, height = self.columns[row], self.cell_width, self.row_height
        for index in range(self.count):
            first = self.first + index * self.stride
            # The true extent of the patch, which is wider than its cell where patches overlap.
            right = index * width + max(1, round(self.length * width / self.stride))
            start, stop = max(0, first), first + self.length
            steps = f"{start}" if stop == start + 1 else f"{start}–{stop - 1}"
            box = (index * width, row * height, right, (row + 1) * height)
            yield Patch(0, row, index, box, f"{name} {steps}", SeriesPlace(name, start, stop))

    def seen(self, values: NDArray[float64], together: bool, words: str, digest: str) -> SeenPicture:
        """The picture of the series.

        Args:
            values: of each step that is drawn and each column, [step column]; the first is at `first`, or at zero if that is later; NaN where one
                is missing.
            together: whether all columns have the same scale; otherwise each is drawn between its own smallest and largest number.
            words: what was done to the numbers.
            digest: of the table.
        """
        import numpy as np
        from PIL import Image, ImageDraw

        n_rows, cell, height = len(self.columns), self.cell_width * _FINE, self.row_height * _FINE
        image = Image.new("L", (self.width * _FINE, n_rows * height), _PAPER)
        draw = ImageDraw.Draw(image)
        for start, stop in self._unread():
            left, right = ((step - self.first) * cell / self.stride for step in (start, stop))
            draw.rectangle((left, 0, right - 1, image.height), fill=_UNREAD)
        x = (np.arange(len(values)) + max(0, self.first) - self.first + 0.5) * cell / self.stride
        for row in range(n_rows):
            column, all_numbers = values[:, row], values if together else values[:, row]
            finite = all_numbers[np.isfinite(all_numbers)]
            low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
            share = (column - low) / (high - low) if high > low else np.where(np.isfinite(column), 0.5, np.nan)
            y = row * height + height * (1 - _MARGIN - share * (1 - 2 * _MARGIN))
            known = np.flatnonzero(np.isfinite(y))
            for part in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1) if len(known) else ():
                points = list(zip(x[part].tolist(), y[part].tolist(), strict=True))
                if len(points) == 1:
                    points = [(points[0][0] - _FINE, points[0][1]), (points[0][0] + _FINE, points[0][1])]
                draw.line(points, fill=_LINE, width=2 * _FINE)
            if row:
                draw.line((0, row * height, image.width, row * height), fill=_EDGE, width=_FINE)
        rgb = np.repeat(np.asarray(image.reduce(_FINE))[..., None], 3, axis=2)
        steps = self.width * self.stride / self.cell_width
        x_axis = Axis(STEP, float(self.first), self.first + steps)
        size = (self.row_height, self.cell_width)
        return SeenPicture(rgb, n_rows, self.count, size, words, digest, NOUN, x_axis, Axis("", 0.0, float(n_rows), self.columns))  # fmt: skip

    def _unread(self) -> Iterator[tuple[int, int]]:
        """The stretches of the picture that are in no patch, or padding."""
        if self.first < 0:
            yield self.first, 0
        if self.stride > self.length:
            for index in range(self.count):
                start = self.first + index * self.stride
                yield start + self.length, start + self.stride


def preview_of(series: Series, side: int) -> bytes:
    """A PNG of the lines of the first columns, each between its own smallest and largest number, `side` pixels wide."""
    from PIL import Image

    length = -(-len(series.values) // 8)
    patches = Patches(series.columns[:_PREVIEWED], 0, 8, length, length, len(series.values))
    rgb = patches.seen(series.values[:, :_PREVIEWED], False, "", "").rgb
    image, file = Image.fromarray(rgb), BytesIO()
    image.resize((side, max(1, round(side * image.height / image.width * 2)))).save(file, "PNG")
    return file.getvalue()


def place_of(seen: SeenPicture, patch: Patch) -> Any:
    """The place of a patch, from its box and the axes of the picture."""
    if seen.x is None or seen.y is None:  # a file may say anything
        return None
    per_pixel = (seen.x.stop - seen.x.start) / seen.rgb.shape[1]
    start, stop = (round(seen.x.start + patch.box[side] * per_pixel) for side in (0, 2))
    return SeriesPlace(_name(seen.y.names, patch.row), max(0, start), stop)


def _name(names: Sequence[str], row: int) -> str:
    return names[row] if row < len(names) else f"column {row}"
