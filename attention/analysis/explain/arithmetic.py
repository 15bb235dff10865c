"""The parts of an explanation: its cell, its terms, and its printed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from attention.core.cell import Cell
from attention.core.steps import Step
from attention.printed import format_number

if TYPE_CHECKING:
    from torch import Tensor

TOLERANCE = 1e-4
"""The tolerance of arithmetic in double precision against the tensor's number, relative to the summands."""
_SAME = 1e-6  # the relative tolerance of equality in single precision
_OVERFLOW = 65504.0  # the largest number in half precision; beyond that a dtype may give infinity


@dataclass(frozen=True)
class Term:
    """One summand, numerator or denominator: its LaTeX and its value."""

    tex: str
    value: float


@dataclass(frozen=True, repr=False)
class Explanation:
    """The derivation of one number of a trace.

    Attributes:
        step: the step it belongs to.
        cell: its address.
        value: the tensor's own number, −∞ for a hidden masked score.
        operation: how the terms combine: their "sum", or the "quotient" of the first by the second.
        terms: the `MAX_TERMS` largest summands and one term for the rest; or numerator and denominator. A number
            without arithmetic is its own only term, and 0 has none.
        parts: for a quotient, the summands of the denominator if it is a sum.
        lines: the arithmetic as LaTeX, line by line. Evaluating a line of numbers as printed gives `value` as it is
            shown; where no number of digits achieves that, "≈" precedes and follows the line.
        words: the derivation in one sentence.
        came_from: the cells of the previous step that contribute most.
        short: the right-hand side of the arithmetic as one plain line: ``e^(−1.19 − 0.76) / 2.61``; a number and a
            reason if there is no arithmetic: ``0: hidden by the mask``; empty for a number that is only looked up.
        sign: "=" if evaluating `short` as printed gives `displayed_value`, otherwise "≈".
        tolerance: the tolerance of `result` against `value`, relative to the terms: the rounding of the tensor's dtype.

    Raises:
        ValueError: the terms do not give the value.
    """

    step: Step
    cell: Cell
    value: float
    operation: Literal["sum", "quotient"]
    terms: tuple[Term, ...]
    lines: tuple[str, ...]
    words: str
    parts: tuple[Term, ...] = ()
    came_from: tuple[Cell, ...] = ()
    short: str = ""
    sign: Literal["=", "≈"] = "="
    tolerance: float = field(default=TOLERANCE, repr=False)

    def __post_init__(self) -> None:
        if not matches_value([term.value for term in self.terms], self.operation, self.value, self.tolerance):
            raise ValueError(
                f"the terms of an explanation make its value, {self.value}; got {self.result}: state it as recorded, without terms."
            )

    def __repr__(self) -> str:
        cell = self.cell
        how = f" {self.sign} {self.short}" if self.short else ""
        return f"Explanation({cell.step} L{cell.layer} H{cell.head} [{cell.row}, {cell.column}] = {self.displayed_value}{how}; {self.words})"

    def _repr_markdown_(self) -> str:
        """The explanation as notebooks draw it, without scripts: the number, the sentence, and the arithmetic."""
        cell = self.cell
        lines = [
            f"**`{cell.step}`** L{cell.layer} H{cell.head} [{cell.row}, {cell.column}] = **{self.displayed_value}**",
            self.words,
        ]
        if self.lines:
            lines.append(r"$$\begin{aligned}" + r" \\ ".join(self.lines) + r"\end{aligned}$$")
        return "\n\n".join(lines)

    @property
    def displayed_value(self) -> str:
        """The value as a heading says it, with 4 significant digits: "0.055", "−1.2", "1.235e−7", "−∞"; −0 is "0"."""
        return format_number(self.value)

    @property
    def result(self) -> float:
        """The sum or the quotient of the terms, worked out again in double precision; a sum of nothing is 0.

        It equals `value` up to the rounding of the tensor's dtype; the constructor rejects any other explanation.
        """
        return _result([term.value for term in self.terms], self.operation)


def matches_value(
    values: Sequence[float], operation: Literal["sum", "quotient"], value: float, near: float = TOLERANCE
) -> bool:
    """Whether the sum or quotient of `values` equals the tensor's `value` within the relative tolerance `near`.

    A number outside the range of the tensor's dtype is infinite there.
    """
    computed = _result(values, operation)
    if math.isnan(computed) or math.isnan(value):
        return math.isnan(computed) and math.isnan(value)
    if math.isinf(value):
        return computed == value or (
            math.isfinite(computed) and abs(computed) >= _OVERFLOW and (computed > 0) == (value > 0)
        )
    if math.isinf(computed):
        return False
    size = abs(computed) if operation == "quotient" else _sum([abs(summand) for summand in values])
    return abs(computed - value) <= near * (size + abs(value)) + 1e-35


def _result(values: Sequence[float], operation: Literal["sum", "quotient"]) -> float:
    if operation == "sum":
        return _sum(values)
    return values[0] / values[1] if values[1] else math.nan


def _sum(values: Sequence[float]) -> float:
    """The exactly rounded sum; ordinary float addition if fsum overflows."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # too large, or −∞ + ∞
        return sum(values)


def nearly_equal(number: float, other: float) -> bool:
    """Whether two numbers are equal in single precision."""
    return number == other or math.isclose(number, other, rel_tol=_SAME) or (math.isnan(number) and math.isnan(other))


def single_term(value: float, tex: str) -> tuple[Term, ...]:
    """A number as its own only term; no term for 0."""
    return (Term(tex, value),) if value else ()


def tolerance_of(tensor: Tensor) -> float:
    """The tolerance of the arithmetic against a number of this tensor, relative to the summands."""
    import torch

    return max(TOLERANCE, 16 * torch.finfo(tensor.dtype).eps) if tensor.dtype.is_floating_point else TOLERANCE
