"""Where two states differ: A, B and B − A side by side, on Explore in place of the maps of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import streamlit as st

from attention import AttentionError, Cell, Explanation, Layer, Source, Trace, explain, find_step
from attention.base.knobs import Integer
from attention.base.printed import format_number
from attention.comparison import compared_screen, figures
from attention.comparison.comparison import (
    Difference,
    HeadIndex,
    color_limit,
    compare,
    describe_change,
    explain_difference,
)
from attention.comparison.figures import compared_pictures
from attention.export import program
from attention.formula.names import WEIGHTS
from attention.patching.intervention import describe_head
from attention.pictures import view
from attention.pictures.live_inputs import live_inputs
from attention.pictures.marks import Spec
from attention.pictures.message import Surroundings
from attention.pictures.message_contract import Change, Compared, Live, OverrideNote, Screen
from attention.pictures.steps_view import cell_line
from attention.sources import Intervenable, registry
from attention.sources.layer_knobs import SEQUENCE
from attention.sources.reader import Field, Reader
from attention.sources.state import SECOND, compared_state, unknown_key_notes
from pages.ui.exports.links import small_download
from pages.ui.page import explore, interventions, show
from pages.ui.page.start import Page
from pages.ui.server.traces import compute_head, traces_of_both
from pages.ui.state import control_row, knob_state, sidebar
from pages.ui.state.knob_table import AUTOSCALE, EDITING, KNOBS, SIDE
from pages.ui.state.notices import plain, show_error
from pages.ui.state.session import session


@dataclass
class _ChosenInB:
    """The pair that was chosen in B, where a word may have no partner, and the pair of A that is chosen with it."""

    pair: tuple[int, int] = (0, 0)
    of_a: tuple[int, int] = (-1, -1)


class Both(NamedTuple):
    """The two states.

    Attributes:
        a: the trace of A.
        b: the trace of B.
        source: the source of B.
        cell: the chosen cell of A.
        place_b: the chosen layer and head of B.
        maps: the figures of A, B and B − A: over their pictures if they have some, and as maps.
        difference: B − A; None if the two cannot be subtracted.
        reason: the reason why they cannot.
        notes: notes about B.
        fields: the knobs of B as they were read.
    """

    a: Trace
    b: Trace
    source: Source
    cell: Cell
    place_b: HeadIndex
    maps: list[Spec]
    difference: Difference | None
    reason: str
    notes: tuple[str, ...]
    fields: Mapping[str, Field]

    def cell_in_b(self) -> Cell | None:
        """The cell of B that corresponds to the chosen cell of A; None if there is none."""
        return figures.aligned_cell_of_b(self.difference, self.cell) if self.difference else None

    @property
    def first_cell(self) -> Cell:
        """The corresponding cell of B, or the first cell of B's head if there is none."""
        return self.cell_in_b() or Cell(self.place_b.layer, self.cell.step, self.place_b.head, 0, 0)

    def explanation(self) -> Explanation | None:
        """The explanation of the difference at the chosen cell; None if there is no difference."""
        return explain_difference(self.difference, self.cell) if self.difference else None


def second(current: Page) -> tuple[Source, Trace, Trace, HeadIndex, Reader]:
    """The source of B, the traces of A and B, the layer and head of B, and what read them.

    Raises:
        AttentionError: there is no second state.
    """
    reader = knob_state.reader(session().state.other)
    source = registry.read_source(reader)
    source = source.with_other_run(current.source) if isinstance(source, Intervenable) else source
    a, b = traces_of_both(current.source, source)
    layer = reader.knob(view.LAYER, view.layer_range(b))
    at = HeadIndex(layer, reader.knob(view.HEAD, Integer(0, b.layers[layer].n_heads - 1)))
    compute_head(b.layers[at.layer], at.head)
    return source, a, b, at, reader


