"""Overriding the temperature of a head, or removing the scaling of its scores."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from attention.formula.patching.kind import NUMBER, Change, Checks, Kind, number
from attention.formula.ranges import Real
from attention.formula.what_if import WhatIf

if TYPE_CHECKING:
    from attention.formula.formula import Formula

_TEMPERATURE: Checks = {
    "temperature": (Real(0, optional=True).takes, "a number from 0 (argmax) to infinity (uniform), or None")
}
_SCALED: Checks = {
    "scaled": (lambda value: value is None or isinstance(value, bool), "False, or None for the model's own"),
}


@dataclass(frozen=True)
class Temperature(Kind):
    """Scores are divided by a temperature in addition to the model's divisor."""

    name: str = "Override the temperature"
    term: str = "softmax temperature"
    fields: tuple[str, ...] = ("temperature",)
    pattern: str = rf"t({NUMBER})"
    examples: tuple[str, ...] = ("t0.5", "t0", "tinf")
    checks: Checks = field(default_factory=lambda: _TEMPERATURE, compare=False)

    def read(self, match: re.Match[str]) -> dict[str, Any]:
        """The temperature."""
        return {"temperature": float(match[1])}

    def write(self, change: Change) -> str:
        """The code, such as t0.2."""
        return f"t{number(change.temperature or 0)}"

    def words(self, change: Change) -> str:
        """The temperature in words."""
        return f"temperature {change.temperature:g}"

    def unfreezes(self, change: Change) -> bool:
        """True: the weights change."""
        return True

    def turn(self, formula: Formula, change: Change) -> Formula:
        """The formula with this temperature, as a what-if override gives it."""
        return replace(formula, **formula.what_if(WhatIf(temperature=change.temperature or 0.0)))


@dataclass(frozen=True)
class NoScaling(Kind):
    """Scores are not divided by the model's divisor."""

    name: str = "Remove the scaling"
    term: str = "without 1/√d_k"
    fields: tuple[str, ...] = ("scaled",)
    pattern: str = "unscaled"
    examples: tuple[str, ...] = ("unscaled",)
    checks: Checks = field(default_factory=lambda: _SCALED, compare=False)

    def read(self, match: re.Match[str]) -> dict[str, Any]:
        """The field, which has one value."""
        return {"scaled": False}

    def write(self, change: Change) -> str:
        """The code."""
        return "unscaled"

    def words(self, change: Change) -> str:
        """The effect in words."""
        return "scores not divided (no scaling)"

    def unfreezes(self, change: Change) -> bool:
        """True: the weights change."""
        return True

    def turn(self, formula: Formula, change: Change) -> Formula:
        """The formula with a divisor of 1, if it scales the scores."""
        return replace(formula, divisor=None if formula.divisor is None else 1.0)
