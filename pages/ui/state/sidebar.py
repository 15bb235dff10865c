"""The sidebar: the source of the numbers, and a widget for each knob that was read for it; in a comparison also for those of B.

An uploaded attention file stays in the session; the address has its name and digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention import AttentionError, File, Source
from attention.base.knobs import Choice, Integer
from attention.files.archives import quote
from attention.files.labelled import EXTENSIONS
from attention.sources.file import FILE, link_name, parsed_file, reading_cost
from attention.sources.layer_knobs import TEXT
from attention.sources.matrices import MATRICES, SYMBOLS
from attention.sources.reader import Field
from attention.sources.registry import SOURCE, has_knob, read_source
from pages.ui.features import panels
from pages.ui.server import uploads
from pages.ui.server.limits import ALLOW_LOCAL_MODELS, LIMITS
from pages.ui.state import knob_state, widgets
from pages.ui.state.input_field import fields_of_media
from pages.ui.state.knob_table import KNOBS
from pages.ui.state.matrices import matrix_editor
from pages.ui.state.notices import Notes, plain, progress_bar, show_error, show_later
from pages.ui.state.session import session

_KEY = "file_upload"
_PLAN_LINES = 30
_apply_to_second = partial(knob_state.apply_controls, to="B")
_MATRICES = {knob.key for knob in MATRICES}


def source(notes: Notes, wide: DeltaGenerator) -> Source:
    """The source that the knobs describe. Draws the sidebar's knobs; large editors go to `wide`.

    Raises:
        AttentionError: the knobs contradict each other, a matrix cannot be read, or an upload is missing.
    """
    read, found, problem = knob_state.reader(), None, None
    try:
        found = read_source(read)
    except AttentionError as error:
        problem = error
    knob_state.take(read, notes)
    matrices = {name: read.fields[name] for name in read.fields if name in _MATRICES}
    knob_state.write_sizes({name: field.value for name, field in matrices.items()})
    locked = knob_state.is_locked()
    folds: dict[str, DeltaGenerator] = {}
    for key, field in read.fields.items():
        if draw := fields_of_media().get(key):
            draw(field, key, wide=wide, locked=locked)
        elif key == FILE.key:
            _attention_file(field.value, wide, locked)
        elif key not in _MATRICES and not (locked or field.knob.inline):
            folds = folds or (_folds(read.fields[SOURCE.key].value) if field.knob.section else {})
            _widget(field, folds, read.fields)
    if matrices and not locked:
        with wide:
            problem = matrix_editor(matrices) or problem
    if problem is not None:
        raise problem
    assert found is not None
    for feature in panels():
        feature.below_source(found)
    if isinstance(found, File) and not locked:
        _show_plan(found)
    return found


def _widget(field: Field, folds: Mapping[str, DeltaGenerator], fields: Mapping[str, Field]) -> None:
    knob, value = field.knob, field.value
    if _is_only_one(field):
        return
    if not knob.section:
        widgets.draw(field)
        if knob == TEXT and fields[SOURCE.key].value != "model" and "\n" in value.strip():
            st.caption("Each line is a sequence of its own.")
        return
    with folds[knob.section]:
        widgets.draw(field)
    if isinstance(knob.range, Choice) and knob.range.words and value != knob.default:
        # Outside the expander, so that users who open a link see at once what differs from the default.
        st.caption(f"**{knob.label}: {value}.** {knob.range.words[knob.range.options.index(value)]}")


def _is_only_one(field: Field) -> bool:
    """Whether there is nothing to choose, such as the only sequence."""
    return isinstance(field.within, Integer) and field.within.low == field.within.high


def _folds(chosen: str) -> dict[str, DeltaGenerator]:
    """The expanders of the sidebar. One with a single knob is open if that knob has a value."""
    texts = session().state.texts
    folded = [knob for knob in KNOBS.values() if knob.section and knob.sources and has_knob(chosen, knob)]
    titles = dict.fromkeys(knob.section for knob in folded)
    keys_by_title = {title: [knob.key for knob in folded if knob.section == title] for title in titles}
    return {
        title: st.expander(title, expanded=len(keys) == 1 and bool(texts.get(keys[0])))
        for title, keys in keys_by_title.items()
    }


def second_source() -> None:
    """Draws the widgets of B, the second state, and the error if they describe no source."""
    st.markdown("**B**, the second state")
    read, problem = knob_state.reader(session().state.other), ""
    try:
        read_source(read)
    except AttentionError as error:
        problem = str(error)
    folds: dict[str, DeltaGenerator] = {}
    for key, field in read.fields.items():
        section = field.knob.section
        if draw := fields_of_media().get(key):
            draw(field, f"second_{key}", _apply_to_second)
        elif not (field.knob.inline or _is_only_one(field)):
            if section and section not in folds:
                folds[section] = st.expander(section)
            with folds[section] if section else nullcontext():
                # Of a matrix the field has the numbers, and its widget the text.
                text = {"value": read.texts.get(key, field.default)} if key in SYMBOLS else {}
                widgets.draw(replace(field, **text), "B")
    if problem:
        show_error(problem)


def missing_fields() -> None:
    """Draws the field of an upload that B misses, where its sidebar is not drawn."""
    read = knob_state.reader(session().state.other)
    with suppress(AttentionError):  # the page shows it in place of B
        read_source(read)
    for key, draw in fields_of_media().items():
        if key in read.fields:
            draw(read.fields[key], f"second_{key}", _apply_to_second, locked=True)


def _attention_file(asked: str, wide: DeltaGenerator, locked: bool) -> None:
    """Draws the upload field of the attention file, `asked` for as name:digest: in `wide`, above the maps, while it is missing."""
    uploaded = session().file
    is_present = uploaded is not None and asked == link_name(uploaded)
    if not (is_present and locked):
        with nullcontext() if is_present else wide:
            st.file_uploader(
                "Another file" if is_present else "Attention file",
                key=_KEY,
                type=[ending.removeprefix(".") for ending in EXTENSIONS],
                on_change=_uploaded,
                help="Weights under any of their usual names, of one layer or all, of one sentence or several; or query, key and value; or scores; a table with or without labels (.csv, .tsv, .txt); an alignment of words; or a file exported from Attention Lab.",
            )
            if problem := session().file_problem:
                st.error(plain(problem))
    if uploaded is not None and is_present and not locked:
        size = f"{uploaded.nbytes:,} bytes"
        st.caption(
            plain(f"{quote(uploaded.name)} ({size}) stays in this browser tab. The link has only its name and digest.")
        )


def _show_plan(file: File) -> None:
    """Draws what each array of the file is, in an expander; nothing if that is unknown, which the page then says."""
    with suppress(AttentionError):  # the page says it
        lines = file.plan().text().split("\n")
        with st.expander("How the file is read"):
            st.caption(plain("\n\n".join(lines[:_PLAN_LINES] + ["…"] * (len(lines) > _PLAN_LINES))))


def _uploaded() -> None:
    """Stores the uploaded file, unless the names and sizes of its arrays show that it cannot be used."""
    chosen, ours = st.session_state[_KEY], session()
    ours.file_problem = ""
    if chosen is None:
        return
    try:
        content = uploads.content(chosen)
        file_name = uploads.shortened(chosen.name)
        cost = reading_cost(file_name, content)
        arguments = content, file_name, LIMITS.trace_bytes, LIMITS.tokens, ALLOW_LOCAL_MODELS, cost.is_light
        with progress_bar():
            uploaded = uploads.read(parsed_file, *arguments, cost=cost, words="Reading the file")
        uploads.count_file(uploaded)
    except AttentionError as error:
        ours.file_problem = str(error)
        return
    name, _, digest = str(knob_state.current_value(FILE.key)).rpartition(":")
    if ours.file is None and name == uploaded.name and digest != uploaded.digest:
        show_later(f"The uploaded {quote(name)} is not the same file as in the link. The page shows the uploaded one.")
    ours.file = uploaded
    knob_state.hold({FILE.key: link_name(uploaded)})
