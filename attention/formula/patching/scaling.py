"""Another temperature for a head, or scores that are not divided."""

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
    "scaled": (lambda one: one is None or isinstance(one, bool), "False, or None for the model's own"),
}


@dataclass(frozen=True)
class Temperature(Kind):
    """Scores are divided by it beside the model's own divisor."""

    name: str = "Another temperature"
    term: str = "softmax temperature"
    fields: tuple[str, ...] = ("temperature",)
    pattern: str = rf"t({NUMBER})"
    examples: tuple[str, ...] = ("t0.5", "t0", "tinf")
    checks: Checks = field(default_factory=lambda: _TEMPERATURE, compare=False)

    def read(self, found: re.Match[str]) -> dict[str, Any]:
        """The number."""
        return {"temperature": float(found[1])}

    def write(self, one: Change) -> str:
        """t0.2."""
        return f"t{number(one.temperature or 0)}"

    def words(self, one: Change) -> str:
        """The number."""
        return f"temperature {one.temperature:g}"

    def unfreezes(self, one: Change) -> bool:
        """It changes the weights."""
        return True

    def turn(self, formula: Formula, one: Change) -> Formula:
        """As a hand turns the temperature of what is looked at."""
        return replace(formula, **formula.what_if(WhatIf(temperature=one.temperature or 0.0)))


@dataclass(frozen=True)
class NoScaling(Kind):
    """Scores are not divided by the model's own divisor."""

    name: str = "No scaling"
    term: str = "without 1/√d_k"
    fields: tuple[str, ...] = ("scaled",)
    pattern: str = "unscaled"
    examples: tuple[str, ...] = ("unscaled",)
    checks: Checks = field(default_factory=lambda: _SCALED, compare=False)

    def read(self, found: re.Match[str]) -> dict[str, Any]:
        """Nothing else."""
        return {"scaled": False}

    def write(self, one: Change) -> str:
        """The word."""
        return "unscaled"

    def words(self, one: Change) -> str:
        """What it does."""
        return "scores not divided (no scaling)"

    def unfreezes(self, one: Change) -> bool:
        """It changes the weights."""
        return True

    def turn(self, formula: Formula, one: Change) -> Formula:
        """A divisor of 1 where there is one."""
        return replace(formula, divisor=None if formula.divisor is None else 1.0)
