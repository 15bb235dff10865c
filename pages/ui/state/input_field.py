"""What a model reads beside words, such as pictures: the field that uploads it or chooses ours, and what this tab keeps.

An upload stays in the session, within the memory of the server; the address has its name and digest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention.base.errors import AttentionError, FileError
from attention.files.archives import quote
from attention.media import PREFIX, SEPARATOR, InputNames, Medium, media, names_in
from attention.sources import Source
from attention.sources.reader import Field
from attention.sources.state import COMPARE, second_state
from pages.ui.server import uploads
from pages.ui.server.limits import GIVEN_MB, LIMITS, PICTURE_MB
from pages.ui.state import knob_state
from pages.ui.state.notices import plain, show_later
from pages.ui.state.session import UploadedInput, session

_Hold = Callable[[dict[str, Any]], None]
"""Sets knobs of one of the two states. Only in a callback."""

_PREVIEW_SIDE = 240  # pixels
_SMALL_SIDE, _WORDS_WIDTH = 64, 110  # pixels, of each of several and of its name in the sidebar
_LONGEST_WORDS = 26  # characters of that name


@dataclass
class _Uploads:
    """The error of the last upload and the number of uploads of each of these fields in a tab, by its key."""

    problems: dict[str, str] = field(default_factory=dict)
    number: Counter[str] = field(default_factory=Counter)


def fields_of_media() -> dict[str, Callable[..., None]]:
    """What draws the field of each medium, as `input_field` without its medium, by the key of its knob."""
    return {medium.field: partial(input_field, medium) for medium in media()}


def input_field(
    medium: Medium,
    field: Field,
    place: str,
    hold: _Hold = knob_state.hold,
    wide: DeltaGenerator | None = None,
    locked: bool = False,
) -> None:
    """Draws the previews of the requested inputs and the fields that change them; above the maps while one is missing.

    Args:
        medium: whose inputs they are.
        field: its knob as it was read.
        place: the key of the fields.
        hold: sets the knob.
        wide: the container above the maps; None: the fields stay where they are.
        locked: whether the page has no fields, unless an input is missing.
    """
    names = names_in(field.value)
    assert isinstance(field.within, InputNames)
    fields = _Fields(medium, names, field.within.most, place, hold)
    found = [_find(medium, name) for name in names]
    if None in found:
        with wide or nullcontext():
            _upload_field((medium.name if len(names) > 1 else medium.noun).capitalize(), fields)
            _examples(fields)
            if len(names) > 1:
                _small_previews(fields, "content")
    elif not locked:
        with st.container(key=f"{place}_box", gap="small"):
            if len(names) > 1:
                _small_previews(fields, _WORDS_WIDTH)
            else:
                _preview(medium, field.value)
            _examples(fields)
            _upload_field(f"Your {medium.name if fields.most > 1 else medium.noun}", fields)


@dataclass(frozen=True)
class _Fields:
    """The fields of the inputs of one state: the requested ones, how many the model reads, the key of the fields, and what sets the knob."""

    medium: Medium
    names: tuple[str, ...]
    most: int
    place: str
    hold: _Hold

    def show(self, names: Sequence[str]) -> None:
        """Shows these inputs. Only in a callback."""
        self.hold({self.medium.field: SEPARATOR.join(names)})

    def with_inputs(self, new: Mapping[str, Any]) -> tuple[tuple[str, ...], list[str]]:
        """The names with new ones, and those that they replace: a missing one, the default, or the only one that is read."""
        names, replaced = list(self.names), list[str]()
        for name in (name for name in new if name not in self.names):
            waiting = [old for old in names if old not in new and _find(self.medium, old) is None]
            waiting.sort(key=lambda old, name=name: _file_name(old) != _file_name(name))  # type: ignore[misc]  # mypy infers no type for the default
            if self.most == 1 or names == [self.medium.knob.default]:
                waiting = names
            if waiting:
                replaced.append(waiting[0])
                names = [name if old == waiting[0] else old for old in names]
            else:
                names.append(name)
        if len(names) > self.most:
            raise FileError(
                f"At most {self.most} {self.medium.name} are read here; these would be {len(names)}: remove one, or choose fewer."
            )
        known = (new.get(name) or _find(self.medium, name) for name in names)
        self.medium.check_together([given for given in known if given], LIMITS)
        return tuple(names), replaced


def _preview(medium: Medium, asked: str) -> None:
    uploaded = session().uploaded_inputs.get((medium.field, asked))
    if uploaded is None:
        name = asked.removeprefix(PREFIX)
        st.image(_example_preview(medium, name), alt=medium.examples[name], width="stretch")
        _player(medium, medium.example(name))
        st.caption(f"Ours: {medium.examples[name]}.")
        return
    given = uploaded.given
    st.image(uploaded.preview, alt=given.name, width="stretch")
    _player(medium, given)
    size = f"{medium.size_in_words(given)}, {len(given.content):,} bytes"
    words = f"{quote(given.name)} ({size}) stays in this browser tab. The link has only its name and digest."
    st.caption(plain(words))


def _player(medium: Medium, given: Any) -> None:
    if sound := medium.sound(given):
        content, media_type = sound
        st.audio(content, format=media_type)


def _small_previews(fields: _Fields, width: int | Literal["content"]) -> None:
    """Draws several inputs in their order, each with words of this width and a button that removes it."""
    for index, name in enumerate(fields.names):
        medium, uploaded = fields.medium, session().uploaded_inputs.get((fields.medium.field, name))
        is_ours, ours = medium.is_example(name), name.removeprefix(PREFIX)
        full = ours.replace("-", " ") if is_ours else quote(_file_name(name))
        words = full if width == "content" else uploads.shortened(full, _LONGEST_WORDS)
        with st.container(key=f"{fields.place}_row_{index}", horizontal=True, vertical_alignment="center", gap="small"):
            if uploaded or is_ours:
                preview = uploaded.preview if uploaded else _example_preview(medium, ours)
                st.image(preview, alt=medium.examples.get(ours, words), width=_SMALL_SIDE)
            else:
                words += ", not uploaded"
            st.caption(plain(words), width=width)
            st.button("✕", key=f"{fields.place}_remove_{index}", type="tertiary", help=f"Remove {plain(full)}",
                on_click=_removed, args=(fields, index))  # fmt: skip
    st.caption("They stand in the text in this order, or before it if the text has no place for them.")


def _examples(fields: _Fields) -> None:
    key, medium = f"{fields.place}_example", fields.medium
    chosen = [name.removeprefix(PREFIX) for name in fields.names if medium.is_example(name)]
    several = fields.most > 1
    st.session_state[key] = list(dict.fromkeys(chosen)) if several else next(iter(chosen), None)
    st.pills(f"{medium.name.capitalize()} of ours", tuple(medium.examples), key=key, format_func=lambda name: name.replace("-", " "),
        selection_mode="multi" if several else "single", on_change=_chosen_several if several else _chosen, args=(key, fields),
        help="Drawn by code. A link names them, so it opens without an upload.")  # fmt: skip


def _upload_field(label: str, fields: _Fields) -> None:
    ours, place, medium = session().of(_Uploads), fields.place, fields.medium
    key = f"{place}_upload_{ours.number[place]}"  # a new field after each upload, so that it is empty again
    several = f" A text has up to {fields.most} {medium.name}, together within this." if fields.most > 1 else ""
    st.file_uploader(
        label, type=list(medium.endings), key=key, on_change=_uploaded, args=(key, fields), max_upload_size=PICTURE_MB,
        accept_multiple_files=fields.most > 1,
        help=f"{medium.files_in_field(LIMITS)}{several} It stays in this browser tab.",
    )  # fmt: skip
    if problem := ours.problems.get(place):
        st.error(plain(problem))


def _chosen(key: str, fields: _Fields) -> None:
    """Shows one of ours; a second click on it changes nothing."""
    if name := st.session_state[key]:
        fields.show([f"{PREFIX}{name}"])


def _chosen_several(key: str, fields: _Fields) -> None:
    """Adds one of ours, or removes it; the last one stays."""
    chosen, problems = [f"{PREFIX}{name}" for name in st.session_state[key]], session().of(_Uploads).problems
    problems.pop(fields.place, None)
    kept = [name for name in fields.names if name in chosen or not fields.medium.is_example(name)]
    if not any(name not in fields.names for name in chosen):
        fields.show(kept or fields.names)
        return
    new = {name: given for name in chosen if (given := fields.medium.example_of(name))}
    try:
        fields.show(fields.with_inputs(new)[0])
    except AttentionError as error:
        problems[fields.place] = str(error)


def _removed(fields: _Fields, index: int) -> None:
    session().of(_Uploads).problems.pop(fields.place, None)
    fields.show([name for i, name in enumerate(fields.names) if i != index])


def _uploaded(key: str, fields: _Fields) -> None:
    """Stores the uploaded files, unless one cannot be read."""
    files, ours, place = st.session_state[key], session().of(_Uploads), fields.place
    ours.problems.pop(place, None)
    if not files:
        return
    try:
        if fields.most > 1:
            ours.number[place] += 1
            uploaded = _read_several(fields.medium, files, fields.most)
        else:
            uploaded = [_read_one(fields.medium, files)]
        new = {fields.medium.link_name(each.given): each for each in uploaded}
        names, replaced = fields.with_inputs({name: each.given for name, each in new.items()})
        for name, each in new.items():
            uploads.count_file(each, f"{fields.medium.field} {name}")
    except AttentionError as error:
        ours.problems[place] = str(error)
        return
    if fields.hold is knob_state.hold and (same := {_file_name(name) for name in replaced} & set(map(_file_name, new))):
        show_later(
            f"The uploaded {quote(next(iter(same)))} is not the same {fields.medium.noun} as in the link. The page shows the uploaded one."
        )
    kept, key_of_medium = session().uploaded_inputs, fields.medium.field
    for name, each in new.items():
        kept.pop((key_of_medium, name), None)  # so that it is the newest
        kept[key_of_medium, name] = each
    ours.number[place] += fields.most == 1
    fields.show(names)
    _drop_oldest()


@cache
def _example_preview(medium: Medium, name: str) -> bytes:
    return medium.preview(medium.example(name), _PREVIEW_SIDE)


def _find(medium: Medium, name: str) -> Any | None:
    """The input of this name in a link, if it is one of ours or was uploaded in this tab."""
    uploaded = session().uploaded_inputs.get((medium.field, name))
    return uploaded.given if uploaded else medium.example_of(name)


def missing_words(source: Source | None) -> str:
    """A sentence about the uploaded inputs that the state shows, those of the second state included; empty if there are none."""
    shown = {medium.field: medium for medium in media()}
    names = dict.fromkeys(_file_name(name) for field, name in _shown_names() if not shown[field].is_example(name))
    if source is None or not names:
        return ""
    are, them = ("is", "it") if len(names) == 1 else ("are", "them")
    return f"{' and '.join(map(quote, names))} {are} not in the link: send {them} too, because the page will ask for {them}."


def _shown_names() -> list[tuple[str, str]]:
    """The field and the name in a link of every input that the state shows, those of the second state included."""
    ours, second = session(), second_state({}, str(knob_state.current_value(COMPARE)))
    shown = list[tuple[str, str]]()
    for key in (medium.field for medium in media()):
        values = [str(knob_state.current_value(key))] if key in ours.read | ours.kept else []
        values += [second[key]] if ours.state.compares and key in second else []
        shown += [(key, name) for value in values for name in names_in(value)]
    return shown


def _read_several(medium: Medium, files: Sequence[Any], most: int) -> list[UploadedInput]:
    if len(files) > most:
        raise FileError(f"At most {most} {medium.name} are read here; got {len(files)} files: choose fewer.")
    read = []
    for file in files:
        try:
            read.append(_read_one(medium, file))
        except AttentionError as error:
            raise type(error)(f"{quote(uploads.shortened(file.name))}: {error}") from error
    return read


def _read_one(medium: Medium, file: Any) -> UploadedInput:
    """The input of an upload with its preview."""
    content, name = uploads.content(file), uploads.shortened(file.name)
    if len(content) > PICTURE_MB * 2**20:
        raise FileError(
            f"{medium.one.capitalize()} may take at most {PICTURE_MB} MB here; got {len(content) / 2**20:.1f} MB: save it smaller."
        )
    cost, words = medium.reading_cost(content, LIMITS), f"Reading the {medium.noun}"
    read = uploads.read(medium.upload, content, name, _PREVIEW_SIDE, LIMITS, cost=cost, words=words)
    return UploadedInput(*read)


def _drop_oldest() -> None:
    """Drops the oldest inputs of a tab beyond its memory for them; those that the page shows stay, and always fit."""
    kept, shown = session().uploaded_inputs, _shown_names()
    for name in [name for name in kept if name not in shown]:
        if sum(each.nbytes for each in kept.values()) > GIVEN_MB * 2**20:
            del kept[name]


def _file_name(name: str) -> str:
    return name.rpartition(":")[0]
