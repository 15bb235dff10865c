"""The picture of a model that reads one: the field that uploads it, and the pictures of ours. An upload stays in the session; the address has its name and digest."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention import AttentionError
from attention.errors import BusyError, FileError
from attention.io import picture as picture_file
from attention.io.arrays import quote
from attention.io.example_pictures import EXAMPLES, PREFIX, example_picture, link_name
from attention.io.picture import Picture
from attention.sources import second_state
from attention.sources.kinds.model_source import IMAGE, example_of, missing_picture_error
from pages.ui.server import scheduler, uploads
from pages.ui.server.limits import PICTURE_MB, PICTURE_PIXELS, PICTURES_MB
from pages.ui.server.make_room import make_room
from pages.ui.state import knob_state
from pages.ui.state.notices import plain, show_later
from pages.ui.state.session import UploadedPicture, session

_ENDINGS = ("png", "jpg", "jpeg", "webp")
_LONGEST_NAME = 200  # characters in the address
_PREVIEW_SIDE = 240  # pixels

Hold = Callable[[dict[str, Any]], None]
"""Sets knobs of one of the two states. Only in a callback."""


def picture_field(
    asked: str, place: str, hold: Hold = knob_state.hold, wide: DeltaGenerator | None = None, locked: bool = False
) -> Picture:
    """The picture that the address requests. Draws its preview and the fields that replace it; above the maps while it is missing.

    Args:
        asked: the requested picture, a value of `image`.
        place: the key of the fields.
        hold: sets the knob.
        wide: the container above the maps; None: the fields stay where they are.
        locked: whether the page has no fields, unless the picture is missing.

    Raises:
        AwaitedError: the requested picture has not been uploaded.
    """
    picture = find_picture(asked)
    if picture is None:
        with wide or nullcontext():
            _upload_field("Picture", place, hold)
            _examples(asked, place, hold)
        raise missing_picture_error(asked)
    if not locked:
        with st.container(key=f"{place}_box", gap="small"):
            _preview(asked, picture)
            _examples(asked, place, hold)
            _upload_field("Your picture", place, hold)
    return picture


def find_picture(asked: str) -> Picture | None:
    """The picture that a value of `image` names, if it is one of ours or was uploaded in this tab."""
    uploaded = session().uploaded_pictures.get(asked)
    return uploaded.picture if uploaded else example_of(asked)


def uploaded_names() -> tuple[str, ...]:
    """The names of the uploaded pictures that the state shows, those of the second state included."""
    ours, second = session(), second_state.second_state({}, str(knob_state.current_value(second_state.KEY)))
    values = [knob_state.current_value(IMAGE.key)] if IMAGE.key in ours.knobs_read else []
    values += [second[IMAGE.key]] if ours.page == "Compare" and IMAGE.key in second else []
    return tuple(dict.fromkeys(value.rpartition(":")[0] for value in values if not value.startswith(PREFIX)))


def _preview(asked: str, picture: Picture) -> None:
    uploaded = session().uploaded_pictures.get(asked)
    if uploaded is None:
        name = asked.removeprefix(PREFIX)
        st.image(_example_preview(name), alt=EXAMPLES[name], width="stretch")
        st.caption(f"Ours: {EXAMPLES[name]}.")
        return
    st.image(uploaded.preview, alt=uploaded.picture.name, width="stretch")
    size = f"{picture.width:,} × {picture.height:,} pixels, {len(picture.content):,} bytes"
    st.caption(
        plain(f"{quote(picture.name)} ({size}) stays in this browser tab. The link has only its name and digest.")
    )


def _examples(asked: str, place: str, hold: Hold) -> None:
    """Draws a choice of our pictures."""
    key = f"{place}_example"
    names = tuple(EXAMPLES)
    chosen = asked.removeprefix(PREFIX) if asked.startswith(PREFIX) else None
    st.session_state[key] = chosen
    st.pills("Pictures of ours", names, key=key, format_func=lambda name: name.replace("-", " "),
        on_change=_chosen, args=(key, hold), help="Drawn by code. A link names them, so it opens without an upload.")  # fmt: skip


def _upload_field(label: str, place: str, hold: Hold) -> None:
    ours = session()
    key = f"{place}_upload_{ours.picture_uploads[place]}"  # a new field after each upload, so that it is empty again
    st.file_uploader(
        label, type=list(_ENDINGS), key=key, on_change=_uploaded, args=(place, key, hold), max_upload_size=PICTURE_MB,
        help=f"PNG, JPEG or WebP, up to {PICTURE_MB} MB and {PICTURE_PIXELS / 1e6:g} million pixels. It stays in this browser tab, "
        "and the place and camera that a photo names are not read.",
    )  # fmt: skip
    if problem := ours.picture_problems.get(place):
        st.error(plain(problem))


def _chosen(key: str, hold: Hold) -> None:
    """Shows one of our pictures; a second click on it changes nothing."""
    if name := st.session_state[key]:
        hold({IMAGE.key: f"{PREFIX}{name}"})


def _uploaded(place: str, key: str, hold: Hold) -> None:
    """Stores the uploaded picture, unless it cannot be read."""
    chosen, ours = st.session_state[key], session()
    ours.picture_problems.pop(place, None)
    if chosen is None:
        return
    try:
        uploaded = _read(uploads.content(chosen), _short(chosen.name))
    except AttentionError as error:
        ours.picture_problems[place] = str(error)
        return
    name, _, digest = str(knob_state.current_value(IMAGE.key)).rpartition(":")
    picture = uploaded.picture
    if hold is knob_state.hold and name == picture.name and digest != picture.digest:
        show_later(
            f"The uploaded {quote(name)} is not the same picture as in the link. The page shows the uploaded one."
        )
    value = link_name(picture)
    ours.uploaded_pictures.pop(value, None)
    ours.uploaded_pictures[value] = uploaded
    _drop_oldest(ours.uploaded_pictures)
    uploads.count_file(uploaded, f"picture {value}")
    ours.picture_uploads[place] += 1
    hold({IMAGE.key: value})


def _read(content: bytes, name: str) -> UploadedPicture:
    """The picture of an upload with its preview, one at a time and within the memory of the server.

    Raises:
        FileError: it is no picture, it is broken, or it is too large.
        BusyError: the server has no memory for it now.
    """
    if len(content) > PICTURE_MB * 2**20:
        raise FileError(
            f"A picture may take at most {PICTURE_MB} MB here; got {len(content) / 2**20:.1f} MB: save it smaller, or as JPEG."
        )
    needs = picture_file.bytes_to_decode(content, PICTURE_PIXELS)
    with scheduler.exclusive() if needs > picture_file.LARGE_BYTES else nullcontext():
        if missing := make_room(needs):
            raise BusyError(
                f"This picture needs {needs / 2**20:,.0f} MB of memory to be read, and this server has {max(0, needs - missing) / 2**20:,.0f} MB left: "
                "save it smaller, or try again in a minute."
            )
        with scheduler.without_turn() if needs > picture_file.LARGE_BYTES else nullcontext():
            picture = Picture.of(content, name, PICTURE_PIXELS)
            return UploadedPicture(picture, picture.preview(_PREVIEW_SIDE))


def _drop_oldest(pictures: dict[str, UploadedPicture]) -> None:
    """Drops the oldest pictures of a tab beyond its memory for them; the two of Compare always fit."""
    while len(pictures) > 1 and sum(len(each.content) for each in pictures.values()) > PICTURES_MB * 2**20:
        del pictures[next(iter(pictures))]


def _short(name: str) -> str:
    """A file name short enough for an address, with its extension."""
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME // 2]}…{name[-_LONGEST_NAME // 2 :]}"


@cache
def _example_preview(name: str) -> bytes:
    return example_picture(name).preview(_PREVIEW_SIDE)
