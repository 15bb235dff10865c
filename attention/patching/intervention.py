"""Interventions inside a model, on heads, MLPs and the residual stream: their values, their codes in links, and their descriptions.

`attention.formula.edit_kinds` declares the kinds of interventions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from attention.base.errors import ConfigError
from attention.base.knobs import EncodedText, Integer
from attention.formula.edit_kinds import KINDS, SITES, Checks, InterventionFields, InterventionKind
from attention.formula.formula import SetCell
from attention.formula.names import HEAD_OUTPUT

MAX_INTERVENTIONS = 100  # interventions at once


@dataclass(frozen=True)
class Intervention(InterventionFields):
    """One or more changes of one head, one layer, or all layers; the model recomputes everything after them.

    A head's output is Z, before W_O and its bias. `Intervention(3, site="mlp_output", ablate="zero")` changes an MLP instead, and
    `Intervention(3, patch="resid_post", positions=(5,))` the residual stream after layer 3 at one position. If heads share keys and values, patching these affects all heads that
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
        object.__setattr__(self, "positions", tuple(sorted({*self.positions})))
        if self.patch in SITES and not self.site:
            object.__setattr__(self, "site", self.patch)
        if not self.kinds:
            raise ConfigError(
                f"An intervention changes something ({', '.join(kind.fields[0] for kind in KINDS)}); got nothing: set one of these."
            )

        changes = [kind.fields[0] for kind in self.kinds]
        of_output = {*changes} <= {"ablate", "patch"}
        if self.site and (self.head is not None or not of_output or self.patch not in ("", self.site)):
            raise ConfigError(
                f"The {_SITE_WORDS[self.site]} belongs to no head, and is ablated, or patched with patch={self.site!r}; "
                f"got head {self.head} and {', '.join(changes)} {self.patch}".rstrip()
                + ": leave out what is not of it."
            )
        if self.positions and not (of_output and self.patch in ("", HEAD_OUTPUT, *SITES)):
            raise ConfigError(
                f"positions are those of a head's output, an MLP or the residual stream that is ablated or patched; got {', '.join(changes)} "
                f"{self.patch}".rstrip()
                + ": leave positions out, or set single cells."
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
            values |= {"site": self.site, "positions": self.positions} if self.site or self.positions else {}
            changes += [{"cells": (cell,)} for cell in self.cells] if kind.fields == ("cells",) else [values]
        return tuple(Intervention(self.layer, self.head, **change) for change in changes)

    @property
    def words(self) -> str:
        """A sentence that describes the changes, with the field's terms in brackets."""
        layers = "Every layer" if self.layer is None else f"Layer {self.layer}"
        heads = _SITE_WORDS.get(self.site) or ("all heads" if self.head is None else f"head {self.head}")
        if self.positions:
            heads += f", position{'s' * (len(self.positions) > 1)} {', '.join(map(str, self.positions))}"
        return f"{layers}, {heads}: {'; '.join(part.kinds[0].words(part) for part in self.parts)}."

    @property
    def summary(self) -> str:
        """A description in two or three words, such as “temperature 0.2”."""
        return "; ".join(part.kinds[0].words(part).partition(" (")[0] for part in self.parts)

    @property
    def label(self) -> str:
        """The layer, the head and the short description, such as “L17 H3 temperature 0.2”."""
        heads = "" if self.head is None else f" H{self.head}"
        heads = f" {_SITE_NAMES[self.site]}" if self.site else heads
        heads += f" at {', '.join(map(str, self.positions))}:" if self.positions else ""
        return f"{'All layers' if self.layer is None else f'L{self.layer}'}{heads} {self.summary}"

    @property
    def ablated_head(self) -> tuple[int, int] | None:
        """The single head that it fully ablates, as (layer, head); None otherwise."""
        if not self.ablate or self.strength != 1 or self.layer is None or self.head is None or self.positions:
            return None
        return self.layer, self.head

    @property
    def code(self) -> str:
        """Its code in links, such as 17.3.zero, 17.mlp.mean or 17.resid@5,6.take; ";" separates several changes."""
        place = ".".join(
            "*" if index is None else str(index) for index in (self.layer, SITES.get(self.site, self.head))
        )
        place += f"@{','.join(map(str, self.positions))}" if self.positions else ""
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


_SITE_WORDS = {"mlp_output": "output of the MLP", "resid_post": "residual stream after the layer"}
_SITE_NAMES = {"mlp_output": "MLP", "resid_post": "residual stream"}
_INDEX = Integer(0, 10**6)  # of a layer, a head or a position


def _are_positions(value: object) -> bool:
    return isinstance(value, list | tuple | range) and all(map(_INDEX.accepts, value))


_INDEX_CHECKS: Checks = {
    **dict.fromkeys(
        ("layer", "head"), (replace(_INDEX, optional=True).accepts, "a whole number from 0 on, or None for all")
    ),
    "site": (lambda value: value in ("", *SITES), f"one of {', '.join(SITES)}, or empty for heads"),
    "positions": (_are_positions, "a tuple of whole numbers from 0 on, or empty for all"),
}


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
    if place := re.match(r"(\*|\d{1,6})\.(\*|\d{1,6}|mlp|resid)(?:@(\d{1,6}(?:,\d{1,6})*))?\.", text, re.ASCII):
        site = next((site for site, name in SITES.items() if name == place[2]), "")
        layer, head = (None if index == "*" or index in SITES.values() else int(index) for index in place.groups()[:2])
        positions = tuple(map(int, place[3].split(","))) if place[3] else ()
        for kind in KINDS:
            if match := re.fullmatch(kind.pattern, text[place.end() :], re.ASCII):
                try:
                    fields = kind.parse(match)
                    if fields.get("patch") == "":
                        fields["patch"] = site
                    return Intervention(layer, head, site=site, positions=positions, **fields)
                except ValueError:
                    break
    raise ConfigError(
        f"A change is layer.head.what, such as 17.3.zero or 5.*.t0.2; got {text[:40]!r}: write it in this form."
    )


def describe_head(interventions: tuple[Intervention, ...], layer: int, head: int) -> str:
    """A sentence about the interventions that affect the view of one head; empty if the head is as in the unchanged model."""
    # An MLP and the residual stream come after the heads of their layer.
    in_layer = [each for each in interventions if each.layer in (None, layer) and not each.site]
    if in_head := [intervention.summary for intervention in in_layer if intervention.head in (None, head)]:
        return f"Changed: L{layer} H{head} {', '.join(dict.fromkeys(in_head))}."
    if in_layer:
        heads = dict.fromkeys(f"H{intervention.head} {intervention.summary}" for intervention in in_layer)
        return f"Changed in this layer: {', '.join(heads)}."
    indices = {intervention.layer for intervention in interventions}
    earlier = sorted(index for index in indices if index is not None and index < layer)
    if None in indices and layer:
        return "Recomputed: every layer before it is changed."
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
