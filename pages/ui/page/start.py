"""The beginning of every page: configuration, menu, knobs, the trace, and the chosen cell."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from weakref import ref

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.errors import StreamlitAPIException, StreamlitPageNotFoundError

from attention import AttentionError, Cell, Layer, Source, Trace, find_step
from attention.pictures.live_inputs import live_inputs
from attention.pictures.message import Surroundings
from attention.pictures.steps_view import OverPicture, available_views, cell_line, step_strip
from attention.pictures.view import HEAT, OVER, has_pair
from attention.sources.registry import source_of
from attention.sources.state import SECOND, START, Set
from pages.ui import address, figure, process
from pages.ui.features import Sourceless, panels
from pages.ui.page import interventions, share, show
from pages.ui.server.limits import LIMITS
from pages.ui.server.traces import compute_head, trace_of
from pages.ui.state import control_row, knob_state, sidebar
from pages.ui.state.notices import Notes, plain, progress_bar
from pages.ui.state.session import session


@dataclass(frozen=True)
class Page:
    """The state of a page.

    Attributes:
        notes: the place for messages at the top.
        cached_trace: returns the trace, or None if it has not been computed or is no longer cached.
        about: the container under the title that describes the trace.
    """

    source: Source
    cell: Cell
    notes: Notes
    cached_trace: Callable[[], Trace | None]
    about: DeltaGenerator
    title: str

    def end(self) -> None:
        """Sends the page its state. Every page calls this at its end, when all knobs have been read."""
        with self.about:
            address.send_state(self.title)

    @property
    def trace(self) -> Trace:
        """The trace of the source, computed if necessary. Do not store it: only `traces` caches it."""
        return self.cached_trace() or trace_of(self.source)

    def around(
        self,
        steps: bool = False,
        line: bool = False,
        overview: tuple[str, ...] = (),
        follow: bool = False,
        only: tuple[str, ...] | None = None,
    ) -> Surroundings:
        """The parts around the maps.

        Args:
            overview: the steps of the overview, with which the strip begins.
            follow: whether the browser recomputes the maps while a control moves.
            only: the names of the controls that the page uses; None for all.
        """
        layer, cell = self.layer, self.cell
        # Overrides act within a head: later layers are not computed again.
        views = available_views(self.trace, layer) if overview else ()
        scope = "this head only" if line and find_step(cell.step).per_head else "each head by itself"
        return Surroundings(
            live=live_inputs(layer, cell.head) if follow else None,
            controls=control_row.control_row(
                layer, self.trace.layers, cell, only, pair=bool(overview) and has_pair(layer)
            ),
            override=control_row.override_line(
                layer, scope if len(self.trace.layers) > 1 else "", interventions.mark(cell)
            ),
            strip=step_strip(layer, cell.step, knob_state.current_value("view"), overview, views, cell.head)
            if steps
            else None,
            line=cell_line(self.trace, cell) if line else None,
            defaults=control_row.defaults(),
            large=knob_state.is_presented(),
        )

    def with_pending_changes(self) -> Page:
        """The page with all pending changes of the figure's controls, before the sidebar runs again.

        Raises:
            AttentionError: the state describes no trace now.
        """
        source = knob_state.current_source()
        trace = _timed(source)
        cell = knob_state.current_cell(trace)
        compute_head(trace.layers[cell.layer], cell.head)
        return replace(self, source=source, cell=cell, cached_trace=ref(trace))

    def for_fragment(self) -> Page:
        """The same for a fragment of maps; it reruns the whole page if the changes need a full run."""
        if address.apply_actions(widgets_too=False):
            st.rerun(scope="app")
        try:
            return self.with_pending_changes()
        except AttentionError:  # the page says it
            st.rerun(scope="app")

    @property
    def layer(self) -> Layer:
        """The chosen layer."""
        return self.trace.layers[self.cell.layer]

    @property
    def over_picture(self) -> OverPicture:
        """How a row or a column is drawn over a picture now, pending changes included."""
        return OverPicture(knob_state.current_value(OVER.key), knob_state.current_value(HEAT.key))


def start(
    title: str,
    intro: str,
    maps: bool = True,
    own: bool | Callable[[], bool] = False,
    sourceless: Sourceless | None = None,
) -> Page:
    """Opens a page: title, menu, knobs, the trace they describe, and the chosen cell.

    If the knobs describe no trace, the page shows the error and stops.

    Args:
        intro: the sentence under the title.
        maps: whether the page shows maps of the trace; otherwise its knobs are in an expander.
        own: whether the page shows numbers of its own, so that the trace is computed only when it is used; a function is
            called when links have been applied.
        sourceless: what the page may show in place of a source, whose knobs are then kept, and not drawn.
    """
    st.set_page_config(
        page_title=f"{title} · Attention Lab",
        page_icon="🔬",
        layout="wide",
        initial_sidebar_state="collapsed" if title == START else "auto",
    )
    embedded = bool(st.context.is_embedded)
    show.styles(sidebar=not (embedded or knob_state.is_locked()))
    address.apply_actions()
    _open_page(title)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="page_head"):
        st.title("Attention Lab" if title == START else title, anchor=False)
        menu = st.container(horizontal=True, gap=None, key="menu")
        tools = st.container(horizontal=True, width="content", vertical_alignment="center", gap="xsmall", key="tools")
    about = st.container(horizontal=True, gap=None, key="page_about_start" if title == START else "page_about")
    with about:
        figure.preload()
    _begin_run(title)
    instead = sourceless if sourceless and sourceless.applies() else None
    has_source = instead is None
    has_numbers = (own() if callable(own) else own) or not has_source
    about.caption(instead.intro if instead else intro, width="content")
    notes = Notes()
    wide = st.container()
    with st.expander("Knobs") if embedded and has_source and not knob_state.is_locked() else st.sidebar:
        source = None
        try:
            with nullcontext() if embedded or knob_state.is_locked() or not has_source else _fold(maps):
                source = sidebar.source(notes, wide) if has_source else _kept_source()
        except AttentionError as error:
            notes.show_refusal(error)
        if not (embedded or knob_state.is_locked()):
            share.upload_field()
    trace = None if has_numbers else _computed(source, notes, about)
    if source is None or (trace is None and not has_numbers):
        interventions.intervention_bar(source, None, None)
        show.controls(Surroundings(controls=control_row.control_row(None), defaults=control_row.defaults()))
        _draw_menu(menu, embedded)
        with tools:
            share.copy_buttons(key="copy_link", page=title)  # none, but its script manages menu, focus and connection
        with about:
            address.send_state(title, failed=True)
        st.stop()
    cell = knob_state.requested_cell(notes) if trace is None else _cell_of(trace, title, notes, about)
    knob_state.read_view(notes)
    knob_state.end_knobs()
    if trace is not None and not _edits_second():
        interventions.intervention_bar(source, trace, cell)
    _draw_menu(menu, embedded)
    with tools:
        if embedded or knob_state.is_locked():
            share.copy_buttons("open", key="copy_link", page=title)
        else:
            share.share_bar(
                title, source if has_source else None, None if has_numbers else cell, maps and not _edits_second()
            )
    return Page(source, cell, notes, (lambda: None) if trace is None else ref(trace), about, title)


def _begin_run(title: str) -> None:
    """Begins a run with one state where no feature draws two."""
    knob_state.begin_run(title)
    if session().state.compares and not any(feature.two_states for feature in panels()):
        knob_state.act(Set({SECOND.key: None}))


def _kept_source() -> Source:
    """Keeps the knobs of the source for later, and stands for it meanwhile."""
    session().read |= session().kept
    source, _ = source_of({}, LIMITS)
    return source


def _fold(maps: bool) -> AbstractContextManager[object]:
    if _edits_second():
        return st.expander("A, the first state")
    return nullcontext() if maps else st.expander("The source and its knobs")


def _cell_of(trace: Trace, title: str, notes: Notes, about: DeltaGenerator) -> Cell:
    notes.show(trace.notes)
    if trace.random and title != START:  # the first screen says it
        about.caption("**Random weights:** this shows the mechanism, not language.", width="content")
    if trace.caption:
        about.caption(plain(trace.caption), width="content")
    for sentence in dict.fromkeys(seen.sentence for seen in trace.pictures):
        about.caption(plain(sentence), width="content")
    cell = knob_state.chosen_cell(notes, trace)
    if title == START and session().head_rank:  # of a head that the user clicked on Heads
        st.toast(f"L{cell.layer} H{cell.head} is {session().head_rank}.", duration="long")
        session().head_rank = ""
    compute_head(trace.layers[cell.layer], cell.head)
    return cell


def _edits_second() -> bool:
    """Whether the knobs change the second of two states, whose sidebar the page then draws."""
    return session().state.edits == "B"


def _draw_menu(place: DeltaGenerator, embedded: bool) -> None:
    """Draws the links to all pages. menu.js adds the state to a link when it is about to be used."""
    if embedded or knob_state.is_locked():
        return
    # A page that runs alone, as in AppTest, has no other pages to link to.
    with place, suppress(StreamlitPageNotFoundError):
        for path, name in address.menu().items():
            st.page_link(path, label=name, width="content")


def _timed(source: Source) -> Trace:
    """The trace of a source; remembers how long sources of its class take, for who types."""
    began = time.monotonic()
    trace = trace_of(source)
    seconds, name = session().seconds, type(source).__name__
    seconds[name] = max(time.monotonic() - began, seconds[name] / 2)  # an answer from the cache says little
    return trace


def _computed(source: Source | None, notes: Notes, place: DeltaGenerator) -> Trace | None:
    """The trace of a source; None if the source has none, and the notes then show the error."""
    # A spinner only the first time: later the last picture stays until the next one.
    spinner = nullcontext() if session().has_waited else st.spinner("Computing every step …")
    try:
        with place, spinner, progress_bar(place):
            return _timed(source) if source else None
    except AttentionError as error:
        notes.error(str(error))
        return None
    finally:
        session().has_waited = True
        process.freeze_imports()


def _open_page(title: str) -> None:
    """Switches to the page that an opened state file or a button has chosen."""
    if title not in address.names():
        raise LookupError(
            f"{title!r} is no page: PANELS of its feature declares it, and NAMES of attention/features.py the feature."
        )
    next_page, session().next_page = session().next_page or title, ""
    path = next((path for path, name in address.menu().items() if name == next_page), "")
    if path and next_page != title:
        with suppress(StreamlitAPIException):  # a page that runs alone, as in AppTest, has no others
            st.switch_page(path, query_params={})
