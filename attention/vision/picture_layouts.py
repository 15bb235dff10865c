"""How the pixels that a processor makes of pictures become tokens, each with its place: one grid, a grid of tiles, or merged patches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attention.base.errors import ModelError
from attention.base.tokens import NEWLINE, Patch
from attention.trace.trace import SeenPicture
from attention.vision.families import GRID, MERGED, PICTURES, TILES, VIEWS

_SIZES, _GRIDS = "image_sizes", "image_grid_thw"
COUNTS = "num_patches"
"""The number of tiles of each picture, which the model does not read."""
_RAW = {"do_rescale": False, "do_normalize": False}  # a processor with these returns the pixels from 0 to 255


class PatchReader(NamedTuple):
    """How the vision transformer of a model reads one grid.

    Attributes:
        image_processor: of transformers.
        first_tokens: the tokens before the patches.
        patch_size: height and width of a patch in pixels.
        n_left_out: how many of the first tokens do not enter the text.
        n_merged: how many patches, in each direction, are merged into one token of the text.
        window_size: the side in pixels of the windows in which some layers of a family attend; 0 without windows.
    """

    image_processor: Any
    first_tokens: tuple[str, ...]
    patch_size: tuple[int, int]
    n_left_out: int
    n_merged: int = 1
    window_size: int = 0


class ReadPictures(NamedTuple):
    """Pictures as a model reads them.

    Attributes:
        arguments: of the model for its pictures: the normalized pixels, and the sizes that it must know.
        seen: what the model saw.
        tokens: of the vision transformer, by position.
        in_text: those that stand in a text, in its order.
        lengths: of the sequences of the vision transformer, each of which sees itself only.
        n_in_text: how many tokens each of the given pictures has in the text.
    """

    arguments: dict[str, Tensor]
    seen: tuple[SeenPicture, ...]
    tokens: tuple[str, ...]
    in_text: tuple[str, ...]
    lengths: tuple[int, ...]
    n_in_text: tuple[int, ...]


class NamedImage(NamedTuple):
    """A picture before it is processed.

    Attributes:
        image: of Pillow.
        digest: of its file.
    """

    image: Any
    digest: str


Layout = Callable[[PatchReader, Mapping[str, Any], Sequence[NamedImage]], ReadPictures]
"""Gives the tokens of pictures from what the processor of a reader made of them."""


def _one_grid(reader: PatchReader, processed: Mapping[str, Any], images: Sequence[NamedImage]) -> ReadPictures:
    """Patches row by row, after the first tokens of the vision transformer.

    Raises:
        ModelError: the processor does not give each picture in three colours.
    """
    pixels = processed[PICTURES]
    if not isinstance(pixels, Tensor) or pixels.ndim != 4 or pixels.shape[:2] != (len(images), 3):
        raise _unknown()
    seen = tuple(
        _seen(reader, own, named.digest, _words(reader.image_processor, named.image, own))
        for own, named in zip(pixels, images, strict=True)
    )
    sequences = [(*reader.first_tokens, *_patches(reader, index, one.rows, one.columns)) for index, one in enumerate(seen)]  # fmt: skip
    in_text = [tokens[reader.n_left_out :] for tokens in sequences]
    return _read({PICTURES: pixels}, seen, sequences, in_text)


def tiles(reader: PatchReader, processed: Mapping[str, Any], images: Sequence[NamedImage]) -> ReadPictures:
    """The whole picture in one grid, then the same picture, larger, cut into tiles, which the vision transformer reads one by one.

    In the text, the rows of patches run through the tiles, each with a separator after it, without those that lie beside the picture.
    Both views are pictures of their own.

    Raises:
        ModelError: the processor makes no tiles.
    """
    from transformers.models.llava_next.modeling_llava_next import get_anyres_image_grid_shape, unpad_image

    pixels, sizes = processed.get(PICTURES), processed.get(_SIZES)
    if not isinstance(pixels, Tensor) or pixels.ndim != 5 or pixels.shape[2] != 3 or not isinstance(sizes, Tensor):
        raise _unknown()
    side = pixels.shape[-1]
    seen: list[SeenPicture] = []
    sequences: list[tuple[str, ...]] = []
    in_text: list[tuple[str, ...]] = []
    for index, (own, size, named) in enumerate(zip(pixels, sizes, images, strict=True)):
        n_rows, n_columns = get_anyres_image_grid_shape(  # type: ignore[no-untyped-call]  # transformers has no annotation
            size, reader.image_processor.image_grid_pinpoints, side
        )
        whole = _seen(reader, own[0], named.digest, _words(reader.image_processor, named.image, own[0]))
        joined = own[1 : 1 + n_rows * n_columns].unflatten(0, (n_rows, n_columns)).permute(2, 0, 3, 1, 4)
        words = f"fitted into {n_columns * side} × {n_rows * side} with black beside it, cut into {n_rows} × {n_columns} tiles (rows × columns)"
        tiled = _seen(reader, joined.reshape(3, n_rows * side, n_columns * side), named.digest, words)
        seen += whole, tiled
        base = (*reader.first_tokens, *_patches(reader, 2 * index, whole.rows, whole.columns))
        grid = list(_patches(reader, 2 * index + 1, tiled.rows, tiled.columns))
        places = torch.arange(len(grid)).view(tiled.rows, tiled.columns)
        sequences.append(base)
        for tile in (tile for rows in places.chunk(n_rows) for tile in rows.chunk(n_columns, dim=1)):
            sequences.append((*reader.first_tokens, *(grid[place] for place in tile.flatten().tolist())))
        of_picture = [*base[reader.n_left_out :]]
        kept = unpad_image(places[None], size)[0]  # type: ignore[no-untyped-call]  # as above
        for row in kept.tolist():
            of_picture += *(grid[place] for place in row), NEWLINE
        in_text.append(tuple(of_picture))
    return _read({PICTURES: pixels, _SIZES: sizes}, seen, sequences, in_text)


def views(reader: PatchReader, processed: Mapping[str, Any], images: Sequence[NamedImage]) -> ReadPictures:
    """The picture stretched and cut into tiles, then the whole picture in one, unless there is one tile; squares of patches become one token.

    In the text, the tiles follow each other. The tiles together and the whole picture are pictures of their own.

    Raises:
        ModelError: the processor makes no tiles.
    """
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

    pixels, counts, processor = processed.get(PICTURES), processed.get(COUNTS), reader.image_processor
    if not isinstance(pixels, Tensor) or pixels.ndim != 4 or pixels.shape[1] != 3 or counts is None:
        raise _unknown()
    height, width = pixels.shape[-2:]
    size = tuple(length * reader.n_merged for length in reader.patch_size)
    seen, sequences, in_text, first = list[SeenPicture](), list[tuple[str, ...]](), list[list[Patch]](), 0
    for count, named in zip(map(int, counts), images, strict=True):
        own, n_rows, n_columns = pixels[first : first + count], 1, 1
        if count > 1:
            limits = processor.min_patches, processor.max_patches
            n_columns, n_rows = get_optimal_tiled_canvas(
                (named.image.height, named.image.width), (height, width), *limits
            )
        joined = own[: n_rows * n_columns].reshape(n_rows, n_columns, 3, height, width).permute(2, 0, 3, 1, 4)
        stretched = joined.reshape(3, n_rows * height, n_columns * width)
        cut = f", cut into {n_rows} × {n_columns} tiles (rows × columns)" if count > 1 else ""
        grids = [(_seen(reader, stretched, named.digest, _words(processor, named.image, stretched) + cut), n_rows, n_columns)]  # fmt: skip
        if count > 1:
            grids.append((_seen(reader, own[-1], named.digest, _words(processor, named.image, own[-1])), 1, 1))
        of_picture: list[Patch] = []
        for one, down, across in grids:
            rows, columns = one.rows // down, one.columns // across
            for top, left in ((row * rows, column * columns) for row in range(down) for column in range(across)):
                sequences.append((*reader.first_tokens, *_area(len(seen), top, left, rows, columns, reader.patch_size)))
                corner = top // reader.n_merged, left // reader.n_merged
                of_picture += _area(len(seen), *corner, rows // reader.n_merged, columns // reader.n_merged, size)
            seen.append(one)
        in_text.append(of_picture)
        first += count
    return _read({PICTURES: pixels}, seen, sequences, in_text)


def merged(reader: PatchReader, processed: Mapping[str, Any], images: Sequence[NamedImage]) -> ReadPictures:
    """Patches in squares, each of which becomes one token of the text. Where layers attend in windows, the squares of a window follow each other.

    Raises:
        ModelError: the processor does not give patches in squares.
    """
    from transformers.vision_utils import get_vision_window_index

    pixels, grids = processed.get(PICTURES), processed.get(_GRIDS)
    if not isinstance(pixels, Tensor) or pixels.ndim != 2 or not isinstance(grids, Tensor):
        raise _unknown()
    side, n_merged, n_frames = (getattr(reader.image_processor, name) for name in ("patch_size", "merge_size", "temporal_patch_size"))  # fmt: skip
    seen, squares, in_text, lengths, first = (
        list[SeenPicture](),
        list[list[Patch]](),
        list[list[Patch]](),
        list[int](),
        0,
    )
    inside = [divmod(place, n_merged) for place in range(n_merged**2)]
    for index, ((_, rows, columns), named) in enumerate(zip(grids.tolist(), images, strict=True)):
        down, across = rows // n_merged, columns // n_merged
        own = pixels[first : first + rows * columns].view(down, across, n_merged, n_merged, 3, n_frames, side, side)
        picture = own[:, :, :, :, :, 0].permute(4, 0, 2, 5, 1, 3, 6).reshape(3, rows * side, columns * side)
        seen.append(_seen(reader, picture, named.digest, _words(reader.image_processor, named.image, picture)))
        places = [divmod(place, across) for place in range(down * across)]
        in_text.append([_patch(index, y, x, (side * n_merged, side * n_merged)) for y, x in places])
        squares += ([_patch(index, y * n_merged + dy, x * n_merged + dx, (side, side)) for dy, dx in inside] for y, x in places)  # fmt: skip
        lengths.append(rows * columns)
        first += rows * columns
    if reader.window_size:
        order, _ = get_vision_window_index(grids, n_merged, reader.window_size, side)
        squares = [squares[place] for place in order.tolist()]
    return _read({PICTURES: pixels, _GRIDS: grids}, seen, squares, in_text)._replace(lengths=tuple(lengths))


LAYOUTS: Mapping[str, Layout] = {GRID: _one_grid, TILES: tiles, VIEWS: views, MERGED: merged}
"""The layouts, by the names in `vision_families.IN_TEXT`; a model without text has a grid."""


def _read(
    arguments: dict[str, Tensor],
    seen: Sequence[SeenPicture],
    sequences: Sequence[Sequence[str]],
    in_text: Sequence[Sequence[str]],
) -> ReadPictures:
    """The pictures from the tokens of each sequence, and those that each picture has in the text."""
    tokens, of_text = (tuple(token for part in parts for token in part) for parts in (sequences, in_text))
    return ReadPictures(arguments, tuple(seen), tokens, of_text, tuple(map(len, sequences)), tuple(map(len, in_text)))


def _patch(picture: int, row: int, column: int, size: tuple[int, ...]) -> Patch:
    height, width = size
    return Patch(picture, row, column, (column * width, row * height, (column + 1) * width, (row + 1) * height))


def _patches(reader: PatchReader, picture: int, rows: int, columns: int) -> Iterator[Patch]:
    return _area(picture, 0, 0, rows, columns, reader.patch_size)


def _area(picture: int, top: int, left: int, rows: int, columns: int, size: tuple[int, ...]) -> Iterator[Patch]:
    """The patches of a part of a grid, row by row."""
    return (_patch(picture, top + row, left + column, size) for row in range(rows) for column in range(columns))


def _seen(reader: PatchReader, pixels: Tensor, digest: str, words: str) -> SeenPicture:
    """What a model saw, from its normalized pixels [3 row column]."""
    processor, rgb = reader.image_processor, pixels.double()
    if processor.do_normalize:
        mean, std = (
            torch.tensor(numbers, dtype=torch.float64).expand(3)[:, None, None]
            for numbers in (processor.image_mean, processor.image_std)
        )
        rgb = rgb * std + mean
    if processor.do_rescale:
        rgb = rgb / processor.rescale_factor
    rows, columns = (
        length // size for length, size in zip(pixels.shape[-2:], reader.patch_size, strict=True)
    )  # a convolution without padding leaves the rest out
    rgb8 = rgb.round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
    return SeenPicture(rgb8, rows, columns, reader.patch_size, words, digest)


def _words(processor: Any, image: Any, pixels: Tensor) -> str:
    """What a processor did to a picture; its size before the crop is measured, and not computed again."""
    crops = bool(getattr(processor, "do_center_crop", False)) and not hasattr(processor, "image_grid_pinpoints")
    before = pixels
    if crops:
        before = processor(images=image, return_tensors="pt", do_center_crop=False, **_RAW)[PICTURES]
    resized, final = (tuple(tensor.shape[:-3:-1]) for tensor in (before, pixels))
    is_padded = bool(getattr(processor, "do_pad", False)) and not hasattr(processor, "image_grid_pinpoints")
    steps = ["padded to a square"] * is_padded
    steps += ["not resized" if resized == image.size else f"resized to {resized[0]} × {resized[1]}"]
    if final != resized:
        is_larger = final[0] > resized[0] or final[1] > resized[1]
        steps.append(
            f"cropped to {final[0]} × {final[1]} at the centre" + is_larger * ", with black where it is smaller"
        )
    return ", ".join(steps)


def _unknown() -> ModelError:
    return ModelError(
        "The processor of a model gives pictures of three colours as its family reads them, and this one gives something else: choose another model."
    )
