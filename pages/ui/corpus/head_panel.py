"""The page of one head over many texts: its metrics, a histogram, its top examples, the mean map, and the mean weight by distance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from attention.corpus import distribution_mosaic, figures, labels
from attention.corpus.digest import N_KEYS
from attention.corpus.example_link import ExampleLink, example_link
from attention.corpus.lit_tokens import examples_html, read_text
from attention.pictures.message import Surroundings
from pages.ui.page import show
from pages.ui.page.start import Page
from pages.ui.server import scheduler
from pages.ui.state import knob_state
from pages.ui.state.knob_state import is_presented
from pages.ui.state.notices import plain

if TYPE_CHECKING:
    from attention.corpus.result import Example, HeadsResult


@dataclass(frozen=True)
class Shown:
    """What the page shows.

    Attributes:
        result: the result.
        other: the second result; None without.
        metric: the name of the metric.
        names: of both results.
    """

    result: HeadsResult
    other: HeadsResult | None
    metric: str
    names: tuple[str, str]

    def other_has(self, head: tuple[int, int]) -> HeadsResult | None:
        """The second result if it has this head."""
        return self.other if self.other is not None and head in self.other.heads else None


def around() -> Surroundings:
    """What surrounds the figures: nothing; on a projector their letters are large."""
    return Surroundings(large=is_presented())


def head_page(page: Page, shown: Shown, close: Callable[[], None]) -> None:
    """Draws the page of the chosen head; `close` goes back to all heads.

    Raises:
        FileError: the examples of the result are damaged.
    """
    result, wanted = shown.result, (page.cell.layer, page.cell.head)
    head = wanted if wanted in result.heads else result.heads[0]
    name = f"L{head[0]} H{head[1]}"
    if wanted != head:
        st.info(f"The result has no L{wanted[0]} H{wanted[1]}; this is {name}.")
    place = result.heads.index(head)
    of_head = labels.of(result)[place]
    _title(result, name, place, ", ".join(label.name for label in of_head), close)
    if of_head:
        st.caption(plain("; ".join(label.sentence for label in of_head) + "."))
    _metrics(shown, head, name)
    _examples(result, head, name, shown.metric)
    _maps(shown, head, name)


def _title(result: HeadsResult, name: str, place: int, label: str, close: Callable[[], None]) -> None:
    """The name of the head, with the heads before and after it, and all heads."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="heads_one_title"):
        st.markdown(f"## {name}" + (f" — {plain(label)}" if label else ""), width="content")
        st.button("All heads", key="heads_all", type="tertiary", on_click=close)
        for arrow, step, words in (("←", -1, "the head before"), ("→", 1, "the next head")):
            layer, head = result.heads[(place + step) % len(result.heads)]
            st.button(arrow, key=f"heads_step_{step}", help=f"L{layer} H{head}, {words}", type="tertiary", on_click=knob_state.hold, args=({"layer": layer, "head": head},))  # fmt: skip


def _metrics(shown: Shown, head: tuple[int, int], name: str) -> None:
    """The metrics of the head, and the histogram of the chosen one."""
    result, metric, other = shown.result, shown.metric, shown.other_has(head)
    place, names = result.heads.index(head), shown.names if other is not None else ("", "")
    numbers = distribution_mosaic.HeadDistributions.of(result, metric)
    second = None
    if other is not None and metric in other.metrics and other.limits(metric) == result.limits(metric):
        second = other.histogram(metric)[other.heads.index(head)]
    marks = {"mean": float(numbers.mean[place])}
    marks |= {words: float(values[place]) for words, values in numbers.compared.items()}
    lines = figures.metric_lines(result, head, other)
    lines_chart = figures.metric_lines_json(lines, name, metric, names)
    height = int(lines_chart["layout"]["height"])
    histogram = numbers.histogram[place]
    show.figures([lines_chart, figures.head_histogram_json(histogram, numbers.limits, metric, name, marks, second, names, height)], "heads_one", around=around())  # fmt: skip
    st.markdown(
        plain(distribution_mosaic.describe_distribution(numbers, place).replace("\n", "; ").replace(";", ":", 1) + ".")
    )
    st.markdown(plain(f"Is {metric} of {name} more than chance? {labels.Chance.of(result, metric, place).sentence}"))
    with st.container(horizontal=True):
        show.chart_table(figures.lines_frame(lines, names), "head-metrics", "The metrics as a table")
        show.chart_table(figures.histogram_frame(histogram, numbers.limits, second), "head-histogram", "The histogram as a table")  # fmt: skip


def _examples(result: HeadsResult, head: tuple[int, int], name: str, metric: str) -> None:
    """The texts with the largest values."""
    st.markdown(f"**The texts with the largest {plain(metric)} of {name}.** Blue: the weights of the query, its {N_KEYS} largest; outlined: the query with the largest value; underlined: its key. The value of the text opens this cell in the Lab.")  # fmt: skip
    with scheduler.without_turn():
        examples = result.examples(*head, metric)
    if examples:
        if reason := _link(result, head, examples[0]).reason:
            st.caption(plain(reason))
        st.html(examples_html(examples, lambda example: _link(result, head, example)))
    else:
        st.caption("No text has a value of this metric.")


def _link(result: HeadsResult, head: tuple[int, int], example: Example) -> ExampleLink:
    """The link to the cell of an example."""
    return example_link(result, example, *head, read_text(example, int(result.plan["max_tokens"])))


def _maps(shown: Shown, head: tuple[int, int], name: str) -> None:
    """The mean map, and the mean weight by distance."""
    result, other = shown.result, shown.other_has(head)
    names = shown.names if other is not None else ("", "")
    mean_map, offsets = result.mean_map(*head), result.offset_weights(*head)
    second = None if other is None else other.offset_weights(*head)
    pictures = [figures.offset_chart_json(offsets, name, second, names)]
    if mean_map is not None:
        pictures.insert(0, figures.mean_map_json(mean_map, name, int(result.info["map_texts"])))
    show.figures(pictures, "heads_one_maps", around=around())
    with st.container(horizontal=True):
        show.chart_table(figures.offset_frame(offsets, second), "head-offsets", "The weights by distance as a table")
        if mean_map is not None:
            show.chart_table(figures.map_frame(mean_map), "head-mean-map", "The mean map as a table")
