"""A rectangle of patches, as it is written in find rules and masks: "row 3, column 7" or "row 2-4, column 3-7 of picture 1"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.base.errors import ConfigError
from attention.base.tokens import Patch

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.tensor_types import Visible

_MAX_PLACE = 9999
"""The largest row and column."""
PATTERN = re.compile(
    r"(?:patch(?:es)?\s+)?rows?\s+(\d{1,4})(?:\s*[-–]\s*(\d{1,4}))?\s*,?\s*col(?:umn)?s?\s+(\d{1,4})(?:\s*[-–]\s*(\d{1,4}))?(?!\w)"
    r"(?:\s*(?:,\s*|of\s+)?picture\s+(\d{1,4})(?!\w))?",
    re.IGNORECASE,
)
"""A rectangle; the name of a patch is one."""

NEAR = 1
"""How many rows and columns away a patch is a neighbour."""


@dataclass(frozen=True)
class PatchBox:
    """Some rows and columns of patches.

    Attributes:
        rows: the first and the last row, both inside.
        columns: the first and the last column, both inside.
        picture: the index of their picture; None: of every picture.
    """

    rows: tuple[int, int]
    columns: tuple[int, int]
    picture: int | None = None

    @classmethod
    def parse(cls, text: str) -> PatchBox:
        """The rectangle of a text.

        Raises:
            ConfigError: the text is no such rectangle.
        """
        match = PATTERN.fullmatch(text.strip())
        if match is None:
            raise ConfigError(
                f"Patches are written as row 3, column 7 or row 2-4, column 3-7; got {text[:40]!r}: write rows, then columns."
            )
        return cls.of(match)

    @classmethod
    def of(cls, match: re.Match[str]) -> PatchBox:
        """The rectangle of a match of `PATTERN`; its ends may be in either order."""
        top, bottom, left, right, picture = match.groups()
        rows, columns = ((int(first), int(last or first)) for first, last in ((top, bottom), (left, right)))
        return cls((min(rows), max(rows)), (min(columns), max(columns)), None if picture is None else int(picture))

    @property
    def text(self) -> str:
        """The rectangle as it is written, with one form for equal rectangles."""
        of_picture = "" if self.picture is None else f" of picture {self.picture}"
        return f"patch row {_range(self.rows)}, column {_range(self.columns)}{of_picture}"

    def __contains__(self, token: object) -> bool:
        """Whether a token is one of these patches."""
        return (
            isinstance(token, Patch)
            and self.rows[0] <= token.row <= self.rows[1]
            and self.columns[0] <= token.column <= self.columns[1]
            and self.picture in (None, token.picture)
        )

    def hide_from(self, visible: Visible, key_tokens: Sequence[str]) -> Tensor:
        """A mask [query_pos key_pos] with these patches hidden from every query.

        Raises:
            ConfigError: none of the tokens is one of these patches.
        """
        import torch

        is_hidden = torch.tensor([token in self for token in key_tokens])
        if not is_hidden.any():
            raise ConfigError(f"No key is {self.text}: choose rows and columns of this picture.")
        return visible & ~is_hidden


def _range(ends: tuple[int, int]) -> str:
    return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]}-{ends[1]}"
