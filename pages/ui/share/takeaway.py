"""What saves figures as a file: a picture for a paper, or the interactive figures in one HTML file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import streamlit as st

from attention.export import paper
from attention.formula.ranges import in_url
from attention.pictures.changed import drawn as as_plotly
from attention.pictures.changed import unmarked
from attention.pictures.layout import Spec
from pages.ui.exports.links import Link, links, offer_link
from pages.ui.exports.pictures import CROSS, FIGURE, MEDIA, TITLES, WIDTH, Picture, title
from pages.ui.exports.tokens import Offer
from pages.ui.knobs import inputs

ALL = "All side by side"


def takeaway(files: Callable[[], Sequence[Spec]], key: str, export: str = "") -> None:
    """A button under figures that offers to save one of them, or all in one; each file is made when it is asked for.

    Figures that a state describes are the `export` of that name; others belong to this tab.
    """
    with st.popover("Save as a picture", key=f"{key}_save", type="tertiary", on_change="rerun") as opened:
        if not opened.open:
            return
        specs = list(files())
        chosen = _chosen(specs, key) if len(specs) > 1 else ""
        named = [spec for spec in specs if chosen in ("", _name(spec))]
        width = st.number_input(
            "Width in cm", float(paper.NARROWEST), float(paper.WIDEST), 16.0, 0.5, format="%.1f", key=f"{key}_width"
        )
        titled = st.toggle("With titles" if len(named) > 1 else "With its title", True, key=f"{key}_titled")
        about = "The outlines of the chosen cell, its row and its column."
        crossed = not any(map(_is_marked, named)) or st.toggle("With the cross", True, key=f"{key}_cross", help=about)
        if export:
            step = str(named[0]["layout"]["meta"]["step"]) if len(named) < len(specs) else FIGURE.default
            said = ((WIDTH, width), (TITLES, titled), (CROSS, crossed), (FIGURE, step))
            more = {knob.key: in_url(value) for knob, value in said if value != knob.default}
            links(f"{key}_files", *(Link(kind.upper(), f"{export}.{kind}", more) for kind in MEDIA))
        else:
            drawn = [as_plotly(spec) for spec in named]
            picture = Picture(drawn if crossed else list(map(unmarked, drawn)), width, titled)
            links(f"{key}_files", *(_link(picture, kind, key) for kind in MEDIA))
        st.caption(
            "SVG and PDF are shapes and text, sharp at any size. PNG has 300 dots per inch. HTML is interactive, in one file that needs no network."
        )


def _link(picture: Picture, kind: str, key: str) -> Link:
    offer = Offer(MEDIA[kind], f"{picture.file_name}.{kind}", partial(picture.made, kind))
    return offer_link(kind.upper(), f"{key}.{kind}", offer)


def _is_marked(spec: Spec) -> bool:
    figure = as_plotly(spec)
    return len(figure.layout.shapes) > len(unmarked(figure).layout.shapes)


def _chosen(specs: Sequence[Spec], key: str) -> str:
    """The title of the figure that is to be saved: the one whose cell is chosen, unless somebody picks another; empty for all."""
    # Not by their numbers: which figures there are changes with the source.
    names = {_name(spec): str(spec["layout"]["meta"].get("step")) for spec in specs}
    default = next((name for name, step in names.items() if step == inputs.now("step")), next(iter(names)))
    name = st.segmented_control("Figure", [*names, ALL], default=default, required=True, key=f"{key}_which")
    return "" if name == ALL else name if name in names else default


def _name(spec: Spec) -> str:
    return title(as_plotly(spec))
