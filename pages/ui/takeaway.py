"""What saves a figure as a file: a picture for a paper, or the interactive figure in one HTML file."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from functools import partial

import plotly.graph_objects as go
import streamlit as st

from attention import paper
from attention.drawing import drawn as as_plotly
from pages.ui.figure import Figure

MIME = {"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf"}


def takeaway(files: Callable[[], Sequence[Figure]], key: str) -> None:
    """A button under figures that offers to save one of them; each file is made when it is asked for."""
    with st.popover("Save as a picture", key=f"{key}_save", type="tertiary", on_change="rerun") as opened:
        if not opened.open:
            return
        drawn = [one if isinstance(one, go.Figure) else as_plotly(one) for one in files()]
        names = [_name(figure) for figure in drawn]
        name = names[0]
        if len(names) > 1:
            # Not by its number: which figures there are changes with the source.
            name = st.segmented_control("Figure", names, default=names[0], required=True, key=f"{key}_which") or name
        figure = drawn[names.index(name)] if name in names else drawn[0]
        width = st.number_input(
            "Width in cm", float(paper.NARROWEST), float(paper.WIDEST), 16.0, 0.5, format="%.1f", key=f"{key}_width"
        )
        title = st.toggle("With its title", True, key=f"{key}_titled")
        file = re.sub(r"\W+", "-", name).strip("-").lower() or "figure"
        with st.container(horizontal=True):
            for kind in paper.KINDS:
                make = partial(paper.picture, figure, kind, width, title)
                st.download_button(
                    kind.upper(), make, f"{file}.{kind}", MIME[kind], key=f"{key}_{kind}", on_click="ignore"
                )
            make_page = partial(paper.html, figure)
            st.download_button("HTML", make_page, f"{file}.html", "text/html", key=f"{key}_html", on_click="ignore")
        st.caption(
            "SVG and PDF are shapes and text, sharp at any size. PNG has 300 dots per inch. HTML is the interactive figure in one file that needs no network."
        )


def _name(figure: go.Figure) -> str:
    """The figure's title without markup."""
    return html.unescape(re.sub(r"<[^>]*>", "", figure.layout.title.text or "")).strip() or "figure"
