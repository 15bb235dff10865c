"""Compare: what is different between these two states, and where? A, B and B − A side by side."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import streamlit as st

from attention import AttentionError, Cell, Explanation, Layer, Source, Trace, explain, find_step
from attention.export import program
from attention.formula.intervention import mark
from attention.numbers import changes, tables
from attention.numbers.compare import Difference, Place, compare
from attention.numbers.limit import limit
from attention.pictures import compared
from attention.pictures.contract import OverrideNote
from attention.pictures.layout import Spec
from attention.pictures.line import cell_line
from attention.pictures.message import Around
from attention.printed import shown
from attention.sources import Changeable, Patchable, link
from attention.sources.second import SECOND, wrong
from pages.ui import changed, show
from pages.ui.exports.links import small
from pages.ui.knobs import controls, inputs, second
from pages.ui.knobs.table import FIT, TURN
from pages.ui.knobs.widgets import locked
from pages.ui.notes import plain
from pages.ui.server.traces import both_of, work_out
from pages.ui.start import Page, start

page = start("Compare", "What is different between these two, and where?", more=(SECOND, TURN, FIT))
second.follow()


class Both(NamedTuple):
    """The two states as they are now: their traces, the chosen cell of A, the layer and head of B, and how they differ."""

    a: Trace
    b: Trace
    source: Source
    cell: Cell
    at: Place
    stand: controls.Stand
    maps: list[Spec]
    difference: Difference | None
    why: str
    notes: tuple[str, ...]

    def there(self) -> Cell | None:
        """The cell of B that is the chosen one of A."""
        return compared.cell_of_b(self.difference, self.cell, self.at) if self.difference else None

    @property
    def first_cell(self) -> Cell:
        """A cell of B's head: the chosen one, or where that has no partner the first."""
        return self.there() or Cell(self.at.layer, self.cell.step, self.at.head, 0, 0)

    def told(self) -> Explanation | None:
        """The difference at the chosen cell."""
        return changes.told(self.difference, self.cell) if self.difference else None


def both(now: Page) -> Both:
    """Works both states out, and draws their maps.

    Raises:
        AttentionError: there is no second state.
    """
    asked = second.Second()
    source = link.source(asked)
    source = source.beside(now.source) if isinstance(source, Patchable) else source
    a, b = both_of(now.source, source)
    at = asked.place(b)
    work_out(b.layers[at.layer], at.head)
    maps, difference, why = compared.compared_maps(a, b, now.cell, at, inputs.now("colors"), inputs.now(FIT.key))
    notes = (*wrong(str(inputs.now(SECOND.key))), *asked.notes, *(f"B: {note}" for note in b.notes))
    return Both(a, b, source, now.cell, at, second.stand(asked), maps, difference, why, notes)


def changed_inside(source: Source, cell: Cell) -> str:
    """What is changed inside a model in the view of one head, in a sentence."""
    return mark(source.interventions if isinstance(source, Changeable) else (), cell.layer, cell.head)


def own(now: Page, two: Both | None) -> OverrideNote | None:
    """What is said of both where something is changed inside a model."""
    said = {"A": changed_inside(now.source, now.cell)}
    if two:
        said["B"] = changed_inside(two.source, two.first_cell)
    words = " ".join(f"{name}: {text}" for name, text in said.items() if text)
    return {"text": words, "reset": {}, "changed": True} if words else None


def around(now: Page, two: Both | None) -> Around:
    """What stands around the maps: the knobs of the state that is turned."""
    more = (TURN, FIT)
    if two and second.is_turned():
        layer = two.b.layers[two.at.layer]
        cell = replace(now.cell, layer=two.at.layer, head=two.at.head)
        row = controls.row(layer, two.b.layers, cell, more=more, of=two.stand)
    else:
        row = controls.row(now.layer, now.trace.layers, now.cell, more=more)
    its_line = cell_line(now.trace, now.cell, two.told() if two else None)
    if two and two.told() is None:
        its_line |= {"step": f"{now.cell.step} in A"}
    known = {key: text for key, text in controls.defaults(more).items() if key not in second.turned_alone()}
    return replace(
        now.around(steps=True),
        controls=controls.with_buttons(row, TURN.key),
        own=own(now, two),
        line=its_line,
        defaults=known,
    )


def pick_cell(step: str, x: int, y: int) -> None:
    now = inputs.cell_now(page.trace)
    with suppress(AttentionError):
        found = compared.clicked(both(page.now()).difference, now, step, y, x)
        if found is not None:
            inputs.choose(found)


