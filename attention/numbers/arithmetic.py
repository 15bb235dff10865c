"""What the explanation of a number is made of: its address, its terms, and how it is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from attention.formula.cell import Cell
from attention.formula.steps import Step
from attention.printed import shown

if TYPE_CHECKING:
    from torch import Tensor

NEAR = 1e-4
"""How far, of the sizes that were added, arithmetic in double precision may be from the tensor's number."""
_SAME = 1e-6  # how far two numbers may be apart that are the same in single precision
_OVERFLOW = 65504.0  # the largest number of half precision: beyond, a type may have made it infinite


@dataclass(frozen=True)
class Term:
    """One summand, numerator or denominator: as maths, and its value."""

    tex: str
    value: float


@dataclass(frozen=True, repr=False)
class Explanation:
    """How one number of a trace came about.

    Attributes:
        step: the step it belongs to.
        cell: where it stands.
        value: the tensor's own number, −∞ for a hidden masked score.
        operation: what joins the terms: their "sum", or the "quotient" of the first by the second.
        terms: `SHOWN_TERMS` summands, the largest, and one for the rest where that is more than one; or
            numerator and denominator. Of a number that nothing is computed for it is the number itself, and of a 0 none.
        parts: for a quotient, the summands of the denominator where it is a sum.
        lines: the arithmetic as LaTeX, line by line. Each line of numbers gives what is shown of `value` when
            worked out as printed; where no digits do that, "≈" stands before and after it.
        words: what happened, in a sentence.
        came_from: the cells one step back that matter most for this one.
        short: the arithmetic as one plain line, the right-hand side only: ``e^(−1.19 − 0.76) / 2.61``; a number
            and words where nothing is computed but something happens: ``0: hidden by the mask``; empty for what is
            only looked up.
        sign: whether `short`, worked out as printed, gives what is `shown`: "=", or only nearly: "≈".
        near: how far, of the sizes of the terms, `result` may be from `value`: what the tensor's own type rounds away.

    Raises:
        ValueError: the terms do not make the value, so it must not be stated that they do.
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
    near: float = field(default=NEAR, repr=False)

    def __post_init__(self) -> None:
        if not makes([term.value for term in self.terms], self.operation, self.value, self.near):
            raise ValueError(
                f"the terms of an explanation make its value, {self.value}; got {self.result}: state it as recorded, without terms."
            )

    def __repr__(self) -> str:
        cell = self.cell
        how = f" {self.sign} {self.short}" if self.short else ""
        return f"Explanation({cell.step} L{cell.layer} H{cell.head} [{cell.row}, {cell.column}] = {self.shown}{how}; {self.words})"

    @property
    def shown(self) -> str:
        """The value as a heading says it, with 4 significant digits: "0.055", "−1.2", "1.235e−7", "−∞"; −0 is "0"."""
        return shown(self.value)

    @property
    def result(self) -> float:
        """The sum or the quotient of the terms, worked out again in double precision; a sum of nothing is 0.

        It is the `value`, but for what the tensor's own type has rounded: an explanation of which that is not so cannot be made.
        """
        return _result([term.value for term in self.terms], self.operation)


def makes(values: Sequence[float], operation: Literal["sum", "quotient"], value: float, near: float = NEAR) -> bool:
    """Whether the sum or the quotient of `values` makes the tensor's `value`, as far as `near` of their sizes.

    A number that the tensor's type cannot hold is infinite there.
    """
    made = _result(values, operation)
    if math.isnan(made) or math.isnan(value):
        return math.isnan(made) and math.isnan(value)
    if math.isinf(value):
        return made == value or (math.isfinite(made) and abs(made) >= _OVERFLOW and (made > 0) == (value > 0))
    if math.isinf(made):
        return False
    size = abs(made) if operation == "quotient" else _sum([abs(one) for one in values])
    return abs(made - value) <= near * (size + abs(value)) + 1e-35


def _result(values: Sequence[float], operation: Literal["sum", "quotient"]) -> float:
    if operation == "sum":
        return _sum(values)
    return values[0] / values[1] if values[1] else math.nan


def _sum(values: Sequence[float]) -> float:
    """The sum without an error of its own; where that cannot be, as floats add up."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # too large, or −∞ + ∞
        return sum(values)


def same(one: float, other: float) -> bool:
    """Whether two numbers are the same, but for the rounding of single precision."""
    return one == other or math.isclose(one, other, rel_tol=_SAME) or (math.isnan(one) and math.isnan(other))


def itself(value: float, tex: str) -> tuple[Term, ...]:
    """A number as its own only term; of 0 there is none."""
    return (Term(tex, value),) if value else ()


def near_of(tensor: Tensor) -> float:
    """How far, of the sizes that were added, a number of this tensor may be from its arithmetic."""
    import torch

    return max(NEAR, 16 * torch.finfo(tensor.dtype).eps) if tensor.dtype.is_floating_point else NEAR
