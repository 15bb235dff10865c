"""What is changed of heads inside their model: a value, its short form in links, its plain words.

What can be changed, `attention.formula.patching` says, kind by kind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from attention.errors import ConfigError
from attention.formula.patching import KINDS, MASKS, SILENCES, TAKES, Change, Checks, Kind, SetCell
from attention.formula.ranges import Coded, Whole

__all__ = [
    "KINDS", "MASKS", "MOST", "SILENCES", "TAKES", "Changes", "Intervention", "Kind", "SetCell", "mark", "read", "write",
]  # fmt: skip

MOST = 100  # changes at once


@dataclass(frozen=True)
class Intervention(Change):
    """One or several changes of one head, one layer or all; what comes after them in the model is made anew.

    A head's output is taken at Z, before W_O; W_O's bias stays. Where heads share keys and values, these are taken for all that
    share them. Its fields are those of `Change`.

    Raises:
        ConfigError: a value is none of these, or nothing is changed.
    """

    def __post_init__(self) -> None:
        checks = [_PLACE, *(kind.checks for kind in KINDS)]
        for name, (fits, expected) in (each for one in checks for each in one.items()):
            if not fits(getattr(self, name)):
                raise ConfigError(
                    f"{name} of an intervention is {expected}; got {str(getattr(self, name))[:40]!r}: choose such a one."
                )
        object.__setattr__(self, "cells", tuple(SetCell(*one) for one in self.cells))
        if not self.kinds:
            raise ConfigError(
                f"An intervention changes something ({', '.join(kind.fields[0] for kind in KINDS)}); got nothing: say what."
            )

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of its changes."""
        return tuple(kind for kind in KINDS if getattr(self, kind.fields[0]) not in ("", None, (), True))

    @property
    def parts(self) -> tuple[Intervention, ...]:
        """Its changes one by one."""
        found: list[dict[str, Any]] = []
        for kind in self.kinds:
            there = {name: getattr(self, name) for name in kind.fields}
            found += [{"cells": (cell,)} for cell in self.cells] if kind.fields == ("cells",) else [there]
        return tuple(Intervention(self.layer, self.head, **one) for one in found)

    @property
    def words(self) -> str:
        """What it changes, in plain words, with the field's term in brackets."""
        where = "Every layer" if self.layer is None else f"Layer {self.layer}"
        heads = "all heads" if self.head is None else f"head {self.head}"
        return f"{where}, {heads}: {'; '.join(one.kinds[0].words(one) for one in self.parts)}."

    @property
    def brief(self) -> str:
        """What it does, in two or three words: silenced, temperature 0.2."""
        return "; ".join(one.kinds[0].words(one).partition(" (")[0] for one in self.parts)

    @property
    def named(self) -> str:
        """What it does, and where: L17 H3 silenced."""
        heads = "" if self.head is None else f" H{self.head}"
        return f"{'All layers' if self.layer is None else f'L{self.layer}'}{heads} {self.brief}"

    @property
    def silences(self) -> tuple[int, int] | None:
        """The one head that it silences whole, as (layer, head)."""
        if not self.silence or self.strength != 1 or self.layer is None or self.head is None:
            return None
        return self.layer, self.head

    @property
    def short(self) -> str:
        """It as it stands in a link, such as 17.3.zero; several changes with ";" between."""
        where = ".".join("*" if one is None else str(one) for one in (self.layer, self.head))
        return ";".join(f"{where}.{one.kinds[0].write(one)}" for one in self.parts)


_INDEX = Whole(0, 10**6)  # of a layer or a head
_PLACE: Checks = dict.fromkeys(
    ("layer", "head"), (replace(_INDEX, optional=True).takes, "a whole number from 0 on, or None for all")
)


def write(those: tuple[Intervention, ...]) -> str:
    """The changes as they stand in a link: 17.3.zero;5.*.t0.2."""
    return ";".join(one.short for one in those)


def read(text: str) -> tuple[Intervention, ...]:
    """The changes that a link says, each by itself.

    Raises:
        ConfigError: it says something else, or more than `MOST`.
    """
    found = tuple(_read(one.strip()) for one in text.split(";") if one.strip())
    if len(found) > MOST:
        raise ConfigError(f"At most {MOST} changes act at once; got {len(found):,}: take some away.")
    return found


def _read(text: str) -> Intervention:
    if where := re.match(r"(\*|\d{1,6})\.(\*|\d{1,6})\.", text):
        layer, head = (None if one == "*" else int(one) for one in where.groups())
        for kind in KINDS:
            if match := re.fullmatch(kind.pattern, text[where.end() :], re.ASCII):
                try:
                    return Intervention(layer, head, **kind.read(match))
                except ValueError:
                    break
    raise ConfigError(
        f"A change is layer.head.what, such as 17.3.zero or 5.*.t0.2; got {text[:40]!r}: say it like that."
    )


def mark(those: tuple[Intervention, ...], layer: int, head: int) -> str:
    """What of these changes a view of one head shows, in a sentence; empty where it is as in the unchanged model."""
    of_layer = [one for one in those if one.layer in (None, layer)]
    if here := [one.brief for one in of_layer if one.head in (None, head)]:
        return f"Changed: L{layer} H{head} {', '.join(dict.fromkeys(here))}."
    if of_layer:
        return f"Changed in this layer: {', '.join(dict.fromkeys(f'H{one.head} {one.brief}' for one in of_layer))}."
    before = sorted({one.layer for one in those if one.layer is not None and one.layer < layer})
    return (
        f"Made anew: L{', L'.join(map(str, before))} before it {'is' if len(before) == 1 else 'are'} changed."
        if before
        else ""
    )


@dataclass(frozen=True)
class Changes(Coded):
    """A text that `read` reads."""

    expected = f"changes such as 17.3.zero;5.*.t0.2, at most {MOST}"
    instead = "nothing is changed"

    def takes(self, value: object) -> bool:
        """Whether it can be read."""
        if not super().takes(value):
            return False
        try:
            return bool(read(str(value))) or not value
        except ConfigError:
            return False
