"""Interventions on heads inside a model: their values, their codes in links, and their descriptions.

`attention.formula.edit_kinds` declares the kinds of interventions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from attention.base.errors import ConfigError
from attention.base.knobs import EncodedText, Integer
from attention.formula.edit_kinds import KINDS, Checks, InterventionFields, InterventionKind
from attention.formula.formula import SetCell

MAX_INTERVENTIONS = 100  # interventions at once


@dataclass(frozen=True)
class Intervention(InterventionFields):
    """One or more changes of one head, one layer, or all layers; the model recomputes everything after them.

    A head's output is Z, before W_O and its bias. If heads share keys and values, patching these affects all heads that
    share them. The fields are those of `InterventionFields`.

    Raises:
        ConfigError: a value is not allowed, or nothing is changed.
    """

    def __post_init__(self) -> None:
        checks = [_INDEX_CHECKS, *(kind.checks for kind in KINDS)]
        for name, (is_valid, expected) in (item for group in checks for item in group.items()):
            if not is_valid(getattr(self, name)):
                raise ConfigError(
                    f"{name} of an intervention is {expected}; got {str(getattr(self, name))[:40]!r}: choose such a value."
                )
        object.__setattr__(self, "cells", tuple(SetCell(*cell) for cell in self.cells))
        if not self.kinds:
            raise ConfigError(
                f"An intervention changes something ({', '.join(kind.fields[0] for kind in KINDS)}); got nothing: set one of these."
            )

    @property
    def kinds(self) -> tuple[InterventionKind, ...]:
        """The kinds of changes that it makes."""
        return tuple(kind for kind in KINDS if getattr(self, kind.fields[0]) not in ("", None, (), True))

    @property
    def parts(self) -> tuple[Intervention, ...]:
        """One intervention for each of its changes."""
        changes: list[dict[str, Any]] = []
        for kind in self.kinds:
            values = {name: getattr(self, name) for name in kind.fields}
            changes += [{"cells": (cell,)} for cell in self.cells] if kind.fields == ("cells",) else [values]
        return tuple(Intervention(self.layer, self.head, **change) for change in changes)

    @property
    def words(self) -> str:
        """A sentence that describes the changes, with the field's terms in brackets."""
        layers = "Every layer" if self.layer is None else f"Layer {self.layer}"
        heads = "all heads" if self.head is None else f"head {self.head}"
        return f"{layers}, {heads}: {'; '.join(part.kinds[0].words(part) for part in self.parts)}."

    @property
    def summary(self) -> str:
        """A description in two or three words, such as “temperature 0.2”."""
        return "; ".join(part.kinds[0].words(part).partition(" (")[0] for part in self.parts)

    @property
    def label(self) -> str:
        """The layer, the head and the short description, such as “L17 H3 temperature 0.2”."""
        heads = "" if self.head is None else f" H{self.head}"
        return f"{'All layers' if self.layer is None else f'L{self.layer}'}{heads} {self.summary}"

    @property
    def ablated_head(self) -> tuple[int, int] | None:
        """The single head that it fully ablates, as (layer, head); None otherwise."""
        if not self.ablate or self.strength != 1 or self.layer is None or self.head is None:
            return None
        return self.layer, self.head

    @property
    def code(self) -> str:
        """Its code in links, such as 17.3.zero; ";" separates several changes."""
        place = ".".join("*" if index is None else str(index) for index in (self.layer, self.head))
        return ";".join(f"{place}.{part.kinds[0].format(part)}" for part in self.parts)


def as_interventions(value: object) -> tuple[Intervention, ...]:
    """Several interventions as a tuple.

    Raises:
        ConfigError: it is one intervention, or something else.
    """
    items = tuple(value) if isinstance(value, list | tuple) else ()
    if not isinstance(value, list | tuple) or not all(isinstance(item, Intervention) for item in items):
        got = "one Intervention" if isinstance(value, Intervention) else repr(value)[:40]
        raise ConfigError(
            f"interventions are a tuple, also of one; got {got}: write interventions=(Intervention(…),), with the comma."
        )
    return items


_INDEX = Integer(0, 10**6)  # of a layer or a head
_INDEX_CHECKS: Checks = dict.fromkeys(
    ("layer", "head"), (replace(_INDEX, optional=True).accepts, "a whole number from 0 on, or None for all")
)


def format_codes(interventions: tuple[Intervention, ...]) -> str:
    """The code of several interventions in a link, such as 17.3.zero;5.*.t0.2."""
    return ";".join(intervention.code for intervention in interventions)


def parse_codes(text: str) -> tuple[Intervention, ...]:
    """The interventions of a link's code, one per change.

    Raises:
        ConfigError: the code is invalid, or has more than `MAX_INTERVENTIONS` interventions.
    """
    interventions = tuple(_read_code(code.strip()) for code in text.split(";") if code.strip())
    if len(interventions) > MAX_INTERVENTIONS:
        raise ConfigError(f"At most {MAX_INTERVENTIONS} changes act at once; got {len(interventions):,}: remove some.")
    return interventions


def _read_code(text: str) -> Intervention:
    if place := re.match(r"(\*|\d{1,6})\.(\*|\d{1,6})\.", text):
        layer, head = (None if index == "*" else int(index) for index in place.groups())
        for kind in KINDS:
            if match := re.fullmatch(kind.pattern, text[place.end() :], re.ASCII):
                try:
                    return Intervention(layer, head, **kind.parse(match))
                except ValueError:
                    break
    raise ConfigError(
        f"A change is layer.head.what, such as 17.3.zero or 5.*.t0.2; got {text[:40]!r}: write it in this form."
    )


def describe_head(interventions: tuple[Intervention, ...], layer: int, head: int) -> str:
    """A sentence about the interventions that affect the view of one head; empty if the head is as in the unchanged model."""
    in_layer = [intervention for intervention in interventions if intervention.layer in (None, layer)]
    if in_head := [intervention.summary for intervention in in_layer if intervention.head in (None, head)]:
        return f"Changed: L{layer} H{head} {', '.join(dict.fromkeys(in_head))}."
    if in_layer:
        heads = dict.fromkeys(f"H{intervention.head} {intervention.summary}" for intervention in in_layer)
        return f"Changed in this layer: {', '.join(heads)}."
    indices = {intervention.layer for intervention in interventions}
    earlier = sorted(index for index in indices if index is not None and index < layer)
    if not earlier:
        return ""
    return f"Recomputed: L{', L'.join(map(str, earlier))} before it {'is' if len(earlier) == 1 else 'are'} changed."


@dataclass(frozen=True)
class InterventionCodes(EncodedText):
    """A text that `parse_codes` accepts: the code of interventions in a link."""

    expected = f"changes such as 17.3.zero;5.*.t0.2, at most {MAX_INTERVENTIONS}"
    replacement_words = "nothing is changed"

    def accepts(self, value: object) -> bool:
        """Whether `value` is a valid code."""
        if not super().accepts(value):
            return False
        try:
            return bool(parse_codes(str(value))) or not value
        except ConfigError:
            return False
