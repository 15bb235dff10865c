"""The only module that draws figures, arithmetic and tables."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import streamlit as st

from attention import Explanation, Step
from attention.base.printed import DIGITS
from attention.explanation import glossary
from attention.explanation.tables import MAX_SPREADSHEET_ROWS
from attention.formula.steps import Parameter
from attention.pictures.marks import Spec
from attention.pictures.message import Reply, Surroundings, pack
from pages.ui import figure
from pages.ui.exports.links import Link, download_links, small_download
from pages.ui.features import panels
from pages.ui.server.assets import NO_SIDEBAR, STYLES
from pages.ui.server.limits import MOST_CELLS
from pages.ui.state import knob_state
from pages.ui.state.session import session

if TYPE_CHECKING:
    import pandas as pd

_TABLE_CELLS = 64 * 64  # larger tables are built only on request
_LONG_TABLE_ROWS = MOST_CELLS // 16  # rows of an expanded table; each row has two names of up to 40 characters


def styles(sidebar: bool = True) -> None:
    """Adds the Lab's styles to the page. Without `sidebar`, hides the sidebar and the button that opens it."""
    st.html(f"<style>{STYLES if sidebar else STYLES + NO_SIDEBAR}</style>")


def figures(
    drawn: Sequence[Spec],
    key: str,
    on_click: Callable[[str, int, int], None] | None = None,
    around: Surroundings | None = None,
    on_turn: Callable[[dict[str, Any]], None] | None = None,
    files: Callable[[], Sequence[Spec]] | None = None,
    rest: bool = False,
    export: str = "",
) -> None:
    """Draws figures side by side, or one below the other on a narrow screen.

    Args:
        drawn: the figures. Figures without panels ignore clicks.
        on_click: called with (step, x, y) of a clicked cell, before the page runs again.
        around: the controls, step strip and cell line around the figures.
        on_turn: called with the name and value of a changed control. The enclosing fragment runs first, then the page.
        files: the figures to save, if they differ from those on the screen.
        rest: whether the page runs as a whole after its fragment.
        export: the name of the files in `pages.ui.exports.catalog`, if the state describes them.
    """
    ours = session()

    def zoomed() -> None:
        message = st.session_state[key].cut
        requested = message.get("windows") if isinstance(message, dict) else None
        for name, window in requested.items() if isinstance(requested, dict) else ():
            if isinstance(window, list) and len(window) == 4 and all(isinstance(edge, int) for edge in window):
                windows[str(name)[:80]] = window
        ours.windows[key] = windows

    number = None
    if on_click or on_turn:
        ours.handlers[key], number = (on_click, on_turn), ours.last_action
    revisions = (str(spec["layout"]["uirevision"]) for spec in drawn)
    windows = {name: ours.windows.get(key, {}).get(name) for name in revisions}
    message = pack(drawn, around, windows, rest, Reply(key, number, ours.name, ours.pictures[key]))
    figure.component()(
        key=key,
        data=message,
        on_acts_change=lambda: None,  # see `pages.ui.address`
        on_cut_change=zoomed,
        height=_reserved_height(drawn, around),
    )
    if drawn and not (knob_state.is_locked() or st.context.is_embedded):
        for feature in panels():
            feature.below_figures(files or (lambda: drawn), key, export)


def _reserved_height(drawn: Sequence[Spec], around: Surroundings | None) -> int | Literal["content"]:
    """The height in pixels to reserve for the figures, so that the page below does not jump when they are drawn."""
    if not drawn:
        return "content"
    heights = {"strip": 55, "controls": 42, "override": 28, "line": 48}
    above = sum(pixels for part, pixels in heights.items() if getattr(around, part, None))
    return above + max(int(spec["layout"]["height"] or 0) for spec in drawn)


def controls(around: Surroundings) -> None:
    """Draws the row of controls without a map, if there are any controls."""
    if around.controls:
        figures([], "controls_alone", around=around, on_turn=knob_state.apply_controls)


def arithmetic(explanation: Explanation) -> None:
    """Draws the explanation of one number: a sentence, the arithmetic with its numbers, and the exact value."""
    st.markdown(explanation.words)
    if explanation.lines:
        st.latex(r"\begin{aligned}" + r" \\ ".join(explanation.lines) + r"\end{aligned}")
    st.caption(f"Exactly: {explanation.value!r}")


def grid(ticks: pd.DataFrame, key: str, on_edit: Callable[[pd.DataFrame], None]) -> None:
    """Draws an editable table of check boxes. A change calls `on_edit` with the whole table, before the page runs again."""

    def edited() -> pd.DataFrame:
        table: pd.DataFrame = initial.copy()
        for row, cells in st.session_state.get(editor, {}).get("edited_rows", {}).items():
            for column, value in cells.items():
                table.loc[initial.index[int(row)], column] = value
        return table

    # The editor keeps its initial table while only the grid is edited: a new table would be a new
    # widget, and keyboard users would lose their cell.
    grids = session().grids
    initial, generation = grids.get(key, (ticks, 0))
    editor = f"{key}_{generation}"
    if not edited().equals(ticks):
        initial, editor = ticks, f"{key}_{generation + 1}"
        generation += 1
    grids[key] = initial, generation
    with st.container(key=key):
        st.data_editor(initial, key=editor, on_change=lambda: on_edit(edited()), width="stretch")


