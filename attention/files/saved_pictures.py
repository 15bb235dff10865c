"""The pictures of a trace in a file, and the places of its patches: what the writer stores, and what the reader checks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

from attention.base.errors import FileError
from attention.base.printed import plural
from attention.base.tokens import BoxPlace, BoxToken, Patch, Placed
from attention.files.archives import Archive, format_shape, quote
from attention.media import media
from attention.trace.trace import PICTURE, Axis, SeenPicture

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

    from attention.trace.trace import Trace

_MAX_PICTURES = 64
_MAX_PIXELS = 2**23
"""The largest number of pixels of all pictures of a file; a model that reads 4,096 patches of 32 × 32 pixels sees half of it."""
_MAX_GRID_CELLS = 2**17
"""The largest plane of a file's pictures, side by side, in patches."""
_MAX_GRID_SIDE = 2**12
"""The largest number of rows or columns of that plane: each is a line of a figure."""
PATCHES = {"tokens": "patches", "key_tokens": "key_patches"}
"""The name of the places beside each list of tokens."""

_KEY = re.compile(r"picture(\d{1,4})", re.ASCII)
_WORDS = re.compile(r"[\w ,.;:×→–/()-]{0,300}")
_DIGEST = re.compile(r"[0-9a-f]{0,64}")
_COLORS = 3
_AXES = ("x", "y", "time")
_MOST_NAMES = 64  # frames of a picture
_NOUN = re.compile(r"[a-z ]{1,20}")
_UNIT = re.compile(r"[\w /µ%°]{0,20}")
_LONGEST_NAME = 60
_PLACE = "[position, picture, row, column, left, top, right, bottom] for each patch, and [position, picture, left, top, right, bottom, score] for each predicted box"
_N_NUMBERS, _N_OF_BOX = 8, 7  # of a place
_MAX_COORDINATE = 2**20  # pixels; a predicted box may reach beyond its picture


def arrays(trace: Trace) -> dict[str, NDArray[uint8]]:
    """What the model saw of each picture, [row column 3], by its name in a file."""
    return {f"picture{index}": picture.rgb for index, picture in enumerate(trace.pictures)}


def descriptions(trace: Trace) -> list[dict[str, Any]]:
    """Everything else about the pictures."""
    return [
        {"rows": picture.rows, "columns": picture.columns, "patch_size": list(picture.patch_size), "words": picture.words, "digest": picture.digest}
        | ({} if picture.noun == PICTURE else {"noun": picture.noun})
        | {name: list(axis) for name in _AXES if (axis := getattr(picture, name)) is not None}
        for picture in trace.pictures
    ]  # fmt: skip


def places(tokens: Sequence[str]) -> list[list[float]]:
    """The places of the patches among some tokens: position, picture, row, column, and the box; of those with a predicted box: position, picture, box and score."""
    of_patches: list[list[float]] = [
        [position, token.picture, token.row, token.column, *token.box]
        for position, token in enumerate(tokens)
        if isinstance(token, Patch)
    ]
    of_boxes = [
        [position, token.place.picture, *token.place.box, token.place.score]
        for position, token in enumerate(tokens)
        if isinstance(token, BoxToken)
    ]
    return of_patches + of_boxes


def entries(archive: Archive) -> dict[str, int]:
    """The names of the arrays that are pictures, with the bytes that each takes in memory."""
    return {key: entry.nbytes for key, entry in archive.arrays.items() if _KEY.fullmatch(key)}


