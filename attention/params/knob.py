"""Declarations of knobs: key in links, default, range, label and help.

`AttentionConfig` validates its fields with them, the reader of links parses with them, and pages draw widgets or controls from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from attention.errors import ConfigError
from attention.params.ranges import Choice, Range

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
        sources: the sources that have it, by their names in links; empty: all sources.
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

    def on_pages(self, limits: Mapping[str, int]) -> Range:
        """The accepted values on a page, with the operator's `limits`."""
        return (self.page_range or self.range).narrowed(limits)

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
