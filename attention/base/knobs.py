"""Declarations of knobs: key in links, default, range, label and help.

`AttentionConfig` validates its fields with them, the reader of links parses with them, and pages draw widgets or
controls from them. A range describes the values that it accepts, and parses one from the text of a link; an
operator's limits narrow it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar

from attention.base.errors import ConfigError


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
class ChoiceAmong(Choice):
    """One of the options that the function `find` gives at their first use, since features bring some, and none is asked during imports."""

    find: Callable[[], tuple[Any, ...]]
    options: tuple[Any, ...] = field(init=False)
    names: tuple[str, ...] = field(init=False, default=())
    is_slider: bool = field(init=False, default=False)

    def __getattr__(self, name: str) -> Any:
        if name != "options":
            raise AttributeError(name)
        object.__setattr__(self, name, self.find())
        return self.options


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
    """A text of up to `max_length` characters (None: any number), edited in a field of `lines` lines."""

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


MAX_QUOTED = 40  # characters of a link's value that an error quotes


@dataclass(frozen=True)
class Knob:
    """The declaration of one parameter that users can change.

    Attributes:
        key: its name in links, state files and messages; public, it never changes.
        default: its default value, which never changes either.
        range: the accepted values.
        label: the label of its widget or control. An inline knob without a label is changed in the figure itself.
        help: a sentence that explains it.
        sources: the sources that have it, by their names in links, or `attention.formula.config.WITH_FORMULA`; empty: all sources. Those of a feature
            name it themselves (`SourceKind.shared`).
        after_scores: whether it only affects steps after the scores, so that the scores need not be recomputed.
        inline: whether it is in the row above the maps, where maps update while the user drags. Otherwise it is a
            widget of the sidebar.
        page_range: the range that pages offer, if it is narrower.
        order: its position among the knobs, in ascending order.
        section: the expander of the sidebar that contains it; empty: none.
        applies_with: another knob and the values of that knob for which this one applies; empty: it always applies.
        suggestions: suggested values in a list, if the user may type any other value.
        placeholder: the placeholder of an empty field.
        advice: the last words of the error about a refused value.
        name: the field of `AttentionConfig` that it declares; empty: none.
    """

    key: str
    default: Any
    range: Range
    label: str = ""
    help: str = ""
    sources: tuple[str, ...] = ()
    after_scores: bool = False
    inline: bool = False
    page_range: Range | None = None
    order: int = 100
    section: str = ""
    applies_with: tuple[str, tuple[Any, ...]] = ("", ())
    suggestions: tuple[int, ...] = ()
    placeholder: str = ""
    advice: str = ""
    name: str = ""

    def on_pages(self, limits: Limits) -> Range:
        """The accepted values on a page, with the operator's `limits`."""
        return (self.page_range or self.range).narrowed(asdict(limits))

    def check(self, value: object) -> None:
        """Raises ConfigError if the knob does not accept `value`."""
        if not self.range.accepts(value):
            choice = "one of them" if isinstance(self.range, Choice) else "one"
            advice = f", {self.advice}" if self.advice else ""
            raise ConfigError(f"{self.name} is {self.range.expected}; got {value!r}: choose {choice}{advice}.")

    def read(self, text: str, within: Range, default: Any) -> tuple[Any, str]:
        """The value of a link's text, and ""; for a refused text, the value used instead, and a sentence about it."""
        try:
            return within.read(text), ""
        except ValueError:
            used, words = within.replacement(text, default)
        quoted = text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…"
        return used, f"The link asks for {self.key} = “{quoted}”, but {self.key} is {words}."


def knob(*declared: Any, **more: Any) -> Any:
    """A dataclass field that declares a knob: the arguments of `Knob` after the key, which defaults to the field's name."""
    key = more.pop("key", "")
    declaration = Knob(key, *declared, **more)
    return field(default=declaration.default, metadata={"knob": declaration})


def knobs_of(config: type) -> tuple[Knob, ...]:
    """The knobs that the fields of a config declare, in their order."""
    declarations = ((field.name, field.metadata["knob"]) for field in fields(config))
    return tuple(replace(knob, key=knob.key or name, name=name) for name, knob in declarations)


@dataclass(frozen=True)
class Limits:
    """The limits that an operator sets.

    Attributes:
        tokens: tokens of a text; a longer text is cut, and the trace notes it.
        characters: characters of a text.
        d_model: width of the input, and of d_k and d_v.
        heads: heads of a layer.
        trace_mb: memory of all steps of a trace; a larger trace is refused before it is computed.
        picture_mb: files of all pictures of an input together.
        picture_pixels: pixels of all pictures of an input together, such as 4080 × 3060.
    """

    tokens: int
    characters: int
    d_model: int
    heads: int
    trace_mb: int
    picture_mb: int = 8
    picture_pixels: int = 12_500_000

    @property
    def trace_bytes(self) -> int:
        """`trace_mb` in bytes."""
        return self.trace_mb * 2**20
