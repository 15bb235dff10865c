"""The lines of a copied program that read a picture and give it to the processor of a model."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from attention.files.picture import ON_WHITE, SIXTEEN_BIT, TURNED
from attention.program import literals

if TYPE_CHECKING:
    from attention.files.picture import Picture
    from attention.vision.reader import PictureReader

_MAX_EMBEDDED = 2**13
"""The largest PNG in bytes that a program has in it; a larger picture without a file is read from `_UNNAMED`."""
_UNNAMED = "picture.png"
"""The file of a picture that was given without one."""

_NOISE = '{variable}_inputs["noise"] = torch.randperm({count}, generator=torch.Generator().manual_seed(0))[None]  # the encoder sees the patches with the smallest'

_LINE = literals.WIDTH - 6


def imports(pictures: Sequence[Picture]) -> list[str]:
    """The line that imports what `input_lines` needs for some pictures, beside transformers."""
    is_turned = any(TURNED in picture.notes for picture in pictures)
    return [f"from PIL import Image{', ImageOps' if is_turned else ''}"]


def input_lines(reader: PictureReader, pictures: Sequence[Picture], variable: str) -> list[str]:
    """The lines that make the arguments of a model from its pictures."""
    names = [variable] if len(pictures) == 1 else [f"{variable}_{i}" for i in range(len(pictures))]
    given = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    options = "".join(f", {name}={value}" for name, value in reader.options.items())
    return [
        *(line for picture, name in zip(pictures, names, strict=True) for line in _read_lines(picture, name)),
        'processor = AutoImageProcessor.from_pretrained(folder, backend="pil", local_files_only=True)  # without torchvision',
        f'{variable}_inputs = processor(images={given}, return_tensors="pt"{options})  # as the model sees it',
        *([_NOISE.format(variable=variable, count=reader.n_hidden_of)] if reader.n_hidden_of else []),
        *(f'del {variable}_inputs["{name}"]  # which the model does not read' for name in reader.unread),
    ]


def _read_lines(picture: Picture, variable: str) -> list[str]:
    """The lines that assign a picture to a variable, as the Lab reads it: from the file of its name, or from the program itself if it has none."""
    if not picture.name and len(png := _png(picture)) <= _MAX_EMBEDDED:
        packed = base64.b64encode(png).decode()
        return [
            "packed = (  # the picture as a PNG",
            *(f'    "{packed[i : i + _LINE]}"' for i in range(0, len(packed), _LINE)),
            ")",
            f"{variable} = Image.open(io.BytesIO(base64.b64decode(packed)))",
        ]
    return [
        *literals.file_lines("picture", picture.name, _UNNAMED),
        f"{variable} = Image.open(file)",
        *(line.format(image=variable) for note, lines in _CONVERSIONS.items() if note in picture.notes for line in lines),
        f'{variable} = {variable}.convert("RGB")',
    ]  # fmt: skip


_CONVERSIONS = {
    TURNED: ["{image} = ImageOps.exif_transpose({image})"],
    SIXTEEN_BIT: ["{image} = Image.fromarray((np.asarray({image}).astype(np.uint16) >> 8).astype(np.uint8))"],
    ON_WHITE: [
        'layer = {image}.convert("RGBA")',
        '{image} = Image.new("RGB", layer.size, "white")',
        '{image}.paste(layer, mask=layer.getchannel("A"))',
    ],
}
"""The lines that do what a note of a picture says, in the order of `Picture`."""


def _png(picture: Picture) -> bytes:
    from PIL import Image

    file = BytesIO()
    Image.fromarray(picture.pixels()).save(file, "PNG", optimize=True)
    return file.getvalue()
