"""How an explanation is written down: sums of products, lines with as many digits as they need, what they came from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attention import printed
from attention.formula.cell import Cell
from attention.formula.formula import Formula
from attention.formula.layer import Layer
from attention.formula.steps import HEAD_AXES, Parameter, Step, declared, find_step, is_step
from attention.numbers.arithmetic import Explanation, Term, itself, makes, near_of, same
from attention.printed import SHOWN_TERMS, Arithmetic, Line, Parts, Printed, fitting, number, shown

if TYPE_CHECKING:
    from torch import Tensor

_FEWEST = 3  # digits of a number in the arithmetic in one line
_SHORT = 70  # characters that the arithmetic in one line may take
_PRINTED = 1e-2  # how far, of the value, a line of at most nine digits may be from it


@dataclass(frozen=True)
class Working:
    """One cell of one step of a layer, and its number."""

    layer: Layer
    step: Step
    cell: Cell
    value: float

    @property
    def formula(self) -> Formula:
        """What made it; who asks has looked that there is one."""
        assert self.layer.formula is not None
        return self.layer.formula

    # -- what is stated of the number: all of it goes through `_explained` ---------------------------

    def as_recorded(self, words: str = "") -> Explanation:
        """The number alone; nothing is stated of how it was made."""
        words = self.layer.told.get(self.step.name, "") or words or self._unknown()
        return self._explained(itself(self.value, number(self.value).tex), [number(self.value).tex], words)

    def stated(
        self, claim: float, words: str, why: str = "", came_from: tuple[Cell, ...] = (), right_sides: Sequence[str] = ()
    ) -> Explanation:
        """A number that nothing was computed for, and in words why it is what they `claim`: 0 since the mask hides the key.

        Where the tensor has another number, it is as recorded.
        """
        if not same(claim, self.value):
            return self.as_recorded()
        sides = right_sides or [number(self.value).tex]
        short = f"{shown(self.value)}: {why}" if why else ""
        return self._explained(itself(claim, sides[-1]), sides, words, came_from=came_from, short=short)

    def copied(self, name: str, row: int, column: int, words: str, why: str) -> Explanation:
        """A number of an earlier step or a parameter, taken over as it is; where it is not the same, it is as recorded."""
        came_from = (self.cell_of(name, row, column),) if is_step(name) else ()
        sides = self.symbol(name, row, column), number(self.value).tex
        return self.stated(self.number_at(name, row, column), words, why, came_from, sides)

    def made(self, work: Arithmetic, came_from: tuple[Cell, ...] = ()) -> Explanation:
        """A number and the arithmetic that made it, every line with the digits that it needs.

        Where the arithmetic does not make the tensor's number, nobody claims it: the number is as it was recorded.
        """
        words = work.words.format(row=self.cell.row, column=self.cell.column)
        if work.reason and not work.lines:
            return self.stated(0.0, words, work.reason, came_from)
        if not makes(work.values, work.operation, self.value, self._near) or (work.reason and self.value):
            return self.as_recorded()
        fitted = [fitting(line, self.value) for line in work.lines]
        right_sides = [("=", work.formula)] if work.formula else []
        exact = True
        for one in fitted:  # "≈" stands before and after a line that does not give the value
            right_sides.append(("=" if exact and one.agrees else r"\approx", one.printed.tex))
            exact = one.agrees
        right_sides.append(("=" if exact else r"\approx", number(self.value).tex))
        brief = [short for short in work.shorts if len(short(_FEWEST).text) <= _SHORT] or [work.shorts[-1]]
        for make in brief:
            short = fitting(make, self.value, _FEWEST)
            if len(short.printed.text) <= _SHORT:
                break
        if not all(self._prints(float(one.printed.value), work) for one in (*fitted, short)):
            return self.as_recorded()
        return self._explained(
            _terms(fitted[-1].printed, work.values),
            right_sides,
            words,
            work.operation,
            _terms(fitted[0].printed.parts[1], work.below) if work.below else (),
            came_from,
            f"0: {work.reason}" if work.reason else short.printed.text,
            "=" if short.agrees or work.reason else "≈",
        )

    def _explained(
        self,
        terms: tuple[Term, ...],
        right_sides: Sequence[str | tuple[str, str]],
        words: str,
        operation: Literal["sum", "quotient"] = "sum",
        parts: tuple[Term, ...] = (),
        came_from: tuple[Cell, ...] = (),
        short: str = "",
        sign: Literal["=", "≈"] = "=",
    ) -> Explanation:
        lines = self._aligned([("=", side) if isinstance(side, str) else side for side in right_sides])
        there = tuple(cell for cell in came_from if self.layer.has(cell.step))
        return Explanation(
            self.step, self.cell, self.value, operation, terms, lines, words, parts, there, short, sign, self._near
        )

    def _unknown(self) -> str:
        """That nothing is known of how the number was made; what `Step.unknown` says is missing may be there, and not make it."""
        missing = len(self.layer.factors(self.step)) < len(self.step.of) or not self.step.of
        if missing and self.step.unknown:
            return self.step.unknown
        if self.step.name in self.layer.inner.holds:
            return f"The {self.step.name} as the source recorded it; what made it is not known."
        return f"The {self.step.name} as it was computed: rounding, or numbers too large, hide what made it."

    def summed(
        self,
        values: list[float],
        piece: Callable[[int, int], Printed],
        formula: str,
        words: str,
        back: Callable[[int], tuple[Cell, ...]],
        plus: float | None = None,
    ) -> Explanation:
        """A sum of many `values`, the largest where there are many; `piece(i, digits)` prints one, and `plus` comes after them."""

        def line(parts: Parts) -> Line:
            def total(digits: int) -> Printed:
                bias = [] if plus is None else [printed.factor(plus, digits)]
                return printed.total([*parts.printed(lambda i: piece(i, digits), digits), *bias])

            return total

        parts, something = Parts(values), sum(value != 0 for value in values)
        # In one line as many as it holds, and none that adds nothing where the rest says so.
        most = something if 0 < something < len(values) - 1 else len(values)
        counts = [count for count in range(min(most, SHOWN_TERMS), 0, -1) if len(values) - count != 1]
        bias = [] if plus is None else [plus]
        shorts = [line(Parts(values, count)) for count in counts]
        work = Arithmetic(formula, [line(parts)], shorts, words, [*parts.values, *bias])
        return self.made(work, back(max(range(len(values)), key=lambda i: abs(values[i]))))

    def declared(self, name: str) -> Step | Parameter:
        """The step or parameter called `name`."""
        return declared(name)

    # -- where the numbers lie -----------------------------------------------------------------

    def number_at(self, name: str, row: int, column: int) -> float:
        """A number of another step, in this cell's head."""
        return float(self.layer.matrix(name, self.cell.head)[row, column])

    def row_of(self, name: str, index: int) -> Tensor:
        """A row of another step or parameter, in this cell's head."""
        return self.layer.matrix(name, self.cell.head)[index]

    def column_of(self, name: str, index: int) -> Tensor:
        """A column of another step or parameter, in this cell's head."""
        return self.layer.matrix(name, self.cell.head)[:, index]

    def cell_of(self, name: str, row: int, column: int, head: int | None = None) -> Cell:
        """The address of a number of another step."""
        own = self.cell.head if head is None else head
        return Cell(self.cell.layer, name, own if find_step(name).per_head else 0, row, column)

    def symbol(self, name: str, row: object, column: object) -> str:
        """A number of a step or parameter as LaTeX, with its head where it has one: A^{(0)}_{3,2}, W^{Q(0)}_{i,2}."""
        one = declared(name)
        letter, _, index = one.symbol.partition("_")
        tex = letter if index else getattr(one, "tex", one.symbol)
        head = f"({self._head(one.axes)})" if one.axes[0] in HEAD_AXES else ""
        above = f"^{{{index}{head}}}" if index or head else ""
        return f"{tex}{above}_{{{row},{column}}}" if row != "" else f"{tex}{above}_{{{column}}}"

    def at(self, row: object, column: object) -> str:
        """The indices of a cell of this step."""
        head = f"^{{({self._head(self.step.axes)})}}" if self.step.per_head else ""
        return f"{head}_{{{row},{column}}}"

    def _head(self, axes: tuple[str, ...]) -> int:
        """The number of this cell's head along the first of these axes: keys have fewer where several heads share them."""
        return self.cell.head // (self.layer.n_heads // self.layer.sizes.get(axes[0], self.layer.n_heads))

    def _prints(self, result: float, work: Arithmetic) -> bool:
        """Whether a line as it is printed gives the number, at least nearly."""
        if not math.isfinite(self.value):
            return True  # the values have been compared
        size = 0.0 if work.operation == "quotient" else sum(map(abs, work.values))
        return abs(result - self.value) <= max(_PRINTED, self._near) * abs(self.value) + self._near * size + 1e-30

    @property
    def _near(self) -> float:
        return near_of(self.layer.matrix(self.step.name, self.cell.head))

    def _aligned(self, right_sides: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """Lines of LaTeX with the number's symbol in front of the first."""
        symbol = self.step.tex + self.at(self.cell.row, self.cell.column)
        return tuple(f"{'' if i else symbol + ' '}&{relation} {side}" for i, (relation, side) in enumerate(right_sides))


def _terms(whole: Printed, values: Sequence[float]) -> tuple[Term, ...]:
    parts = whole.parts or (whole,)
    return tuple(Term(part.tex, value) for part, value in zip(parts, values, strict=True))
