"""Figures as files: a picture for a paper (PNG, SVG or PDF; the latter two contain shapes, text, and what a model saw), or a web page.

matplotlib draws them; it is imported with the first picture. The content is read from the marks of the figure itself,
so a picture and the screen cannot disagree:

    figure ──▶ layout ──▶ axes, cells, marks, notes ──▶ page ──▶ bytes
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attention.base.errors import PictureError
from attention.paper.markup import plain, specs_of
from attention.paper.web import html

if TYPE_CHECKING:
    from attention.paper.heads_figure import ONE_COLUMN, TEXT_WIDTH, HeadsFigure, figure
    from attention.paper.markup import Figures

__all__ = ["KINDS", "NARROWEST", "ONE_COLUMN", "TEXT_WIDTH", "WIDEST", "HeadsFigure", "figure", "html", "picture"]

KINDS = ("png", "svg", "pdf")
NARROWEST, WIDEST = 2, 100
"""The narrowest and the widest picture, in centimetres."""

_LOCK = threading.Lock()  # matplotlib's settings and fonts are shared by all threads


def picture(figures: Figures, kind: str, width: float = 16.0, title: bool = True) -> bytes:
    """One figure of `attention.pictures`, or several side by side, as a file for a paper, exactly `width` centimetres wide.

    The text is 8 points high from 7 to 30 cm per figure and scales with the picture outside this range. A PNG has 300
    dots per inch, or fewer if that made more than 25 million dots. Above 256 × 256 numbers a matrix is drawn as block
    maxima, which the picture states. The same figures always give the same bytes.

    Raises:
        PictureError: an unknown kind, a width out of range, a figure that is not ours, or one whose axis cannot be drawn.
    """
    if kind not in KINDS:
        raise PictureError(f"A picture is {', '.join(KINDS[:-1])} or {KINDS[-1]}; got {kind!r}: choose one of these.")
    if not NARROWEST <= width <= WIDEST:
        limits = f"{NARROWEST} to {WIDEST} cm"
        raise PictureError(f"A picture is {limits} wide; got {width:g} cm: choose a width in this range.")
    with drawing():
        from attention.paper.page_layout import lay_out

        specs = specs_of(figures)
        page = lay_out(specs, width, kind, title)
        names = " · ".join(plain(spec["layout"]["title"]["text"]) for spec in specs)
        return page.render(names, " ".join(spec["layout"]["meta"]["alt"] for spec in specs))


@contextmanager
def drawing() -> Iterator[None]:
    """A context in which a picture is drawn with our settings of matplotlib, one at a time."""
    with _LOCK:
        import matplotlib as mpl

        from attention.paper.page import SETTINGS

        with mpl.rc_context(SETTINGS):
            yield


def __getattr__(name: str) -> object:
    """A figure of heads draws maps, and imports what draws them at first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from attention.paper import heads_figure

    return getattr(heads_figure, name)
