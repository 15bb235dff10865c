"""Arithmetic in print: as LaTeX, as a line of plain text, and the result of computing with the printed digits.

Numbers are printed with the fewest digits with which readers get the printed result; `with_fewest_digits` finds them.
Objects whose class is `Displayed` show themselves in a notebook as HTML, if a feature can draw: no room below the pictures can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from typing import Literal, TypeAlias

from attention.features import features

DIGITS = 4
"""Significant digits of a single number."""

MAX_TERMS = 8
_MOST_DIGITS = 9  # enough to distinguish all numbers in single precision
_LARGE = 1e6  # from here on, decimals would exceed single precision


@dataclass(frozen=True)
class Printed:
    """A printed expression.

    Attributes:
        tex: as LaTeX.
        text: as plain text.
        value: its value, computed from the printed (rounded) numbers.
        parts: the summands of a sum, or the numerator and the denominator of a quotient.
    """

    tex: str
    text: str
    value: Decimal
    parts: tuple[Printed, ...] = ()


def plural(count: int, noun: str) -> str:
    """A number and its noun, such as "1 layer" and "2 layers"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def number(value: float, digits: int = DIGITS) -> Printed:
    r"""A number with `digits` significant digits: 0.3573, −∞, 1.235 \cdot 10^{-7} (as plain text 1.235e−7).

    Plain text has no trailing zeros; LaTeX has at least `DIGITS` digits.
    """
    if value == 0 or not math.isfinite(value):
        text = "0" if value == 0 else f"{value:f}".replace("inf", "∞").replace("-", "−")
        return Printed(text.replace("−", "-").replace("∞", r"\infty"), text, Decimal(value or 0))
    fewest = next(
        n for n in range(DIGITS, 99) if n >= digits or float(f"{value:.{n}g}") == float(f"{value:.{digits}g}")
    )
    mantissa, _, exponent = f"{value:#.{min(fewest, digits)}g}".partition("e")
    mantissa = mantissa.rstrip(".")
    short = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    tex = rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa
    text = f"{short}e{int(exponent)}" if exponent else short
    return Printed(tex, text.replace("-", "−"), Decimal(f"{mantissa}e{exponent or 0}"))


def format_number(value: float) -> str:
    """A number as plain text with `DIGITS` significant digits: 0.3573, −0.05, 1.235e−7, −∞; −0 is 0."""
    return number(value).text


def format_near_one(value: float) -> str:
    """A number as plain text; as a difference from 1 if four digits would round it to 1: 0.9993, 1 − 3e−7."""
    return f"1 − {number(1 - value, 1).text}" if value < 1 and format_number(value) == "1" else format_number(value)


def bracketed(value: float, digits: int = DIGITS) -> Printed:
    """A number as a factor or a summand: negative numbers are in brackets."""
    plain = number(value, digits)
    return Printed(f"({plain.tex})", f"({plain.text})", plain.value) if value < 0 else plain


def product(left: float, right: float, digits: int) -> Printed:
    """The product of two numbers."""
    a, b = bracketed(left, digits), bracketed(right, digits)
    return Printed(rf"{a.tex} \cdot {b.tex}", f"{a.text}·{b.text}", a.value * b.value)


def _remaining_sum(value: float, count: int, digits: int) -> Printed:
    """The sum of the remaining `count` summands, as one number."""
    total_rest = bracketed(value, digits)
    tex = rf"\underbrace{{{total_rest.tex}}}_{{{count}\text{{ more}}}}"
    return Printed(tex, f"… ({count} more: {number(value, digits).text})", total_rest.value)


def sum_of(summands: Sequence[Printed], per_line: int = 2) -> Printed:
    """The sum of the summands; as LaTeX, broken into lines of an aligned block."""
    chunks = [summands[i : i + per_line] for i in range(0, len(summands), per_line)]
    tex = r" \\ &\quad + ".join(" + ".join(summand.tex for summand in chunk) for chunk in chunks)
    text = " + ".join(summand.text for summand in summands)
    return Printed(tex, text, sum((summand.value for summand in summands), Decimal(0)), tuple(summands))


def quotient(numerator: Printed, denominator: Printed) -> Printed:
    """A quotient; the plain text of the denominator must be a single number, or in brackets."""
    tex, text = rf"\frac{{{numerator.tex}}}{{{denominator.tex}}}", f"{numerator.text} / {denominator.text}"
    return Printed(tex, text, numerator.value / denominator.value, (numerator, denominator))


def exponent(value: float, places: int = DIGITS) -> Printed:
    """A number in an exponent, with `places` decimals: the absolute error of an exponent is the relative error of the power."""
    if value == 0 or not abs(value) < _LARGE:
        return number(value, places)
    text = f"{value:.{max(DIGITS, places)}f}"
    fixed = text if float(text) else text.lstrip("-")
    while len(fixed.partition(".")[2]) > DIGITS and fixed.endswith("0"):
        fixed = fixed[:-1]
    return Printed(fixed, fixed.rstrip("0").rstrip(".").replace("-", "−"), Decimal(fixed))


