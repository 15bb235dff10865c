"""How sources read their knobs from the texts of a link, a state or a query; and what links and pages know of a source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from attention.base.errors import ConfigError
from attention.base.knobs import MAX_QUOTED, Choice, EncodedText, Knob, Limits, NameOrText, Range, Text, to_text
from attention.formula.config import WITH_FORMULA, divisors
from attention.sources import Source


@dataclass(frozen=True)
class Field:
    """A knob as it was read, from which a page draws its widget.

    Attributes:
        knob: the knob.
        within: the values that it accepts now.
        value: its value. Of a matrix: the parsed one, or the error of its text.
        fixed: the text to show in a knob that has no effect now; empty: it has one.
    """

    knob: Knob
    within: Range
    value: Any
    fixed: str = ""

    @property
    def default(self) -> Any:
        """The default, or the nearest value that is accepted now."""
        return self.within.nearest(self.knob.default)


@dataclass(frozen=True)
class Uploads:
    """What a tab has and no link: the attention file (a `File`, whose module imports this one), and inputs of media by their field and their name in links."""

    file: Any = None
    given: Mapping[tuple[str, str], Any] = field(default_factory=dict)


@dataclass
class Reader:
    """Reads knobs from texts, by key. An absent text stands for the knob's default.

    A bad value from outside becomes the default, with a note. One that was good until another knob changed becomes the
    nearest value.

    Attributes:
        texts: the texts by key.
        limits: the operator's limits.
        uploads: what the tab has.
        checked: the keys whose texts have been read before.
        wished: numbers of heads that were chosen, and did not divide d_model, by key.
        strict: whether a bad value is an error, since a program that downloads a file would miss a note. Texts that are too long are cut
            nevertheless, as on pages.
        fields: every knob that was read, by key, in the order of reading.
        notes: a sentence about each value that was replaced, by key.
        wishes: the numbers of heads that do not divide d_model now, by key: they return when they do.
    """

    texts: Mapping[str, str]
    limits: Limits
    uploads: Uploads = Uploads()
    checked: Collection[str] = ()
    wished: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False
    fields: dict[str, Field] = field(default_factory=dict, init=False)
    notes: dict[str, str] = field(default_factory=dict, init=False)
    wishes: dict[str, str] = field(default_factory=dict, init=False)

    def knob(self, knob: Knob, within: Range | None = None, fixed: str = "") -> Any:
        """The value of a knob.

        Args:
            within: a range narrower than the declared one.
            fixed: the text to show where the knob has no effect.

        Raises:
            ConfigError: the value is bad, and the reader is strict.
        """
        within = within or knob.on_pages(self.limits)
        value = default = within.nearest(knob.default)
        text = self.texts.get(knob.key)
        if text is not None:
            value, note = knob.read(text, within, default)
            is_cut = isinstance(within, Text) and not isinstance(within, EncodedText | NameOrText)
            if note and self.strict and not is_cut:
                shown = text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…"
                raise ConfigError(f"{knob.key} is {within.expected}; got “{shown}”: change it in the address.")
            if note and knob.key in self.checked:
                value = _nearest(knob, text, within)
            elif note:
                self.notes[knob.key] = note
        self.fields[knob.key] = Field(knob, within, value, fixed)
        return value

    def divisor(self, knob: Knob, within: Divisors, fixed: str) -> int | None:
        """A number of heads; the next smaller divisor for one that does not divide, unless it comes from outside."""
        text = self.texts.get(knob.key)
        if text is not None and knob.key not in self.checked:
            return self.knob(knob, within, fixed)  # type: ignore[no-any-return]  # a number, or None for the total
        text = self.wished.get(knob.key, text)
        wish = knob.default if text is None else int(text) if text else None
        nearest = within.nearest(wish)
        if wish is not None and nearest != wish and not fixed:
            self.notes[knob.key] = within.adjusted_note(wish)
            if text is not None:
                self.wishes[knob.key] = str(wish)
        self.fields[knob.key] = Field(knob, within, nearest, fixed)
        return nearest


def _nearest(knob: Knob, text: str, within: Range) -> Any:
    """The value nearest to one that was accepted before; the default where values have no order."""
    try:
        value = None if isinstance(within, Choice) else knob.range.read(text)
    except ValueError:
        value = None
    return within.nearest(knob.default if value is None else value)


@dataclass(frozen=True)
class SourceKind:
    """What links and pages know about a source.

    Attributes:
        name: its name in links; public, it never changes.
        read: a function that reads the values of its knobs and returns the source. The knobs are read in the order of their widgets. It
            raises AttentionError if the knobs contradict each other, or if a value that is not in the link is missing.
        noun: what texts call its model or layer, such as "trained model"; empty: the name.
        knobs: of a source that a feature brings, the knobs that no other source has.
        shared: of such a source, the keys of the trunk's knobs that it has, besides those of every source.
        has_formula: whether it has a formula of its own, which users override.
        text: the key of the knob that holds its sentence, if it reads one.
        model: a function from the texts of a state to those of the source "model" that reads another sentence in the same head.
        why: of a source with an `opening`, a function from the texts of a state to a sentence about the pair on which it opens.
        opening: of such a source, a function from the texts of a state to those of the cell on which the source opens when a user chooses it.
    """

    name: str
    read: Callable[[Reader], Source]
    noun: str = ""
    knobs: tuple[Knob, ...] = ()
    shared: tuple[str, ...] = ()
    has_formula: bool = False
    text: str = ""
    model: Callable[[Mapping[str, str]], Mapping[str, str]] | None = None
    why: Callable[[Mapping[str, str]], str] | None = None
    opening: Callable[[Mapping[str, str]], Mapping[str, str]] | None = None

    def has(self, knob: Knob) -> bool:
        """Whether the source has this knob."""
        by_formula = self.has_formula and WITH_FORMULA in knob.sources
        return not knob.sources or by_formula or self.name in knob.sources or knob.key in self.shared

    @property
    def label(self) -> str:
        """What texts call it."""
        return self.noun or self.name


@dataclass(frozen=True)
class Divisors(Choice):
    """The numbers of heads that divide a total.

    Attributes:
        total: the number to divide; `total_label` describes it, such as "d_model 64".
        largest: the operator's limit.
        kind: what is counted.
        optional: whether None is allowed, which means the total.
    """

    total: int = 1
    largest: int = 1
    kind: str = "heads"
    total_label: str = ""
    optional: bool = False

    @classmethod
    def heads(cls, d_model: int, largest: int) -> Divisors:
        """The numbers of heads that d_model can be split into."""
        allowed = tuple(n for n in divisors(d_model) if n <= largest)
        return cls(allowed, total=d_model, largest=largest, total_label=f"d_model {d_model}")

    @classmethod
    def shared(cls, n_heads: int) -> Divisors:
        """The numbers of key heads that the query heads can share in equal groups."""
        queries = "1 head of queries" if n_heads == 1 else f"{n_heads} heads of queries"
        return cls(
            divisors(n_heads), total=n_heads, largest=n_heads, kind="heads of keys", total_label=queries, optional=True
        )

    def accepts(self, value: object) -> bool:
        """Whether the value divides the total."""
        return super().accepts(value) or (self.optional and value is None)

    def read(self, text: str) -> Any:
        """The number in a link."""
        return None if self.optional and not text else super().read(text)

    def nearest(self, value: int | None) -> int | None:
        """The number itself if it divides the total, otherwise the next smaller divisor."""
        return None if value is None else max(int(n) for n in self.options if n <= value)

    def replacement(self, text: str, default: Any) -> tuple[Any, str]:
        """The default, and the allowed values."""
        too_many = text in map(str, divisors(self.total))
        expected = (
            f"at most {self.largest}, {self.expected}"
            if too_many
            else f"{self.expected}, which divide {self.total_label}"
        )
        return default, f"{expected}: {to_text(default) or 'the default'} is used"

    def adjusted_note(self, requested: int) -> str:
        """The note on a number that was replaced since it does not divide the total."""
        adjusted = self.nearest(requested)
        result = (
            f"1 {self.kind.replace('heads', 'head')} is used" if adjusted == 1 else f"{adjusted} {self.kind} are used"
        )
        return f"{requested} {self.kind} do not divide {self.total_label}: {result}. Choose {', '.join(map(str, self.options))}."
