"""From pictures to the tokens of a model: its processor, what the model saw, and the tokens with their places.

The tokens of a picture lie in one grid, in a grid of tiles, or are patches merged in squares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attention.base.errors import AttentionError, ConfigError, ModelError
from attention.base.tokens import NEWLINE, Patch
from attention.files.picture import Picture
from attention.media import InputReader, Medium, reads_text
from attention.models.in_memory import kind_of
from attention.models.medium_inputs import MediumInputs, ReadInput
from attention.models.seen_pixels import (
    TOKEN_TYPES,
    RawPicture,
    area,
    read_input,
    read_merged,
    seen_picture,
    too_many_tokens,
    unknown_pixels,
    with_places,
    words_of,
)  # fmt: skip
from attention.trace.trace import SeenPicture
from attention.vision.families import (
    ALONE,
    FIRST_TOKENS,
    GRID,
    IN_TEXT,
    MASKED,
    MERGED,
    PADDED_TEXTS,
    PICTURES,
    QUERIES,
    TILES,
    VIEWS,
    WINDOWS,
    patch_size,
    vision_config,
)
from attention.vision.own_layers import DECODER, ENCODER, OWN_LAYERS, PADDING, Q_FORMER

if TYPE_CHECKING:
    from attention.models.folder import Folder
    from attention.models.loaded import LoadedModel

_PROBE_SIDE = 64  # pixels
_MAX_SIDE = 1344  # pixels that a processor may ask for; the longer side may be longer
_BY_HAND = (MERGED, VIEWS)
"""Layouts of families whose processor of texts needs torchvision, for videos: their image tokens are repeated here."""
_MAX_PIXELS = 2**24
"""Of all tiles of a picture, or of one that keeps its sides, whose number of tokens is checked before it is resized."""
_SIZES, _GRIDS = "image_sizes", "image_grid_thw"
_COUNTS = "num_patches"
"""The number of tiles of each picture, which the model does not read."""


class PictureReader(InputReader):
    """How a model of a declared family reads pictures, by its processors.

    Attributes:
        image_processor: of transformers.
        processor: the processor of picture and text, for a language model that reads pictures in its text; otherwise None.
        first_tokens: the tokens of the vision transformer before the patches.
        patch_size: height and width of a patch in pixels.
        n_left_out: how many of the first tokens of the vision transformer do not enter the text.
        pads_text: whether texts are padded to their full length.
        layout: how patches are laid out, one of those in `families`.
        has_decoder: whether it is a ViT-MAE that fills hidden patches again.
        n_hidden_of: the number of patches of which ViT-MAE hides some; 0 for every other model.
        n_queries: of a Q-Former.
        around: the ids in the text before and after the tokens of a picture, if its family has some.
        n_merged: how many patches, in each direction, are merged into one token of the text.
        window_size: the side in pixels of the windows in which some layers attend; 0 without windows.
    """

    def __init__(self, medium: Medium, model: Any, image_processor: Any, processor: Any) -> None:
        vision, config = vision_config(model), model.config
        assert vision is not None  # the caller has checked it
        in_text = config.model_type in IN_TEXT and reads_text(model)
        before, after = (getattr(config, f"vision_{name}_token_id", None) for name in ("start", "end"))
        self.medium, self.reads_text, self.image_processor = medium, reads_text(model), image_processor
        self.layout = IN_TEXT[config.model_type] if in_text else ALONE.get(config.model_type, GRID)
        self.has_decoder = self.layout == MASKED and hasattr(model, "decoder")
        self.n_hidden_of = model.get_input_embeddings().num_patches if self.layout == MASKED else 0
        self.n_queries: int = config.num_query_tokens if self.layout == QUERIES else 0
        self.processor = processor if in_text and self.layout not in _BY_HAND else None
        self.first_tokens: tuple[str, ...] = FIRST_TOKENS[vision.model_type](vision)
        self.patch_size = patch_size(vision)
        self.n_left_out = int(in_text and getattr(config, "vision_feature_select_strategy", "") == "default")
        self.token_id = config.image_token_id if in_text else None
        self.types_argument = TOKEN_TYPES if TOKEN_TYPES in signature(model.forward).parameters else ""
        self.pads_text = config.model_type in PADDED_TEXTS
        self.around = None if before is None or after is None else (before, after)
        self.n_merged: int = getattr(vision, "spatial_merge_size", round(1 / getattr(config, "downsample_ratio", 1)))
        self.window_size: int = getattr(vision, "window_size", 0) if self.layout == MERGED else 0
        self.in_turn = self.window_size > 0

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The tokens of pictures that are no patches."""
        more = {TILES: (NEWLINE,), WINDOWS: (PADDING,)}.get(self.layout, ())
        return (*self.first_tokens, *more, *(f"query {number}" for number in range(self.n_queries)))

    @property
    def options(self) -> dict[str, bool]:
        """The options of the image processor, as the processor of texts of the family asks for them."""
        return {"crop_to_patches": True} if self.layout == VIEWS else {}

    @property
    def unread(self) -> tuple[str, ...]:
        """What the image processor gives beside the arguments of the model."""
        return (_COUNTS,) if self.layout == VIEWS else ()

    def inputs(
        self, loaded: LoadedModel, given: Sequence[Picture], text: str, max_tokens: int
    ) -> tuple[MediumInputs, list[tuple[str, int]], list[str]]:
        """As `InputReader.inputs`."""
        pictures = [RawPicture(picture.pixels(), picture.digest) for picture in given]
        return _picture_inputs(loaded, self, pictures, text, max_tokens)

    def probe(self) -> Picture:
        """A picture of which every patch is another."""
        import numpy as np
        from PIL import Image

        rows, columns = np.indices((_PROBE_SIDE // 2, _PROBE_SIDE), dtype=np.uint8)  # two tiles are fewer than four
        return Picture.of(Image.fromarray(np.stack([rows * 4, columns * 4, rows * columns], axis=-1)))

    def kind_of_layer(self, path: str) -> str:
        """As `InputReader.kind_of_layer`; a Q-Former, and the encoder and decoder of ViT-MAE, are kinds of their own."""
        if self.layout == QUERIES and Q_FORMER in path.split("."):
            return Q_FORMER
        if self.has_decoder:
            return DECODER if DECODER in path.split(".") else ENCODER
        return super().kind_of_layer(path)

    def read(self, loaded: LoadedModel, pictures: Sequence[RawPicture], text: str) -> tuple[ReadInput, Tensor | None]:
        """Pictures as the model reads them; for a model that reads them in its text, also the token ids [1 pos] of the text.

        In the text, the model's processor repeats each image token for every token of a picture.

        Raises:
            ModelError: the processor gives something else than pictures in three colours.
        """
        from PIL import Image

        tokenizer, images = loaded.tokenizer, [Image.fromarray(picture.rgb) for picture in pictures]
        processor = self.image_processor
        options: dict[str, Any] = self.options
        if self.processor is not None:
            processor, options = self.processor, {"text": [text]}
        processed = processor(images=images, return_tensors="pt", **options)
        read = _LAYOUTS.get(self.layout, _one_grid)(self, processed, pictures)
        if self.layout in OWN_LAYERS:
            read = OWN_LAYERS[self.layout](read, loaded.model)
        if self.processor is not None:
            return read, processed["input_ids"]
        if self.token_id is None:
            return read, None
        token, before, after = self.image_token(tokenizer), "", ""
        if self.layout == VIEWS:
            before, after = (getattr(tokenizer, f"{name}_image_token", "") for name in ("start", "end"))
        first, *others = text.split(token)
        tokens = (before + token * count + after for count in read.n_in_text)
        expanded = first + "".join(own + part for own, part in zip(tokens, others, strict=True))
        return read, tokenizer(expanded, return_tensors="pt", verbose=False)["input_ids"]

    def image_token(self, tokenizer: Any) -> str:
        """The token that stands for a picture in a text."""
        own = getattr(self.processor, "image_token", None)
        return str(own or tokenizer.convert_ids_to_tokens(self.token_id))

    def place_of_picture(self, tokenizer: Any) -> str:
        """The tokens of a text at which a picture stands, as a user writes them."""
        before, after = ("", "") if self.around is None else tokenizer.convert_ids_to_tokens(list(self.around))
        return f"{before}{self.image_token(tokenizer)}{after}"

    def count_in_advance(self, picture: RawPicture) -> int:
        """How many tokens of the vision transformer a picture makes, where its number of pixels decides it; otherwise 0."""
        if self.layout != MERGED:
            return 0
        return int(self.image_processor.get_number_of_image_patches(*picture.rgb.shape[:2]))


def load_reader(cls: type[PictureReader], medium: Medium, folder: Folder, name: str, model: Any) -> PictureReader:
    """The reader of a model of a declared family, of this class, from the files of its folder.

    Raises:
        ModelError: a file is missing or broken, or asks for pictures that are too large.
    """
    from transformers import AutoImageProcessor, AutoProcessor

    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    in_text = model.config.model_type in IN_TEXT and reads_text(model)
    has_processor = in_text and IN_TEXT[model.config.model_type] not in _BY_HAND
    try:
        # The other backend of transformers needs torchvision.
        image_processor = AutoImageProcessor.from_pretrained(folder.path, backend="pil", **options)
        processor = None
        if has_processor:
            processor = AutoProcessor.from_pretrained(folder.path, backend="pil", **options)
            processor.image_processor = image_processor
        reader = cls(medium, model, image_processor, processor)
        _check_size(image_processor, name)
    except ModelError:
        raise
    except Exception as error:  # a missing or broken file can raise anything in transformers
        raise ModelError(
            f"{name} has no processor of pictures that can be read without torchvision: add its preprocessor_config.json to the folder"
            f"{', and processor_config.json' if has_processor else ''}."
        ) from error
    return reader


def reader_of(cls: type[PictureReader], medium: Medium, model: Any, processor: Any) -> tuple[PictureReader, Any]:
    """The reader of a model in memory, of this class, and the processor of pictures in that of its user, which may have one of texts beside it.

    Raises:
        ModelError: it has none, or asks for pictures that are too large.
    """
    from transformers import BaseImageProcessor

    for candidate in (processor, getattr(processor, "image_processor", None)):
        if isinstance(candidate, BaseImageProcessor):
            _check_size(candidate, type(model).__name__)
            return cls(medium, model, candidate, processor), candidate
    loader = "AutoProcessor" if reads_text(model) else "AutoImageProcessor"
    raise ModelError(
        f"Model.of needs the processor of a model that reads pictures, such as {type(model).__name__}; got {kind_of(processor)}: "
        f"load it with {loader}.from_pretrained(…)."
    )


def _check_size(image_processor: Any, name: str) -> None:
    """Check the size that a processor resizes to, before it allocates it.

    Raises:
        ModelError: it is larger than any that the Lab reads, or it keeps pictures as large as they are.
    """
    fields = {field: dict(getattr(image_processor, field, None) or {}) for field in ("size", "crop_size", "pad_size")}
    # A processor of merged patches has numbers of pixels as its sizes, one of tiles has a list of sizes to choose from.
    most = _MAX_PIXELS if hasattr(image_processor, "merge_size") else _MAX_SIDE
    numbers = [side for size in fields.values() for side in size.values() if side is not None]
    areas = [height * width for height, width in getattr(image_processor, "image_grid_pinpoints", None) or ()]
    is_small = all(0 < side <= most for side in numbers) and all(0 < area <= _MAX_SIDE**2 for area in areas)
    largest = max(fields["size"].get("height") or 0, fields["size"].get("width") or 0)
    is_small &= getattr(image_processor, "max_patches", 1) * largest**2 <= _MAX_PIXELS
    if not image_processor.do_resize or not is_small:
        raise ModelError(
            f"A processor resizes each picture to at most {_MAX_SIDE} pixels; that of {name} does not: choose another model, or change its preprocessor_config.json."
        )


_Layout = Callable[[PictureReader, Mapping[str, Any], Sequence[RawPicture]], ReadInput]
"""Gives the tokens of pictures from what the processor of a reader made of them."""


def _one_grid(reader: PictureReader, processed: Mapping[str, Any], pictures: Sequence[RawPicture]) -> ReadInput:
    """Patches row by row, after the first tokens of the vision transformer."""
    pixels = processed[PICTURES]
    if not isinstance(pixels, Tensor) or pixels.ndim != 4 or pixels.shape[:2] != (len(pictures), 3):
        raise unknown_pixels()
    whole = pixels
    if reader.layout == WINDOWS:  # Swin fills the last patches with zeros, where others leave the rest out
        missing = [-length % size for length, size in zip(pixels.shape[-2:], reader.patch_size, strict=True)]
        whole = torch.nn.functional.pad(pixels, (0, missing[1], 0, missing[0]))
    seen = [_seen(reader, own, picture) for own, picture in zip(whole, pictures, strict=True)]
    sequences = [(*reader.first_tokens, *area(index, 0, 0, one.rows, one.columns, one.patch_size)) for index, one in enumerate(seen)]  # fmt: skip
    in_text = [tokens[reader.n_left_out :] for tokens in sequences]
    return read_input({PICTURES: pixels}, seen, sequences, in_text)


def _tiles(reader: PictureReader, processed: Mapping[str, Any], pictures: Sequence[RawPicture]) -> ReadInput:
    """The whole picture in one grid, then the same picture, larger, cut into tiles, which the vision transformer reads one by one.

    In the text, the rows of patches run through the tiles, each with a separator after it, without those that lie beside the picture.
    Both views are pictures of their own.
    """
    from transformers.models.llava_next.modeling_llava_next import get_anyres_image_grid_shape, unpad_image

    pixels, sizes = processed.get(PICTURES), processed.get(_SIZES)
    if not isinstance(pixels, Tensor) or pixels.ndim != 5 or pixels.shape[2] != 3 or not isinstance(sizes, Tensor):
        raise unknown_pixels()
    side = pixels.shape[-1]
    seen: list[SeenPicture] = []
    sequences: list[tuple[str, ...]] = []
    in_text: list[tuple[str, ...]] = []
    for index, (own, size, picture) in enumerate(zip(pixels, sizes, pictures, strict=True)):
        n_rows, n_columns = get_anyres_image_grid_shape(size, reader.image_processor.image_grid_pinpoints, side)
        whole = _seen(reader, own[0], picture)
        joined = own[1 : 1 + n_rows * n_columns].unflatten(0, (n_rows, n_columns)).permute(2, 0, 3, 1, 4)
        words = f"fitted into {n_columns * side} × {n_rows * side} with black beside it, cut into {n_rows} × {n_columns} tiles (rows × columns)"
        tiled = _seen(reader, joined.reshape(3, n_rows * side, n_columns * side), picture, words)
        seen += whole, tiled
        base = (*reader.first_tokens, *area(2 * index, 0, 0, whole.rows, whole.columns, whole.patch_size))
        grid = list(area(2 * index + 1, 0, 0, tiled.rows, tiled.columns, tiled.patch_size))
        places = torch.arange(len(grid)).view(tiled.rows, tiled.columns)
        sequences.append(base)
        for tile in (tile for rows in places.chunk(n_rows) for tile in rows.chunk(n_columns, dim=1)):
            sequences.append((*reader.first_tokens, *(grid[place] for place in tile.flatten().tolist())))
        kept = unpad_image(places[None], size)[0]
        rows = ((*(grid[place] for place in row), NEWLINE) for row in kept.tolist())
        in_text.append((*base[reader.n_left_out :], *chain.from_iterable(rows)))
    return read_input({PICTURES: pixels, _SIZES: sizes}, seen, sequences, in_text)


def _views(reader: PictureReader, processed: Mapping[str, Any], pictures: Sequence[RawPicture]) -> ReadInput:
    """The picture stretched and cut into tiles, then the whole picture in one, unless there is one tile; squares of patches become one token.

    In the text, the tiles follow each other. The tiles together and the whole picture are pictures of their own.
    """
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

    pixels, counts, processor = processed.get(PICTURES), processed.get(_COUNTS), reader.image_processor
    if not isinstance(pixels, Tensor) or pixels.ndim != 4 or pixels.shape[1] != 3 or counts is None:
        raise unknown_pixels()
    height, width = pixels.shape[-2:]
    size = tuple(length * reader.n_merged for length in reader.patch_size)
    seen, sequences, in_text, first = list[SeenPicture](), list[tuple[str, ...]](), list[list[Patch]](), 0
    for count, picture in zip(map(int, counts), pictures, strict=True):
        own, n_rows, n_columns, cut = pixels[first : first + count], 1, 1, ""
        if count > 1:
            limits = processor.min_patches, processor.max_patches
            n_columns, n_rows = get_optimal_tiled_canvas(picture.rgb.shape[:2], (height, width), *limits)
            cut = f", cut into {n_rows} × {n_columns} tiles (rows × columns)"
        joined = own[: n_rows * n_columns].reshape(n_rows, n_columns, 3, height, width).permute(2, 0, 3, 1, 4)
        stretched = joined.reshape(3, n_rows * height, n_columns * width)
        grids = [
            (_seen(reader, stretched, picture, words_of(processor, picture.rgb, stretched) + cut), n_rows, n_columns)
        ]
        if count > 1:
            grids.append((_seen(reader, own[-1], picture), 1, 1))
        of_picture: list[Patch] = []
        for one, down, across in grids:
            rows, columns = one.rows // down, one.columns // across
            for top, left in ((row * rows, column * columns) for row in range(down) for column in range(across)):
                sequences.append((*reader.first_tokens, *area(len(seen), top, left, rows, columns, reader.patch_size)))
                corner = top // reader.n_merged, left // reader.n_merged
                of_picture += area(len(seen), *corner, rows // reader.n_merged, columns // reader.n_merged, size)
            seen.append(one)
        in_text.append(of_picture)
        first += count
    return read_input({PICTURES: pixels}, seen, sequences, in_text)


def _merged(reader: PictureReader, processed: Mapping[str, Any], pictures: Sequence[RawPicture]) -> ReadInput:
    """Patches in squares, each of which becomes one token of the text; a picture stands for all frames of its patches."""

    def see(index: int, _: int, frames: Tensor) -> SeenPicture:
        return _seen(reader, frames[0], pictures[index])

    return read_merged((PICTURES, _GRIDS), processed, reader.image_processor, reader.window_size, see)


def _seen(reader: PictureReader, pixels: Tensor, picture: RawPicture, words: str = "") -> SeenPicture:
    return seen_picture(reader.image_processor, reader.patch_size, pixels, picture, words)


_LAYOUTS: Mapping[str, _Layout] = {TILES: _tiles, VIEWS: _views, MERGED: _merged}
"""The layouts, by the names in `families.IN_TEXT`; all others are made from a grid."""


def _picture_inputs(
    loaded: LoadedModel, reader: PictureReader, pictures: Sequence[RawPicture], text: str, max_tokens: int
) -> tuple[MediumInputs, list[tuple[str, int]], list[str]]:
    """As `InputReader.inputs`."""
    notes: list[str] = []
    if reader.token_id is not None and reader.layout != QUERIES:
        token, place = reader.image_token(loaded.tokenizer), reader.place_of_picture(loaded.tokenizer)
        text, notes = with_places(loaded.name, reader.medium, token, place, text, len(pictures))
    elif len(pictures) > 1:
        raise ConfigError(
            f"{loaded.name} reads one picture at a time; got {len(pictures)}: make a Model for each, or choose a language model that reads pictures."
        )
    if reader.layout == QUERIES and reader.token_id is not None:  # they stand before the text, wherever it has them
        text = text.replace(reader.image_token(loaded.tokenizer), "")
    read, text_ids = _processed(loaded, reader, pictures, text, max_tokens)
    ids = {PICTURES: torch.arange(len(read.tokens))[None]}
    truncated: list[tuple[str, int]] = []
    if not reader.reads_text and (n_tokens := _counted(read)) > max_tokens:
        raise too_many_tokens(loaded, reader, n_tokens, max_tokens)
    if text_ids is not None:
        ids["input_ids"] = text_ids
        if (length := text_ids.shape[1]) > max_tokens:
            raise too_many_tokens(loaded, reader, length, max_tokens)
        if (count := text_ids.tolist()[0].count(reader.token_id)) != len(read.in_text):
            raise ConfigError(
                f"The text of {loaded.name} should have {len(read.in_text)} image tokens, and its processor makes {count}: "
                "check patch_size, num_additional_image_tokens and vision_feature_select_strategy in its processor_config.json."
            )
    elif reader.reads_text:
        padding = "max_length" if reader.pads_text else False
        length = len(loaded.tokenizer(text, verbose=False)["input_ids"])
        truncated += [("text", length)] if length > max_tokens else []
        ids["input_ids"] = loaded.tokenizer(
            text, return_tensors="pt", padding=padding, truncation=True, max_length=max_tokens
        )["input_ids"]
    return MediumInputs(ids, read, reader), truncated, [*notes, *read.notes]


def _counted(read: ReadInput) -> int:
    """The tokens of the largest layer; of one in windows, those of a layer without them that has as many weights."""
    if len(read.lengths) > 1:
        return math.isqrt(sum(length**2 for length in read.lengths))
    return max(map(len, (read.tokens, *chain.from_iterable(read.sides.values()))))


def _processed(
    loaded: LoadedModel, reader: PictureReader, pictures: Sequence[RawPicture], text: str, max_tokens: int
) -> tuple[ReadInput, Tensor | None]:
    """The pictures as the model reads them, and the ids of the text if it reads them in it."""
    try:
        n_at_least = sum(map(reader.count_in_advance, pictures)) // reader.n_merged**2
        if n_at_least > max_tokens:
            raise too_many_tokens(loaded, reader, n_at_least, max_tokens)
        return reader.read(loaded, pictures, text)
    except AttentionError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        message = " ".join(str(error).split())[:150]
        raise ModelError(
            f"The processor of {loaded.name} should read this picture, and fails with “{message}”: check its preprocessor_config.json."
        ) from error
