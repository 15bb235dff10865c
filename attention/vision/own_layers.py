"""Layers that read other tokens than the patches of a grid, row by row: those that a model does not hide, windows of them, and queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from attention.base.errors import ModelError
from attention.base.tokens import Patch
from attention.media import reads_text
from attention.models.medium_inputs import ReadInput
from attention.vision.families import MASKED, QUERIES, WINDOWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attention.trace.trace import SeenPicture

PADDING = "[padding]"
"""A position that fills the last window of a row or column; it has a key and a value, as any other."""
Q_FORMER, ENCODER, DECODER = "qformer", "encoder", "decoder"
"""Kinds of layers."""


def mask_order(n_patches: int) -> torch.Tensor:
    """The noise [1 patch] by which ViT-MAE chooses the patches that it hides: the same for every picture of this size, without equal numbers in any dtype."""
    return torch.randperm(n_patches, generator=torch.Generator().manual_seed(0))[None]


def _without_hidden(read: ReadInput, model: Any) -> ReadInput:
    """An encoder that reads the patches with the smallest noise, in this order, and a decoder, if there is one, that reads all of them in theirs.

    Source: He et al. 2022, "Masked Autoencoders Are Scalable Vision Learners", section 3.
    """
    patches = [token for token in read.tokens if isinstance(token, Patch)]
    noise, ratio = mask_order(len(patches)), model.config.mask_ratio
    kept = noise[0].argsort()[: int(len(patches) * (1 - ratio))].tolist()
    first = read.tokens[: len(read.tokens) - len(patches)]
    hidden = f"{len(patches) - len(kept)} of {len(patches)} patches are hidden from the encoder, mask_ratio={ratio:g} of them, by random numbers that are the same for every picture"
    reads = "; the decoder reads a mask token at each of them" if hasattr(model, "decoder") else ""
    return read._replace(
        arguments={**read.arguments, "noise": noise},
        tokens=(*first, *(patches[place] for place in kept)),
        sides={DECODER: (read.tokens, read.tokens)},
        notes=(f"{hidden}{reads}.",) if len(kept) < len(patches) else (),
    )


def _with_queries(read: ReadInput, model: Any) -> ReadInput:
    """Queries of a Q-Former that attend to themselves and to the patches, and stand for these in the text.

    Source: Li et al. 2023, "BLIP-2: Bootstrapping Language-Image Pre-training with Frozen Image Encoders and Large Language Models", section 3.1.
    """
    is_writer = hasattr(model, "language_model") and model.config.use_decoder_only_language_model
    if not is_writer and reads_text(model):
        raise ModelError(
            f"The Lab reads a BLIP-2 whose text is that of a decoder, such as OPT, with the queries in it; {type(model).__name__} reads its text in another way: "
            "choose a Blip2ForConditionalGeneration with OPT, or record it with attention.record(model, …)."
        )
    queries = tuple(f"query {number}" for number in range(model.config.num_query_tokens))
    sides = {Q_FORMER: (queries, queries), "cross": (queries, read.tokens)}
    return read._replace(in_text=queries, n_in_text=(len(queries),), sides=sides)


def _in_windows(read: ReadInput, model: Any) -> ReadInput:
    """Patches in windows, each of which sees itself only, in the order of the windows; every second layer has them shifted. A stage merges 2 × 2 patches of the one before.

    Source: Liu et al. 2021, "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows", section 3.
    """
    seen, sides = read.seen[0], dict[str, tuple[tuple[str, ...], tuple[str, ...]]]()
    rows, columns, size = seen.rows, seen.columns, seen.patch_size
    for stage in (module for module in model.modules() if hasattr(module, "blocks") and hasattr(module, "downsample")):
        patches = [[_patch(seen, row, column, size) for column in range(columns)] for row in range(rows)]
        for block in stage.blocks:
            # They are read from the layer, which changes them for good when it has read a grid that is no larger than a window.
            window, shift = int(block.window_size), int(block.shift_size)
            if hasattr(block, "set_shift_and_window_size") and not type(model).__name__.endswith("Backbone"):
                window, shift = (min(rows, columns), 0) if min(rows, columns) <= window else (window, shift)
            tokens = tuple(_windows(patches, window, shift))
            if not sides:
                read = read._replace(lengths=(window**2,) * (len(tokens) // window**2))
            sides[f"layer {len(sides)}"] = tokens, tokens
        if stage.downsample is not None:
            rows, columns, size = -(-rows // 2), -(-columns // 2), (2 * size[0], 2 * size[1])
    return read._replace(sides=sides)


def _windows(patches: Sequence[Sequence[str]], side: int, shift: int) -> Iterator[str]:
    """The tokens of each window of a grid after its rows and columns were moved cyclically, row by row; and those that fill the last ones."""
    rows, columns = (-(-count // side) * side for count in (len(patches), len(patches[0])))
    padded = [[*row, *[PADDING] * (columns - len(row))] for row in patches]
    padded += [[PADDING] * columns for _ in range(rows - len(patches))]
    moved = [row[shift:] + row[:shift] for row in padded[shift:] + padded[:shift]]
    for top in range(0, rows, side):
        for left in range(0, columns, side):
            yield from chain.from_iterable(row[left : left + side] for row in moved[top : top + side])


def _patch(seen: SeenPicture, row: int, column: int, size: tuple[int, ...]) -> Patch:
    """A patch of a stage, which may reach beyond the picture where a grid has an odd number of rows or columns."""
    (height, width), (bottom, right) = size, seen.rgb.shape[:2]
    box = column * width, row * height, min((column + 1) * width, right), min((row + 1) * height, bottom)
    return Patch(0, row, column, box)


OWN_LAYERS: Mapping[str, Callable[[ReadInput, Any], ReadInput]] = {
    MASKED: _without_hidden, QUERIES: _with_queries, WINDOWS: _in_windows,
}  # fmt: skip
"""What a grid of patches becomes in layers of a model, by layout."""
