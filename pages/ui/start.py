"""What every page begins with: configuration, menu, knobs, the trace, and the address of one number in it.

It is one long file because `start` is one script from top to bottom, and what is around it is its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from weakref import ref

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.errors import StreamlitAPIException, StreamlitPageNotFoundError

from attention import AttentionError, Cell, Layer, Source, Trace, find_step, progress
from attention.formula.knobs import Knob
from attention.pictures.line import cell_line
from attention.pictures.live import live
from attention.pictures.message import Around
from attention.pictures.strip import step_strip
from attention.sources import Turnable
from pages.ui import address, changed, figure, show
from pages.ui.knobs import acts, controls, inputs, sidebar
from pages.ui.knobs.session import session
from pages.ui.knobs.table import TURN
from pages.ui.knobs.widgets import locked, presented, standing
from pages.ui.menu import MENU
from pages.ui.notes import Notes, plain
from pages.ui.server import paused, process
from pages.ui.server.traces import trace_of, work_out
from pages.ui.share import bar, link, state_file


@dataclass(frozen=True)
class Page:
    """The source a page shows, the chosen layer and cell, where its messages go, and where it says what it is `about`."""

    source: Source
    cell: Cell
    notes: Notes
    seen: Callable[[], Trace | None]
    about: DeltaGenerator
    title: str

    def end(self) -> None:
        """What every page ends with: it is told its state. When all of its knobs have been read."""
        with self.about:
            address.answer(self.title)

    @property
    def trace(self) -> Trace:
        """The trace of the source, made where nobody has. Nobody but `traces` keeps it."""
        return self.seen() or trace_of(self.source)

    def around(
        self,
        steps: bool = False,
        line: bool = False,
        overview: tuple[str, ...] = (),
        follow: bool = False,
        only: tuple[str, ...] | None = None,
    ) -> Around:
        """What stands around the maps: the row of controls, and where asked for the strip of steps and the line of the chosen cell.

        The strip begins with the `overview` of some steps. With `follow` the page makes what it can of the maps by
        itself while a control is turned. A page that has no use for all controls names the `only` ones.
        """
        layer, cell = self.layer, self.cell
        # Nothing after a head that a hand turns is worked out again. One head is in sight, or many of them.
        alone = "this head only" if line and find_step(cell.step).per_head else "each head by itself"
        return Around(
            live=live(layer, cell.head) if follow else None,
            controls=controls.row(layer, self.trace.layers, cell, only),
            own=controls.own(layer, alone if len(self.trace.layers) > 1 else "", changed.mark(cell)),
            strip=step_strip(layer, cell.step, inputs.now("view"), overview) if steps else None,
            line=cell_line(self.trace, cell) if line else None,
            defaults=controls.defaults(),
            large=presented(),
        )

    def now(self) -> Page:
        """The page as the figure's own controls have left it, before the sidebar has run again.

        Raises:
            AttentionError: the sidebar must change another knob first.
        """
        source = self.source
        if isinstance(source, Turnable):
            source = replace(source, config=inputs.config_now(source.config))  # type: ignore[type-var]  # it is a dataclass
        seen = trace_of(source)
        cell = inputs.cell_now(seen)
        work_out(seen.layers[cell.layer], cell.head)
        return replace(self, source=source, cell=cell, seen=ref(seen))

    def painted(self) -> Page:
        """The same for a fragment of maps: where the sidebar must change another knob first, the whole page runs again."""
        if acts.take():
            st.rerun(scope="app")
        try:
            return self.now()
        except AttentionError:  # a d_model that the heads do not divide
            st.rerun(scope="app")

    @property
    def layer(self) -> Layer:
        """The chosen layer."""
        return self.trace.layers[self.cell.layer]


def start(title: str, intro: str, maps: bool = True, own: bool = False, more: Sequence[Knob] = ()) -> Page:
    """Opens a page: title, menu, knobs, the trace they describe, and the address of one number in it.

    On a page without `maps` of the trace its knobs are folded away, and so are those of the first of two states while the
    second is turned. A page with held knobs that no other has names them as `more`.
    One that shows numbers of its `own` waits for no trace of a person's source, which may be a large model's: it is made where somebody asks for it.

    Where the knobs describe no trace, the page says so in a sentence and stops.
    """
    st.set_page_config(page_title=f"{title} · Attention Lab", page_icon="🔬", layout="wide")
    embedded = bool(st.context.is_embedded)
    show.styles(sidebar=not (embedded or locked()))
    acts.take()
    paused.ask_first(title)
    _open_page(title)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="page_head"):
        st.title("Attention Lab" if title == "Lab" else title, anchor=False)
        menu = st.container(horizontal=True, gap=None, key="menu")
        tools = st.container(horizontal=True, width="content", vertical_alignment="center", gap="xsmall", key="tools")
    about = st.container(horizontal=True, gap=None, key="page_about")
    with about:
        figure.warm()
    about.caption(intro, width="content")
    inputs.carry_over(title)
    notes = Notes()
    wide = st.container()
    with st.expander("Knobs") if embedded and not locked() else st.sidebar:
        source = None
        try:
            with nullcontext() if embedded or locked() else _fold(maps, more):
                source = sidebar.source(notes, wide)
        except AttentionError as error:
            notes.refused(error)
        if not (embedded or locked()):
            state_file.opener()
    trace = None if own else _worked_out(source, notes, about)
    if source is None or (trace is None and not own):
        changed.bar(source, None, None)
        show.controls(Around(controls=controls.row(None), defaults=controls.defaults()))
        _draw_menu(menu, embedded)
        with tools:
            link.watch(title)
        with about:
            address.answer(title, failed=True)
        st.stop()
    cell = inputs.asked_cell(notes) if trace is None else _cell_of(trace, title, notes, about)
    inputs.read_view(notes, more)
    inputs.keep(title)
    if trace is not None and not _second(more):
        changed.bar(source, trace, cell)
    _draw_menu(menu, embedded)
    with tools:
        if embedded or locked():
            link.buttons("open", key="copy_link", page=title)
        else:
            bar.bar(title, source, None if own else cell, asks=maps and not _second(more))
    return Page(source, cell, notes, _nothing if trace is None else ref(trace), about, title)


def _nothing() -> None:
    """What is left of a trace that nobody has made."""


def _fold(maps: bool, more: Sequence[Knob]) -> AbstractContextManager[object]:
    """What the knobs of a source are folded away in, where they are."""
    if _second(more):
        return st.expander("A, the first state")
    return nullcontext() if maps else st.expander("The source and its knobs")


def _cell_of(trace: Trace, title: str, notes: Notes, about: DeltaGenerator) -> Cell:
    """The chosen cell of a trace, of which what is to be said is said."""
    notes.say(trace.notes)
    _about(trace, about)
    cell = inputs.chosen_cell(notes, trace)
    if title == "Lab":
        _say_place(cell)
    work_out(trace.layers[cell.layer], cell.head)
    return cell


def _say_place(cell: Cell) -> None:
    """Which place a head that was clicked has among all."""
    if session().head_place:
        st.toast(f"L{cell.layer} H{cell.head} is {session().head_place}.", duration="long")
        session().head_place = ""


def _about(trace: Trace, place: DeltaGenerator) -> None:
    """What a trace is of, in the line under the title."""
    if trace.random:
        place.caption("**Random weights:** this shows the mechanism, not language.", width="content")
    if trace.about:
        place.caption(plain(trace.about), width="content")


def _second(more: Sequence[Knob]) -> bool:
    """Whether the second of two states is turned, whose knobs the page draws."""
    return TURN in more and (standing(TURN.key) or TURN.default) == "B"


def first_lesson() -> None:
    """A line for who comes first."""
    if not (st.context.is_embedded or locked()):
        with st.container(key="first_lesson", width="content"), suppress(StreamlitPageNotFoundError):
            st.page_link("pages/lessons.py", label="New here? Begin with one row", width="content")


def _draw_menu(place: DeltaGenerator, embedded: bool) -> None:
    """The links to all pages; the session has the state, and menu.js puts it into a link that is about to be used."""
    if embedded or locked():
        return
    # A page that is run by itself, as AppTest does, has no other pages to link to.
    with place, suppress(StreamlitPageNotFoundError):
        for path, name in MENU.items():
            st.page_link(path, label=name, width="content")


def _worked_out(source: Source | None, notes: Notes, place: DeltaGenerator) -> Trace | None:
    """The trace of a source, if there is one; where it gives none, the notes say why."""
    # What a person waits for while there is nothing to see. Later the last picture stands until the next.
    said = nullcontext() if session().waited else st.spinner("Working out every step …")
    bars: list[DeltaGenerator] = []

    def done(words: str, share: float) -> None:
        bars[:] = [bars[0].progress(share, words) if bars else place.progress(share, words)]

    try:
        with place, said, progress.told(done):
            return trace_of(source) if source else None
    except AttentionError as error:
        notes.error(str(error))
        return None
    finally:
        for bar in bars:
            bar.empty()
        session().waited = True
        process.imported()


def _open_page(title: str) -> None:
    """Goes to the page that an opened state file names."""
    asked, session().next_page = session().next_page or title, ""
    path = next((path for path, name in MENU.items() if name == asked), "")
    if path and asked != title:
        with suppress(StreamlitAPIException):  # a page that is run by itself, as AppTest does, has no others
            st.switch_page(path, query_params={})
