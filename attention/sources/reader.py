"""The interface through which sources read the values of their knobs, from a link or from the widgets of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from attention.io.picture import Picture
from attention.params.input_limits import Limits
from attention.params.knob import Knob
from attention.params.ranges import Range
from attention.sources.divisors import Divisors
from attention.sources.file import File
from attention.sources.picture_names import PictureNames


class ParameterReader(Protocol):
    """Returns the value of every knob: from a link, or from the widgets of a page."""

    limits: Limits

    def knob(self, knob: Knob, within: Range | None = None, fixed: str = "") -> Any:
        """The value of a knob.

        Args:
            knob: the knob.
            within: a range narrower than the declared one.
            fixed: the value to display where the knob has no effect.
        """
        ...

    def raw_value(self, knob: Knob) -> str:
        """The raw text of the knob, as in a link; empty where it is not set."""
        ...

    def divisor(self, knob: Knob, within: Divisors, fixed: str) -> int | None:
        """A number of heads, limited to the divisors in `within`."""
        ...

    def sequence(self, names: Sequence[str]) -> int:
        """The index of the sequence to show."""
        ...

    def matrices(self, names: Sequence[str]) -> Mapping[str, Any]:
        """The user's matrices by name; a matrix whose default is empty may be absent."""
        ...

    def file(self, knob: Knob) -> File:
        """The file that a knob names.

        Raises:
            AwaitedError: the file has not been uploaded.
        """
        ...

    def pictures(self, knob: Knob, within: PictureNames) -> tuple[Picture, ...]:
        """The pictures that a knob names, as many as `within` has.

        Raises:
            AwaitedError: a picture has not been uploaded.
        """
        ...