@st.fragment
def maps() -> None:
    """The maps. What is turned or clicked here is painted before the rest of the page has run."""
    now = page.painted()
    try:
        two, problem = both(now), ""
    except AttentionError as error:
        two, problem = None, f"There is no B: {error}"
    drawn = two.maps if two else compared.only_a(now.trace, now.cell, inputs.now("colors"))
    show.figures(drawn, "compare_maps", pick_cell, around(now, two), second.turn, rest=True)
    if two is None:
        show.problem(problem)
    else:
        said(two)
    for note in two.notes if two else wrong(str(inputs.now(SECOND.key))):
        st.caption(plain(note))


def said(two: Both) -> None:
    """What differs most, what has no partner, and why there is no difference where there is none."""
    layers = two.a.layers[two.cell.layer], two.b.layers[two.at.layer]
    if two.difference is None:
        st.info(plain(two.why))
    elif two.difference.said:
        st.markdown(f"B − A: **{two.difference.said}**.")
    else:
        words = (changes.words(two.difference, *layers, one) for one in two.difference.changes())
        st.markdown(f"**What differs most:** {' · '.join(words)}")
    for sentence in changes.without_partners(two.difference, *layers) if two.difference else ():
        st.caption(plain(sentence))


def elsewhere(two: Both) -> None:
    """Where the step differs most, with a way there: what is changed in one head is often seen in another."""
    here = Place(two.cell.layer, two.cell.head)
    most = limit(two.a, two.b, two.cell.step, here, two.at) if two.difference else None
    if two.difference and most and most.of_all and here == two.at != most.at and most.value > two.difference.rounding:
        layer, head = most.at
        where = f"L{layer} H{head}" if find_step(two.cell.step).per_head else f"L{layer}"
        st.button(
            f"Largest in {where} ({shown(most.value)})", key="look_at_largest", type="tertiary", on_click=second.look_at,
            args=(layer, head), disabled=locked(), help=f"Of all layers and heads {two.cell.step} differs most there: a click shows it.",
        )  # fmt: skip


def arithmetic(two: Both) -> None:
    """The arithmetic of the chosen cell in A, and of the same cell in B."""
    told, there = two.told(), two.there()
    if told:
        show.arithmetic(told)
    left, right = st.columns(2)
    with left:
        st.markdown("**A**")
        show.arithmetic(explain(two.a, *two.cell.address))
    with right:
        st.markdown("**B**")
        if there:
            show.arithmetic(explain(two.b, *there.address))
        else:
            st.caption("This cell has no partner in B.")


def differing(source: Source, cell: Cell, at: Place) -> Callable[[], tuple[Difference, Layer, Layer]]:
    """What looks up B − A and the two layers again: a button keeps its function as long as the session, which must keep no trace."""

    def look_up() -> tuple[Difference, Layer, Layer]:
        a, b = both_of(page.source, source)
        return compare(a, b, cell.step, Place(cell.layer, cell.head), at), a.layers[cell.layer], b.layers[at.layer]

    return look_up


def rest() -> None:
    """What follows the maps."""
    try:
        two = both(page)
    except AttentionError:
        return
    elsewhere(two)
    with st.expander("How these two numbers came about", expanded=True):
        arithmetic(two)
    if two.difference is not None:
        st.markdown(f"## All numbers of `{two.cell.step}`, B − A")
        found = differing(two.source, two.cell, two.at)
        show.table(
            lambda: tables.difference(*found()),
            two.difference.matrix.numel(),
            f"{two.cell.step}-B-minus-A.csv",
        )
    if not locked():
        with st.expander("Both in plain torch", key="compare_python", on_change="rerun") as unfolded:
            if unfolded.open:
                python(two)


def python(two: Both) -> None:
    """The programs that make A and B again."""
    for place, name, source, trace, cell in zip(
        st.columns(2), "AB", (page.source, two.source), (two.a, two.b), (two.cell, two.first_cell), strict=True
    ):
        with place:
            text = program.python(source, trace, cell)
            small(f"{name} (.py)", text, f"attention_{name}.py", "text/x-python", f"compare_{name}")
            st.code(text, height=260)


if second.is_turned():
    with suppress(AttentionError):
        two = both(page)
        changed.bar(two.source, two.b, two.first_cell)
        del two  # the page's callbacks keep its names as long as its tab is open
maps()
rest()
if not locked() and second.is_turned():
    with st.expander("Knobs of B") if st.context.is_embedded else st.sidebar:
        second.sidebar(show.problem)
page.end()
