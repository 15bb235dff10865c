"""Writing down an explanation: sums of products, lines with as many digits as they need, and their source cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attention import printed
from attention.analysis.explain.arithmetic import (
    Explanation,
    Term,
    matches_value,
    nearly_equal,
    single_term,
    tolerance_of,
)
from attention.core.cell import Cell
from attention.core.formula import Formula
from attention.core.layer import Layer
from attention.core.steps import HEAD_AXES, Parameter, Step, declared, find_step, is_step
from attention.printed import MAX_TERMS, Arithmetic, Line, Printed, Summands, format_number, number, with_fewest_digits

if TYPE_CHECKING:
    from torch import Tensor

_FEWEST = 3  # significant digits in the one-line arithmetic, where they suffice
_SHORT = 70  # the longest one-line arithmetic, in characters
_PRINTED = 1e-2  # the tolerance of a printed line of at most nine digits, relative to the value


@dataclass(frozen=True)
class ExplanationBuilder:
    """One cell of one step of a layer, with its value; builds the cell's `Explanation`."""

    layer: Layer
    step: Step
    cell: Cell
    value: float

    @property
    def formula(self) -> Formula:
        """The layer's formula; callers check first that there is one."""
        assert self.layer.formula is not None
        return self.layer.formula

    # -- statements about the number: all go through `_build` -------------------------------------

    def as_recorded(self, words: str = "") -> Explanation:
        """The number alone, without a derivation."""
        words = self.layer.provenance.get(self.step.name, "") or words or self._unknown_origin()
        return self._build(single_term(self.value, number(self.value).tex), [number(self.value).tex], words)

    def from_claim(
        self, claim: float, words: str, why: str = "", came_from: tuple[Cell, ...] = (), right_sides: Sequence[str] = ()
    ) -> Explanation:
        """A number that needs no arithmetic, with a reason in words for its `claim`: 0 since the mask hides the key.

        If the tensor's number differs from the claim, it is given as recorded.
        """
        if not nearly_equal(claim, self.value):
            return self.as_recorded()
        sides = right_sides or [number(self.value).tex]
        short = f"{format_number(self.value)}: {why}" if why else ""
        return self._build(single_term(claim, sides[-1]), sides, words, came_from=came_from, short=short)

    def from_copy(self, name: str, row: int, column: int, words: str, why: str) -> Explanation:
        """A number copied from an earlier step or a parameter; if the two differ, it is given as recorded."""
        came_from = (self.cell_of(name, row, column),) if is_step(name) else ()
        sides = self.element_tex(name, row, column), number(self.value).tex
        return self.from_claim(self.number_at(name, row, column), words, why, came_from, sides)

    def from_arithmetic(self, work: Arithmetic, came_from: tuple[Cell, ...] = ()) -> Explanation:
        """A number and its arithmetic, each line with as many digits as it needs.

        If the arithmetic does not give the tensor's number, the number is given as recorded.
        """
        words = work.words.format(row=self.cell.row, column=self.cell.column)
        if work.reason and not work.lines:
            return self.from_claim(0.0, words, work.reason, came_from)
        if not matches_value(work.values, work.operation, self.value, self._tolerance) or (work.reason and self.value):
            return self.as_recorded()
        fitted = [with_fewest_digits(line, self.value) for line in work.lines]
        right_sides = [("=", work.formula)] if work.formula else []
        exact = True
        for fitted_line in fitted:  # "≈" precedes and follows a line that is not exact
            right_sides.append(("=" if exact and fitted_line.agrees else r"\approx", fitted_line.printed.tex))
            exact = fitted_line.agrees
        right_sides.append(("=" if exact else r"\approx", number(self.value).tex))
        candidates = [short for short in work.one_liners if len(short(_FEWEST).text) <= _SHORT] or [work.one_liners[-1]]
        for make in candidates:
            short = with_fewest_digits(make, self.value, _FEWEST)
            if len(short.printed.text) <= _SHORT:
                break
        if not all(self._agrees(float(fitted_line.printed.value), work) for fitted_line in (*fitted, short)):
            return self.as_recorded()
        return self._build(
            _terms(fitted[-1].printed, work.values),
            right_sides,
            words,
            work.operation,
            _terms(fitted[0].printed.parts[1], work.denominator_terms) if work.denominator_terms else (),
            came_from,
            f"0: {work.reason}" if work.reason else short.printed.text,
            "=" if short.agrees or work.reason else "≈",
        )

    def _build(
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
        lines = self._align([("=", side) if isinstance(side, str) else side for side in right_sides])
        available = tuple(cell for cell in came_from if self.layer.has(cell.step))
        return Explanation(
            self.step,
            self.cell,
            self.value,
            operation,
            terms,
            lines,
            words,
            parts,
            available,
            short,
            sign,
            self._tolerance,
        )

    def _unknown_origin(self) -> str:
        """A sentence for a number of unknown origin. Note that the inputs named by `Step.unknown` may exist and still not give the number."""
        missing = len(self.layer.factors(self.step)) < len(self.step.of) or not self.step.of
        if missing and self.step.unknown:
            return self.step.unknown
        if self.step.name in self.layer.wrapped.available:
            return f"The {self.step.name} as the source recorded it; what made it is not known."
        return f"The {self.step.name} as it was computed: rounding or overflow obscures its inputs."

    def from_sum(
        self,
        values: list[float],
        piece: Callable[[int, int], Printed],
        formula: str,
        words: str,
        back: Callable[[int], tuple[Cell, ...]],
        plus: float | None = None,
    ) -> Explanation:
        """A sum of many `values`, of which the largest are printed; `piece(i, digits)` prints one, `plus` is a last summand."""

        def line(parts: Summands) -> Line:
            def total(digits: int) -> Printed:
                bias = [] if plus is None else [printed.bracketed(plus, digits)]
                return printed.sum_of([*parts.printed(lambda i: piece(i, digits), digits), *bias])

            return total

        parts, n_nonzero = Summands(values), sum(value != 0 for value in values)
        # One line shows as many terms as fit, and no zero terms if the rest mentions them.
        n_most = n_nonzero if 0 < n_nonzero < len(values) - 1 else len(values)
        counts = [count for count in range(min(n_most, MAX_TERMS), 0, -1) if len(values) - count != 1]
        bias = [] if plus is None else [plus]
        shorts = [line(Summands(values, count)) for count in counts]
        work = Arithmetic(formula, [line(parts)], shorts, words, [*parts.values, *bias])
        return self.from_arithmetic(work, back(max(range(len(values)), key=lambda i: abs(values[i]))))

    def find_declared(self, name: str) -> Step | Parameter:
        """The step or parameter called `name`."""
        return declared(name)

    # -- access to numbers ---------------------------------------------------------------------

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
        index = self.cell.head if head is None else head
        return Cell(self.cell.layer, name, index if find_step(name).per_head else 0, row, column)

    def element_tex(self, name: str, row: object, column: object) -> str:
        """A number of a step or parameter as LaTeX, with its head if it has one: A^{(0)}_{3,2}, W^{Q(0)}_{i,2}."""
        declaration = declared(name)
        base_symbol, _, index = declaration.symbol.partition("_")
        tex = base_symbol if index else getattr(declaration, "tex", declaration.symbol)
        head = f"({self._head_index(declaration.axes)})" if declaration.axes[0] in HEAD_AXES else ""
        superscript = f"^{{{index}{head}}}" if index or head else ""
        return f"{tex}{superscript}_{{{row},{column}}}" if row != "" else f"{tex}{superscript}_{{{column}}}"

    def indices_tex(self, row: object, column: object) -> str:
        """The indices of a cell of this step."""
        head = f"^{{({self._head_index(self.step.axes)})}}" if self.step.per_head else ""
        return f"{head}_{{{row},{column}}}"

    def _head_index(self, axes: tuple[str, ...]) -> int:
        """The index of this cell's head along the first of these axes; grouped-query keys have fewer heads."""
        return self.cell.head // (self.layer.n_heads // self.layer.sizes.get(axes[0], self.layer.n_heads))

    def _agrees(self, result: float, work: Arithmetic) -> bool:
        """Whether a line as printed gives the number, at least approximately."""
        if not math.isfinite(self.value):
            return True  # the exact values have already been compared
        size = 0.0 if work.operation == "quotient" else sum(map(abs, work.values))
        return (
            abs(result - self.value)
            <= max(_PRINTED, self._tolerance) * abs(self.value) + self._tolerance * size + 1e-30
        )

    @property
    def _tolerance(self) -> float:
        return tolerance_of(self.layer.matrix(self.step.name, self.cell.head))

    def _align(self, right_sides: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """Lines of LaTeX, the first with the symbol of the number in front."""
        symbol = self.step.tex + self.indices_tex(self.cell.row, self.cell.column)
        return tuple(f"{'' if i else symbol + ' '}&{relation} {side}" for i, (relation, side) in enumerate(right_sides))


def _terms(expression: Printed, values: Sequence[float]) -> tuple[Term, ...]:
    parts = expression.parts or (expression,)
    return tuple(Term(part.tex, value) for part, value in zip(parts, values, strict=True))
