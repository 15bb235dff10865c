"""Where the tokens of an axis lie when they are drawn as a picture: patches at their places, other tokens as boxes in lines above it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attention.tokens import NEWLINE, Patch, label

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

NO_TOKEN = -1
"""The position where a grid has no token."""
MAX_LINES = 6
"""The largest number of lines of other tokens; the grid leaves out the tokens after them."""
_LABEL_CELLS = 56  # characters that fit side by side over the width of a grid
_MIN_COLUMNS = 8  # of a grid; narrower pictures have a free space beside them
_GUTTER = 1  # cells between pictures, and between the lines and the pictures


@dataclass(frozen=True)
class PlacedPicture:
    """The place of a picture in a grid.

    Attributes:
        picture: its index in `Trace.pictures`.
        x: the column of the grid at its left edge.
        y: the row of the grid at its upper edge.
        rows: number of its rows of patches.
        columns: number of its columns of patches.
        patch_size: height and width of a patch in the pixels that the model saw.
    """

    picture: int
    x: int
    y: int
    rows: int
    columns: int
    patch_size: tuple[int, int]

    @property
    def area(self) -> tuple[slice, slice]:
        """The part of a grid that it covers, as an index into an array [row column]."""
        return np.s_[self.y : self.y + self.rows, self.x : self.x + self.columns]


@dataclass(frozen=True)
class PlacedToken:
    """The place of a token that is no patch: a box one cell high.

    Attributes:
        position: of the token on its axis.
        x: the column of the grid at its left edge.
        y: its row of the grid.
        columns: how many cells it covers.
        text: its label.
    """

    position: int
    x: int
    y: int
    columns: int
    text: str


@dataclass(frozen=True, eq=False)
class TokenGrid:
    """The tokens of an axis in a plane.

    Attributes:
        positions: the position on the axis of the token at each cell, [row column]; `NO_TOKEN` where there is none.
        pictures: the places of the pictures, side by side.
        others: the places of the other tokens, in the order of the axis; the ends of rows of patches come last.
        n_left_out: how many other tokens have no place.
    """

    positions: NDArray[int64]
    pictures: tuple[PlacedPicture, ...]
    others: tuple[PlacedToken, ...]
    n_left_out: int = 0

    @classmethod
    def of(cls, tokens: Sequence[str], with_others: bool = True) -> TokenGrid | None:
        """The grid of the tokens of an axis; None if none of them is a patch.

        Args:
            tokens: of the axis.
            with_others: whether tokens that are no patches are placed too.
        """
        patches = [(position, token) for position, token in enumerate(tokens) if isinstance(token, Patch)]
        if not patches:
            return None
        pictures = _placed_pictures([patch for _, patch in patches])
        width = max(_MIN_COLUMNS, *(placed.x + placed.columns for placed in pictures))
        names = [(position, token) for position, token in enumerate(tokens) if not isinstance(token, Patch)]
        names.sort(key=lambda named: named[1] == NEWLINE)  # a page of tiles has dozens of them, and words come first
        others = _placed_others(names if with_others else [], width)
        top = max((token.y + 1 + _GUTTER for token in others), default=0)
        pictures = tuple(
            PlacedPicture(placed.picture, placed.x, top, placed.rows, placed.columns, placed.patch_size)
            for placed in pictures
        )
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

    def fill(self, numbers: NDArray[np.floating]) -> NDArray[np.floating]:
        """The numbers of an axis [pos] at the places of their tokens [row column]; NaN where there is no token."""
        dtype = np.promote_types(numbers.dtype, np.float16)
        return np.where(self.positions == NO_TOKEN, np.nan, numbers[self.positions]).astype(dtype)

    def box(self, position: int) -> tuple[int, int, int, int] | None:
        """The cells of the token at a position: x, y, columns, rows; None if it has no place."""
        rows, columns = np.nonzero(self.positions == position)
        if not len(rows):
            return None
        x, y = int(columns.min()), int(rows.min())
        return x, y, int(columns.max()) - x + 1, int(rows.max()) - y + 1


def _placed_pictures(patches: Sequence[Patch]) -> tuple[PlacedPicture, ...]:
    placed, x = list[PlacedPicture](), 0
    for picture in sorted({patch.picture for patch in patches}):
        own = [patch for patch in patches if patch.picture == picture]
        rows, columns = max(patch.row for patch in own) + 1, max(patch.column for patch in own) + 1
        left, top, right, bottom = own[0].box
        placed.append(PlacedPicture(picture, x, 0, rows, columns, (bottom - top, right - left)))
        x += columns + _GUTTER
    return tuple(placed)


def _placed_others(names: Sequence[tuple[int, str]], width: int) -> tuple[PlacedToken, ...]:
    """The tokens in lines, each as wide as its label needs, as words in a paragraph."""
    placed, x, y = list[PlacedToken](), 0, 0
    for position, token in names:
        text = label(token, 14, escape=False)
        columns = min(width, max(1, -(-(len(text) + 2) * width // _LABEL_CELLS)))
        if x + columns > width:
            x, y = 0, y + 1
        if y == MAX_LINES:
            break
        placed.append(PlacedToken(position, x, y, columns, text))
        x += columns
    return tuple(placed)
