"""The pictures of a model that reads one or several: the field that uploads them or chooses ours, and those that this tab keeps.

An upload stays in the session, within the memory of the server; the address has its name and digest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention.base.errors import AttentionError, FileError
from attention.files.archives import quote
from attention.files.picture import LARGE_BYTES, Picture, bytes_to_decode, with_preview
from attention.sources import Source
from attention.sources.reader import Field
from attention.sources.state import COMPARE, second_state
from attention.vision.examples import (
    EXAMPLES,
    PREFIX,
    SEPARATOR,
    PictureNames,
    check_together,
    example_of,
    example_picture,
    is_example,
    link_name,
    names_in,
)
from attention.vision.medium import IMAGE
from pages.ui.server import heavy, uploads
from pages.ui.server.limits import LIMITS, PICTURE_MB, PICTURE_PIXELS, PICTURES_MB
from pages.ui.state import knob_state
from pages.ui.state.notices import plain, show_later
from pages.ui.state.session import UploadedPicture, session

_Hold = Callable[[dict[str, Any]], None]
"""Sets knobs of one of the two states. Only in a callback."""

_ENDINGS = ("png", "jpg", "jpeg", "webp")
_PREVIEW_SIDE = 240  # pixels
_SMALL_SIDE, _WORDS_WIDTH = 64, 110  # pixels, of each of several and of its name in the sidebar
_LONGEST_WORDS = 26  # characters of that name


@dataclass
class _Uploads:
    """The error of the last upload and the number of uploads of each field for pictures in a tab, by its key."""

    problems: dict[str, str] = field(default_factory=dict)
    number: Counter[str] = field(default_factory=Counter)


def picture_field(
    field: Field, place: str, hold: _Hold = knob_state.hold, wide: DeltaGenerator | None = None, locked: bool = False
) -> None:
    """Draws the previews of the requested pictures and the fields that change them; above the maps while one is missing.

    Args:
        field: the knob `image` as it was read.
        place: the key of the fields.
        hold: sets the knob.
        wide: the container above the maps; None: the fields stay where they are.
        locked: whether the page has no fields, unless a picture is missing.
    """
    names = names_in(field.value)
    assert isinstance(field.within, PictureNames)
    fields = _Fields(names, field.within.most, place, hold)
    pictures = [_find_picture(name) for name in names]
    if None in pictures:
        with wide or nullcontext():
            _upload_field("Pictures" if len(names) > 1 else "Picture", fields)
            _examples(fields)
            if len(names) > 1:
                _small_previews(fields, "content")
    elif not locked:
        with st.container(key=f"{place}_box", gap="small"):
            if len(names) > 1:
                _small_previews(fields, _WORDS_WIDTH)
            elif pictures[0]:
                _preview(field.value, pictures[0])
            _examples(fields)
            _upload_field("Your pictures" if fields.most > 1 else "Your picture", fields)


@dataclass(frozen=True)
class _Fields:
    """The fields of the pictures of one state: the requested ones, how many the model reads, the key of the fields, and what sets the knob."""

    names: tuple[str, ...]
    most: int
    place: str
    hold: _Hold

    def show(self, names: Sequence[str]) -> None:
        """Shows these pictures. Only in a callback."""
        self.hold({IMAGE.key: SEPARATOR.join(names)})

    def with_pictures(self, new: Mapping[str, Picture]) -> tuple[tuple[str, ...], list[str]]:
        """The names with new ones, and those that they replace: a missing picture, the default, or the only one that is read."""
        names, replaced = list(self.names), list[str]()
        for name in (name for name in new if name not in self.names):
            waiting = [old for old in names if old not in new and _find_picture(old) is None]
            waiting.sort(key=lambda old, name=name: _file_name(old) != _file_name(name))  # type: ignore[misc]  # mypy infers no type for the default
            if self.most == 1 or names == [IMAGE.default]:
                waiting = names
            if waiting:
                replaced.append(waiting[0])
                names = [name if old == waiting[0] else old for old in names]
            else:
                names.append(name)
        if len(names) > self.most:
            raise FileError(
                f"At most {self.most} pictures are read here; these would be {len(names)}: remove one, or choose fewer."
            )
        known = (new.get(name) or _find_picture(name) for name in names)
        check_together([picture for picture in known if picture], LIMITS)
        return tuple(names), replaced


def _preview(asked: str, picture: Picture) -> None:
    uploaded = session().uploaded_pictures.get(asked)
    if uploaded is None:
        name = asked.removeprefix(PREFIX)
        st.image(_example_preview(name), alt=EXAMPLES[name], width="stretch")
        st.caption(f"Ours: {EXAMPLES[name]}.")
        return
    st.image(uploaded.preview, alt=uploaded.picture.name, width="stretch")
    size = f"{picture.width:,} × {picture.height:,} pixels, {len(picture.content):,} bytes"
    words = f"{quote(picture.name)} ({size}) stays in this browser tab. The link has only its name and digest."
    st.caption(plain(words))


def _small_previews(fields: _Fields, width: int | Literal["content"]) -> None:
    """Draws several pictures in their order, each with words of this width and a button that removes it."""
    for index, name in enumerate(fields.names):
        uploaded = session().uploaded_pictures.get(name)
        is_ours, ours = is_example(name), name.removeprefix(PREFIX)
        full = ours.replace("-", " ") if is_ours else quote(_file_name(name))
        words = full if width == "content" else uploads.shortened(full, _LONGEST_WORDS)
        with st.container(key=f"{fields.place}_row_{index}", horizontal=True, vertical_alignment="center", gap="small"):
            if uploaded or is_ours:
                preview = uploaded.preview if uploaded else _example_preview(ours)
                st.image(preview, alt=EXAMPLES.get(ours, words), width=_SMALL_SIDE)
            else:
                words += ", not uploaded"
            st.caption(plain(words), width=width)
            st.button("✕", key=f"{fields.place}_remove_{index}", type="tertiary", help=f"Remove {plain(full)}",
                on_click=_removed, args=(fields, index))  # fmt: skip
    st.caption("They stand in the text in this order, or before it if the text has no place for them.")


def _examples(fields: _Fields) -> None:
    key = f"{fields.place}_example"
    chosen = [name.removeprefix(PREFIX) for name in fields.names if is_example(name)]
    several = fields.most > 1
    st.session_state[key] = list(dict.fromkeys(chosen)) if several else next(iter(chosen), None)
    st.pills("Pictures of ours", tuple(EXAMPLES), key=key, format_func=lambda name: name.replace("-", " "),
        selection_mode="multi" if several else "single", on_change=_chosen_several if several else _chosen, args=(key, fields),
        help="Drawn by code. A link names them, so it opens without an upload.")  # fmt: skip


def _upload_field(label: str, fields: _Fields) -> None:
    ours, place = session().of(_Uploads), fields.place
    key = f"{place}_upload_{ours.number[place]}"  # a new field after each upload, so that it is empty again
    several = f" A text has up to {fields.most} pictures, together within this." if fields.most > 1 else ""
    st.file_uploader(
        label, type=list(_ENDINGS), key=key, on_change=_uploaded, args=(key, fields), max_upload_size=PICTURE_MB,
        accept_multiple_files=fields.most > 1,
        help=f"PNG, JPEG or WebP, up to {PICTURE_MB} MB and {PICTURE_PIXELS / 1e6:g} million pixels.{several} It stays in this browser tab, "
        "and the place and camera that a photo names are not read.",
    )  # fmt: skip
    if problem := ours.problems.get(place):
        st.error(plain(problem))


def _chosen(key: str, fields: _Fields) -> None:
    """Shows one of our pictures; a second click on it changes nothing."""
    if name := st.session_state[key]:
        fields.show([f"{PREFIX}{name}"])


def _chosen_several(key: str, fields: _Fields) -> None:
    """Adds one of our pictures, or removes it; the last picture stays."""
    chosen, problems = [f"{PREFIX}{name}" for name in st.session_state[key]], session().of(_Uploads).problems
    problems.pop(fields.place, None)
    kept = [name for name in fields.names if name in chosen or not is_example(name)]
    if not any(name not in fields.names for name in chosen):
        fields.show(kept or fields.names)
        return
    new = {name: picture for name in chosen if (picture := example_of(name))}
    try:
        fields.show(fields.with_pictures(new)[0])
    except AttentionError as error:
        problems[fields.place] = str(error)


def _removed(fields: _Fields, index: int) -> None:
    session().of(_Uploads).problems.pop(fields.place, None)
    fields.show([name for i, name in enumerate(fields.names) if i != index])


def _uploaded(key: str, fields: _Fields) -> None:
    """Stores the uploaded pictures, unless one cannot be read."""
    files, ours, place = st.session_state[key], session().of(_Uploads), fields.place
    ours.problems.pop(place, None)
    if not files:
        return
    try:
        if fields.most > 1:
            ours.number[place] += 1
            uploaded = _read_several(files, fields.most)
        else:
            uploaded = [_read_one(files)]
        new = {link_name(each.picture): each for each in uploaded}
        names, replaced = fields.with_pictures({name: each.picture for name, each in new.items()})
    except AttentionError as error:
        ours.problems[place] = str(error)
        return
    if fields.hold is knob_state.hold and (same := {_file_name(name) for name in replaced} & set(map(_file_name, new))):
        show_later(
            f"The uploaded {quote(next(iter(same)))} is not the same picture as in the link. The page shows the uploaded one."
        )
    pictures = session().uploaded_pictures
    for name, each in new.items():
        pictures.pop(name, None)  # so that it is the newest
        pictures[name] = each
        uploads.count_file(each, f"picture {name}")
    ours.number[place] += fields.most == 1
    fields.show(names)
    _drop_oldest()


@cache
def _example_preview(name: str) -> bytes:
    return example_picture(name).preview(_PREVIEW_SIDE)


def _find_picture(name: str) -> Picture | None:
    """The picture of this name in a link, if it is one of ours or was uploaded in this tab."""
    uploaded = session().uploaded_pictures.get(name)
    return uploaded.picture if uploaded else example_of(name)


def missing_words(source: Source | None) -> str:
    """A sentence about the uploaded pictures that the state shows, those of the second state included; empty if there are none."""
    pictures = dict.fromkeys(_file_name(name) for name in _shown_names() if not is_example(name))
    if source is None or not pictures:
        return ""
    are, them = ("is", "it") if len(pictures) == 1 else ("are", "them")
    names = " and ".join(map(quote, pictures))
    return f"{names} {are} not in the link: send {them} too, because the page will ask for {them}."


def _shown_names() -> tuple[str, ...]:
    """The names in a link of the pictures that the state shows, those of the second state included."""
    ours, second = session(), second_state({}, str(knob_state.current_value(COMPARE)))
    values = [str(knob_state.current_value(IMAGE.key))] if IMAGE.key in ours.read | ours.kept else []
    values += [second[IMAGE.key]] if ours.state.compares and IMAGE.key in second else []
    return tuple(name for value in values for name in names_in(value))


def _read_several(files: Sequence[Any], most: int) -> list[UploadedPicture]:
    if len(files) > most:
        raise FileError(f"At most {most} pictures are read here; got {len(files)} files: choose fewer.")
    read = []
    for file in files:
        try:
            read.append(_read_one(file))
        except AttentionError as error:
            raise type(error)(f"{quote(uploads.shortened(file.name))}: {error}") from error
    return read


def _read_one(file: Any) -> UploadedPicture:
    """The picture of an upload with its preview; a large one is read in a job."""
    content, name = uploads.content(file), uploads.shortened(file.name)
    if len(content) > PICTURE_MB * 2**20:
        raise FileError(
            f"A picture may take at most {PICTURE_MB} MB here; got {len(content) / 2**20:.1f} MB: save it smaller, or as JPEG."
        )
    is_large = bytes_to_decode(content, PICTURE_PIXELS) > LARGE_BYTES
    seconds, words = (1.0 if is_large else 0.0), "Reading the picture"
    read = heavy.run(with_preview, content, name, PICTURE_PIXELS, _PREVIEW_SIDE, seconds=seconds, words=words)
    return UploadedPicture(*read)


def _drop_oldest() -> None:
    """Drops the oldest pictures of a tab beyond its memory for them; those that the page shows stay, and always fit."""
    pictures, shown = session().uploaded_pictures, _shown_names()
    for name in [name for name in pictures if name not in shown]:
        if sum(len(each.content) for each in pictures.values()) > PICTURES_MB * 2**20:
            del pictures[name]


def _file_name(name: str) -> str:
    return name.rpartition(":")[0]
