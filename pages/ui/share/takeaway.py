"""The menu that saves figures: as a picture for a paper, or as interactive figures in one HTML file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import streamlit as st

from attention.export import paper
from attention.params.ranges import to_text
from attention.pictures.layout import Spec
from attention.pictures.redraw import to_plotly as as_plotly
from attention.pictures.redraw import without_outlines
from pages.ui.exports.export_tokens import Offer
from pages.ui.exports.links import Link, download_links, offer_link
from pages.ui.exports.pictures import CROSS, FIGURE, MEDIA, TITLES, WIDTH, Picture, name_of, title
from pages.ui.state import knob_state

ALL = "All side by side"


def save_menu(files: Callable[[], Sequence[Spec]], key: str, export: str = "") -> None:
    """Draws the menu that saves one of the figures, or all in one file. Each file is made on request.

    Args:
        files: returns the figures.
        key: the key of the figures' component.
        export: the name in the catalog if a state describes the figures; empty if they exist only in this tab.
    """
    with st.popover("Save as a picture", key=f"{key}_save", type="tertiary", on_change="rerun") as opened:
        if not opened.open:
            return
        specs = list(files())
        chosen_title = _chosen_title(specs, key) if len(specs) > 1 else ""
        chosen = [spec for spec in specs if chosen_title in ("", _title(spec))]
        width = st.number_input(
            "Width in cm", float(paper.NARROWEST), float(paper.WIDEST), 16.0, 0.5, format="%.1f", key=f"{key}_width"
        )
        titles = st.toggle("With titles" if len(chosen) > 1 else "With its title", True, key=f"{key}_titled")
        help_ = "The outlines of the chosen cell, its row and its column."
        cross = not any(map(_is_marked, chosen)) or st.toggle(
            "With the outlines (cross)", True, key=f"{key}_cross", help=help_
        )
        if export:
            step = name_of(chosen[0]) if len(chosen) < len(specs) else FIGURE.default
            settings = ((WIDTH, width), (TITLES, titles), (CROSS, cross), (FIGURE, step))
            more = {knob.key: to_text(value) for knob, value in settings if value != knob.default}
            download_links(f"{key}_files", *(Link(kind.upper(), f"{export}.{kind}", more) for kind in MEDIA))
        else:
            figures = [as_plotly(spec) for spec in chosen]
            picture = Picture(figures if cross else list(map(without_outlines, figures)), width, titles)
            download_links(f"{key}_files", *(_link(picture, kind, key) for kind in MEDIA))
        st.caption(
            "SVG and PDF are vector graphics, sharp at any size. PNG has 300 dots per inch. HTML is one interactive file that works offline."
        )


def _link(picture: Picture, kind: str, key: str) -> Link:
    offer = Offer(MEDIA[kind], f"{picture.file_name}.{kind}", partial(picture.content, kind))
    return offer_link(kind.upper(), f"{key}.{kind}", offer)


def _is_marked(spec: Spec) -> bool:
    figure = as_plotly(spec)
    return len(figure.layout.shapes) > len(without_outlines(figure).layout.shapes)


def _chosen_title(specs: Sequence[Spec], key: str) -> str:
    """The title of the figure to save, by default that of the chosen step; empty for all figures."""
    # By title and not by index, because the figures change with the source.
    steps = {_title(spec): name_of(spec) for spec in specs}
    default = next(
        (name for name, step in steps.items() if step == knob_state.current_value("step")), next(iter(steps))
    )
    name = st.segmented_control("Figure", [*steps, ALL], default=default, required=True, key=f"{key}_which")
    return "" if name == ALL else name if name in steps else default


def _title(spec: Spec) -> str:
    return title(as_plotly(spec))
