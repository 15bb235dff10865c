"""The pictures below the cells of a figure, which it carries as PNG files in data URIs."""

from __future__ import annotations

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

_PNG = "data:image/png;base64,"


def draw(page: Page, figure: go.Figure, x: Axis, y: Axis, area: Area) -> None:
    """Draws the pictures of a figure, each from its upper left corner over `sizex` columns and `sizey` rows.

    Raises:
        PictureError: a picture is no PNG within the figure.
    """
    for i, image in enumerate(figure.layout.images):
        left, right = (float(area.x(x.at(position))) for position in (image.x, image.x + image.sizex))
        top, bottom = (float(area.y(y.at(position))) for position in (image.y, image.y + image.sizey))
        page.picture(left, top, right, bottom, _pixels(image.source), f"picture-{i}")


def _pixels(source: str) -> NDArray[uint8]:
    """Red, green and blue, [row column 3]."""
    from PIL.PngImagePlugin import PngImageFile

    if not source.startswith(_PNG):
        raise PictureError(
            f"A picture below a figure is a PNG in a data URI; got {source[:30]!r}: save this figure as HTML instead."
        )
    return np.asarray(PngImageFile(BytesIO(b64decode(source.removeprefix(_PNG)))).convert("RGB"))
