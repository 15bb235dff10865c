"""Heads over many texts: the result of a run, all heads in a picture and in a table, the page of one head, and what differs from a second result.

The knobs above it have no widget of their own, so that their values last on other pages; the widgets here set them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from attention.base.errors import AttentionError
from attention.base.knobs import Choice, Knob, Text
from attention.base.printed import format_number
from attention.corpus import distribution_mosaic, figures, labels
from attention.corpus.digest import N_KEYS
from attention.corpus.examples import example_link, examples_html
from attention.corpus.labels import HeadChanges, describe
from attention.corpus.run_plan import CONTROL_WORDS
from attention.metrics.metric import BY_DISTANCE, RANDOM, SHUFFLED, UNIFORM
from attention.pictures.message import Surroundings
from attention.pictures.view import describe_control
from pages.ui.corpus import chosen_result
from pages.ui.corpus.chosen_result import MANY, OTHER, OVER, RESULT, Opened
from pages.ui.exports.links import small_download
from pages.ui.page import show
from pages.ui.page.start import Page
from pages.ui.server import scheduler
from pages.ui.server.limits import ALLOW_LOCAL_MODELS
from pages.ui.state import knob_state
from pages.ui.state.knob_state import is_presented, open_knobs
from pages.ui.state.knob_table import COLORS
from pages.ui.state.notices import plain, show_error, show_refusal
from pages.ui.state.session import session
from pages.ui.state.widgets import Knobs

if TYPE_CHECKING:
    from attention.corpus.result import HeadsResult

_METRIC = Knob("heads_metric", "previous", Text(300), "Metric", "What each head is measured by in every text.", inline=True)  # fmt: skip
_ALL, _ONE_HEAD, _CHANGE = "all heads", "one head", "what changed"
_SHOWN = Knob("heads_show", _ALL, Choice((_ALL, _ONE_HEAD, _CHANGE)), "Show", "All heads in one picture, the page of one head, or what differs between the two results.", inline=True)  # fmt: skip
_COMMAND = "python -m attention.corpus models/all-MiniLM-L6-v2 texts.txt -o heads/"
_REFERENCES = {
    UNIFORM: "The same metric if every query attended to all visible keys equally.",
    BY_DISTANCE: "The same metric if the head gave each distance the weight that it usually gives it in the same text, whatever the words.",
    CONTROL_WORDS[
        SHUFFLED
    ]: "The mean over the same texts with their words in random order, without those whose order cannot change: a head that follows positions stays, one that follows the order of words falls.",
    CONTROL_WORDS[
        RANDOM
    ]: "The mean over sequences of random tokens, repeated once (Olsson et al. 2022): a head that matches tokens does it here most clearly.",
}
_RANKING_HELPS = {
    "mean": "The mean over the texts of the metric in each text.",
    "sd": "The standard deviation over the texts.",
    "texts": "The texts in which the metric is defined.",
    "label": "What the head does, only where it stands out of its model and a second number agrees.",
    **_REFERENCES,
    **{f"by chance: {null}": _REFERENCES[null] for null in (UNIFORM, BY_DISTANCE)},
    "more than chance": "The value of each text minus what the null of the metric gives for the same text: the mean over the texts.",
    "± standard error": "Of the difference, from its spread over the texts.",
}
_DIFFERENCE_HELPS = {
    "standard error": "Of the difference of both means, for independent texts.",
    "change in standard errors": "Beyond 2 or so, a single head has changed by more than the texts vary; with many heads, some exceed that by chance.",
}


@dataclass(frozen=True)
class _Shown:
    """What the page shows: a result, perhaps a second one, a metric, and the names of both results."""

    result: HeadsResult
    other: HeadsResult | None
    metric: str
    names: tuple[str, str]

    def other_has(self, head: tuple[int, int]) -> HeadsResult | None:
        """The second result if it has this head."""
        return self.other if self.other is not None and head in self.other.heads else None


def _around() -> Surroundings:
    """What surrounds the figures: nothing; on a projector their letters are large."""
    return Surroundings(large=is_presented())


def heads_over(knobs: Knobs) -> Callable[[Page], None] | None:
    """What draws the page about many texts; None if it is about one. Draws the choice, and with many texts that of the results."""
    if _buttons(knobs, OVER, OVER.range.options) != MANY:  # type: ignore[attr-defined]  # it is a Choice
        return None
    opened = chosen_result.open_both(knobs)
    if not knobs.locked:
        _result_list(RESULT, str(knobs.value(RESULT)), lambda name: _short(name) or "choose a result")
        if opened.result is not None:
            _result_list(OTHER, str(knobs.value(OTHER)), lambda name: f"compared with {_short(name) or 'nothing'}")
            with st.popover("Upload …"):
                chosen_result.upload_field(RESULT, "A result: heads.parquet")
                chosen_result.upload_field(OTHER, "A second result, to compare")
    return partial(_many_texts, knobs=knobs, opened=opened)


def _many_texts(page: Page, knobs: Knobs, opened: Opened) -> None:
    for error in opened.problems.values():
        show_refusal(error)
    if problem := session().of(chosen_result.Uploads).problem:
        show_error(problem)
    result, other = opened.result, opened.other
    if result is None:
        _explain(knobs)
        return
    if knobs.locked and OTHER.key in opened.problems:
        chosen_result.upload_field(OTHER, "The second result")
    names = tuple(chosen_result.short_name(str(knobs.value(knob))) for knob in (RESULT, OTHER))
    with st.container(horizontal=True, vertical_alignment="center", key="heads_choices"):
        metric: str = knobs.value(_METRIC, Choice(result.metrics))
        if not knobs.locked:
            _list(_METRIC, metric, result.metrics, width=260)
        views = (_ALL, _ONE_HEAD) if other is None else (_ALL, _ONE_HEAD, _CHANGE)
        view = _buttons(knobs, _SHOWN, views)
    lines = [_about(each, name) for each, name in zip((result, other), names, strict=True) if each is not None]
    st.caption("  \n".join(plain(line) for line in lines))
    shown = _Shown(result, other, metric, (names[0], names[1]))
    try:
        if view == _ONE_HEAD:
            _one_head(page, shown)
        elif view == _CHANGE and other is not None:
            _difference_section(page, shown, other)
        else:
            _all_heads(page, shown)
    except AttentionError as error:  # a part of a damaged file that is read only now
        show_error(str(error))


def _all_heads(page: Page, shown: _Shown) -> None:
    numbers = distribution_mosaic.HeadDistributions(shown.result, shown.metric, labels.of(shown.result))
    rows = numbers.layers
    chosen = (page.cell.layer, page.cell.head)

    def click(_: str, x: int, y: int) -> None:
        if 0 <= y < len(rows) and (rows[y], x) in shown.result.heads:
            _open_head(rows[y], x)

    st.markdown(plain(distribution_mosaic.largest_words(numbers)))
    colors = knob_state.current_value(COLORS.key)
    within = Choice(distribution_mosaic.COLORS, ("0 to 1", "largest"))
    colors = colors if within.accepts(colors) else distribution_mosaic.COLORS[0]
    allowed = open_knobs()
    has_control = numbers.is_probability and (allowed is None or COLORS.key in allowed)
    row = [describe_control(COLORS, within, colors, None)] * has_control
    around = replace(_around(), controls=row)
    picture = distribution_mosaic.distribution_mosaic_json(
        numbers, [shown.result.model], chosen, shown.result.digest[:8], colors
    )
    show.figures([picture], "heads_mosaic", click, around, knob_state.apply_controls)
    if legend := numbers.legend():
        st.caption(plain(legend))
    by = "their mean" if numbers.ranked is numbers.mean else f"their value on {numbers.control}"
    st.caption(f"The heads by {by}. Click a row for the page of its head; click a column to sort by it.")
    rows_of_table = numbers.frame()
    order = [numbers.heads[i] for i in numbers.order]
    show.clickable_table(rows_of_table, "heads_ranking", _RANKING_HELPS, lambda row: _open_head(*order[row]))
    small_download("Download CSV", rows_of_table.to_csv(index=False), "heads-over-texts.csv", "text/csv", "heads_ranking_csv")  # fmt: skip


def _one_head(page: Page, shown: _Shown) -> None:
    result, wanted = shown.result, (page.cell.layer, page.cell.head)
    head = wanted if wanted in result.heads else result.heads[0]
    name = f"L{head[0]} H{head[1]}"
    if wanted != head:
        st.info(f"The result has no L{wanted[0]} H{wanted[1]}; this is {name}.")
    place = result.heads.index(head)
    of_head = labels.of(result)[place]
    _title(result, name, place, ", ".join(label.name for label in of_head))
    if of_head:
        st.caption(plain("; ".join(label.sentence for label in of_head) + "."))
    _metrics(shown, head, name)
    _examples(result, head, name, shown.metric)
    _maps(shown, head, name)


def _title(result: HeadsResult, name: str, place: int, label: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="heads_one_title"):
        st.markdown(f"## {name}" + (f" — {plain(label)}" if label else ""), width="content")
        st.button("All heads", key="heads_all", type="tertiary", on_click=_close_head)
        for arrow, step, words in (("←", -1, "the head before"), ("→", 1, "the next head")):
            layer, head = result.heads[(place + step) % len(result.heads)]
            st.button(arrow, key=f"heads_step_{step}", help=f"L{layer} H{head}, {words}", type="tertiary", on_click=knob_state.hold, args=({"layer": layer, "head": head},))  # fmt: skip


def _metrics(shown: _Shown, head: tuple[int, int], name: str) -> None:
    result, metric, other = shown.result, shown.metric, shown.other_has(head)
    place, names = result.heads.index(head), shown.names if other is not None else ("", "")
    numbers = distribution_mosaic.HeadDistributions(result, metric)
    second = None
    if other is not None and metric in other.metrics and other.limits(metric) == result.limits(metric):
        second = other.histogram(metric)[other.heads.index(head)]
    marks = {"mean": float(numbers.mean[place])}
    marks |= {words: float(values[place]) for words, values in numbers.compared.items()}
    lines = figures.metric_lines(result, head, other)
    lines_chart = figures.metric_lines_json(lines, name, metric, names)
    height = int(lines_chart["layout"]["height"])
    histogram = figures.Histogram(numbers.histogram[place], numbers.limits, second)
    show.figures([lines_chart, figures.head_histogram_json(histogram, metric, name, marks, names, height)], "heads_one", around=_around())  # fmt: skip
    words = distribution_mosaic.describe_distribution(numbers, place).replace("\n", "; ").replace(";", ":", 1)
    st.markdown(plain(f"{words}."))
    st.markdown(plain(f"Is {metric} of {name} more than chance? {labels.Chance.of(result, metric, place).sentence}"))
    with st.container(horizontal=True):
        show.chart_table(figures.lines_frame(lines, names), "head-metrics", "The metrics as a table")
        show.chart_table(histogram.frame(), "head-histogram", "The histogram as a table")  # fmt: skip


def _examples(result: HeadsResult, head: tuple[int, int], name: str, metric: str) -> None:
    st.markdown(f"**The texts with the largest {plain(metric)} of {name}.** Blue: the weights of the query, its {N_KEYS} largest; outlined: the query with the largest value; underlined: its key. The value of the text opens this cell in the Lab.")  # fmt: skip
    with scheduler.without_turn():
        examples = result.examples(*head, metric)
    if not examples:
        st.caption("No text has a value of this metric.")
        return
    links = [example_link(result, example, *head) for example in examples]
    if links[0].reason:
        st.caption(plain(links[0].reason))
    st.html(examples_html(examples, links))


def _maps(shown: _Shown, head: tuple[int, int], name: str) -> None:
    result, other = shown.result, shown.other_has(head)
    names = shown.names if other is not None else ("", "")
    mean_map, offsets = result.mean_map(*head), result.offset_weights(*head)
    second = None if other is None else other.offset_weights(*head)
    pictures = [figures.offset_chart_json(offsets, name, second, names)]
    if mean_map is not None:
        pictures.insert(0, figures.mean_map_json(mean_map, name, int(result.info["map_texts"])))
    show.figures(pictures, "heads_one_maps", around=_around())
    with st.container(horizontal=True):
        show.chart_table(figures.offset_frame(offsets, second), "head-offsets", "The weights by distance as a table")
        if mean_map is not None:
            show.chart_table(figures.map_frame(mean_map), "head-mean-map", "The mean map as a table")


def _difference_section(page: Page, shown: _Shown, other: HeadsResult) -> None:
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
            _open_head(y, x)

    most = changes.order[0]
    st.markdown(plain(f"Largest change: L{changes.heads[most][0]} H{changes.heads[most][1]}, {metric} from {format_number(changes.first[most])} to {format_number(changes.second[most])}, {format_number(changes.change[most])} ± {changes.error[most]:.2g} (standard error)."))  # fmt: skip
    if words := describe(result, other):
        st.caption(plain(words))
    drawn = [figures.change_map_json(changes, names, chosen), figures.change_scatter_json(changes, names, chosen)]
    show.figures(drawn, "heads_change", click, _around())
    rows = changes.frame(names)
    order = [changes.heads[i] for i in changes.order]
    st.caption("The heads by their change. Click a row for the page of its head, with both results.")
    show.clickable_table(rows, "heads_change_table", _DIFFERENCE_HELPS, lambda row: _open_head(*order[row]))
    small_download("Download CSV", rows.to_csv(index=False), "heads-change.csv", "text/csv", "heads_change_csv")


def _open_head(layer: int, head: int) -> None:
    knob_state.hold({"layer": layer, "head": head, _SHOWN.key: _ONE_HEAD})


def _close_head() -> None:
    knob_state.hold({_SHOWN.key: _ALL})


def _explain(knobs: Knobs) -> None:
    if knobs.locked:
        chosen_result.upload_field(RESULT, "The result")
        return
    st.markdown(
        "A *result* says what every head of a model does over thousands of texts: mean, spread and histogram of each metric, the same by chance and on controls, "
        "and the texts with the largest values. One command makes it from a model and your own texts (`.txt`, `.jsonl`, `.csv`, `.parquet`); 500 sentences take about ten seconds."
    )
    st.button("Open an example", key="heads_example", type="primary", on_click=chosen_result.open_example, help="Of all-MiniLM-L6-v2 over 40 short sentences: a file that this command made.")  # fmt: skip
    st.code(_COMMAND, language="sh")
    above = "choose a result above, or " if chosen_result.result_names() else ""
    where = "choose it above, type the path of its folder there, or " if ALLOW_LOCAL_MODELS else above
    st.markdown(f"Then {where}upload its `heads.parquet`:")
    chosen_result.upload_field(RESULT, "A result: heads.parquet")


def _about(result: HeadsResult, name: str) -> str:
    title = f"{name}: " if name and name != result.model else ""
    return f"{title}{result.model}, {result.words()}. {result.shuffling}".strip()


def _buttons(knobs: Knobs, knob: Knob, options: tuple[str, ...]) -> str:
    """The value of an inline knob with few options. Draws them as buttons side by side, unless the page is locked."""
    value: str = knobs.value(knob, Choice(options))
    if not knobs.locked:
        key = _field(knob, value)
        st.segmented_control(knob.label, options, key=key, on_change=_picked, args=(knob.key, key), required=True, label_visibility="collapsed")  # fmt: skip
    return value


def _result_list(knob: Knob, value: str, words: Callable[[str], str]) -> None:
    """The list of results on offer; other names can be typed where paths are allowed."""
    options = tuple(dict.fromkeys(("", *([value] if value else []), *chosen_result.result_names())))
    if len(options) > 1 or ALLOW_LOCAL_MODELS:
        _list(knob, value, options, words, accept_new_options=ALLOW_LOCAL_MODELS, width=230)


def _list(knob: Knob, value: str, options: tuple[str, ...], words: Callable[[str], str] = str, **more: Any) -> None:
    key = _field(knob, value)
    st.selectbox(
        knob.label, options, key=key, on_change=_picked, args=(knob.key, key), format_func=words, label_visibility="collapsed", **more
    )  # fmt: skip


def _field(knob: Knob, value: str) -> str:
    """The key of a widget that shows this value."""
    key = f"{knob.key}_field"
    st.session_state[key] = value
    return key


def _picked(knob: str, field: str) -> None:
    knob_state.hold({knob: st.session_state[field] or ""})


def _short(name: str) -> str:
    short = chosen_result.short_name(name)
    return f"{short} (uploaded)" if short != name else short
