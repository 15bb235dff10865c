"""Silencing a head: less of its output goes on, or none."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from attention.formula.names import HEAD_OUTPUT, PATCHED_OUTPUT
from attention.formula.patching.kind import NUMBER, Change, Checks, Kind, number
from attention.formula.ranges import Real
from attention.printed import Arithmetic, Printed, product, total

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.by_hand import ByHand
    from attention.formula.formula import Formula
    from attention.formula.steps.step import StepWork
    from attention.formula.work import E_co

SILENCES = ("zero", "mean")
_CHECKS: Checks = {
    "silence": (lambda one: one in ("", *SILENCES), "zero or mean, or empty"),
    "strength": (Real(0, 1).takes, "a number from 0 (nothing changes) to 1"),
}


@dataclass(frozen=True)
class Silence(Kind):
    """Z′ = (1 − strength) Z + strength · its mean, or 0."""

    name: str = "Silence"
    term: str = "zero or mean ablation"
    fields: tuple[str, ...] = ("silence", "strength")
    pattern: str = rf"(zero|mean)({NUMBER})?"
    examples: tuple[str, ...] = ("zero", "mean", "zero0.25", "mean0.5")
    checks: Checks = field(default_factory=lambda: _CHECKS, compare=False)

    def read(self, found: re.Match[str]) -> dict[str, Any]:
        """How, and how much."""
        return {"silence": found[1], "strength": float(found[2] or 1)}

    def write(self, one: Change) -> str:
        """zero, mean0.5."""
        return one.silence + ("" if one.strength == 1 else number(one.strength))

    def words(self, one: Change) -> str:
        """What is left of the output."""
        much = "" if one.strength == 1 else f" by {one.strength * 100:g} %"
        if one.silence == "zero":
            return f"silenced{much} (zero ablation of Z; W_O's bias stays)"
        return f"its output replaced{much} by its mean over positions (mean ablation of Z; W_O's bias stays)"

    def on_output(self, one: Change) -> bool:
        """It is of the output alone."""
        return True

    def turn(self, formula: Formula, one: Change) -> Formula:
        """Of two that silence the later holds."""
        return replace(formula, by_hand=replace(formula.by_hand, silence=one.silence, strength=one.strength))

    def output(self, hand: ByHand, z: Tensor, taken: Tensor | None) -> Tensor:
        """Less of it, or its mean over positions."""
        if not hand.silence:
            return z
        rest = (1 - hand.strength) * z
        return rest + hand.strength * z.mean(dim=-2, keepdim=True) if hand.silence == "mean" else rest

    def explain(self, work: StepWork[E_co]) -> E_co | None:
        """What is left, plus the mean."""
        row, column, hand = work.cell.row, work.cell.column, work.formula.by_hand
        if work.cell.step != PATCHED_OUTPUT or not hand.silence:
            return None
        if hand.takes(HEAD_OUTPUT):
            z = work.layer["patched_head_output"][work.cell.head]
        else:
            z = work.layer.matrix(HEAD_OUTPUT, work.cell.head)
        factors = [(1 - hand.strength, float(z[row, column]))]
        words = "The head is silenced: what is left of its output"
        if hand.silence == "mean":
            factors += [(hand.strength, float(z[:, column].double().mean()))]
            words = "The head's output replaced by its mean over positions: what is left of both"

        def line(digits: int) -> Printed:
            return total([product(*pair, digits) for pair in factors])

        values, came_from = [a * b for a, b in factors], (work.cell_of(HEAD_OUTPUT, row, column),)
        return work.made(Arithmetic("", [line], [line], f"{words}; W_O's bias stays.", values), came_from)

    def output_python(self, hand: ByHand, z: str) -> str:
        """The same."""
        if not hand.silence:
            return z
        rest = f"{1 - hand.strength!r} * {z}"
        return f"{rest} + {hand.strength!r} * {z}.mean(dim=0)" if hand.silence == "mean" else rest
