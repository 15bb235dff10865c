"""The one place that draws: figures through the figure component, arithmetic, tables.

It is a long file because nothing else may draw them; its functions do not call each other, and each is read by itself.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import streamlit as st

from attention import Explanation, Step
from attention.formula.steps import Parameter
from attention.numbers import glossary
from attention.numbers.tables import SPREADSHEET_ROWS
from attention.pictures.layout import Spec
from attention.pictures.message import Around, pack
from attention.printed import DIGITS
from pages.ui import figure
from pages.ui.exports.links import Link, links, small
from pages.ui.figure import shares as shares_figure
from pages.ui.knobs import inputs
from pages.ui.knobs.session import session
from pages.ui.knobs.widgets import locked
from pages.ui.notes import plain
from pages.ui.server.first_paint import NO_SIDEBAR, STYLES
from pages.ui.server.limits import MOST_CELLS
from pages.ui.share.takeaway import takeaway

if TYPE_CHECKING:
    import pandas as pd

TABLE_CELLS = 64 * 64  # a table of more is not made unasked
LONG_TABLE_ROWS = MOST_CELLS // 16  # of a table that is unfolded; each has two names of up to 40 characters


def styles(sidebar: bool = True) -> None:
    """The page's few own styles; without `sidebar` there is none, nor the button that opens it."""
    st.html(f"<style>{STYLES if sidebar else STYLES + NO_SIDEBAR}</style>")


def figures(
    drawn: Sequence[Spec],
    key: str,
    on_click: Callable[[str, int, int], None] | None = None,
    around: Around | None = None,
    on_turn: Callable[[dict[str, Any]], None] | None = None,
    files: Callable[[], Sequence[Spec]] | None = None,
    rest: bool = False,
    export: str = "",
) -> None:
    """Draws figures side by side, one under the other where the screen is narrow.

    A click calls `on_click(step, x, y)` with the place on the map, before the page runs again. A figure
    without panels takes no clicks. What stands `around` them has knobs of its own; the one that was let go, and
    its value, go to `on_turn`; then only the fragment runs that this stands in, and the page as a whole when that
    is painted. `files` gives the figures to save, where they are others than those on the screen; where the state describes
    them, they are the `export` of that name.
    """
    ours = session()

    def zoomed() -> None:
        cut = st.session_state[key].cut
        asked = cut.get("windows") if isinstance(cut, dict) else None
        for name, window in asked.items() if isinstance(asked, dict) else ():
            if isinstance(window, list) and len(window) == 4 and all(isinstance(place, int) for place in window):
                windows[str(name)[:80]] = window
        ours.windows[key] = windows

    number = None
    if on_click or on_turn:
        ours.handlers[key], number = (on_click, on_turn), ours.number
    revisions = (str(one["layout"]["uirevision"]) for one in drawn)
    windows = {name: ours.windows.get(key, {}).get(name) for name in revisions}
    message = pack(drawn, around, windows, rest, ours.pictures[key], ours.name, key, number)
    figure.component()(
        key=key,
        data=message,
        on_acts_change=lambda: None,  # see `pages.ui.knobs.acts`
        on_cut_change=zoomed,
        height=_room(drawn, around),
    )
    if drawn and not (locked() or st.context.is_embedded):
        takeaway(files or (lambda: drawn), key, export)


def _room(drawn: Sequence[Spec], around: Around | None) -> int | Literal["content"]:
    """The pixels that are kept free for figures side by side, so that what stands under them does not jump when they come."""
    if not drawn:
        return "content"
    heights = {"strip": 55, "controls": 42, "own": 28, "line": 48}
    above = sum(pixels for part, pixels in heights.items() if getattr(around, part, None))
    return above + max(int(one["layout"]["height"] or 0) for one in drawn)


def controls(around: Around) -> None:
    """The row of controls alone, if there are any, where there is no map to stand above."""
    if around.controls:
        figures([], "controls_alone", around=around, on_turn=inputs.turn)


def arithmetic(explanation: Explanation) -> None:
    """How one number came about: what happened, and its arithmetic with the numbers in it."""
    st.markdown(explanation.words)
    if explanation.lines:
        st.latex(r"\begin{aligned}" + r" \\ ".join(explanation.lines) + r"\end{aligned}")
    st.caption(f"Exactly: {explanation.value!r}")


def grid(ticks: pd.DataFrame, key: str, on_edit: Callable[[pd.DataFrame], None]) -> None:
    """A table of ticks to edit; a change calls `on_edit` with the whole table, before the page runs again."""

    def edited() -> pd.DataFrame:
        changed: pd.DataFrame = first.copy()
        for row, cells in st.session_state.get(editor, {}).get("edited_rows", {}).items():
            for column, value in cells.items():
                changed.loc[first.index[int(row)], column] = value
        return changed

    # As long as only the grid itself is edited, it keeps the table that it began with: another one would be another
    # grid, and the keyboard would have to find its cell again.
    grids = session().grids
    first, turn = grids.get(key, (ticks, 0))
    editor = f"{key}_{turn}"
    if not edited().equals(ticks):
        first, editor = ticks, f"{key}_{turn + 1}"
        turn += 1
    grids[key] = first, turn
    with st.container(key=key):
        st.data_editor(first, key=editor, on_change=lambda: on_edit(edited()), width="stretch")


