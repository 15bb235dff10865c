"""Figures as picture files: selection, width, titles, outlines, and file name."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention import PictureError
from attention.export import paper
from attention.params.knob import Knob
from attention.params.ranges import Real, Switch, Text
from attention.pictures.layout import Spec
from attention.pictures.redraw import to_plotly as as_plotly
from attention.pictures.redraw import without_outlines

if TYPE_CHECKING:
    import plotly.graph_objects as go

MEDIA = {"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf", "html": "text/html; charset=utf-8"}
"""The media type of each kind."""
WIDTH = Knob("width", 16.0, Real(paper.NARROWEST, paper.WIDEST), help="The width of the picture in centimetres.")
TITLES = Knob("titles", True, Switch(), help="Whether the picture has titles.")
CROSS = Knob("cross", True, Switch(), help="Whether the picture outlines the chosen cell, its row and its column.")
FIGURE = Knob(
    "figure",
    "",
    Text(100),
    help="The step of one of several maps, with “ over the picture” for that figure. Empty: all side by side.",
)
KNOBS = (WIDTH, TITLES, CROSS, FIGURE)
"""The query parameters of a picture beside the state."""


@dataclass(frozen=True)
class Picture:
    """Figures side by side, as one file."""

    figures: Sequence[go.Figure]
    width: float = 16.0
    titles: bool = True

    @classmethod
    def of(cls, specs: Sequence[Spec], width: float, titles: bool, cross: bool, figure: str = "") -> Picture:
        """The picture of all figures, or of the one with the name `figure`, see `name_of`.

        Raises:
            PictureError: no figure has that name.
        """
        names = [name_of(spec) for spec in specs]
        if figure and figure not in names:
            raise PictureError(
                f"figure must be one of {', '.join(names)}; got “{figure}”: choose one, or omit it for all."
            )
        figures = [as_plotly(spec) for spec, name in zip(specs, names, strict=True) if figure in ("", name)]
        return cls(figures if cross else list(map(without_outlines, figures)), width, titles)

    def content(self, kind: str) -> bytes:
        """The content of the file of a kind: png, svg, pdf or html.

        Raises:
            PictureError: the figures cannot be drawn in this kind or width.
        """
        if kind == "html":
            return paper.html(self.figures).encode()
        return paper.picture(self.figures, kind, self.width, self.titles)

    @property
    def file_name(self) -> str:
        """The file name without extension: the steps, then the layer and head, and the chosen row and column, if they are shown."""
        names = [
            list((figure.layout.meta or {}).get("file") or [re.sub(r"\W+", "-", title(figure)).strip("-").lower()])
            for figure in self.figures
        ]
        steps, *more = ([parts[i] for parts in names if len(parts) > i] for i in range(3))
        # The longest part of each kind contains all the others.
        return "-".join(filter(None, [*steps, *(max(parts, key=len, default="") for parts in more)])) or "figure"


def name_of(spec: Spec) -> str:
    """A figure's name in links: its step, and whether it is drawn over the picture."""
    meta = spec["layout"]["meta"]
    return str(meta["step"]) + " over the picture" * ("grid" in meta)


def title(figure: go.Figure) -> str:
    """A figure's title without markup."""
    return html.unescape(re.sub(r"<[^>]*>", "", figure.layout.title.text or "")).strip() or "figure"