def read_pictures(name: str, archive: Archive) -> tuple[SeenPicture, ...]:
    """The pictures of a file that a trace was saved to.

    Raises:
        FileError: one of them is missing, is none, or they are too large.
    """
    described = archive.metadata.get("pictures")
    described = described if isinstance(described, list) else []
    present = entries(archive)
    if (count := max(len(described), len(present))) > _MAX_PICTURES:
        raise FileError(f"{quote(name)} has {count:,} pictures; at most {_MAX_PICTURES} are read: save fewer.")
    if present.keys() != {f"picture{index}" for index in range(len(described))}:
        raise FileError(
            f"{quote(name)} describes {plural(len(described), 'picture')}, and has {', '.join(map(quote, present)) or 'none'}: use the complete file."
        )
    n_pixels = 0
    for key in (f"picture{index}" for index in range(len(described))):
        shape = archive.arrays[key].shape
        if len(shape) != 3 or shape[-1] != _COLORS:
            raise FileError(
                f"A picture in a file has the axes [row column {_COLORS}]; {key} in {quote(name)} is {format_shape(shape)}: save the trace again."
            )
        n_pixels += prod(shape[:2])
    if n_pixels > _MAX_PIXELS:
        raise FileError(
            f"The pictures of {quote(name)} have {n_pixels:,} pixels by their headers; at most {_MAX_PIXELS:,} are read: save fewer pictures."
        )
    pictures = tuple(_picture(name, archive, index, described[index]) for index in range(len(described)))
    columns = sum(picture.columns + 1 for picture in pictures)
    rows = max((picture.rows for picture in pictures), default=0)
    if rows * columns > _MAX_GRID_CELLS or max(rows, columns) > _MAX_GRID_SIDE:
        raise FileError(
            f"The pictures of {quote(name)}, side by side, have {rows:,} rows and {columns:,} columns of patches; at most {_MAX_GRID_CELLS:,} patches and {_MAX_GRID_SIDE:,} rows or columns are drawn: "
            "save fewer pictures."
        )
    return pictures


def with_places(
    name: str, tokens: tuple[str, ...], saved: Any, pictures: Sequence[SeenPicture], key: str
) -> tuple[str, ...]:
    """The tokens of an axis, with those that are patches or have a predicted box at their saved places.

    Args:
        name: of the file.
        tokens: as texts.
        saved: the places in the file; None if it has none.
        pictures: of the file.
        key: the name of the places in the file.

    Raises:
        FileError: a place is none, is outside of its picture, or is taken twice.
    """
    if saved is None:
        return tokens
    named, taken = list(tokens), set[tuple[int, int, int]]()
    for place in saved if isinstance(saved, list) and len(saved) <= len(tokens) else [saved]:
        problem = _place_problem(place, len(tokens), pictures)
        is_box = isinstance(place, list) and len(place) == _N_OF_BOX
        if not problem and (isinstance(named[place[0]], Placed) or (not is_box and tuple(place[1:4]) in taken)):
            problem = f"{place}, which is taken twice"
        if problem:
            raise FileError(
                f"{key} in {quote(name)} needs {_PLACE}, in a picture of the file; got {problem}: save the trace again."
            )
        if is_box:
            position, picture, left, top, right, bottom, score = place
            named[position] = BoxToken(
                tokens[position],
                BoxPlace(picture, (float(left), float(top), float(right), float(bottom)), float(score)),
            )
            continue
        position, picture, row, column, *box = place
        taken.add((picture, row, column))
        named[position] = _patch(
            pictures[picture], Patch(picture, row, column, (box[0], box[1], box[2], box[3])), tokens[position]
        )
    return tuple(named)


def _patch(seen: SeenPicture, patch: Patch, text: str) -> Patch:
    """The patch as its medium names and places it; where its feature is not installed, with its name alone."""
    if seen.noun == PICTURE:
        return patch
    medium = next((each for each in media() if each.noun == seen.noun), None)
    place = None if medium is None else medium.place(seen, patch)
    return Patch(patch.picture, patch.row, patch.column, patch.box, text, place)


def _axis(saved: Any, most_names: int) -> Axis | None:
    """An axis of a file; None if it is none, as in a picture."""
    if not isinstance(saved, list) or len(saved) != 4 or not isinstance(saved[3], list) or len(saved[3]) > most_names:
        return None
    unit, start, stop, names = saved
    numbers = [
        each
        for each in (start, stop)
        if isinstance(each, int | float) and not isinstance(each, bool) and isfinite(each)
    ]
    if not isinstance(unit, str) or not _UNIT.fullmatch(unit) or len(numbers) != 2 or start == stop:
        return None
    if not all(isinstance(each, str) and len(each) <= _LONGEST_NAME for each in names):
        return None
    return Axis(unit, float(start), float(stop), tuple(names))


