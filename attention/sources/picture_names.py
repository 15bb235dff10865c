"""The value of `image` in a link: the names of one or more pictures, and the pictures of ours among them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attention.errors import AwaitedError, FileError
from attention.io.arrays import quote
from attention.io.example_pictures import EXAMPLES, PREFIX, SEPARATOR, example_picture
from attention.io.picture import Picture
from attention.params.input_limits import Limits
from attention.params.ranges import EncodedText

MOST_PICTURES = 4
"""The largest number of pictures that a link names."""
_UPLOADED = re.compile(rf"[^{SEPARATOR}]+:[0-9a-f]{{32}}")


@dataclass(frozen=True)
class PictureNames(EncodedText):
    """Up to `most` names: of pictures of ours, or the name and the digest of uploaded ones."""

    most: int = MOST_PICTURES

    expected = (
        f"one of {', '.join(PREFIX + name for name in EXAMPLES)}, or the name of an uploaded picture with its digest; "
        f"a model that reads several has up to {MOST_PICTURES}, with {SEPARATOR} between them"
    )
    replacement_words = "the default is used"

    def accepts(self, value: object) -> bool:
        """Whether each is one of ours, or a name and 32 digits in hexadecimal, and they are not too many."""
        return super().accepts(value) and 0 < len(_valid_names(str(value))) <= self.most

    def nearest(self, value: Any) -> Any:
        """The first of the names, as many as are read."""
        return SEPARATOR.join(_valid_names(str(value))[: self.most])

    def replacement(self, text: str, default: Any) -> tuple[Any, str]:
        """The first of the names and words about their number; the default if one is no name."""
        first = self.nearest(text)
        if not super().accepts(first) or not first:
            return super().replacement(text, default)
        if self.most == 1:
            return first, "one picture for a model that reads one at a time: the first is used"
        return first, f"at most {self.most} pictures: the first {self.most} are used"


def names_in(value: str) -> tuple[str, ...]:
    """The names in a value of `image`."""
    return tuple(value.split(SEPARATOR))


def is_example(name: str) -> bool:
    """Whether a name in a link is that of a picture of ours; that of an uploaded file may begin like one."""
    return name.startswith(PREFIX) and name.removeprefix(PREFIX) in EXAMPLES


def example_of(name: str) -> Picture | None:
    """The picture of ours of this name in a link; None if it names an upload."""
    return example_picture(name.removeprefix(PREFIX)) if is_example(name) else None


def missing_picture_error(names: Sequence[str]) -> AwaitedError:
    """The error for pictures (name:digest each) that have not been uploaded."""
    words = [f"{quote(name)} (digest {digest[:8]}…)" for name, _, digest in (name.rpartition(":") for name in names)]
    noun, are, them = ("picture", "is", "it") if len(words) == 1 else ("pictures", "are", "them")
    return AwaitedError(
        f"The link shows the {noun} {' and '.join(words)}, which {are} not on this server: upload {them} to open the link."
    )


def check_together(pictures: Sequence[Picture], limits: Limits) -> None:
    """Check that the pictures of one input are together within the limits of one picture.

    Raises:
        FileError: their files or their pixels are too many.
    """
    n_bytes = sum(len(picture.content) for picture in pictures if picture.kind)
    n_pixels = sum(picture.width * picture.height for picture in pictures)
    if n_bytes > limits.picture_mb * 2**20 or n_pixels > limits.picture_pixels:
        raise FileError(
            f"The pictures of a text may together have at most {limits.picture_mb} MB and {limits.picture_pixels:,} pixels here; "
            f"got {n_bytes / 2**20:.1f} MB and {n_pixels:,} pixels: remove one, or save them smaller."
        )


def _valid_names(value: str) -> tuple[str, ...]:
    """The names in a value; none if one of them is no name."""
    names = names_in(value)
    return names if all(_is_name(name) for name in names) else ()


def _is_name(name: str) -> bool:
    return is_example(name) or _UPLOADED.fullmatch(name) is not None