def card(entry: Step | Parameter, shape: str) -> None:
    """A step or parameter of the glossary: its names, its formula or what it is for, its axes and its kind of number."""
    others = "".join(
        f"<dt>{html.escape(who)}</dt><dd><code>{html.escape(name)}</code></dd>"
        for who, name in glossary.libraries(entry)
    )
    if numbered := glossary.notebooks(entry):
        said = " ".join(
            f"<span><small>{number}:</small> <code>{html.escape(name)}</code></span>" for number, name in numbered
        )
        others += f"<dt>notebooks</dt><dd>{said}</dd>"
    st.markdown(f"**`{entry.name}`**")
    if isinstance(entry, Step):
        kind = f"<div class='kind {entry.kind}'>{html.escape(glossary.KINDS[entry.kind])}</div>"
        st.latex(entry.equation)
    else:
        kind = "<div class='kind parameter'>parameter: no step, but what makes one</div>"
        st.latex(entry.symbol if "_" in entry.symbol else rf"\text{{{entry.symbol}}}")
        st.markdown(entry.meaning)
    st.html(f"<div class='axes'>{html.escape(shape)}</div>{kind}<dl class='elsewhere'>{others}</dl>")


def lines(rows: pd.DataFrame) -> None:
    """A short table to read, all of it on the screen."""
    st.dataframe(rows, hide_index=True, height="content")


def twin(rows: pd.DataFrame, name: str, label: str = "The same as a table") -> None:
    """The numbers of a chart as a table, folded away, and as a CSV file with every digit."""
    with st.expander(label):
        st.dataframe(rows, hide_index=True, column_config=_digits(rows))
        small("Download CSV", rows.to_csv(index=False), f"{name}.csv", "text/csv", f"{name}_csv")


def pick(rows: pd.DataFrame, key: str, helps: Mapping[str, str], on_pick: Callable[[int], None]) -> None:
    """A table to sort and to click; a click on a cell calls `on_pick` with its row, as `rows` has them, before the page runs again."""

    def picked() -> None:
        cells = st.session_state[key].selection.cells
        if cells:
            on_pick(int(cells[0][0]))

    numbers = {name: one | {"help": helps.get(name)} for name, one in _digits(rows).items()}
    st.dataframe(
        rows, hide_index=True, key=key, column_config=numbers, on_select=picked, selection_mode="single-cell", height=320 if len(rows) > 8 else "content",
    )  # fmt: skip


def csv(name: str, key: str) -> None:
    """A link to a table as a CSV file, by its name in `pages.ui.exports.catalog`."""
    links(key, Link("Download CSV", name))


def shares(row: tuple[float, ...], key: str) -> None:
    """A row of numbers and its softmax, with a temperature slider that the page follows by itself."""
    from attention.lessons.softmax import COLDEST, HOTTEST  # with pandas, for which the other pages need not wait

    shares_figure.component()(key=key, data={"row": row, "low": COLDEST, "high": HOTTEST}, height="content")


def problem(text: str) -> None:
    """Says in place why there is nothing to show; nothing in `text` is read as Markdown."""
    st.error(plain(text))


def table(rows: Callable[[], pd.DataFrame], n_cells: int, name: str) -> None:
    """The numbers behind a map as a table, and as the CSV file of that name.

    A large table is made when it is unfolded: it weighs more than the map. A larger one is a file only.
    """

    def numbers() -> None:
        made = rows()
        st.dataframe(made, width="stretch", height="auto", column_config=_digits(made))

    if n_cells <= TABLE_CELLS:
        numbers()
    elif n_cells <= MOST_CELLS:
        with st.expander(f"Show the table of {n_cells:,} numbers", key="table", on_change="rerun") as unfolded:
            if unfolded.open:
                numbers()
    else:
        st.caption(f"A table on the page has at most {MOST_CELLS:,} numbers; the CSV file has all {n_cells:,}.")
    csv(name, "table_csv")


def long_table(rows: Callable[[int, int], pd.DataFrame], n_rows: int, name: str) -> None:
    """All numbers of a map of several matrices as one long table, folded away and made when it is unfolded.

    `rows(start, stop)` gives those of them. The CSV file of that name has as many as a spreadsheet holds.
    """
    with st.expander("The same as a table", key="long_table", on_change="rerun") as unfolded:
        if not unfolded.open:
            return
        made = rows(0, min(n_rows, LONG_TABLE_ROWS))
        if n_rows > LONG_TABLE_ROWS:
            more = "all" if n_rows <= SPREADSHEET_ROWS else f"{SPREADSHEET_ROWS:,}, as many as a spreadsheet holds"
            st.caption(f"The first {LONG_TABLE_ROWS:,} of {n_rows:,} numbers; the CSV file has {more}.")
        st.dataframe(made, hide_index=True, width="stretch", column_config=_digits(made))
        csv(name, "long_table_csv")


def _digits(rows: pd.DataFrame) -> dict[str, Any]:
    """Numbers in a table with as many significant digits as in a heading: decimals would make 0 of the small ones."""
    return {str(column): st.column_config.NumberColumn(format=f"%.{DIGITS}g") for column in rows.select_dtypes("float")}
