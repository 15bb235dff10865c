"""How an explanation is written down: sums of products, lines with as many digits as they need, what they came from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention import printed
from attention.formula.cell import Cell
from attention.formula.formula import Formula
from attention.formula.layer import Layer
from attention.formula.steps import HEAD_AXES, Step, declared, find_step
from attention.numbers.arithmetic import Explanation, Term
from attention.printed import SHOWN_TERMS, Arithmetic, Line, Parts, Printed, fitting, number, shown

if TYPE_CHECKING:
    from torch import Tensor

_FEWEST = 3  # digits of a number in the arithmetic in one line
_SHORT = 70  # characters that the arithmetic in one line may take
_NEAR = 1e-4  # how far, of the sizes that were added, the arithmetic may be from the tensor's number


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

    def given(self, words: str = "") -> Explanation:
        """A number that nothing here has made."""
        return self.said(self.layer.told.get(self.step.name, "") or words or self.step.unknown)

    def said(self, words: str, why: str = "", came_from: tuple[Cell, ...] = ()) -> Explanation:
        """A number alone, and in words why it is so."""
        tex, short = number(self.value).tex, f"{shown(self.value)}: {why}" if why else ""
        return self.told((tex,), words, short, came_from, (Term(tex, self.value),))

    def copied(self, symbol: str, value: float, words: str, why: str, came_from: tuple[Cell, ...]) -> Explanation:
        """A number of an earlier step, taken over as it is."""
        tex = number(self.value).tex
        return self.told((symbol, tex), words, f"{shown(self.value)}: {why}", came_from, (Term(tex, value),))

    def told(
        self,
        right_sides: tuple[str, ...],
        words: str,
        short: str = "",
        came_from: tuple[Cell, ...] = (),
        terms: tuple[Term, ...] = (),
    ) -> Explanation:
        """A number without arithmetic of its own."""
        lines = self._aligned([("=", side) for side in right_sides])
        there = self._there(came_from)
        return Explanation(self.step, self.cell, self.value, "sum", terms, lines, words, (), there, short)

    def made(self, work: Arithmetic, came_from: tuple[Cell, ...] = ()) -> Explanation:
        """A number and the arithmetic that made it, every line with the digits that it needs.

        Where the arithmetic does not make the tensor's number, nobody claims it: the number is as it was recorded.
        """
        if work.reason:
            return self.told((number(self.value).tex,), work.words, work.reason, came_from)
        if not self._makes(work):
            return self.given()
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
        return Explanation(
            self.step,
            self.cell,
            self.value,
            work.operation,
            _terms(fitted[-1].printed, work.values),
            self._aligned(right_sides),
            work.words.format(row=self.cell.row, column=self.cell.column),
            _terms(fitted[0].printed.parts[1], work.below) if work.below else (),
            self._there(came_from),
            short.printed.text,
            "=" if short.agrees else "≈",
        )

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

    def _makes(self, work: Arithmetic) -> bool:
        """Whether the arithmetic makes the tensor's number, as far as its precision says."""
        made = work.values[0] / work.values[1] if work.operation == "quotient" else math.fsum(work.values)
        size = abs(made) if work.operation == "quotient" else math.fsum(map(abs, work.values))
        if math.isfinite(made) and math.isfinite(self.value):
            return abs(made - self.value) <= self._near * (size + abs(self.value)) + 1e-35
        return made == self.value or not math.isfinite(self.value)

    @property
    def _near(self) -> float:
        import torch

        tensor = self.layer.matrix(self.step.name, self.cell.head)
        return max(_NEAR, 16 * torch.finfo(tensor.dtype).eps) if tensor.dtype.is_floating_point else _NEAR

    def _aligned(self, right_sides: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """Lines of LaTeX with the number's symbol in front of the first."""
        symbol = self.step.tex + self.at(self.cell.row, self.cell.column)
        return tuple(f"{'' if i else symbol + ' '}&{relation} {side}" for i, (relation, side) in enumerate(right_sides))

    def _there(self, cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
        return tuple(cell for cell in cells if self.layer.has(cell.step))


def _terms(whole: Printed, values: Sequence[float]) -> tuple[Term, ...]:
    parts = whole.parts or (whole,)
    return tuple(Term(part.tex, value) for part, value in zip(parts, values, strict=True))
