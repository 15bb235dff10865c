"""A knob is a value: its key in links, its default, what it may be, and what a person reads beside it.

Nothing is drawn here. `AttentionConfig` checks with it, a link is read with it, a page makes a widget or a control of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from attention.errors import ConfigError
from attention.formula.ranges import Choice, Range

LONGEST_SHOWN = 40  # characters of what a link asks for, in the sentence that refuses it


@dataclass(frozen=True)
class Knob:
    """One thing a person can turn, declared once.

    Attributes:
        key: its name in links, state files and messages; public, it never changes.
        default: what it is where nobody says it; it never changes either.
        range: what it may be.
        label: what stands beside its widget or control. A held knob without one is turned in the figure itself.
        help: what it does, in a sentence.
        sources: the sources that have it, by their names in links; empty: it is there whatever the source is.
        after: whether it comes after the scores, which then need not be worked out again.
        held: whether it stands in the row above the maps, which follows the hand; otherwise it is a widget of the sidebar.
        offered: what of its range a page offers, where that is less.
        place: where it stands among the others, small numbers first.
        fold: the part of the sidebar that it is folded away in; empty: none.
        when: another knob, and the values of it with which this one makes sense; empty: always.
        usual: the values that are picked from a list, where any other can be typed.
        empty: what an empty field stands for.
        advice: what its refusal ends with.
        name: of the field of `AttentionConfig` that it is; empty: it is none.
    """

    key: str
    default: Any
    range: Range
    label: str = ""
    help: str = ""
    sources: tuple[str, ...] = ()
    after: bool = False
    held: bool = False
    offered: Range | None = None
    place: int = 100
    fold: str = ""
    when: tuple[str, tuple[Any, ...]] = ("", ())
    usual: tuple[int, ...] = ()
    empty: str = ""
    advice: str = ""
    name: str = ""

    def on_pages(self, limits: Mapping[str, int]) -> Range:
        """What it may be on a page whose operator has set `limits`."""
        return (self.offered or self.range).within(limits)

    def check(self, value: object) -> None:
        """Raises ConfigError where it may not be `value`."""
        if not self.range.takes(value):
            one = "one of them" if isinstance(self.range, Choice) else "one"
            advice = f", {self.advice}" if self.advice else ""
            raise ConfigError(f"{self.name} is {self.range.expected}; got {value!r}: choose {one}{advice}.")

    def read(self, text: str, within: Range, default: Any) -> tuple[Any, str]:
        """What a link says that it is; where that may not be, what it is instead, and a sentence that says so."""
        try:
            return within.read(text), ""
        except ValueError:
            used, words = within.refused(text, default)
        shown = text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"
        return used, f"The link asks for {self.key} = “{shown}”, but {self.key} is {words}."


def knob(*declared: Any, **more: Any) -> Any:
    """A field of a config that is a knob: what `Knob` takes after the key, which is the field's name unless one is given."""
    key = more.pop("key", "")
    made = Knob(key, *declared, **more)
    return field(default=made.default, metadata={"knob": made})


def knobs_of(config: type) -> tuple[Knob, ...]:
    """The knobs that are fields of a config, in their order."""
    found = ((one.name, one.metadata["knob"]) for one in fields(config))
    return tuple(replace(made, key=made.key or name, name=name) for name, made in found)