def card(entry: Step | Parameter, shape: str) -> None:
    """Draws the glossary card of a step or parameter: names, formula or meaning, axes and kind of number."""
    other_names = "".join(
        f"<dt>{html.escape(library)}</dt><dd><code>{html.escape(name)}</code></dd>"
        for library, name in glossary.library_names(entry)
    )
    if notebook_names := glossary.notebook_names(entry):
        names = " ".join(
            f"<span><small>{number}:</small> <code>{html.escape(name)}</code></span>" for number, name in notebook_names
        )
        other_names += f"<dt>notebooks</dt><dd>{names}</dd>"
    st.markdown(f"**`{entry.name}`**")
    if isinstance(entry, Step):
        kind = f"<div class='kind {entry.kind}'>{html.escape(glossary.KINDS[entry.kind])}</div>"
        st.latex(entry.equation)
    else:
        kind = "<div class='kind parameter'>parameter: not a step, but used to compute one</div>"
        st.latex(entry.symbol if "_" in entry.symbol else rf"\text{{{entry.symbol}}}")
        st.markdown(entry.meaning)
    st.html(f"<div class='axes'>{html.escape(shape)}</div>{kind}<dl class='other-names'>{other_names}</dl>")


def short_table(rows: pd.DataFrame) -> None:
    """Draws a short table without scrolling."""
    st.dataframe(rows, hide_index=True, height="content")


def chart_table(rows: pd.DataFrame, name: str, label: str = "The same as a table") -> None:
    """Draws the numbers of a chart as a table in an expander, with a CSV file that has every digit."""
    with st.expander(label):
        st.dataframe(rows, hide_index=True, column_config=_digits(rows))
        small_download("Download CSV", rows.to_csv(index=False), f"{name}.csv", "text/csv", f"{name}_csv")


def clickable_table(rows: pd.DataFrame, key: str, helps: Mapping[str, str], on_pick: Callable[[int], None]) -> None:
    """Draws a sortable table. A click on a cell calls `on_pick` with its row index in `rows`, before the page runs again."""

    def picked() -> None:
        cells = st.session_state[key].selection.cells
        if cells:
            on_pick(int(cells[0][0]))

    numbers = {name: column | {"help": helps.get(name)} for name, column in _digits(rows).items()}
    st.dataframe(
        rows, hide_index=True, key=key, column_config=numbers, on_select=picked, selection_mode="single-cell", height=320 if len(rows) > 8 else "content",
    )  # fmt: skip


def csv(name: str, key: str) -> None:
    """Draws a link to a CSV file, by its name in `pages.ui.exports.catalog`."""
    download_links(key, Link("Download CSV", name))


def table(rows: Callable[[], pd.DataFrame], n_cells: int, name: str) -> None:
    """Draws the numbers of a map as a table, with the CSV file of that name.

    A large table is built when its expander is opened; a still larger one exists only as a file.
    """

    def numbers() -> None:
        frame = rows()
        st.dataframe(frame, width="stretch", height="auto", column_config=_digits(frame))

    if n_cells <= _TABLE_CELLS:
        numbers()
    elif n_cells <= MOST_CELLS:
        with st.expander(f"Show the table of {n_cells:,} numbers", key="table", on_change="rerun") as unfolded:
            if unfolded.open:
                numbers()
    else:
        st.caption(f"A table on the page has at most {MOST_CELLS:,} numbers; the CSV file has all {n_cells:,}.")
    csv(name, "table_csv")


def table_in_page(rows: Callable[[], pd.DataFrame], n_cells: int, name: str) -> None:
    """Draws the numbers of a map as a table in an expander, built when it is opened, with its CSV file; both are bounded."""
    if n_cells > MOST_CELLS:
        st.caption(f"A table on the page has at most {MOST_CELLS:,} numbers, and this one would have {n_cells:,}.")
        return
    with st.expander("The map as a table", key=f"{name}_table", on_change="rerun") as unfolded:
        if unfolded.open:
            frame = rows()
            st.dataframe(frame, width="stretch", column_config=_digits(frame))
            small_download("Download CSV", frame.to_csv(), f"{name}.csv", "text/csv", f"{name}_csv")


def long_table(rows: Callable[[int, int], pd.DataFrame], n_rows: int, name: str) -> None:
    """Draws all numbers of a map of several matrices as one long table, built when its expander is opened.

    `rows(start, stop)` returns a part of the table. The CSV file of that name has as many rows as a spreadsheet holds.
    """
    with st.expander("The same as a table", key="long_table", on_change="rerun") as unfolded:
        if not unfolded.open:
            return
        frame = rows(0, min(n_rows, _LONG_TABLE_ROWS))
        if n_rows > _LONG_TABLE_ROWS:
            more = (
                "all" if n_rows <= MAX_SPREADSHEET_ROWS else f"{MAX_SPREADSHEET_ROWS:,}, as many as a spreadsheet holds"
            )
            st.caption(f"The first {_LONG_TABLE_ROWS:,} of {n_rows:,} numbers; the CSV file has {more}.")
        st.dataframe(frame, hide_index=True, width="stretch", column_config=_digits(frame))
        csv(name, "long_table_csv")


def _digits(rows: pd.DataFrame) -> dict[str, Any]:
    """Column formats with significant digits, as in headings; fixed decimals would show small numbers as 0."""
    return {str(column): st.column_config.NumberColumn(format=f"%.{DIGITS}g") for column in rows.select_dtypes("float")}
