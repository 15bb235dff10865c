"""The uploaded pictures of a tab: reading them within the memory of the server, and keeping those that the state names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from attention import AttentionError
from attention.errors import BusyError, FileError
from attention.io import picture as picture_file
from attention.io.arrays import quote
from attention.io.picture import Picture
from attention.sources import second_state
from attention.sources.kinds.model_source import IMAGE
from attention.sources.picture_names import example_of, is_example, names_in
from pages.ui.server import scheduler, uploads
from pages.ui.server.limits import PICTURE_MB, PICTURE_PIXELS, PICTURES_MB
from pages.ui.server.make_room import make_room
from pages.ui.state import knob_state
from pages.ui.state.session import UploadedPicture, session

_LONGEST_NAME = 200  # characters in the address
_PREVIEW_SIDE = 240  # pixels


def find_picture(name: str) -> Picture | None:
    """The picture of this name in a link, if it is one of ours or was uploaded in this tab."""
    uploaded = session().uploaded_pictures.get(name)
    return uploaded.picture if uploaded else example_of(name)


def uploaded_names() -> tuple[str, ...]:
    """The names of the uploaded pictures that the state shows, those of the second state included."""
    return tuple(dict.fromkeys(name.rpartition(":")[0] for name in shown_names() if not is_example(name)))


def shown_names() -> tuple[str, ...]:
    """The names in a link of the pictures that the state shows, those of the second state included."""
    ours, second = session(), second_state.second_state({}, str(knob_state.current_value(second_state.KEY)))
    values = [str(knob_state.current_value(IMAGE.key))] if IMAGE.key in ours.knobs_read else []
    values += [second[IMAGE.key]] if ours.page == "Compare" and IMAGE.key in second else []
    return tuple(name for value in values for name in names_in(value))


def read_several(files: Sequence[Any], most: int) -> list[UploadedPicture]:
    """The pictures of an upload of several.

    Raises:
        AttentionError: they are too many; or as for `read_one`, with the name of the file.
    """
    if len(files) > most:
        raise FileError(f"At most {most} pictures are read here; got {len(files)} files: choose fewer.")
    read = []
    for file in files:
        try:
            read.append(read_one(file))
        except AttentionError as error:
            raise type(error)(f"{quote(shortened(file.name))}: {error}") from error
    return read


def read_one(file: Any) -> UploadedPicture:
    """The picture of an upload with its preview, one at a time and within the memory of the server.

    Raises:
        FileError: it is no picture, it is broken, or it is too large.
        BusyError: the server has no memory for it now.
    """
    content, name = uploads.content(file), shortened(file.name)
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


def keep(new: Mapping[str, UploadedPicture]) -> None:
    """Keeps uploaded pictures in the tab, by their names in a link. `drop_oldest` follows, once they are shown."""
    pictures = session().uploaded_pictures
    for name, uploaded in new.items():
        pictures.pop(name, None)
        pictures[name] = uploaded
        uploads.count_file(uploaded, f"picture {name}")


def drop_oldest() -> None:
    """Drops the oldest pictures of a tab beyond its memory for them; those that the page shows stay, and always fit."""
    pictures, shown = session().uploaded_pictures, shown_names()
    for name in [name for name in pictures if name not in shown]:
        if sum(len(each.content) for each in pictures.values()) > PICTURES_MB * 2**20:
            del pictures[name]


def file_name(name: str) -> str:
    """The name of the file in the name of an uploaded picture."""
    return name.rpartition(":")[0]


def shortened(name: str, longest: int = _LONGEST_NAME) -> str:
    """A file name short enough for an address, or another place, with its extension."""
    return name if len(name) <= longest else f"{name[: longest // 2]}…{name[-longest // 2 :]}"
