"""Overriding the temperature of a head, or removing the scaling of its scores."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from attention.core.edit_kinds.edit import NUMBER_PATTERN, Checks, InterventionFields, InterventionKind, format_number
from attention.core.override import Override
from attention.params.ranges import Real

if TYPE_CHECKING:
    from attention.core.formula import Formula

_TEMPERATURE: Checks = {
    "temperature": (Real(0, optional=True).accepts, "a number from 0 (argmax) to infinity (uniform), or None")
}
_SCALED: Checks = {
    "scaled": (lambda value: value is None or isinstance(value, bool), "False, or None for the model's own"),
}


@dataclass(frozen=True)
class TemperatureOverride(InterventionKind):
    """Scores are divided by a temperature in addition to the model's divisor."""

    name: str = "Override the temperature"
    term: str = "softmax temperature"
    fields: tuple[str, ...] = ("temperature",)
    pattern: str = rf"t({NUMBER_PATTERN})"
    examples: tuple[str, ...] = ("t0.5", "t0", "tinf")
    checks: Checks = field(default_factory=lambda: _TEMPERATURE, compare=False)

    def parse(self, match: re.Match[str]) -> dict[str, Any]:
        """The temperature."""
        return {"temperature": float(match[1])}

    def format(self, change: InterventionFields) -> str:
        """The code, such as t0.2."""
        return f"t{format_number(change.temperature or 0)}"

    def words(self, change: InterventionFields) -> str:
        """The temperature in words."""
        return f"temperature {change.temperature:g}"

    def changes_weights(self, change: InterventionFields) -> bool:
        """True: the weights change."""
        return True

    def edit_formula(self, formula: Formula, change: InterventionFields) -> Formula:
        """The formula with this temperature, as a what-if override gives it."""
        return replace(formula, **formula.overridden_fields(Override(temperature=change.temperature or 0.0)))


@dataclass(frozen=True)
class NoScaling(InterventionKind):
    """Scores are not divided by the model's divisor."""

    name: str = "Remove the scaling"
    term: str = "without 1/√d_k"
    fields: tuple[str, ...] = ("scaled",)
    pattern: str = "unscaled"
    examples: tuple[str, ...] = ("unscaled",)
    checks: Checks = field(default_factory=lambda: _SCALED, compare=False)

    def parse(self, match: re.Match[str]) -> dict[str, Any]:
        """The field, which has one value."""
        return {"scaled": False}

    def format(self, change: InterventionFields) -> str:
        """The code."""
        return "unscaled"

    def words(self, change: InterventionFields) -> str:
        """The effect in words."""
        return "scores not divided (no scaling)"

    def changes_weights(self, change: InterventionFields) -> bool:
        """True: the weights change."""
        return True

    def edit_formula(self, formula: Formula, change: InterventionFields) -> Formula:
        """The formula with a divisor of 1, if it scales the scores."""
        return replace(formula, divisor=None if formula.divisor is None else 1.0)
