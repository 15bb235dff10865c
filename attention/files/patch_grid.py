"""A grid of patches whose tokens a user knows, with or without the picture that they were cut from."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from os import PathLike
from typing import Any

from attention.base.errors import ConfigError
from attention.base.tokens import Patch
from attention.files.picture import Picture
from attention.trace.trace import SeenPicture

_SIDE = 16  # pixels of a patch of ours
_GREY = 224
_MAX_PATCHES = 4096
_MOST_OTHERS = 16  # tokens before the patches: [CLS], distillation, registers


def seen_grid(grid: Any, picture: Any = None) -> SeenPicture:
    """The picture of a grid of patches, [row column 3]; grey without one.

    Args:
        grid: the numbers of rows and of columns.
        picture: the path or the bytes of a PNG, JPEG or WebP file, an image of Pillow, or an array [row column 3] from 0 to 255. It is resized to
            the grid as a whole, since what the model's own processor did is not known.

    Raises:
        ConfigError: the grid is no two numbers, or too large.
        FileError: the picture cannot be read.
    """
    import numpy as np

    sizes = tuple(grid) if isinstance(grid, Sequence) and not isinstance(grid, str) else ()
    if (
        len(sizes) != 2
        or not all(isinstance(size, int) and size > 0 for size in sizes)
        or sizes[0] * sizes[1] > _MAX_PATCHES
    ):
        raise ConfigError(
            f"grid is the numbers of rows and columns of patches, at most {_MAX_PATCHES:,} together; got {grid!r}: write it as (14, 14)."
        )
    rows, columns = sizes
    if picture is None:
        rgb = np.full((rows * _SIDE, columns * _SIDE, 3), _GREY, np.uint8)
        words = "drawn in grey, since none was given"
    else:
        rgb = _resized(picture, rows * _SIDE, columns * _SIDE)
        words = f"resized as a whole to {columns * _SIDE} × {rows * _SIDE}"
    return SeenPicture(rgb, rows, columns, (_SIDE, _SIDE), words, blake2b(rgb.tobytes(), digest_size=16).hexdigest())


def _resized(picture: Any, height: int, width: int) -> Any:
    import numpy as np
    from PIL import Image

    if isinstance(picture, str | PathLike):
        picture = Picture.open(picture)
    elif hasattr(picture, "__array__") and not isinstance(picture, Image.Image):
        array = np.asarray(picture)
        is_picture = array.ndim == 3 and array.shape[-1] == 3 and array.dtype == np.uint8
        picture = Image.fromarray(np.ascontiguousarray(array)) if is_picture else picture
    pixels = Picture.of(picture).pixels()
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC))


def patch_tokens(seen: SeenPicture, n_tokens: int) -> tuple[str, ...] | None:
    """The tokens of an axis with the patches of a picture, row by row, and the few before them, such as [CLS] and registers; None if they do not fit."""
    n_others = n_tokens - seen.rows * seen.columns
    if not 0 <= n_others <= _MOST_OTHERS:
        return None
    others = ("[CLS]", *(f"[register {index}]" for index in range(n_others - 1)))[:n_others]
    height, width = seen.patch_size
    places = ((row, column) for row in range(seen.rows) for column in range(seen.columns))
    boxes = (
        (row, column, (column * width, row * height, (column + 1) * width, (row + 1) * height))
        for row, column in places
    )
    return (*others, *(Patch(0, row, column, box) for row, column, box in boxes))
