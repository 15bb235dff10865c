"""What saves figures as a file: a picture for a paper, or the interactive figures in one HTML file."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from attention.export import paper
from attention.pictures.changed import drawn as as_plotly
from attention.pictures.changed import unmarked
from attention.pictures.layout import Spec
from pages.ui.knobs import inputs

if TYPE_CHECKING:
    import plotly.graph_objects as go

MIME = {"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf"}
ALL = "All side by side"


def takeaway(files: Callable[[], Sequence[Spec]], key: str) -> None:
    """A button under figures that offers to save one of them, or all in one; each file is made when it is asked for."""
    with st.popover("Save as a picture", key=f"{key}_save", type="tertiary", on_change="rerun") as opened:
        if not opened.open:
            return
        drawn = list(map(as_plotly, files()))
        chosen = _chosen(drawn, key) if len(drawn) > 1 else drawn
        width = st.number_input(
            "Width in cm", float(paper.NARROWEST), float(paper.WIDEST), 16.0, 0.5, format="%.1f", key=f"{key}_width"
        )
        titled = st.toggle("With titles" if len(chosen) > 1 else "With its title", True, key=f"{key}_titled")
        bare = [unmarked(figure) for figure in chosen]
        marked = any(len(one.layout.shapes) > len(other.layout.shapes) for one, other in zip(chosen, bare, strict=True))
        about = "The outlines of the chosen cell, its row and its column."
        if marked and not st.toggle("With the cross", True, key=f"{key}_cross", help=about):
            chosen = bare
        file = _file(chosen)
        with st.container(horizontal=True):
            for kind in paper.KINDS:
                make = partial(paper.picture, chosen, kind, width, titled)
                st.download_button(
                    kind.upper(), make, f"{file}.{kind}", MIME[kind], key=f"{key}_{kind}", on_click="ignore"
                )
            make_page = partial(paper.html, chosen)
            st.download_button("HTML", make_page, f"{file}.html", "text/html", key=f"{key}_html", on_click="ignore")
        st.caption(
            "SVG and PDF are shapes and text, sharp at any size. PNG has 300 dots per inch. HTML is interactive, in one file that needs no network."
        )


def _chosen(drawn: list[go.Figure], key: str) -> list[go.Figure]:
    """The figures that are to be saved: the one whose cell is chosen, unless somebody picks another, or all."""
    # Not by their numbers: which figures there are changes with the source.
    by_name = {_name(figure): [figure] for figure in drawn} | {ALL: drawn}
    default = next((_name(one) for one in drawn if one.layout.meta["step"] == inputs.now("step")), _name(drawn[0]))
    name = st.segmented_control("Figure", list(by_name), default=default, required=True, key=f"{key}_which")
    return by_name.get(name or default, drawn[:1])


def _name(figure: go.Figure) -> str:
    """The figure's title without markup."""
    return html.unescape(re.sub(r"<[^>]*>", "", figure.layout.title.text or "")).strip() or "figure"


def _file(figures: Sequence[go.Figure]) -> str:
    """What a file of figures is called: the steps, then the layer, the head and the chosen row and column, if it shows them."""
    named = [
        list((figure.layout.meta or {}).get("file") or [re.sub(r"\W+", "-", _name(figure)).strip("-").lower()])
        for figure in figures
    ]
    steps, *more = ([parts[i] for parts in named if len(parts) > i] for i in range(3))
    # One head, one cell: who has the most of them, has all.
    return "-".join(filter(None, [*steps, *(max(parts, key=len, default="") for parts in more)])) or "figure"
