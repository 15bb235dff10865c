"""Ranges of knobs: each parses a value from the text of a link, and describes the values that it accepts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar


def to_text(value: Any) -> str:
    """A knob's value as the text in a URL or a state file."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Range:
    """The values that a knob accepts. The operator of a server can narrow the range by the `limit` of this name."""

    limit: str = field(default="", kw_only=True)

    @property
    def expected(self) -> str:
        """The accepted values, as words that follow "is"."""
        raise NotImplementedError

    def accepts(self, value: object) -> bool:
        """Whether the range accepts `value`."""
        raise NotImplementedError

    def read(self, text: str) -> Any:
        """The value of a text in a link or a state file.

        Raises:
            ValueError: the text is not an accepted value.
        """
        raise NotImplementedError

    def nearest(self, value: Any) -> Any:
        """The accepted value nearest to `value`; `value` itself if the range has no order."""
        return value

    def narrowed(self, limits: Mapping[str, int]) -> Range:
        """The range narrowed by the operator's `limits`."""
        return self

    def replacement(self, text: str, default: Any) -> tuple[Any, str]:
        """The value to use instead of a refused text, and words: the accepted values and the value used."""
        return default, f"{self.expected}: {to_text(default) or 'the default'} is used"


@dataclass(frozen=True)
class Choice(Range):
    """One of several options.

    Attributes:
        options: the values.
        names: their labels on pages; empty: the values themselves.
        is_slider: whether a page shows a slider of the options.
        words: a description of each option, which pages show for an option that is not the default.
    """

    options: tuple[Any, ...]
    names: tuple[str, ...] = ()
    is_slider: bool = False
    words: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def expected(self) -> str:
        return f"one of {', '.join(map(to_text, self.options))}"

    def accepts(self, value: object) -> bool:
        return value in self.options

    def read(self, text: str) -> Any:
        by_text = {to_text(option): option for option in self.options}
        if text not in by_text:
            raise ValueError(text)
        return by_text[text]

    def nearest(self, value: Any) -> Any:
        return value if value in self.options else self.options[0]


@dataclass(frozen=True)
class AttentionLayers(Choice):
    """The indices of the layers with attention, in a hybrid model, where other layers have none."""

    @property
    def expected(self) -> str:
        return f"{super().expected}, the layers with attention"

    def nearest(self, value: int) -> int:
        return int(min(self.options, key=lambda option: (abs(option - value), option)))


@dataclass(frozen=True)
class Switch(Range):
    """On or off."""

    expected = "true or false"

    def accepts(self, value: object) -> bool:
        return isinstance(value, bool)

    def read(self, text: str) -> bool:
        return bool(Choice((True, False)).read(text.lower()))


@dataclass(frozen=True)
class _Between(Range):
    """Numbers from `low` to `high`; also None (an empty text) if `optional`."""

    low: float
    high: float = math.inf
    optional: bool = field(default=False, kw_only=True)

    @property
    def bounded(self) -> bool:
        """Whether there is an upper bound."""
        return self.high < math.inf

    def accepts(self, value: object) -> bool:
        if value is None:
            return self.optional
        return isinstance(value, int | float) and not isinstance(value, bool) and self.low <= value <= self.high

    def read(self, text: str) -> Any:
        value = None if self.optional and not text else self._number(text)
        if not self.accepts(value):
            raise ValueError(text)
        return value

    def nearest(self, value: Any) -> Any:
        return value if value is None else min(max(value, self.low), self.high)

    def narrowed(self, limits: Mapping[str, int]) -> Range:
        return replace(self, high=min(self.high, limits[self.limit])) if self.limit else self

    def _number(self, text: str) -> float:
        return float(text)


@dataclass(frozen=True)
class Integer(_Between):
    """A whole number; `step` is the increment of the spinner."""

    step: int = field(default=1, kw_only=True)

    @property
    def expected(self) -> str:
        if self.low == self.high:
            return f"{self.low}, the only value"
        return "a whole number " + (
            f"of at least {self.low}" if not self.bounded else f"from {self.low} to {self.high}"
        )

    def accepts(self, value: object) -> bool:
        return super().accepts(value) and not isinstance(value, float)

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
    """A number; `end_meanings` explains the two ends."""

    end_meanings: tuple[str, str] = ("", "")

    @property
    def expected(self) -> str:
        low, high = (f"{end:g}" if end < math.inf else "infinity" for end in (self.low, self.high))
        first, last = (meaning and f" ({meaning})" for meaning in self.end_meanings)
        return f"a number from {low}{first} to {high}{last}"


@dataclass(frozen=True)
class Text(Range):
    """A text of up to `max_length` characters (None: any number), edited in a field of `lines`."""

    max_length: int | None = None
    lines: int = 1

    @property
    def expected(self) -> str:
        return "a text" if self.max_length is None else f"up to {self.max_length:,} characters"

    def accepts(self, value: object) -> bool:
        return isinstance(value, str) and (self.max_length is None or len(value) <= self.max_length)

    def read(self, text: str) -> str:
        if not self.accepts(text):
            raise ValueError(text)
        return text

    def nearest(self, value: Any) -> Any:
        return value[: self.max_length]

    def narrowed(self, limits: Mapping[str, int]) -> Range:
        return replace(self, max_length=limits[self.limit]) if self.limit else self

    def replacement(self, text: str, default: Any) -> tuple[Any, str]:
        """The beginning of the text, and words about the accepted length."""
        return self.nearest(text), f"{self.expected}: the first {self.max_length:,} are used"


@dataclass(frozen=True)
class EncodedText(Text):
    """A text that encodes a value. A text that cannot be decoded is replaced by the default; `replacement_words` describes that."""

    replacement_words: ClassVar[str]

    def nearest(self, value: Any) -> Any:
        return value if self.accepts(value) else ""

    def replacement(self, text: str, default: Any) -> tuple[Any, str]:
        return default, f"{self.expected}: {self.replacement_words}"


@dataclass(frozen=True)
class PositionList(EncodedText):
    """Positions, separated by dots, such as 5.12; an empty text is no position."""

    expected = "positions with dots between them, such as 5.12"
    replacement_words = "the default is used"

    def accepts(self, value: object) -> bool:
        return super().accepts(value) and re.fullmatch(r"(\d{1,5}(\.\d{1,5})*)?", str(value), re.ASCII) is not None

    @staticmethod
    def of(text: str) -> tuple[int, ...]:
        """The positions in a text."""
        return tuple(int(position) for position in text.split(".") if position)


@dataclass(frozen=True)
class NameOrText(Text):
    """A name: one of `options`, or another one that the user types."""

    options: tuple[str, ...] = field(default=(), kw_only=True)
