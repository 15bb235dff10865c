"""Arithmetic as it is read: as LaTeX, as one plain line, and what comes out for who works out what is printed.

A number is printed with as few digits as let the result come out right to its own; `fitting` finds them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from typing import Literal, TypeAlias

DIGITS = 4
"""Significant digits of a number that is shown alone."""

SHOWN_TERMS = 8
_MOST_DIGITS = 9  # what tells all numbers of single precision apart
_LARGE = 1e6  # from here on decimals would say more than single precision knows


@dataclass(frozen=True)
class Printed:
    """A piece of arithmetic: as LaTeX, as plain text, and its value as printed, not as it was before it was rounded.

    `parts` are the summands of a sum, or what stands above and below in a quotient.
    """

    tex: str
    text: str
    value: Decimal
    parts: tuple[Printed, ...] = ()


def number(value: float, digits: int = DIGITS) -> Printed:
    r"""A number with `digits` significant digits: 0.3573, −∞, 1.235 \cdot 10^{-7} (as plain text 1.235e−7).

    As plain text it ends where only zeros follow; as LaTeX it has `DIGITS` of them at least.
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


def shown(value: float) -> str:
    """A number as a heading says it, with `DIGITS` significant digits: 0.3573, −0.05, 1.235e−7, −∞; −0 is 0."""
    return number(value).text


def beside_one(value: float) -> str:
    """A number that may be so near to 1 that four digits hide the difference, which is said then: 0.9993, 1 − 3e−7."""
    return f"1 − {number(1 - value, 1).text}" if value < 1 and shown(value) == "1" else shown(value)


def factor(value: float, digits: int = DIGITS) -> Printed:
    """A number as a factor or a summand: a negative one stands in brackets."""
    one = number(value, digits)
    return Printed(f"({one.tex})", f"({one.text})", one.value) if value < 0 else one


def product(one: float, other: float, digits: int) -> Printed:
    """Two numbers, multiplied."""
    a, b = factor(one, digits), factor(other, digits)
    return Printed(rf"{a.tex} \cdot {b.tex}", f"{a.text}·{b.text}", a.value * b.value)


def rest(value: float, count: int, digits: int) -> Printed:
    """The sum of `count` summands that are not printed one by one."""
    one = factor(value, digits)
    tex = rf"\underbrace{{{one.tex}}}_{{{count}\text{{ more}}}}"
    return Printed(tex, f"… ({count} more: {number(value, digits).text})", one.value)


def total(summands: Sequence[Printed], per_line: int = 2) -> Printed:
    """Summands with plus signs between them; as LaTeX broken into lines of an aligned block."""
    chunks = [summands[i : i + per_line] for i in range(0, len(summands), per_line)]
    tex = r" \\ &\quad + ".join(" + ".join(one.tex for one in chunk) for chunk in chunks)
    text, value = " + ".join(one.text for one in summands), sum((one.value for one in summands), Decimal(0))
    return Printed(tex, text, value, tuple(summands))


def quotient(above: Printed, below: Printed) -> Printed:
    """One by the other; what stands below in plain text must be one number, or stand in brackets."""
    tex, text = rf"\frac{{{above.tex}}}{{{below.tex}}}", f"{above.text} / {below.text}"
    return Printed(tex, text, above.value / below.value, (above, below))


def exponent(value: float, places: int = DIGITS) -> Printed:
    """A number in an exponent, with so many decimals: its error, not its share, becomes the error of the power."""
    if value == 0 or not abs(value) < _LARGE:
        return number(value, places)
    text = f"{value:.{max(DIGITS, places)}f}"
    fixed = text if float(text) else text.lstrip("-")
    while len(fixed.partition(".")[2]) > DIGITS and fixed.endswith("0"):
        fixed = fixed[:-1]
    return Printed(fixed, fixed.rstrip("0").rstrip(".").replace("-", "−"), Decimal(fixed))


def power(one: float, less: float, places: int) -> Printed:
    """The power of e whose exponent is one number less another."""
    a, b = exponent(one, places), exponent(less, places)
    tex, text = (f"({b.tex})", f"({b.text})") if less < 0 else (b.tex, b.text)
    return Printed(rf"e^{{{a.tex} - {tex}}}", f"e^({a.text} − {text})", (a.value - b.value).exp())


