"""The task on a picture of drawn shapes: each word names a shape, and the answer is its colour."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING

from attention.base.errors import TextError
from attention.base.tokens import Patch
from attention.training.task import Batch, Design, Example

if TYPE_CHECKING:
    import torch

    from attention.trace.trace import SeenPicture

SHAPES = ("circle", "square", "triangle", "diamond", "cross", "ring")
COLORS = ("black", "red", "green", "blue", "yellow", "purple", "cyan")
RGB = (
    (0.1, 0.1, 0.1), (0.87, 0.15, 0.15), (0.1, 0.6, 0.2), (0.15, 0.25, 0.9), (0.95, 0.8, 0.1), (0.7, 0.2, 0.8), (0.1, 0.75, 0.85),
)  # fmt: skip
DRAWN = 4  # shapes in a picture
SIDE = 16  # pixels of a patch
SHIFTS = (-2, 0, 2)  # pixels from the middle of a patch, across and down
_CENTRED = len(SHIFTS) ** 2 // 2
_PART = re.compile(r"([a-z]+) ([a-z]+) ([0-9]{1,2}) ?, ?([0-9]{1,2})")


def pictures(count: int, generator: torch.Generator, design: Design) -> torch.Tensor:
    """Rows of ids, one for each patch: 0 if it is empty, or else its shape, colour and shift as one number. All shapes of a picture differ."""
    import torch

    kinds = torch.rand(count, len(SHAPES), generator=generator).argsort(dim=1, stable=True)[:, :DRAWN]
    colors = torch.randint(len(COLORS), (count, DRAWN), generator=generator)
    shifts = torch.randint(len(SHIFTS) ** 2, (count, DRAWN), generator=generator)
    places = torch.rand(count, design.length**2, generator=generator).argsort(dim=1, stable=True)[:, :DRAWN]
    drawn = 1 + (kinds * len(COLORS) + colors) * len(SHIFTS) ** 2 + shifts
    return torch.zeros(count, design.length**2, dtype=torch.long).scatter(1, places, drawn)


def named_shapes(ids: torch.Tensor, design: Design) -> Batch:
    """The batch that asks for the colour of every shape by its name; gold is its patch. Names without a shape, and patches, have no answer."""
    import torch
    from torch.nn.functional import pad

    n_shifts, n_patches = len(SHIFTS) ** 2, ids.shape[1]
    code, drawn = (ids - 1).clamp(min=0), ids > 0
    kinds, colors = code // n_shifts // len(COLORS), code // n_shifts % len(COLORS)
    coverage = coverages()[kinds * n_shifts + code % n_shifts] * drawn[:, :, None]
    inks = torch.tensor(RGB, dtype=torch.float64) - 1  # white is 0; the sum of float32 depends on the processor
    ink = (inks.mean().expand_as(inks) if design.grey else inks).float()[colors]  # one grey for all colours
    patches = (coverage[:, :, :, None] * ink[:, :, None]).flatten(2)
    gold = (kinds[:, None] == torch.arange(len(SHAPES))[:, None]) & drawn[:, None]
    answers = colors.gather(1, gold.int().argmax(-1)).masked_fill(~gold.any(-1), -1)
    names = torch.arange(len(SHAPES)) % design.tokens
    return Batch(
        names.expand(len(ids), -1),
        pad(answers, (0, n_patches), value=-1),
        pad(gold, (len(SHAPES), 0, 0, n_patches)),
        patches=patches,
    )


def coverages() -> torch.Tensor:
    """How much of each pixel each shape covers, from 0 to 1, for every shape and shift: [shape_and_shift pixel]."""
    import torch

    at = torch.arange(SIDE) - (SIDE - 1) / 2 - torch.tensor(SHIFTS)[:, None]
    down, across = at[:, None, :, None], at[None, :, None, :]
    x, y = across.abs() + 0 * down, down.abs() + 0 * across
    far, near, radius = torch.maximum(x, y), torch.minimum(x, y), (x * x + y * y).sqrt()
    outside = [  # the distance of a pixel from the shape, negative inside: circle, square, triangle, diamond, cross, ring
        radius - 5.2, far - 5, torch.maximum(down - 5, (2 * x - down - 5) / 2.24), (x + y - 6) / 1.41,
        torch.maximum(near - 2, far - 5), (radius - 4.3).abs() - 1.3,
    ]  # fmt: skip
    return (0.5 - torch.stack(outside)).clamp(0, 1).view(-1, SIDE * SIDE)


def sample(design: Design) -> str:
    """A picture of four shapes."""
    n = design.length - 1
    return f"red circle 0,1; blue square 1,{n}; green triangle {n - 1},0; yellow ring {n},{n - 1}"


def read_picture(text: str, design: Design) -> Example:
    """A picture as a list of shapes, each with its colour, row and column, such as `red circle 1,2; blue square 4,4`.

    Raises:
        TextError: a part has another form or lies outside, or two have one shape or one place.
    """
    import torch

    typed, side = " ".join(text.lower().split()), design.length
    ids, seen = [0] * side**2, set[str]()
    for part in (part.strip() for part in typed.strip("; ").split(";")):
        match = _PART.fullmatch(part)
        color, shape, row, column = (
            (match[1], match[2], int(match[3]), int(match[4])) if match else ("", "", side, side)
        )
        if color not in COLORS or shape not in SHAPES or max(row, column) >= side:
            raise TextError(
                f"A picture is typed as shapes, each with a colour ({', '.join(COLORS)}), a name ({', '.join(SHAPES)}), and a row and column from 0 to {side - 1}, "
                f"such as red circle 1,2; blue square 0,1, with ; between shapes; got {part[:40]!r}: write it like the example."
            )
        if shape in seen or ids[row * side + column]:
            twice = f"two of {shape}" if shape in seen else f"two shapes at {row},{column}"
            raise TextError(f"Each shape is drawn once, each in a patch of its own; got {twice}: change one of them.")
        seen.add(shape)
        ids[row * side + column] = (
            1 + (SHAPES.index(shape) * len(COLORS) + COLORS.index(color)) * len(SHIFTS) ** 2 + _CENTRED
        )
    tokens = (*SHAPES, *(Patch(0, i // side, i % side, _box(i // side, i % side)) for i in range(side**2)))
    notes = [
        "Each word asks for the colour of its shape. Nothing is asked of the patches: where they look means nothing."
    ]
    if len(seen) < len(SHAPES):
        missing = [shape for shape in SHAPES if shape not in seen]
        notes.append(
            f"This picture has no {' or '.join([', '.join(missing[:-1])] * (len(missing) > 1) + missing[-1:])}: where these words look means nothing."
        )
    numbers = torch.tensor([ids])
    return Example(numbers, tokens, (), COLORS, tuple(notes), (_seen(numbers, design),))


def _box(row: int, column: int) -> tuple[int, int, int, int]:
    return column * SIDE, row * SIDE, (column + 1) * SIDE, (row + 1) * SIDE


def _seen(ids: torch.Tensor, design: Design) -> SeenPicture:
    """The picture that the model reads, in whole numbers."""
    import torch

    from attention.trace.trace import SeenPicture

    patches, side = named_shapes(ids, design).patches, design.length
    assert patches is not None  # the task draws them
    rows = (patches[0] + 1).view(side, side, SIDE, SIDE, 3).transpose(1, 2).reshape(side * SIDE, side * SIDE, 3)
    rgb = (255 * rows).round().to(torch.uint8).numpy()
    words = f"drawn as {side * SIDE} × {side * SIDE} pixels{', without colours' if design.grey else ''}"
    return SeenPicture(rgb, side, side, (SIDE, SIDE), words, blake2b(rgb.tobytes(), digest_size=16).hexdigest())
