"""Heads: all heads of one step in one picture with one colour scale."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from attention import AttentionError, Cell, find_step, metrics
from attention.base.knobs import Choice
from attention.explanation import tables
from attention.formula.names import WEIGHTS
from attention.metrics.table import heading, rank_words
from attention.pictures import charts, heatmap
from attention.pictures.marks import Spec
from attention.pictures.message import Surroundings
from attention.pictures.mosaic import MOSAIC_CELLS, SCREEN_CELLS, HeadOrder, estimate_seconds, layers_json
from attention.pictures.view import HEAT, KEY, OVER, QUERY
from pages.ui.features import panels
from pages.ui.page import heads_panels, show
from pages.ui.page.heads_over_picture import heads_picture
from pages.ui.page.heads_panels import ALL, LAYERS, aggregates_section
from pages.ui.page.start import start
from pages.ui.server import scheduler
from pages.ui.server.limits import METRIC_SECONDS
from pages.ui.state import knob_state
from pages.ui.state.notices import show_error
from pages.ui.state.session import session
from pages.ui.state.widgets import Knobs

sourceless = next((feature.sourceless for feature in panels() if feature.sourceless), None)
page = start(
    "Heads",
    "What each head does with the same input, in the same colours. Click a head to open it in Explore.",
    sourceless=sourceless,
)
knobs = Knobs(page.notes)
with st.container(horizontal=True, vertical_alignment="center", key="heads_over_row"):
    draw_instead = sourceless.choose(knobs) if sourceless else None
    all_layers, by = False, charts.UNSORTED
    has_layers = draw_instead is None and len(page.trace.layers) > 1
    over_picture = None if draw_instead else heads_picture(page, knobs)
    if has_layers:
        all_layers = knobs.value(LAYERS) == ALL
        orders = Choice((charts.UNSORTED, *metrics.names_of(page.trace)))
        by = knobs.value(charts.SORT, orders)
        if not knobs.locked:
            heads_panels.order_controls(page.trace, orders, by)
if draw_instead is not None:
    draw_instead(page)
    page.end()
    st.stop()


def mosaic(cells: int) -> Spec:
    step, colors = page.cell.step, knob_state.current_value("colors")
    order = None
    if table and by != charts.UNSORTED and all_layers:
        values = dict(zip(table.heads, table.column(by).tolist(), strict=True))
        order = HeadOrder({head: values[head] for head in table.sorted_by(by)}, heading(metrics.find(by)))
    if over_picture:
        return over_picture.spec(colors=colors, all_layers=all_layers, cells=cells, order=order)
    if not all_layers:
        return heatmap.heads_json(page.trace, step, page.cell.layer, chosen=page.cell, cells=cells, colors=colors)
    return layers_json(page.trace, step, page.cell, colors, cells, order)


def open_cell(cell: Cell) -> None:
    knob_state.choose_cell(cell, page.trace.layers[cell.layer])
    session().head_opened = True


def open_on_map(step: str, x: int, y: int) -> None:
    clicked = heatmap.cell_at(figure, x, y)
    if (
        clicked
    ):  # the chosen query and key stay; over a picture, the clicked patch is the key of the query that is drawn
        open_cell(clicked if over_picture else replace(page.cell, layer=clicked.layer, head=clicked.head))


def open_head(layer: int, head: int) -> None:
    name = "" if by == charts.UNSORTED else by
    session().head_rank = rank_words(table, layer, head, name) if table else ""
    query, key = (knob_state.current_value(knob.key) for knob in (QUERY, KEY))  # of another step, page.cell has others
    open_cell(Cell(layer, WEIGHTS, head, query, key))


needs = over_picture.seconds if over_picture else estimate_seconds(page.trace, page.cell.step, SCREEN_CELLS)
if all_layers and needs > METRIC_SECONDS:
    all_layers = st.button(f"Draw the heads of all layers (about {needs:.0f} s)", key="heads_draw")
# A sorted picture needs the metrics first; otherwise they are computed after the picture has been sent.
table = heads_panels.metrics_table(page, "sorted") if by != charts.UNSORTED else None
try:
    with scheduler.without_turn():
        figure = mosaic(SCREEN_CELLS)
except AttentionError as error:
    show_error(str(error))
    page.end()
    st.stop()
show.figures(
    [figure],
    "heads_map",
    open_on_map,
    Surroundings(large=knob_state.is_presented()),
    files=lambda: [mosaic(MOSAIC_CELLS)],
)
around = page.around(steps=True)
if not over_picture:  # maps have no picture below
    controls = [control for control in around.controls if control["name"] not in (OVER.key, HEAT.key)]
    around = replace(around, controls=controls)
if has_layers and not knobs.locked:
    around = replace(around, controls=[heads_panels.layers_control(all_layers), *around.controls])
# Below the heads, which are what the page is for.
show.figures([], "heads_knobs", None, around, heads_panels.apply_knobs)
if session().head_opened:
    session().head_opened = False
    st.switch_page("app.py", query_params={})

for feature in panels():
    feature.inside_head(page, knobs)
heads_panels.find_section(page, knobs, open_cell)
effects = [more for feature in panels() if (more := feature.which_heads(page, knobs, open_head)) is not None]
with st.expander("What each head does, in numbers", has_layers, key="heads_numbers", on_change="rerun") as unfolded:
    if unfolded.open and (table := table or heads_panels.metrics_table(page, "numbers")):
        heads_panels.metrics_section(page, table, knobs, by, open_head, effects)
aggregates_section(page, knobs)

# Callbacks keep the globals of the page as long as its tab is open, so nothing as large as a layer is a global.
step = page.cell.step
heads = range(page.layer.n_heads) if find_step(step).per_head else range(1)
rows, columns = page.layer.shape(step)[-2:]
show.long_table(
    lambda start, stop: tables.long_frame(page.trace, [step], page.cell.layer, heads, start, stop),
    len(heads) * rows * columns,
    f"{step}-heads.csv",
)
page.end()
