"""What differs between two results over many texts: the change of each head, and which heads changed most."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from attention.corpus.result_difference import HeadChanges, describe
from attention.pictures import change_over_texts as pictures
from attention.printed import format_number
from pages.ui.exports.links import small_download
from pages.ui.page import show
from pages.ui.page.head_page_panel import Shown, around
from pages.ui.page.start import Page
from pages.ui.state.notices import plain

if TYPE_CHECKING:
    from attention.corpus.heads_result import HeadsResult

_HELPS = {
    "standard error": "Of the difference of both means, for independent texts.",
    "change in standard errors": "Beyond 2 or so, a single head has changed by more than the texts vary; with many heads, some exceed that by chance.",
}


def difference_section(page: Page, shown: Shown, other: HeadsResult, open_head: Callable[[int, int], None]) -> None:
    """Draws what changed."""
    result, metric = shown.result, shown.metric
    if metric not in other.metrics:
        st.info(plain(f"The second result has no metric {metric}: choose another one."))
        return
    changes = HeadChanges.of(result, other, metric)
    if not changes.heads:
        st.info("The two results have no head in common.")
        return
    chosen = (page.cell.layer, page.cell.head)
    names = (shown.names[0], shown.names[1])

    def click(_: str, x: int, y: int) -> None:
        if (y, x) in changes.heads:
            open_head(y, x)

    most = changes.order[0]
    st.markdown(plain(f"Largest change: L{changes.heads[most][0]} H{changes.heads[most][1]}, {metric} from {format_number(changes.first[most])} to {format_number(changes.second[most])}, {format_number(changes.change[most])} ± {changes.error[most]:.2g} (standard error)."))  # fmt: skip
    if words := describe(result, other):
        st.caption(plain(words))
    drawn = [pictures.change_map_json(changes, names, chosen), pictures.change_scatter_json(changes, names, chosen)]
    show.figures(drawn, "heads_change", click, around())
    rows = changes.frame(names)
    order = [changes.heads[i] for i in changes.order]
    st.caption("The heads by their change. Click a row for the page of its head, with both results.")
    show.clickable_table(rows, "heads_change_table", _HELPS, lambda row: open_head(*order[row]))
    small_download("Download CSV", rows.to_csv(index=False), "heads-change.csv", "text/csv", "heads_change_csv")