def power(minuend: float, subtrahend: float, places: int) -> Printed:
    """The exponential of a difference, e^(minuend − subtrahend)."""
    a, b = exponent(minuend, places), exponent(subtrahend, places)
    tex, text = (f"({b.tex})", f"({b.text})") if subtrahend < 0 else (b.tex, b.text)
    return Printed(rf"e^{{{a.tex} - {tex}}}", f"e^({a.text} − {text})", (a.value - b.value).exp())


def power_of_difference(minuend: float, subtrahend: float, places: int) -> Printed:
    """The same exponential with a single number as its exponent: the difference of the numbers that `power` prints."""
    difference = exponent(minuend, places).value - exponent(subtrahend, places).value
    printed = exponent(float(difference), places)
    return Printed(f"e^{{{printed.tex}}}", f"e^({printed.text})", difference.exp())


def _agrees(result: Decimal, value: float) -> bool:
    """Whether a result rounds to the printed digits of `value`."""
    # A tie in the last digit may round up or down, so tiny differences on both sides are accepted.
    candidates = (float(result), float(result) * (1 - 1e-12), float(result) * (1 + 1e-12))
    return format_number(value) in map(format_number, candidates)


@dataclass(frozen=True)
class _Fitted:
    """A printed expression, its number of digits, and whether its result agrees with the printed number."""

    printed: Printed
    digits: int
    agrees: bool


def with_fewest_digits(make: Callable[[int], Printed], value: float, least: int = DIGITS) -> _Fitted:
    """The expression of `make` with the fewest digits, at least `least`, whose result rounds to the printed `value`.

    If no number of digits suffices, because of single precision, it is the first expression whose result differs by at
    most one in the last digit, or else the one with the most digits.
    """
    with localcontext(Context(prec=30, traps=[])):  # infinity and NaN raise no error
        attempts = []
        for digits in range(least, _MOST_DIGITS + 1):
            attempts.append(_Fitted(printed := make(digits), digits, _agrees(printed.value, value)))
            if attempts[-1].agrees:
                return attempts[-1]
        target = number(value).value
        unit = Decimal(1).scaleb(target.adjusted() - DIGITS + 1 if target.is_finite() and target else -12)
        return next((fitted for fitted in attempts if abs(fitted.printed.value - target) <= unit), attempts[-1])


Line: TypeAlias = Callable[[int], Printed]
"""A function from a number of digits to a printed expression."""


@dataclass(frozen=True)
class Arithmetic:
    """The arithmetic of one number, before the number of digits is chosen.

    Attributes:
        formula: the right-hand side as LaTeX, without numbers.
        lines: the right-hand side with numbers, line by line.
        one_liners: variants in one line of plain text; the first one that is short enough is used, or the last.
        words: a sentence that explains it, with {row} for the row.
        values: the parts of the last line, in full precision.
        operation: the operation on `values`: their "sum", or the "quotient" of the first two.
        denominator_terms: the summands of the first line's denominator, in full precision.
        reason: why the number is 0, such as "hidden by the mask"; replaces the plain line if there are no `lines`.
    """

    formula: str = ""
    lines: Sequence[Line] = ()
    one_liners: Sequence[Line] = ()
    words: str = ""
    values: Sequence[float] = ()
    operation: Literal["sum", "quotient"] = "sum"
    denominator_terms: Sequence[float] = ()
    reason: str = ""

    @classmethod
    def zero(cls, words: str, reason: str) -> Arithmetic:
        """A 0 without arithmetic."""
        return cls(words=words, reason=reason)


class Summands:
    """The summands of a sum for printing.

    Attributes:
        printed_indices: the indices of the printed summands, which are the largest.
        n_others: the number of other summands.
        others: the sum of the other summands.
        values: the printed summands, and `others` if there are any.
    """

    def __init__(self, values: Sequence[float], most: int = MAX_TERMS) -> None:
        # More than one summand is left out, since a sum of one summand would only hide it.
        largest = sorted(range(len(values)), key=lambda i: -abs(values[i]))
        self.printed_indices = sorted(largest[: most if len(values) > most + 1 else None])
        printed = set(self.printed_indices)
        self.n_others = len(values) - len(self.printed_indices)
        self.others = math.fsum(value for i, value in enumerate(values) if i not in printed)
        self.values = [*(values[i] for i in self.printed_indices), *[self.others] * bool(self.n_others)]

    def printed(self, piece: Callable[[int], Printed], digits: int) -> list[Printed]:
        """Each of the few summands as `piece` prints it, and the sum of the others."""
        return [
            *map(piece, self.printed_indices),
            *([_remaining_sum(self.others, self.n_others, digits)] if self.n_others else []),
        ]


class Displayed:
    """An object that a notebook shows as HTML, where a feature knows how."""

    def _repr_html_(self) -> str | None:
        shown = (feature.html(self) for feature in features() if feature.html is not None)
        return next((html for html in shown if html is not None), None)
