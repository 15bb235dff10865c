"""What a model saw of pictures and frames: its normalized pixels as colours, their patches, and the places of their tokens in a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from attention.base.errors import ConfigError, ModelError, TextError
from attention.base.tokens import Patch
from attention.models.medium_inputs import ReadInput
from attention.trace.trace import SeenPicture

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

    from attention.media import InputReader, Medium
    from attention.models.loaded import LoadedModel

TOKEN_TYPES = "mm_token_type_ids"
"""The argument of a model that must know which tokens of its text are those of a picture or a video."""
_PIXELS = "pixel_values"


class RawPicture(NamedTuple):
    """A picture, or a frame of a video, before a model reads it.

    Attributes:
        rgb: red, green and blue from 0 to 255, [row column 3].
        digest: of its file.
    """

    rgb: NDArray[uint8]
    digest: str


def seen_picture(
    processor: Any, patch_size: tuple[int, int], pixels: Tensor, picture: RawPicture, words: str = ""
) -> SeenPicture:
    """What a model saw, from its normalized pixels [3 row column]; by default in the words of `words_of`."""
    rgb = pixels.double()
    if processor.do_normalize:
        mean, std = (
            torch.tensor(numbers, dtype=torch.float64).expand(3)[:, None, None]
            for numbers in (processor.image_mean, processor.image_std)
        )
        rgb = rgb * std + mean
    if processor.do_rescale:
        rgb = (rgb + bool(getattr(processor, "offset", False))) / processor.rescale_factor
    # A convolution without padding leaves the rest out.
    rows, columns = (length // size for length, size in zip(pixels.shape[-2:], patch_size, strict=True))
    rgb8 = rgb.round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
    return SeenPicture(
        rgb8, rows, columns, patch_size, words or words_of(processor, picture.rgb, pixels), picture.digest
    )


def words_of(processor: Any, rgb: NDArray[uint8], pixels: Tensor) -> str:
    """What a processor did to a picture [row column 3]; its size before the crop is measured, and not computed again."""
    from PIL import Image

    makes_tiles = hasattr(processor, "image_grid_pinpoints")
    before = pixels
    if getattr(processor, "do_center_crop", False) and not makes_tiles:
        before = processor(Image.fromarray(rgb), return_tensors="pt", do_center_crop=False)[_PIXELS]
    resized, final = (tuple(tensor.shape[:-3:-1]) for tensor in (before, pixels))
    steps = ["padded to a square"] if getattr(processor, "do_pad", False) and not makes_tiles else []
    is_same = resized == rgb.shape[1::-1]
    steps.append("not resized" if is_same else f"resized to {resized[0]} × {resized[1]}")
    if final != resized:
        is_larger = final[0] > resized[0] or final[1] > resized[1]
        steps.append(
            f"cropped to {final[0]} × {final[1]} at the centre" + is_larger * ", with black where it is smaller"
        )
    return ", ".join(steps)


def area(picture: int, top: int, left: int, rows: int, columns: int, size: tuple[int, ...]) -> Iterator[Patch]:
    """The patches of a part of a grid, row by row; each of a `size`, height and width, in pixels."""
    return (_patch(picture, top + row, left + column, size) for row in range(rows) for column in range(columns))


def _patch(picture: int, row: int, column: int, size: tuple[int, ...]) -> Patch:
    height, width = size
    return Patch(picture, row, column, (column * width, row * height, (column + 1) * width, (row + 1) * height))


def read_input(
    arguments: dict[str, Tensor],
    seen: Sequence[SeenPicture],
    sequences: Sequence[Sequence[str]],
    in_text: Sequence[Sequence[str]],
) -> ReadInput:
    """The input from the tokens of each sequence, and those that each picture or video has in the text."""
    tokens, of_text = (tuple(chain.from_iterable(parts)) for parts in (sequences, in_text))
    return ReadInput(arguments, tuple(seen), tokens, of_text, tuple(map(len, sequences)), tuple(map(len, in_text)))


def read_merged(
    names: tuple[str, str],
    processed: Mapping[str, Any],
    processor: Any,
    window_size: int,
    see: Callable[[int, int, Tensor], SeenPicture],
    name: Callable[[SeenPicture, Patch], Patch] = lambda _, patch: patch,
) -> ReadInput:
    """Patches in squares, each of which becomes one token of the text; where layers attend in windows, the squares of a window follow each other.

    Frames that share their patches are a picture of their own, and its patches see each other only.

    Args:
        names: the arguments of the model for the numbers of the patches and for the grids [input 3] of groups of frames, rows and columns.
        processed: these arguments.
        processor: has the `patch_size`, how many patches are merged in each direction, and how many frames share a patch.
        window_size: the side in pixels of the windows; 0 without windows.
        see: from the index of an input, that of a group of frames in it, and the group's pixels [frame 3 row column], what the model saw.
        name: the patch with the name and the place of its medium.

    Raises:
        ModelError: the processor gives something else.
    """
    from transformers.vision_utils import get_vision_window_index

    pixels, grids = (processed.get(each) for each in names)
    if not isinstance(pixels, Tensor) or pixels.ndim != 2 or not isinstance(grids, Tensor):
        raise unknown_pixels()
    side, n_merged, n_frames = (getattr(processor, each) for each in ("patch_size", "merge_size", "temporal_patch_size"))  # fmt: skip
    seen, squares, in_text, first = list[SeenPicture](), list[list[Patch]](), list[list[Patch]](), 0
    inside = [divmod(place, n_merged) for place in range(n_merged**2)]
    for index, (n_groups, rows, columns) in enumerate(grids.tolist()):
        down, across = rows // n_merged, columns // n_merged
        places = [divmod(place, across) for place in range(down * across)]
        in_text.append([])
        for group in range(n_groups):
            own = pixels[first : first + rows * columns].view(down, across, n_merged, n_merged, 3, n_frames, side, side)
            joined = own.permute(5, 4, 0, 2, 6, 1, 3, 7).reshape(n_frames, 3, rows * side, columns * side)
            at, one = len(seen), see(index, group, joined)
            seen.append(one)
            in_text[-1] += [name(one, _patch(at, y, x, (side * n_merged, side * n_merged))) for y, x in places]
            squares += (
                [name(one, _patch(at, y * n_merged + dy, x * n_merged + dx, (side, side))) for dy, dx in inside]
                for y, x in places
            )
            first += rows * columns
    if window_size:
        order, _ = get_vision_window_index(grids, n_merged, window_size, side)
        squares = [squares[place] for place in order.tolist()]
    lengths = tuple(rows * columns for n_groups, rows, columns in grids.tolist() for _ in range(n_groups))
    return read_input({names[0]: pixels, names[1]: grids}, seen, squares, in_text)._replace(lengths=lengths)


def unknown_pixels() -> ModelError:
    """The error for a processor that gives something else than its family reads."""
    return ModelError(
        "The processor of a model gives pictures of three colours as its family reads them, and this one gives something else: choose another model."
    )


def with_places(model: str, medium: Medium, token: str, place: str, text: str, n_inputs: int) -> tuple[str, list[str]]:
    """The text with a `place`, the `token` and what stands around it, for each input; and a sentence if they were not there.

    Raises:
        TextError: it has another number of places.
    """
    count, noun = text.count(token), medium.noun
    if count == n_inputs:
        return text, []
    if count:
        raise TextError(
            f"The text for {model} has {count} {'place' if count == 1 else 'places'} for {medium.one} ({token}), "
            f"and {n_inputs} {'is' if n_inputs == 1 else 'are'} given: write {place} once for each {noun}, or nowhere."
        )
    stands, it = (f"{noun} stands", "it") if n_inputs == 1 else (f"{medium.name} stand", "each of them")
    note = f"The {stands} before the text, which has no {place} in it: write {place} where {it} should stand."
    return f"{place}\n" * n_inputs + text, [note]


def too_many_tokens(loaded: LoadedModel, reader: InputReader, length: int, max_tokens: int) -> ConfigError:
    """The error for an input of more tokens than are read."""
    noun = reader.medium.noun
    return ConfigError(
        f"At most {max_tokens:,} tokens are read here; {loaded.name} makes {length:,} of this {noun}"
        f"{' and its text' if reader.reads_text else ''}, and a {noun} cannot be cut: "
        "choose a model with larger patches, or raise max_tokens."
    )
