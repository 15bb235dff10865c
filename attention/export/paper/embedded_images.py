"""The pictures below the cells of a figure, which it carries as PNG or JPEG files in data URIs."""

from __future__ import annotations

import re
from base64 import b64decode
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from attention.errors import PictureError

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from numpy import uint8
    from numpy.typing import NDArray

    from attention.export.paper.figure_notes import Area
    from attention.export.paper.page import Page
    from attention.export.paper.tick_layout import Axis

_SOURCE = re.compile("data:image/(png|jpeg);base64,(.*)", re.DOTALL)


def draw(page: Page, figure: go.Figure, x: Axis, y: Axis, area: Area) -> None:
    """Draws the pictures of a figure, each from its upper left corner over `sizex` columns and `sizey` rows.

    Raises:
        PictureError: a picture is not within the figure.
    """
    for i, image in enumerate(figure.layout.images):
        left, right = (float(area.x(x.at(position))) for position in (image.x, image.x + image.sizex))
        top, bottom = (float(area.y(y.at(position))) for position in (image.y, image.y + image.sizey))
        page.picture(left, top, right, bottom, _pixels(image.source), f"picture-{i}")


def _pixels(source: str) -> NDArray[uint8]:
    """Red, green and blue, [row column 3]."""
    from PIL.JpegImagePlugin import JpegImageFile
    from PIL.PngImagePlugin import PngImageFile

    match = _SOURCE.fullmatch(source)
    if match is None:
        raise PictureError(
            f"A picture below a figure is a PNG or JPEG in a data URI; got {source[:30]!r}: save this figure as HTML instead."
        )
    reader = PngImageFile if match[1] == "png" else JpegImageFile
    return np.asarray(reader(BytesIO(b64decode(match[2]))).convert("RGB"))
