"""What the explanation of a number is made of: its address, its terms, and how they are written."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from attention.trace import Step

SHOWN_TERMS = 8


@dataclass(frozen=True)
class Term:
    """One summand, numerator or denominator: as maths, and its value."""

    tex: str
    value: float


@dataclass(frozen=True)
class Cell:
    """The address of one number: step, head, row and column, from zero."""

    step: str
    head: int
    row: int
    column: int


@dataclass(frozen=True)
class Explanation:
    """How one number of a trace came about.

    Attributes:
        step: the step it belongs to.
        cell: where it stands.
        value: the tensor's own number, −∞ for a hidden masked score.
        operation: what joins the terms: their "sum", or the "quotient" of the first by the second.
        terms: at most `SHOWN_TERMS` summands, the largest, and one for the rest; or numerator and
            denominator. Computed in double precision, so `result` equals `value` up to the rounding
            of the tensor's own type.
        parts: for a quotient, the summands of the denominator where it is a sum.
        lines: the arithmetic as LaTeX, line by line, with 4 significant digits.
        words: what happened, in a sentence.
        came_from: the cells one step back that matter most for this one.
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

    @property
    def result(self) -> float:
        """The sum or the quotient of the terms, worked out again; a sum of nothing is 0."""
        if self.operation == "quotient":
            return self.terms[0].value / self.terms[1].value
        return math.fsum(term.value for term in self.terms)


def number(value: float) -> str:
    r"""A number as LaTeX with 4 significant digits: 0.3573, -\infty, 1.235 \cdot 10^{-7}."""
    if math.isinf(value):
        return r"\infty" if value > 0 else r"-\infty"
    if value == 0:
        return "0"
    mantissa, _, exponent = f"{value:#.4g}".partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa.rstrip(".")


def exponent(value: float) -> str:
    """A number in an exponent: at least 4 decimals, since its error, not its share, becomes the error of the power."""
    return f"{value:.4f}" if 1 <= abs(value) < math.inf else number(value)


def factor(value: float) -> str:
    """A number as a factor: a negative one stands in brackets."""
    return f"({number(value)})" if value < 0 else number(value)


def largest(terms: list[Term]) -> tuple[Term, ...]:
    """All terms in their order if they are few; otherwise the largest in theirs, and the rest as one sum."""
    if len(terms) <= SHOWN_TERMS:
        return tuple(terms)
    ranked = sorted(range(len(terms)), key=lambda i: -abs(terms[i].value))
    shown = sorted(ranked[:SHOWN_TERMS])
    rest = math.fsum(terms[i].value for i in ranked[SHOWN_TERMS:])
    return (
        *(terms[i] for i in shown),
        Term(rf"\underbrace{{{factor(rest)}}}_{{{len(terms) - SHOWN_TERMS}\text{{ more}}}}", rest),
    )


def summed(terms: tuple[Term, ...], per_line: int = 2) -> str:
    """The terms with plus signs, broken into lines of an aligned block."""
    chunks = [terms[i : i + per_line] for i in range(0, len(terms), per_line)]
    return r" \\ &\quad + ".join(" + ".join(term.tex for term in chunk) for chunk in chunks)