def both(current: Page) -> Both:
    """The two states with their maps.

    Raises:
        AttentionError: there is no second state.
    """
    source, a, b, at, reader = second(current)
    colors, fit = knob_state.current_value("colors"), knob_state.current_value(AUTOSCALE.key)
    maps, difference, why = figures.comparison_maps(a, b, current.cell, at, colors, fit)
    maps = [*compared_pictures(a, b, current.cell, difference, colors, current.over_picture), *maps]
    notes = (
        *unknown_key_notes(str(knob_state.current_value(SECOND.key))),
        *reader.notes.values(),
        *(f"B: {note}" for note in b.notes),
    )
    return Both(a, b, source, current.cell, at, maps, difference, why, notes, reader.fields)


def first_screen(current: Page, two: Both | None) -> tuple[Screen, Live | None]:
    """The first screen of A, of B at the same pair, or of B − A; of A alone where there is no B.

    With it comes what the page computes itself, if the knobs change the shown state.
    """
    shown = explore.screen(current.trace, current.cell, type(current.source).__name__)
    if two is None:
        return shown, None
    place, layers = HeadIndex(current.cell.layer, current.cell.head), (current.layer, two.b.layers[two.place_b.layer])
    side, reason = _side(*layers), compared_screen.why_no_difference(*layers)
    if side == "B":
        cell = replace(current.cell, layer=two.place_b.layer, head=two.place_b.head)
        chosen, of_a = session().of(_ChosenInB), (shown["q"], shown["k"])
        pairs = zip(_tokens(*layers), of_a, strict=True)
        partners = (at if (found := compared_screen.partner(*tokens, at)) is None else found for tokens, at in pairs)
        query, key = chosen.pair if chosen.of_a == of_a else partners
        shown = explore.screen(
            two.b, cell, type(two.source).__name__, None, (query, key), session().state.other, two.fields
        )
    elif side == "difference":
        try:
            shown = compared_screen.difference_screen(shown, current.trace, two.b, place, two.place_b)
        except AttentionError as error:
            side, reason = "A", str(error)
    sides = [each for each in compared_screen.SIDES if each != "difference" or not reason]
    compared: Compared = {**shown.get("compared", {}), "shown": side, "sides": sides, "reason": reason}
    if side == "B" and not reason and current.layer.has(WEIGHTS):
        compared["a"] = compared_screen.shares(shown, current.layer, place.head)
    follows = side != "difference" and session().state.edits in (side, "both")
    live = live_inputs(layers[side == "B"], shown["head"]) if follows else None
    return {**shown, "changes": _changes_in_b(), "reset": {}, "compared": compared}, live


def _side(a: Layer, b: Layer) -> Literal["A", "B", "difference"]:
    """What the first screen shows of two layers: what was chosen, or B if there is no difference."""
    side: Literal["A", "B", "difference"] = knob_state.current_value(SIDE.key)
    return "B" if side == "difference" and compared_screen.why_no_difference(a, b) else side


def _tokens(a: Layer, b: Layer) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """The queries of both states, and their keys."""
    return (a.tokens, b.tokens), (a.key_tokens, b.key_tokens)


def _changes_in_b() -> list[Change]:
    """The knobs of B that are not as in A, in words."""
    first, other = session().state, session().state.other
    before, after = compared_state(first.texts), compared_state(other.texts)
    keys = [key for key in KNOBS if before.get(key) != after.get(key)]
    return [
        explore.change(KNOBS[key].label or key, knob_state.current_value(key), knob_state.current_value(key, other))
        for key in keys
    ]


def _apply(page: Page, values: dict[str, Any]) -> None:
    """Applies what the user did on the first screen: a sentence is that of the shown state, and a pair of B chooses its partners in A."""
    to: Literal["A", "B", "both"] = "both"
    pair = None
    if values.keys() & {"typed", "q", "k", SEQUENCE.key}:
        with suppress(AttentionError):
            current = page.with_pending_changes()
            _, _, b, at, _ = second(current)
            layers = current.layer, b.layers[at.layer]
            side = _side(*layers)
            to = "both" if side == "difference" else side
            if side == "B" and all(isinstance(values.get(key), int) for key in "qk"):
                pair = values["q"], values["k"]
                for key, tokens in zip("qk", _tokens(*layers), strict=True):
                    values = {**values, key: compared_screen.partner(*tokens, values[key], "b")}
    explore.apply(values, to)
    if pair:
        chosen = session().of(_ChosenInB)
        chosen.pair, chosen.of_a = pair, (knob_state.current_value("q"), knob_state.current_value("k"))


