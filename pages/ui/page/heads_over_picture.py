"""The heads of the page Heads over a picture: the switch between maps and pictures, and the token whose rows or columns are drawn."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import streamlit as st

from attention import find_step
from attention.base.knobs import Choice, Knob
from attention.base.tokens import label
from attention.pictures import heads_over_picture, over_picture, scales
from attention.pictures.heads_over_picture import heads_over_picture_json
from attention.pictures.marks import Spec
from attention.pictures.view import HEAT, OVER
from pages.ui.state import knob_state
from pages.ui.state.widgets import Knobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from pages.ui.page.start import Page

_MAPS, _PICTURE = "maps", "over the picture"
_DRAWN = Knob("heads_drawn", _MAPS, Choice((_MAPS, _PICTURE)), "Draw each head as", "Its whole map, or what one query attends to, over the picture.")  # fmt: skip
_FIELD = "heads_token_field"


class HeadsPicture(NamedTuple):
    """All heads over the picture.

    Attributes:
        spec: returns the figure; its keywords are colors, all_layers, cells and order.
        seconds: the estimated time for all layers.
    """

    spec: Callable[..., Spec]
    seconds: float


def heads_picture(page: Page, knobs: Knobs) -> HeadsPicture | None:
    """The heads over the picture, if they are drawn there. Draws the choice if the trace has a picture, and then the list of tokens."""
    if not page.trace.pictures:
        return None
    drawn = knobs.value(_DRAWN, width=170, on_change=_choose_query, args=(page.layer.tokens, page.cell.row))
    if drawn != _PICTURE:
        return None
    cell, reads_query = page.cell, _reads_query(page)
    if reads_query is None:
        st.caption(
            f"The step {cell.step} of layer {cell.layer} has no patches along its axes, so its heads are drawn as maps."
        )
        return None
    if not knobs.locked:
        _token_list(page, reads_query)
    query, key = (cell.row, None) if reads_query else (None, cell.column)
    line = over_picture.MapLine.of(page.trace, cell.step, cell.layer, cell.head, query, key)
    return HeadsPicture(partial(_spec, line), heads_over_picture.estimate_seconds(line))


def _spec(line: over_picture.MapLine, colors: str, **more: Any) -> Spec:
    """The figure. Fixed colours reach up to the largest patch, as in the Lab."""
    scale, opacity = scales.FITTED if colors == "stretched" else colors, knob_state.current_value(HEAT.key)
    return heads_over_picture_json(line, scale, opacity, **more)


def _reads_query(page: Page) -> bool | None:
    """Whether the row of the chosen query is drawn, and not the column of the chosen key."""
    prefers_column = knob_state.current_value(OVER.key) == "column"
    return heads_over_picture.reads_query(page.trace, page.cell.step, page.cell.layer, prefers_column)


def _token_list(page: Page, reads_query: bool) -> None:
    """Draws the list of the tokens from which the heads look, or of the columns."""
    cell, step = page.cell, find_step(page.cell.step)
    axis, key, at = (step.row_axis, "q", cell.row) if reads_query else (step.column_axis, "k", cell.column)
    tokens = page.layer.labels_of(axis)
    names = [f"{i} {label(tokens[i], escape=False)}" if tokens else str(i) for i in range(page.layer.sizes[axis])]
    st.session_state[_FIELD] = at
    st.selectbox("Query" if reads_query else "Key" if tokens else "Column", range(len(names)), key=_FIELD, on_change=_choose_token, args=(key,), format_func=names.__getitem__, width=220)  # fmt: skip


def _choose_token(key: str) -> None:
    knob_state.hold({key: st.session_state[_FIELD]})


def _choose_query(tokens: tuple[str, ...], query: int) -> None:
    """Begins with [CLS] or the last word where no query has been chosen."""
    knob_state.hold({"q": query or over_picture.default_query(tokens)})
