"""Ablation: silencing a head by removing part or all of its output."""

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
    "silence": (lambda value: value in ("", *SILENCES), "zero or mean, or empty"),
    "strength": (Real(0, 1).takes, "a number from 0 (nothing changes) to 1"),
}


@dataclass(frozen=True)
class Silence(Kind):
    """Ablation of the head output: Z′ = (1 − strength) Z + strength · its mean, or 0."""

    name: str = "Ablate (silence)"
    term: str = "zero or mean ablation"
    fields: tuple[str, ...] = ("silence", "strength")
    pattern: str = rf"(zero|mean)({NUMBER})?"
    examples: tuple[str, ...] = ("zero", "mean", "zero0.25", "mean0.5")
    checks: Checks = field(default_factory=lambda: _CHECKS, compare=False)

    def read(self, match: re.Match[str]) -> dict[str, Any]:
        """The kind of ablation and its strength."""
        return {"silence": match[1], "strength": float(match[2] or 1)}

    def write(self, change: Change) -> str:
        """The code, such as zero or mean0.5."""
        return change.silence + ("" if change.strength == 1 else number(change.strength))

    def words(self, change: Change) -> str:
        """The effect on the output in words."""
        much = "" if change.strength == 1 else f" by {change.strength * 100:g} %"
        if change.silence == "zero":
            return f"silenced{much} (zero ablation of Z; W_O's bias stays)"
        return f"output replaced{much} by its mean over positions (mean ablation of Z; W_O's bias stays)"

    def on_output(self, change: Change) -> bool:
        """True: only the output changes."""
        return True

    def turn(self, formula: Formula, change: Change) -> Formula:
        """The formula with this ablation, which replaces an earlier one."""
        return replace(formula, by_hand=replace(formula.by_hand, silence=change.silence, strength=change.strength))

    def output(self, edits: ByHand, z: Tensor, other: Tensor | None) -> Tensor:
        """The output scaled down, plus its mean over positions for mean ablation."""
        if not edits.silence:
            return z
        remaining = (1 - edits.strength) * z
        mean = z.mean(dim=-2, keepdim=True)
        return remaining + edits.strength * mean if edits.silence == "mean" else remaining

    def explain(self, work: StepWork[E_co]) -> E_co | None:
        """The remaining output, plus the mean for mean ablation."""
        row, column, edits = work.cell.row, work.cell.column, work.formula.by_hand
        if work.cell.step != PATCHED_OUTPUT or not edits.silence:
            return None
        if edits.takes(HEAD_OUTPUT):
            z = work.layer["patched_head_output"][work.cell.head]
        else:
            z = work.layer.matrix(HEAD_OUTPUT, work.cell.head)
        factors = [(1 - edits.strength, float(z[row, column]))]
        words = "The head is ablated: the remaining part of its output"
        if edits.silence == "mean":
            factors += [(edits.strength, float(z[:, column].double().mean()))]
            words = "The head's output is replaced by its mean over positions: the remaining output plus the mean"

        def line(digits: int) -> Printed:
            return total([product(*pair, digits) for pair in factors])

        values, came_from = [a * b for a, b in factors], (work.cell_of(HEAD_OUTPUT, row, column),)
        return work.made(Arithmetic("", [line], [line], f"{words}; W_O's bias stays.", values), came_from)

    def output_python(self, edits: ByHand, z: str) -> str:
        """An expression of the ablated output."""
        if not edits.silence:
            return z
        remaining = f"{1 - edits.strength!r} * {z}"
        return f"{remaining} + {edits.strength!r} * {z}.mean(dim=0)" if edits.silence == "mean" else remaining
