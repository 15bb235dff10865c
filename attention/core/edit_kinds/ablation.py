"""Ablation: silencing a head by removing part or all of its output."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from attention.core.edit_kinds.edit import NUMBER_PATTERN, Checks, InterventionFields, InterventionKind, format_number
from attention.core.names import HEAD_OUTPUT, PATCHED_OUTPUT
from attention.params.ranges import Real
from attention.printed import Arithmetic, Printed, product, sum_of

if TYPE_CHECKING:
    from torch import Tensor

    from attention.core.explainer import E_co
    from attention.core.formula import Formula
    from attention.core.head_edits import HeadEdits
    from attention.core.step import StepContext

ABLATIONS = ("zero", "mean")
_CHECKS: Checks = {
    "ablate": (lambda value: value in ("", *ABLATIONS), "zero or mean, or empty"),
    "strength": (Real(0, 1).accepts, "a number from 0 (nothing changes) to 1"),
}


@dataclass(frozen=True)
class Ablation(InterventionKind):
    """Ablation of the head output: Z′ = (1 − strength) Z + strength · its mean, or 0."""

    name: str = "Ablate (silence)"
    term: str = "zero or mean ablation"
    fields: tuple[str, ...] = ("ablate", "strength")
    pattern: str = rf"(zero|mean)({NUMBER_PATTERN})?"
    examples: tuple[str, ...] = ("zero", "mean", "zero0.25", "mean0.5")
    checks: Checks = field(default_factory=lambda: _CHECKS, compare=False)

    def parse(self, match: re.Match[str]) -> dict[str, Any]:
        """The kind of ablation and its strength."""
        return {"ablate": match[1], "strength": float(match[2] or 1)}

    def format(self, change: InterventionFields) -> str:
        """The code, such as zero or mean0.5."""
        return change.ablate + ("" if change.strength == 1 else format_number(change.strength))

    def words(self, change: InterventionFields) -> str:
        """The effect on the output in words."""
        much = "" if change.strength == 1 else f" by {change.strength * 100:g} %"
        if change.ablate == "zero":
            return f"silenced{much} (zero ablation of Z; W_O's bias stays)"
        return f"output replaced{much} by its mean over positions (mean ablation of Z; W_O's bias stays)"

    def only_output(self, change: InterventionFields) -> bool:
        """True: only the output changes."""
        return True

    def edit_formula(self, formula: Formula, change: InterventionFields) -> Formula:
        """The formula with this ablation, which replaces an earlier one."""
        return replace(
            formula, head_edits=replace(formula.head_edits, ablation=change.ablate, strength=change.strength)
        )

    def output(self, edits: HeadEdits, z: Tensor, other: Tensor | None) -> Tensor:
        """The output scaled down, plus its mean over positions for mean ablation."""
        if not edits.ablation:
            return z
        remaining = (1 - edits.strength) * z
        mean = z.mean(dim=-2, keepdim=True)
        return remaining + edits.strength * mean if edits.ablation == "mean" else remaining

    def explain(self, work: StepContext[E_co]) -> E_co | None:
        """The remaining output, plus the mean for mean ablation."""
        row, column, edits = work.cell.row, work.cell.column, work.formula.head_edits
        if work.cell.step != PATCHED_OUTPUT or not edits.ablation:
            return None
        if edits.is_patched(HEAD_OUTPUT):
            z = work.layer["patched_head_output"][work.cell.head]
        else:
            z = work.layer.matrix(HEAD_OUTPUT, work.cell.head)
        factors = [(1 - edits.strength, float(z[row, column]))]
        words = "The head is ablated: the remaining part of its output"
        if edits.ablation == "mean":
            factors += [(edits.strength, float(z[:, column].double().mean()))]
            words = "The head's output is replaced by its mean over positions: the remaining output plus the mean"

        def line(digits: int) -> Printed:
            return sum_of([product(*pair, digits) for pair in factors])

        values, came_from = [a * b for a, b in factors], (work.cell_of(HEAD_OUTPUT, row, column),)
        return work.from_arithmetic(Arithmetic("", [line], [line], f"{words}; W_O's bias stays.", values), came_from)

    def output_python(self, edits: HeadEdits, z: str) -> str:
        """An expression of the ablated output."""
        if not edits.ablation:
            return z
        remaining = f"{1 - edits.strength!r} * {z}"
        return f"{remaining} + {edits.strength!r} * {z}.mean(dim=0)" if edits.ablation == "mean" else remaining
