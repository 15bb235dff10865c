"""What the explanation of a number is made of: its address, its terms, and how it is shown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from attention.formula.cell import Cell
from attention.formula.steps import Step
from attention.printed import shown


@dataclass(frozen=True)
class Term:
    """One summand, numerator or denominator: as maths, and its value."""

    tex: str
    value: float


@dataclass(frozen=True)
class Explanation:
    """How one number of a trace came about.

    Attributes:
        step: the step it belongs to.
        cell: where it stands.
        value: the tensor's own number, −∞ for a hidden masked score.
        operation: what joins the terms: their "sum", or the "quotient" of the first by the second.
        terms: `SHOWN_TERMS` summands, the largest, and one for the rest where that is more than one; or
            numerator and denominator. Computed in double precision, so `result` equals `value` up to the
            rounding of the tensor's own type.
        parts: for a quotient, the summands of the denominator where it is a sum.
        lines: the arithmetic as LaTeX, line by line. Each line of numbers gives what is shown of `value` when
            worked out as printed; where no digits do that, "≈" stands before and after it.
        words: what happened, in a sentence.
        came_from: the cells one step back that matter most for this one.
        short: the arithmetic as one plain line, the right-hand side only: ``e^(−1.19 − 0.76) / 2.61``; a number
            and words where nothing is computed but something happens: ``0: hidden by the mask``; empty for what is
            only looked up.
        sign: whether `short`, worked out as printed, gives what is `shown`: "=", or only nearly: "≈".
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

    @property
    def shown(self) -> str:
        """The value as a heading says it, with 4 significant digits: "0.055", "−1.2", "1.235e−7", "−∞"; −0 is "0"."""
        return shown(self.value)

    @property
    def result(self) -> float:
        """The sum or the quotient of the terms, worked out again; a sum of nothing is 0."""
        if self.operation == "quotient":
            return self.terms[0].value / self.terms[1].value
        return math.fsum(term.value for term in self.terms)
