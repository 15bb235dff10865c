"""The menu that saves figures, and their files: heads as a figure for a paper with its caption, what a page shows as a picture, or as interactive figures in one HTML file."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from attention import paper
from attention.base.errors import AttentionError, PictureError
from attention.base.knobs import Knob, Real, Switch, Text, to_text
from attention.formula.steps import is_step
from attention.pictures.heatmap import heatmap_json
from attention.pictures.marks import Spec
from attention.pictures.message import to_plotly, without_outlines
from attention.pictures.steps_view import OverPicture, lab_maps
from attention.pictures.view import HEAT, OVER, PAIR, VIEW
from pages.ui.exports.links import Link, Offer, current_tab, download_links, offer_link
from pages.ui.exports.request import ExportFile, Request
from pages.ui.server.traces import compute_head
from pages.ui.state import knob_state
from pages.ui.state.knob_table import COLORS
from pages.ui.state.notices import plain
from pages.ui.state.session import session

if TYPE_CHECKING:
    import plotly.graph_objects as go


MEDIA = {"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf", "html": "text/html; charset=utf-8"}
"""The media type of each kind."""
CAPTION = {"tex": "text/x-tex; charset=utf-8"}
"""That of the figure environment of LaTeX with the caption of a figure for a paper."""
_WIDTH = Knob("width", 16.0, Real(paper.NARROWEST, paper.WIDEST), help="The width of the picture in centimetres.")
_TITLES = Knob("titles", True, Switch(), help="Whether the picture has titles.")
_CROSS = Knob("cross", True, Switch(), help="Whether the picture outlines the chosen cell, its row and its column.")
_FIGURE = Knob(
    "figure", "", Text(100), help="The step of one of several maps, with “ over the picture” for that figure. Empty: all side by side.")  # fmt: skip
_ALL = "All side by side"
_PAPER, _SCREEN = "For a paper", "As on this page"
_MOST_PANELS = 24
_PANELS = Knob(
    "panels",
    "",
    Text(300),
    help="The heads of a figure for a paper, such as 17.3;18.6: layer and head of each panel. Empty: the chosen head.",
)
_COLUMN = Knob(
    "width", paper.ONE_COLUMN, Real(paper.NARROWEST, paper.WIDEST), help="The width of the figure in centimetres."
)
_FONT = Knob("font", "", Text(100), help="A font family of the server. Empty: DejaVu Sans.")
_OUTLINED = Knob("cross", False, Switch(), help=_CROSS.help)
_WIDTHS = {paper.ONE_COLUMN: "One column", paper.TEXT_WIDTH: "Text width", 0.0: "Other"}


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
        if export and len(chosen) == 1 and is_step(step := _name_of(chosen[0])):
            style = st.segmented_control("Style", [_PAPER, _SCREEN], default=_PAPER, required=True, key=f"{key}_style")
            if style == _PAPER:
                _save_for_paper(step, key)
                return
        width = st.number_input(
            "Width in cm", float(paper.NARROWEST), float(paper.WIDEST), 16.0, 0.5, format="%.1f", key=f"{key}_width"
        )
        titles = st.toggle("With titles" if len(chosen) > 1 else "With its title", True, key=f"{key}_titled")
        help_ = "The outlines of the chosen cell, its row and its column."
        is_marked = any(map(_is_marked, chosen))
        cross = not is_marked or st.toggle("With the outlines (cross)", True, key=f"{key}_cross", help=help_)
        if export:
            step = _name_of(chosen[0]) if len(chosen) < len(specs) else _FIGURE.default
            settings = ((_WIDTH, width), (_TITLES, titles), (_CROSS, cross), (_FIGURE, step))
            more = {knob.key: to_text(value) for knob, value in settings if value != knob.default}
            download_links(f"{key}_files", *(Link(kind.upper(), f"{export}.{kind}", more) for kind in MEDIA))
        else:
            picture = _Picture.of(chosen, width, titles, cross)
            download_links(f"{key}_files", *(_link(picture, kind, key) for kind in MEDIA))
        st.caption(
            "SVG and PDF are vector graphics, sharp at any size. PNG has 300 dots per inch. HTML is one interactive file that works offline."
        )


def _save_for_paper(step: str, key: str) -> None:
    """The part of the menu for a figure of a paper: its heads, width and font, its caption to copy, and its files."""
    texts = session().state.texts
    chosen = Request(texts, current_tab(), step)
    cell = chosen.cell(chosen.trace)
    panels = st.text_input(
        "Heads, as layer.head", placeholder=f"{cell.layer}.{cell.head}", key=f"{key}_panels",
        help="Several, such as 17.3;18.6, stand side by side with letters and one colour bar.",
    )  # fmt: skip
    preset = st.segmented_control(
        "Width", [*_WIDTHS], format_func=lambda cm: f"{_WIDTHS[cm]} {cm:g} cm" if cm else _WIDTHS[cm],
        default=paper.ONE_COLUMN, required=True, key=f"{key}_preset",
    )  # fmt: skip
    width = preset or st.number_input(
        "Width in cm", float(paper.NARROWEST), float(paper.WIDEST), paper.ONE_COLUMN, 0.5, format="%.1f", key=f"{key}_column"
    )  # fmt: skip
    font = st.text_input("Font", placeholder="DejaVu Sans", key=f"{key}_font", help="A font family of the server.")
    cross = st.toggle("With the outlines (cross)", False, key=f"{key}_outlined", help=_CROSS.help)
    settings = ((_PANELS, panels.strip()), (_COLUMN, width), (_FONT, font.strip()), (_OUTLINED, cross))
    more = {knob.key: to_text(value) for knob, value in settings if value != knob.default}
    try:
        caption = _figure_of(Request({**texts, **more}, current_tab(), step))[0].caption
    except AttentionError as error:
        st.warning(plain(str(error)))
        return
    st.caption("The caption, for LaTeX:")
    st.code(caption, language="latex", wrap_lines=True)
    kinds = (*reversed(paper.KINDS), *CAPTION)
    download_links(f"{key}_files", *(Link(kind.upper(), f"{step}.{kind}", more) for kind in kinds))
    st.caption(
        "PDF and SVG are exactly as wide as chosen; no letter is smaller than 6 points. TEX is the figure environment with the caption."
    )


def step_file(request: Request) -> ExportFile:
    """The file with heads of a step as a figure for a paper, its LaTeX, or the interactive map of the chosen head."""
    if request.kind == "html":
        trace, cell = request.trace, request.cell(request.trace)
        maps = [heatmap_json(trace, cell.step, cell.layer, cell.head, cell, request.value(COLORS))]
        return _picture(request, maps)
    made, name = _figure_of(request)
    content = made.latex(f"{name}.pdf") if request.kind in CAPTION else made.picture(request.kind)
    return ExportFile(f"{name}.{request.kind}", [content])


def _figure_of(request: Request) -> tuple[paper.HeadsFigure, str]:
    """The figure for a paper that a state describes, and its file name without extension.

    Raises:
        PictureError: there are no such heads.
    """
    trace, cell = request.trace, request.cell(request.trace)
    heads = _read_heads(request.value(_PANELS)) or [(cell.layer, cell.head)]
    for layer, head in heads:
        compute_head(trace.layer(layer), head)
    cross = (cell.row, cell.column) if request.value(_OUTLINED) else None
    made = paper.figure(
        heads, trace, step=cell.step, width=request.value(_COLUMN), colors=request.value(COLORS), cross=cross, font=request.value(_FONT)
    )  # fmt: skip
    names = [
        cell.step,
        *(f"L{layer}-H{head}" for layer, head in heads),
        *([f"q{cross[0]}-k{cross[1]}"] if cross else []),
    ]
    return made, "-".join(names)


def _read_heads(text: str) -> list[tuple[int, int]]:
    """The heads in a text such as 17.3;18.6.

    Raises:
        PictureError: it has another form, or too many heads.
    """
    parts = [part.strip() for part in re.split(r"[;,]", text) if part.strip()]
    if len(parts) > _MOST_PANELS or not all(re.fullmatch(r"\d{1,4}\.\d{1,4}", part, re.ASCII) for part in parts):
        raise PictureError(
            f"Up to {_MOST_PANELS} heads are written as 17.3;18.6, layer and head; got “{text[:60]}”: write them so."
        )
    return [(int(layer), int(head)) for layer, head in (part.split(".") for part in parts)]


def maps_file(request: Request) -> ExportFile:
    """The file with the maps of the Lab."""
    trace = request.trace
    over = OverPicture(request.value(OVER), request.value(HEAT))
    maps = lab_maps(trace, request.cell(trace), request.value(VIEW), request.value(COLORS), over, request.value(PAIR))
    return _picture(request, maps, request.value(_FIGURE))


def _picture(request: Request, specs: list[Spec], figure: str = "") -> ExportFile:
    width, titles, cross = map(request.value, (_WIDTH, _TITLES, _CROSS))
    picture = _Picture.of(specs, width, titles, cross, figure)
    return ExportFile(f"{picture.file_name}.{request.kind}", [picture.content(request.kind)])


def _link(picture: _Picture, kind: str, key: str) -> Link:
    offer = Offer(MEDIA[kind], f"{picture.file_name}.{kind}", partial(picture.content, kind))
    return offer_link(kind.upper(), f"{key}.{kind}", offer)


def _is_marked(spec: Spec) -> bool:
    figure = to_plotly(spec)
    return len(figure.layout.shapes) > len(without_outlines(figure).layout.shapes)


def _chosen_title(specs: Sequence[Spec], key: str) -> str:
    """The title of the figure to save, by default that of the chosen step; empty for all figures."""
    # By title and not by index, because the figures change with the source.
    steps = {_title(spec): _name_of(spec) for spec in specs}
    chosen = knob_state.current_value("step")
    default = next((name for name, step in steps.items() if step == chosen), next(iter(steps)))
    name = st.segmented_control("Figure", [*steps, _ALL], default=default, required=True, key=f"{key}_which")
    return "" if name == _ALL else name if name in steps else default


@dataclass(frozen=True)
class _Picture:
    """Figures side by side, as one file."""

    figures: Sequence[go.Figure]
    width: float = 16.0
    titles: bool = True

    @classmethod
    def of(cls, specs: Sequence[Spec], width: float, titles: bool, cross: bool, figure: str = "") -> _Picture:
        """The picture of all figures, or of the one with the name `figure`, see `_name_of`.

        Raises:
            PictureError: no figure has that name.
        """
        names = [_name_of(spec) for spec in specs]
        if figure and figure not in names:
            known = ", ".join(names)
            raise PictureError(f"figure must be one of {known}; got “{figure}”: choose one, or omit it for all.")
        figures = [to_plotly(spec) for spec, name in zip(specs, names, strict=True) if figure in ("", name)]
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
            list((figure.layout.meta or {}).get("file") or [re.sub(r"\W+", "-", _title_of(figure)).strip("-").lower()])
            for figure in self.figures
        ]
        steps, *more = ([parts[i] for parts in names if len(parts) > i] for i in range(3))
        # The longest part of each kind contains all the others.
        return "-".join(filter(None, [*steps, *(max(parts, key=len, default="") for parts in more)])) or "figure"


def _name_of(spec: Spec) -> str:
    """A figure's name in links: its step, and whether it is drawn over the picture."""
    meta = spec["layout"]["meta"]
    return str(meta["step"]) + " over the picture" * ("grid" in meta)


def _title_of(figure: go.Figure) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", figure.layout.title.text or "")).strip() or "figure"


def _title(spec: Spec) -> str:
    return _title_of(to_plotly(spec))