def powered(one: float, less: float, places: int) -> Printed:
    """The same as one number in the exponent: the difference of what `power` prints."""
    difference = exponent(one, places).value - exponent(less, places).value
    inside = exponent(float(difference), places)
    return Printed(f"e^{{{inside.tex}}}", f"e^({inside.text})", difference.exp())


def agrees(result: Decimal, value: float) -> bool:
    """Whether a result, rounded to the digits that are shown of `value`, is what is shown."""
    # Half a unit of the last digit can be rounded up and down: a hair to either side is fair.
    near = (float(result), float(result) * (1 - 1e-12), float(result) * (1 + 1e-12))
    return shown(value) in map(shown, near)


@dataclass(frozen=True)
class Fitted:
    """What is printed, with how many digits, and whether its result agrees with what is shown."""

    printed: Printed
    digits: int
    agrees: bool


def fitting(make: Callable[[int], Printed], value: float, least: int = DIGITS) -> Fitted:
    """What `make` prints with the fewest digits, from `least` up, that let `value` come out as it is shown.

    Where none do, since single precision has lost some, it is what misses by no more than one in the last digit, or
    what has the most digits.
    """
    with localcontext(Context(prec=30, traps=[])):  # what is not finite stays so, and nothing is raised
        tried = []
        for digits in range(least, _MOST_DIGITS + 1):
            tried.append(Fitted(printed := make(digits), digits, agrees(printed.value, value)))
            if tried[-1].agrees:
                return tried[-1]
        aim = number(value).value
        unit = Decimal(1).scaleb(aim.adjusted() - DIGITS + 1 if aim.is_finite() and aim else -12)
        return next((one for one in tried if abs(one.printed.value - aim) <= unit), tried[-1])


Line: TypeAlias = Callable[[int], Printed]
"""Arithmetic, given how many digits its numbers have."""


@dataclass(frozen=True)
class Arithmetic:
    """How one number came about, before it is known with how many digits it must be printed.

    Attributes:
        formula: the right-hand side as LaTeX, without numbers.
        lines: the same with numbers, line by line.
        shorts: the same in one plain line; the first is taken that is short enough, or the last.
        words: what happened, in a sentence, with {row} for the row.
        values: of the last line's parts, in full precision.
        operation: what joins these: their "sum", or the "quotient" of the first by the second.
        below: of the summands under the first line's fraction, in full precision.
        reason: why it is 0, instead of the plain line: "hidden by the mask"; without lines nothing was worked out.
    """

    formula: str = ""
    lines: Sequence[Line] = ()
    shorts: Sequence[Line] = ()
    words: str = ""
    values: Sequence[float] = ()
    operation: Literal["sum", "quotient"] = "sum"
    below: Sequence[float] = ()
    reason: str = ""

    @classmethod
    def zero(cls, words: str, reason: str) -> Arithmetic:
        """A 0 that nothing was worked out for."""
        return cls(words=words, reason=reason)


class Parts:
    """The summands of a sum: the largest in `few`, where there are many, and how large the `others` are together."""

    def __init__(self, values: Sequence[float], most: int = SHOWN_TERMS) -> None:
        self.few = largest(values, most)
        shown_ones = set(self.few)
        self.left = len(values) - len(self.few)
        self.others = math.fsum(value for i, value in enumerate(values) if i not in shown_ones)
        self.values = [*(values[i] for i in self.few), *[self.others] * bool(self.left)]

    def printed(self, piece: Callable[[int], Printed], digits: int) -> list[Printed]:
        """Each of the few as `piece` prints it, and the rest in one."""
        return [*map(piece, self.few), *([rest(self.others, self.left, digits)] if self.left else [])]


def largest(values: Sequence[float], most: int = SHOWN_TERMS) -> list[int]:
    """Which of the summands to print: all if they are few, otherwise the `most` largest in their order.

    What is left is never a single one: as a sum it would only hide it.
    """
    if len(values) <= most + 1:
        return list(range(len(values)))
    return sorted(sorted(range(len(values)), key=lambda i: -abs(values[i]))[:most])
