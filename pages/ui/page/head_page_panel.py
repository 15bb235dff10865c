"""The page of one head over many texts: its metrics, a histogram, the mean map, the mean weight by distance, and its top examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from attention.core.names import WEIGHTS
from attention.pictures import distribution_mosaic as mosaic
from attention.pictures import head_over_texts as charts
from attention.pictures.lit_tokens import examples_html
from pages.ui.page import show
from pages.ui.page.start import Page
from pages.ui.server import scheduler
from pages.ui.state import knob_state
from pages.ui.state.notices import plain

if TYPE_CHECKING:
    from attention.corpus.heads_result import Example, HeadsResult


def head_page(page: Page, result: HeadsResult, other: HeadsResult | None, metric: str, names: tuple[str, str]) -> None:
    """Draws the page of the chosen head."""
    wanted = (page.cell.layer, page.cell.head)
    layer, head = wanted if wanted in result.heads else result.heads[0]
    place = result.heads.index((layer, head))
    name = f"L{layer} H{head}"
    _title(result, name, place)
    if wanted != (layer, head):
        page.notes.warn(f"The result has no L{wanted[0]} H{wanted[1]}; the page shows {name}.")
    both = names if other is not None else ("", "")
    numbers = mosaic.HeadDistributions.of(result, metric)
    same = (
        other is not None
        and (layer, head) in other.heads
        and metric in other.metrics
        and other.limits(metric) == result.limits(metric)
    )
    other_histogram = other.histogram(metric)[other.heads.index((layer, head))] if same and other is not None else None
    marks = {"mean": float(numbers.mean[place])} | {
        words: float(values[place]) for words, values in numbers.chance.items()
    }
    lines = charts.metric_lines(result, (layer, head), other)
    lines_chart = charts.metric_lines_json(lines, name, metric, both)
    histogram = charts.head_histogram_json(
        numbers.histogram[place],
        numbers.limits,
        metric,
        name,
        marks,
        other_histogram,
        both,
        lines_chart["layout"]["height"],
    )
    show.figures([lines_chart, histogram], "heads_one")
    st.markdown(f"**The texts in which {name} has the largest {plain(metric)}.** Blue: the weights of the query (its {_N_KEYS} largest); pink outline: the query; underlined: its key. The value opens the cell in the Lab.")  # fmt: skip
    with scheduler.without_turn():
        examples = result.examples(layer, head, metric)
    if examples:
        st.html(examples_html(examples, lambda example: _state(result, layer, head, example)))
    else:
        st.caption("No text has a value of this metric.")
    with scheduler.without_turn():
        mean_map, offsets = result.mean_map(layer, head), result.offset_weights(layer, head)
        other_offsets = (
            other.offset_weights(layer, head) if other is not None and (layer, head) in other.heads else None
        )
    pictures = [charts.offset_chart_json(offsets, name, other_offsets, both)]
    if mean_map is not None:
        pictures.insert(0, charts.mean_map_json(mean_map, name, int(result.info["map_texts"])))
    show.figures(pictures, "heads_one_maps")


_N_KEYS = 8


def _title(result: HeadsResult, name: str, place: int) -> None:
    """The name of the head, with the heads before and after it."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"## {name}")
        for label, step, words in (("←", -1, "the head before"), ("→", 1, "the head after")):
            layer, head = result.heads[(place + step) % len(result.heads)]
            st.button(label, key=f"heads_step_{step}", help=f"{words}: L{layer} H{head}", type="tertiary", on_click=knob_state.hold, args=({"layer": layer, "head": head},))  # fmt: skip


def _state(result: HeadsResult, layer: int, head: int, example: Example) -> dict[str, str]:
    """The state of the Lab that shows an example."""
    state = {
        "source": "model",
        "model": result.model,
        "text": example.text,
        "layer": layer,
        "head": head,
        "step": WEIGHTS,
        "q": example.query,
        "k": example.key,
    }
    return {key: str(value) for key, value in state.items()}
