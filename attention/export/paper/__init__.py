"""Figures as a file: a picture for a paper (PNG, SVG or PDF, the latter two of shapes and text only), or a web page.

matplotlib is the pen, imported when the first picture is asked for. What a figure shows is read from the
Plotly figure itself, so that a picture and the screen cannot disagree:

    figure ──▶ layout ──▶ axes, cells, marks, notes ──▶ page ──▶ bytes
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attention.errors import PictureError
from attention.export.paper.markup import plain
from attention.export.paper.web import html

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["KINDS", "NARROWEST", "WIDEST", "html", "picture"]

KINDS = ("png", "svg", "pdf")
NARROWEST, WIDEST = 2, 100
"""Centimetres."""

_ONE_AT_A_TIME = threading.Lock()  # matplotlib keeps its settings and its fonts in one place for all threads


def picture(figures: go.Figure | Sequence[go.Figure], kind: str, width: float = 16.0, title: bool = True) -> bytes:
    """A figure of `plots` or `charts`, or several side by side, as a file for a paper, exactly `width` centimetres wide.

    The text is 8 points high from 7 to 30 cm a figure and shrinks or grows with the picture outside of that. A PNG has 300
    dots per inch, fewer where these would be more than 25 million. Above 256 × 256 numbers a matrix is shown as block
    maxima, and the picture says so. The same figures always give the same bytes.

    Raises:
        PictureError: no such kind, a width out of range, or a figure of another sort than the pages draw.
    """
    if kind not in KINDS:
        raise PictureError(f"A picture is {', '.join(KINDS[:-1])} or {KINDS[-1]}; got {kind!r}: choose one of these.")
    if not NARROWEST <= width <= WIDEST:
        raise PictureError(
            f"A picture is {NARROWEST} to {WIDEST} cm wide; got {width:g} cm: choose a width in between."
        )
    figures = list(figures) if isinstance(figures, Sequence) else [figures]
    with _ONE_AT_A_TIME:
        import matplotlib as mpl

        from attention.export.paper.layout import laid_out
        from attention.export.paper.page import SETTINGS

        with mpl.rc_context(SETTINGS):
            page = laid_out(figures, width, kind, title)
            names = " · ".join(plain(figure.layout.title.text) for figure in figures)
            return page.saved(names, " ".join((figure.layout.meta or {}).get("alt", "") for figure in figures))
