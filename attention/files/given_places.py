"""Where tokens are, as a user says it beside tensors or a recorded module: a grid of patches over a picture, or one place for each token."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from numbers import Integral, Real
from os import PathLike
from typing import Any, NamedTuple

from attention.base.errors import ConfigError
from attention.base.tokens import Patch, Placed
from attention.files.picture import Picture
from attention.trace.trace import SeenPicture

_SIDE = 16  # pixels of a patch of ours
_GREY = 224
_MAX_PATCHES = 2**16
_MOST_OTHERS = 16  # tokens before the patches: [CLS], distillation, registers
_WAYS = "a grid such as (14, 14), or a list with one for each token, such as (row, column), seconds, a token with a place, or None"


class GivenPlaces(NamedTuple):
    """The places of the tokens of an axis.

    Attributes:
        tokens: one for each position, or for the patches of a grid alone; None where a position has no place.
        is_grid: whether tokens such as [CLS] may stand before them.
        words: what was given, such as "a grid of 14 × 14".
        pictures: what is beneath the patches; empty if there are none.
    """

    tokens: tuple[Placed | None, ...]
    is_grid: bool
    words: str
    pictures: tuple[SeenPicture, ...]

    @classmethod
    def of(cls, places: Any, picture: Any = None) -> GivenPlaces | None:
        """The places that `Trace.of` and `attention.record` were given; None without any.

        Args:
            places: the rows and columns of a grid of patches, such as (14, 14), which may have [CLS] and the like before them. Or one place for
                each token: the row and column of a patch, a `Patch` with its box in the pixels of the picture or any other `Placed` token, None,
                or a value in the units of its medium, such as seconds.
            picture: what is beneath the patches: the path or the bytes of a PNG, JPEG or WebP file, an image of Pillow, or an array
                [row column 3] from 0 to 255. It is resized to a grid as a whole, since what the model's own processor did is not known.

        Raises:
            ConfigError: there are no such places, or too many; or a picture without places.
            FileError: the picture cannot be read.
        """
        if places is None:
            if picture is not None:
                raise ConfigError(f"picture= lies beneath places=; got it alone: give places as well, {_WAYS}.")
            return None
        listed = places.tolist() if hasattr(places, "tolist") else places
        if isinstance(listed, str | bytes) or not isinstance(listed, Sequence) or not listed:
            raise ConfigError(f"places are {_WAYS}; got {places!r:.60}: give one of these.")
        if len(listed) == 2 and all(map(_is_whole, listed)):
            return cls(
                _patches(*_checked(listed)),
                True,
                f"a grid of {listed[0]} × {listed[1]}",
                (_seen(listed[0], listed[1], picture),),
            )
        given = [place for place in listed if isinstance(place, Patch)]
        pairs = [place for place in listed if _is_pair(place)]
        if (given and pairs) or any(patch.picture for patch in given):
            raise ConfigError(
                "places are patches of one picture, or rows and columns of one grid; got others: give one kind."
            )
        pictures: tuple[SeenPicture, ...] = ()
        if given:
            pictures = (_seen_whole(given, picture),)
        elif pairs:
            rows, columns = _checked([max(pair[axis] for pair in pairs) + 1 for axis in (0, 1)])
            pictures = (_seen(rows, columns, picture),)
        elif picture is not None:
            raise ConfigError(
                f"picture= lies beneath patches; got places that are none, such as {listed[0]!r:.40}: give {_WAYS}."
            )
        return cls(tuple(map(_token, listed)), False, f"{len(listed)} places", pictures)

    def on(self, n_positions: int, words: Sequence[str] | None = None) -> tuple[str, ...] | None:
        """The tokens of an axis; those without a place are called as in `words`, if there are as many. None if the places are for another number."""
        n_others = n_positions - len(self.tokens)
        if n_others and not (self.is_grid and 0 < n_others <= _MOST_OTHERS):
            return None
        own = ("[CLS]", *(f"[register {number}]" for number in range(n_others - 1)))[:n_others]
        names: Sequence[str | None] = words if words is not None and len(words) == n_positions else [None] * n_positions
        placed = (*[None] * n_others, *self.tokens)
        others = (*own, *(f"x{position}" for position in range(n_others, n_positions)))
        each = zip(placed, names, others, strict=True)
        return tuple(_named(token, word) if token is not None else word or other for token, word, other in each)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_pair(place: Any) -> bool:
    """Whether a place is a row and a column."""
    return not isinstance(place, str) and isinstance(place, Sequence) and len(place) == 2 and all(map(_is_whole, place))


def _checked(sizes: Sequence[int]) -> Sequence[int]:
    rows, columns = sizes
    if min(rows, columns) < 1 or rows * columns > _MAX_PATCHES:
        raise ConfigError(
            f"A grid has rows and columns of patches, at most {_MAX_PATCHES:,} together; got {rows:,} × {columns:,}: write places=(14, 14)."
        )
    return sizes


def _token(place: Any) -> Placed | None:
    if place is None or isinstance(place, Placed):
        return place
    if _is_pair(place):
        row, column = place
        if min(row, column) < 0:
            raise ConfigError(
                f"Rows and columns count from 0; got {tuple(place)}: give None for a token without a place."
            )
        return _patch(row, column)
    text = f"{place:g}" if isinstance(place, Real) else str(place)
    token = Placed(text)
    token.place = place
    return token


def _named(token: Placed, word: str | None) -> Placed:
    """The token with a word of the user, unless it is a patch or has its own name."""
    if word is None or type(token) is not Placed:
        return token
    named = Placed(word)
    named.place = token.place
    return named


def _patch(row: int, column: int) -> Patch:
    return Patch(0, row, column, (column * _SIDE, row * _SIDE, (column + 1) * _SIDE, (row + 1) * _SIDE))


def _patches(rows: int, columns: int) -> tuple[Patch, ...]:
    return tuple(_patch(row, column) for row in range(rows) for column in range(columns))


def _seen(rows: int, columns: int, picture: Any) -> SeenPicture:
    """The picture of a grid of patches of ours; grey without one."""
    height, width = rows * _SIDE, columns * _SIDE
    if picture is None:
        return _drawn(_grey(height, width), rows, columns, (_SIDE, _SIDE), "drawn in grey, since none was given")
    import numpy as np
    from PIL import Image

    resized = Image.fromarray(_pixels(picture)).resize((width, height), Image.Resampling.BICUBIC)
    return _drawn(np.asarray(resized), rows, columns, (_SIDE, _SIDE), f"resized as a whole to {width} × {height}")


def _seen_whole(patches: Sequence[Patch], picture: Any) -> SeenPicture:
    """The picture, as large as it is, of patches with boxes of their own."""
    boxes = [patch.box for patch in patches]
    width, height = (max(box[side] for box in boxes) for side in (2, 3))
    rgb = _grey(height, width) if picture is None else _pixels(picture)
    if (
        min(min(box) for box in boxes) < 0
        or height > rgb.shape[0]
        or width > rgb.shape[1]
        or height * width > _MAX_PATCHES * _SIDE**2
    ):
        raise ConfigError(
            f"The box of a patch is left, top, right and bottom in the pixels of the picture, {rgb.shape[1]} × {rgb.shape[0]} (width × height); "
            f"got boxes up to {width} × {height}: give the picture as the model saw it."
        )
    size = min(box[3] - box[1] for box in boxes), min(box[2] - box[0] for box in boxes)
    rows, columns = (max(getattr(patch, axis) for patch in patches) + 1 for axis in ("row", "column"))
    words = "drawn in grey, since none was given" if picture is None else "as it was given"
    return _drawn(rgb, rows, columns, size, words)


def _drawn(rgb: Any, rows: int, columns: int, size: tuple[int, int], words: str) -> SeenPicture:
    return SeenPicture(rgb, rows, columns, size, words, blake2b(rgb.tobytes(), digest_size=16).hexdigest())


def _grey(height: int, width: int) -> Any:
    import numpy as np

    return np.full((height, width, 3), _GREY, np.uint8)


def _pixels(picture: Any) -> Any:
    import numpy as np
    from PIL import Image

    if isinstance(picture, str | PathLike):
        picture = Picture.open(picture)
    elif hasattr(picture, "__array__") and not isinstance(picture, Image.Image):
        array = np.asarray(picture)
        is_picture = array.ndim == 3 and array.shape[-1] == 3 and array.dtype == np.uint8
        picture = Image.fromarray(np.ascontiguousarray(array)) if is_picture else picture
    return Picture.of(picture).pixels()