def _picture(name: str, archive: Archive, index: int, described: Any) -> SeenPicture:
    import torch

    numbers = archive.arrays[f"picture{index}"].load()
    rgb = numbers.to(torch.uint8)
    if not torch.equal(rgb.to(numbers.dtype), numbers):
        raise FileError(
            f"The colours of a picture are whole numbers from 0 to 255; picture{index} in {quote(name)} has others: save the trace again."
        )
    height, width = rgb.shape[:2]
    described = described if isinstance(described, Mapping) else {}
    size = described.get("patch_size")
    numbers_of_grid = [described.get("rows"), described.get("columns"), *(size if isinstance(size, list) else [])]
    grid = [number for number in numbers_of_grid if type(number) is int and number > 0]
    # Patches may overlap, and begin at least a pixel apart.
    fits = len(grid) == len(numbers_of_grid) == 4 and grid[0] + grid[2] <= height + 1 and grid[1] + grid[3] <= width + 1
    if not fits:
        raise FileError(
            f"picture{index} in {quote(name)} is {height:,} × {width:,} pixels (rows × columns), and its grid of patches should fit into it; "
            f"got rows, columns and patch size {quote(str(numbers_of_grid))}: save the trace again."
        )
    words, digest, noun = described.get("words"), described.get("digest"), described.get("noun")
    return SeenPicture(
        rgb.numpy(), grid[0], grid[1], (grid[2], grid[3]),
        words if isinstance(words, str) and _WORDS.fullmatch(words) else "",
        digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else "",
        noun if isinstance(noun, str) and _NOUN.fullmatch(noun) else PICTURE,
        *(_axis(described.get(each), _MOST_NAMES if each == "time" else grid[0]) for each in _AXES),
    )  # fmt: skip


def _place_problem(place: Any, n_tokens: int, pictures: Sequence[SeenPicture]) -> str:
    """What is wrong with a place; empty if nothing is."""
    if isinstance(place, list) and len(place) == _N_OF_BOX:
        return _box_problem(place, n_tokens, pictures)
    is_place = isinstance(place, list) and len(place) == _N_NUMBERS and all(type(number) is int for number in place)
    if not is_place or min(place) < 0:
        return quote(str(place))
    position, picture, row, column, left, top, right, bottom = place
    if position >= n_tokens or picture >= len(pictures):
        return f"{place}, where there are {n_tokens:,} tokens and {len(pictures)} pictures"
    seen = pictures[picture]
    if row >= seen.rows or column >= seen.columns:
        return f"{place}, where the picture has {seen.rows:,} rows and {seen.columns:,} columns"
    height, width = seen.rgb.shape[:2]
    if not (left < right <= width and top < bottom <= height):
        return f"{place}, where the picture has {width:,} × {height:,} pixels (width × height)"
    return ""


def _box_problem(place: list[Any], n_tokens: int, pictures: Sequence[SeenPicture]) -> str:
    """What is wrong with the place of a predicted box; empty if nothing is."""
    *positions, left, top, right, bottom, score = place
    numbers = (left, top, right, bottom, score)
    are_numbers = all(type(number) in (int, float) and isfinite(number) for number in numbers)
    if not are_numbers or any(type(position) is not int or position < 0 for position in positions):
        return quote(str(place))
    if positions[0] >= n_tokens or positions[1] >= len(pictures):
        return f"{place}, where there are {n_tokens:,} tokens and {len(pictures)} pictures"
    is_box = left <= right and top <= bottom and max(map(abs, numbers)) <= _MAX_COORDINATE and 0 <= score <= 1
    return "" if is_box else quote(str(place))
