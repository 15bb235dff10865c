"""Where the tokens of a sound are: in seconds, and in hertz where a token has a part of the frequencies."""

from __future__ import annotations

from math import expm1, log1p
from typing import TYPE_CHECKING, NamedTuple

from attention.base.tokens import Patch

if TYPE_CHECKING:
    from attention.trace.trace import SeenPicture

PADDING = ", padding"
"""What the name of a token ends with that reads nothing but the silence after the sound."""
NOUN = "sound"
"""One of the inputs of this medium."""


class SoundPlace(NamedTuple):
    """The part of a sound that a token reads: from `start` to `stop` in seconds, and from `low` to `high` in hertz; None: all frequencies."""

    start: float
    stop: float
    low: float | None = None
    high: float | None = None


def place_of(seen: SeenPicture, patch: Patch) -> SoundPlace:
    """The place of a cell of a drawn spectrogram, whose tokens may overlap: as wide and high as `patch_size`, about the middle of the box of the cell."""
    left, top, right, bottom = patch.box
    (height, width), (n_rows, n_columns) = seen.patch_size, seen.rgb.shape[:2]
    assert seen.x is not None  # as every drawn sound has
    first, end = seen.x.start, seen.x.stop

    def seconds(column: float) -> float:
        value = float(first + column * (end - first) / n_columns)
        return round(value, 6) + 0.0  # no −0

    middle = (left + right) / 2
    start, stop = seconds(middle - width / 2), seconds(middle + width / 2)
    if seen.y is None:
        return SoundPlace(start, stop)
    highest, lowest = to_mel(seen.y.start), to_mel(seen.y.stop)

    def hertz(row: float) -> float:
        return round(from_mel(highest + row * (lowest - highest) / n_rows), 3)

    middle = (top + bottom) / 2
    return SoundPlace(start, stop, hertz(middle + height / 2), hertz(middle - height / 2))


def patches_of(seen: SeenPicture, cell: tuple[int, int], picture: int = 0) -> list[Patch]:
    """The tokens of a drawn sound, row by row from the top, whose cells have this height and width in pixels.

    The text of one is from when it begins to when the next does, such as "0.52–0.54 s"; of one with a part of the frequencies, when it begins and
    their middle, such as "0.5s 3886Hz".
    """
    (height, width), x, patches = cell, seen.x, list[Patch]()
    assert x is not None  # as every drawn sound has
    step = width * (x.stop - x.start) / seen.rgb.shape[1]
    for row in range(seen.rows):
        for column in range(seen.columns):
            box = column * width, row * height, (column + 1) * width, (row + 1) * height
            place = place_of(seen, Patch(picture, row, column, box))
            text = f"{place.start:.2f}–{place.start + step:.2f} s"
            if seen.y is not None:
                text = f"{place.start:g}s {seen.y.names[row].replace(',', '')}{seen.y.unit}"
            patches.append(Patch(picture, row, column, box, text, place))
    return patches


_MEL = 1127.0, 700.0
"""The mel scale of HTK and Kaldi, 1127 ln(1 + f / 700 Hz)."""


def from_mel(mel: float) -> float:
    """The frequency in hertz of a number on the mel scale."""
    return _MEL[1] * expm1(mel / _MEL[0])


def to_mel(hertz: float) -> float:
    """A frequency on the mel scale."""
    return _MEL[0] * log1p(hertz / _MEL[1])