def interventions_on_head(source: Source, cell: Cell) -> str:
    """A sentence about the interventions on the shown head; empty if there are none."""
    return describe_head(source.interventions if isinstance(source, Intervenable) else (), cell.layer, cell.head)


def override_line(current: Page, two: Both | None) -> OverrideNote | None:
    """The line about interventions in A and B; None if there are none."""
    sentences = {"A": interventions_on_head(current.source, current.cell)}
    if two:
        sentences["B"] = interventions_on_head(two.source, two.first_cell)
    words = " ".join(f"{name}: {text}" for name, text in sentences.items() if text)
    return {"text": words, "reset": {}, "changed": True} if words else None


def around(current: Page, two: Both | None) -> Surroundings:
    """The parts around the maps, with the controls of the state that the knobs change."""
    more = (EDITING, AUTOSCALE)
    if two and session().state.edits == "B":
        layer = two.b.layers[two.place_b.layer]
        cell = replace(current.cell, layer=two.place_b.layer, head=two.place_b.head)
        row = control_row.control_row(layer, two.b.layers, cell, more=more, of=session().state.other)
    else:
        row = control_row.control_row(current.layer, current.trace.layers, current.cell, more=more)
    screen, live = first_screen(current, two)
    line = cell_line(current.trace, current.cell, two.explanation() if two else None)
    if two and two.explanation() is None:
        line |= {"step": f"{current.cell.step} in A"}
    defaults = control_row.defaults(more)
    if session().state.edits == "B":  # the page cannot write the differences of B into the address
        defaults = {key: text for key, text in defaults.items() if key not in compared_state(dict.fromkeys(KNOBS, "x"))}
    return replace(
        current.around(steps=True),
        controls=control_row.with_buttons(row, EDITING.key),
        override=override_line(current, two),
        line=line,
        screen=screen,
        live=live,
        defaults=defaults | {SIDE.key: SIDE.default},
    )


@st.fragment
def maps(page: Page) -> None:
    """Draws the maps. A changed control or a click redraws them before the rest of the page runs."""

    def pick_cell(step: str, x: int, y: int) -> None:
        current = knob_state.current_cell(page.trace)
        with suppress(AttentionError):
            clicked = figures.cell_of_click(both(page.with_pending_changes()).difference, current, step, y, x)
            if clicked is not None:
                knob_state.choose_cell(clicked)

    current = page.for_fragment()
    try:
        two, problem = both(current), ""
    except AttentionError as error:
        two, problem = None, f"There is no B: {error}"
    drawn = two.maps if two else figures.map_of_a(current.trace, current.cell, knob_state.current_value("colors"))
    show.figures(drawn, "compare_maps", pick_cell, around(current, two), partial(_apply, page), rest=True)
    if two is None:
        show_error(problem)
    else:
        summary(two)
    for note in two.notes if two else unknown_key_notes(str(knob_state.current_value(SECOND.key))):
        st.caption(plain(note))


def summary(two: Both) -> None:
    """Draws the largest differences, the cells without a partner, or the reason why there is no difference."""
    if two.difference is None:
        st.info(plain(two.reason))
    elif two.difference.identity_words:
        st.markdown(f"B − A: **{two.difference.identity_words}**.")
    else:
        words = (describe_change(two.difference, change) for change in two.difference.largest_changes())
        st.markdown(f"**Largest differences:** {' · '.join(words)}")
    for sentence in two.difference.notes if two.difference else ():
        st.caption(plain(sentence))


def show_head(layer: int, head: int) -> None:
    """Shows another layer and head of both states. Only in a callback."""
    knob_state.apply_controls({"layer": layer, "head": head}, "both")


