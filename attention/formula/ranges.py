"""What a knob may be: each kind reads a value from the text of a link, and says in words what it expects."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar


def in_url(value: Any) -> str:
    """A knob's value as it stands in a URL, and in a state file."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Range:
    """What a knob may be. A page may take less than the formula does: its operator sets the `limit` of that name."""

    limit: str = field(default="", kw_only=True)

    @property
    def expected(self) -> str:
        """What it may be, in words that go on after "is"."""
        raise NotImplementedError

    def takes(self, value: object) -> bool:
        """Whether it may be `value`."""
        raise NotImplementedError

    def read(self, text: str) -> Any:
        """The value that a text of a link, or of a state file, says.

        Raises:
            ValueError: it says none that may be.
        """
        raise NotImplementedError

    def nearest(self, value: Any) -> Any:
        """The value that comes nearest to one that may not be; itself where there is no such thing."""
        return value

    def within(self, limits: Mapping[str, int]) -> Range:
        """What is left of it where an operator has set `limits`."""
        return self

    def refused(self, text: str, default: Any) -> tuple[Any, str]:
        """The value that is used where a link says something else; what it may be, and that this is used, in words."""
        return default, f"{self.expected}: {in_url(default) or 'the default'} is used"


@dataclass(frozen=True)
class Choice(Range):
    """One of several; a person reads their `names`, where they have some, and slides along them where they are a `scale`.

    Of an option that is chosen and not the default, a page says what it does: `words` has a sentence for each.
    """

    options: tuple[Any, ...]
    names: tuple[str, ...] = ()
    scale: bool = False
    words: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def expected(self) -> str:
        return f"one of {', '.join(map(in_url, self.options))}"

    def takes(self, value: object) -> bool:
        return value in self.options

    def read(self, text: str) -> Any:
        by_text = {in_url(option): option for option in self.options}
        if text not in by_text:
            raise ValueError(text)
        return by_text[text]

    def nearest(self, value: Any) -> Any:
        return value if value in self.options else self.options[0]


@dataclass(frozen=True)
class Switch(Range):
    """On or off."""

    expected = "true or false"

    def takes(self, value: object) -> bool:
        return isinstance(value, bool)

    def read(self, text: str) -> bool:
        return bool(Choice((True, False)).read(text.lower()))


@dataclass(frozen=True)
class _Between(Range):
    """Numbers from `low` to `high`; None, an empty text, where it is `optional`."""

    low: float
    high: float = math.inf
    optional: bool = field(default=False, kw_only=True)

    @property
    def bounded(self) -> bool:
        """Whether there is a largest number."""
        return self.high < math.inf

    def takes(self, value: object) -> bool:
        if value is None:
            return self.optional
        return isinstance(value, int | float) and not isinstance(value, bool) and self.low <= value <= self.high

    def read(self, text: str) -> Any:
        value = None if self.optional and not text else self._number(text)
        if not self.takes(value):
            raise ValueError(text)
        return value

    def nearest(self, value: Any) -> Any:
        return value if value is None else min(max(value, self.low), self.high)

    def within(self, limits: Mapping[str, int]) -> Range:
        return replace(self, high=min(self.high, limits[self.limit])) if self.limit else self

    def _number(self, text: str) -> float:
        return float(text)


@dataclass(frozen=True)
class Whole(_Between):
    """A whole number; who counts it up or down goes so many at a `step`."""

    step: int = field(default=1, kw_only=True)

    @property
    def expected(self) -> str:
        if self.low == self.high:
            return f"{self.low}, the only one there is"
        return "a whole number " + (
            f"of at least {self.low}" if not self.bounded else f"from {self.low} to {self.high}"
        )

    def takes(self, value: object) -> bool:
        return super().takes(value) and not isinstance(value, float)

    def _number(self, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            number = float(text)
        if not number.is_integer():
            raise ValueError(text)
        return int(number)


@dataclass(frozen=True)
class Real(_Between):
    """A number; `means` says what its ends stand for."""

    means: tuple[str, str] = ("", "")

    @property
    def expected(self) -> str:
        low, high = (f"{end:g}" if end < math.inf else "infinity" for end in (self.low, self.high))
        first, last = (meaning and f" ({meaning})" for meaning in self.means)
        return f"a number from {low}{first} to {high}{last}"


@dataclass(frozen=True)
class Text(Range):
    """A text of up to `longest` characters, None is any number, that a person sees in `lines`."""

    longest: int | None = None
    lines: int = 1

    @property
    def expected(self) -> str:
        return "a text" if self.longest is None else f"up to {self.longest:,} characters"

    def takes(self, value: object) -> bool:
        return isinstance(value, str) and (self.longest is None or len(value) <= self.longest)

    def read(self, text: str) -> str:
        if not self.takes(text):
            raise ValueError(text)
        return text

    def nearest(self, value: Any) -> Any:
        return value[: self.longest]

    def within(self, limits: Mapping[str, int]) -> Range:
        return replace(self, longest=limits[self.limit]) if self.limit else self

    def refused(self, text: str, default: Any) -> tuple[Any, str]:
        """The beginning of the text, and the words for it."""
        return self.nearest(text), f"{self.expected}: the first {self.longest:,} are used"


@dataclass(frozen=True)
class Coded(Text):
    """A text that says something else than itself; where it cannot be read it says nothing, and what is so `instead` is said."""

    instead: ClassVar[str]

    def nearest(self, value: Any) -> Any:
        return value if self.takes(value) else ""

    def refused(self, text: str, default: Any) -> tuple[Any, str]:
        return default, f"{self.expected}: {self.instead}"


@dataclass(frozen=True)
class Places(Coded):
    """Positions, as a text with dots between them: 5.12; empty is none."""

    expected = "positions with dots between them, such as 5.12"
    instead = "the usual one is used"

    def takes(self, value: object) -> bool:
        return super().takes(value) and re.fullmatch(r"(\d{1,5}(\.\d{1,5})*)?", str(value), re.ASCII) is not None

    @staticmethod
    def of(text: str) -> tuple[int, ...]:
        """The positions themselves."""
        return tuple(int(one) for one in text.split(".") if one)


@dataclass(frozen=True)
class Named(Text):
    """A text that names something: one of those that are `there`, or another that a person types."""

    there: tuple[str, ...] = field(default=(), kw_only=True)
