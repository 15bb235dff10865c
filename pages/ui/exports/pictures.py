"""Figures as files: which of them, how wide, with what beside them, and what the file is called."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention import PictureError
from attention.export import paper
from attention.formula.knobs import Knob
from attention.formula.ranges import Real, Switch, Text
from attention.pictures.changed import drawn as as_plotly
from attention.pictures.changed import unmarked
from attention.pictures.layout import Spec

if TYPE_CHECKING:
    import plotly.graph_objects as go

MEDIA = {"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf", "html": "text/html; charset=utf-8"}
"""The media type of each kind."""
WIDTH = Knob("width", 16.0, Real(paper.NARROWEST, paper.WIDEST), help="Of the picture, in centimetres.")
TITLES = Knob("titles", True, Switch(), help="With titles.")
CROSS = Knob("cross", True, Switch(), help="With the outlines of the chosen cell, its row and its column.")
FIGURE = Knob("figure", "", Text(100), help="Which of several maps, by the name of its step; empty: all side by side.")
KNOBS = (WIDTH, TITLES, CROSS, FIGURE)
"""What an address says of a picture beside the state."""


@dataclass(frozen=True)
class Picture:
    """Figures side by side, as one file."""

    figures: Sequence[go.Figure]
    width: float = 16.0
    titles: bool = True

    @classmethod
    def of(cls, specs: Sequence[Spec], width: float, titles: bool, cross: bool, figure: str = "") -> Picture:
        """The maps, or the one that is called `figure`.

        Raises:
            PictureError: none is called so.
        """
        names = [str(spec["layout"]["meta"]["step"]) for spec in specs]
        if figure and figure not in names:
            raise PictureError(
                f"figure is one of {', '.join(names)}; got “{figure}”: choose one, or leave it out for all."
            )
        drawn = [as_plotly(spec) for spec, name in zip(specs, names, strict=True) if figure in ("", name)]
        return cls(drawn if cross else [unmarked(one) for one in drawn], width, titles)

    def made(self, kind: str) -> bytes:
        """The file of a kind, png, svg, pdf or html.

        Raises:
            PictureError: it cannot be drawn so.
        """
        if kind == "html":
            return paper.html(self.figures).encode()
        return paper.picture(self.figures, kind, self.width, self.titles)

    @property
    def file_name(self) -> str:
        """What its file is called, without an ending: the steps, then the layer, the head and the chosen row and column, if it shows them."""
        named = [
            list((one.layout.meta or {}).get("file") or [re.sub(r"\W+", "-", title(one)).strip("-").lower()])
            for one in self.figures
        ]
        steps, *more = ([parts[i] for parts in named if len(parts) > i] for i in range(3))
        # The figure with the longest of these has all of them.
        return "-".join(filter(None, [*steps, *(max(parts, key=len, default="") for parts in more)])) or "figure"


def title(figure: go.Figure) -> str:
    """A figure's title without markup."""
    return html.unescape(re.sub(r"<[^>]*>", "", figure.layout.title.text or "")).strip() or "figure"