def elsewhere(two: Both) -> None:
    """Draws a button that opens the head where the step differs most: a change in one head often shows in another."""
    place = HeadIndex(two.cell.layer, two.cell.head)
    most = color_limit(two.a, two.b, two.cell.step, place, two.place_b) if two.difference else None
    if (
        two.difference
        and most
        and most.covers_all_layers
        and place == two.place_b != most.at
        and most.value > two.difference.tolerance
    ):
        layer, head = most.at
        where = f"L{layer} H{head}" if find_step(two.cell.step).per_head else f"L{layer}"
        st.button(
            f"Largest in {where} ({format_number(most.value)})", key="look_at_largest", type="tertiary", on_click=show_head,
            args=(layer, head), disabled=knob_state.is_locked(), help=f"Of all layers and heads, {two.cell.step} differs most in this one. Click to show it.",
        )  # fmt: skip


def arithmetic(two: Both) -> None:
    """Draws the arithmetic of the chosen cell in A and of the corresponding cell in B."""
    explanation, cell_in_b = two.explanation(), two.cell_in_b()
    if explanation:
        show.arithmetic(explanation)
    left, right = st.columns(2)
    with left:
        st.markdown("**A**")
        show.arithmetic(explain(two.a, *two.cell.address))
    with right:
        st.markdown("**B**")
        if cell_in_b:
            show.arithmetic(explain(two.b, *cell_in_b.address))
        else:
            st.caption("No cell of B corresponds to this one.")


def difference_getter(page: Page, source: Source, cell: Cell, at: HeadIndex) -> Callable[[], Difference]:
    """A function that returns B − A and the two layers.

    Streamlit keeps callbacks as long as the session, so they must not reference a trace.
    """

    def look_up() -> Difference:
        a, b = traces_of_both(page.source, source)
        return compare(a, b, cell.step, HeadIndex(cell.layer, cell.head), at)

    return look_up


def below_maps(page: Page) -> None:
    """Draws the part of the page below the maps."""
    try:
        two = both(page)
    except AttentionError:
        return
    elsewhere(two)
    with st.expander("How these two numbers are computed", expanded=True):
        arithmetic(two)
    if two.difference is not None:
        st.markdown(f"## All numbers of `{two.cell.step}`, B − A")
        look_up = difference_getter(page, two.source, two.cell, two.place_b)
        show.table(lambda: look_up().frame(), two.difference.matrix.numel(), f"{two.cell.step}-B-minus-A.csv")
    if not knob_state.is_locked():
        with st.expander("Both in plain torch", key="compare_python", on_change="rerun") as unfolded:
            if unfolded.open:
                python(page.source, two)


def python(source_of_a: Source, two: Both) -> None:
    """Draws the programs that compute A and B."""
    for place, name, source, trace, cell in zip(
        st.columns(2), "AB", (source_of_a, two.source), (two.a, two.b), (two.cell, two.first_cell), strict=True
    ):
        with place:
            try:
                text = program.python(source, trace, cell)
            except AttentionError as error:
                st.caption(plain(str(error)))
                continue
            small_download(f"{name} (.py)", text, f"attention_{name}.py", "text/x-python", f"compare_{name}")
            st.code(text, height=260)


def draw(page: Page) -> Callable[[], None]:
    """Draws the maps of both states, and the sidebar of B while the knobs change B; returns what draws the rest."""
    edits_b = session().state.edits == "B"
    if edits_b:
        with suppress(AttentionError):
            two = both(page)
            interventions.intervention_bar(two.source, two.b, two.first_cell)
    has_sidebar_of_b = edits_b and not knob_state.is_locked()
    if not has_sidebar_of_b:
        sidebar.missing_fields()
    maps(page)

    def below() -> None:
        below_maps(page)
        if has_sidebar_of_b:
            with st.expander("Knobs of B") if st.context.is_embedded else st.sidebar:
                sidebar.second_source()

    return below
