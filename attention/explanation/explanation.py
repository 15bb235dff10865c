"""The explanation of a number, its terms and printed form; the builder that steps write it with; and that of one cell of a trace.

An `ExplanationBuilder` writes sums of products, with as many digits as they need, and their source cells.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from attention.base import printed
from attention.base.errors import check_index
from attention.base.printed import (
    MAX_TERMS,
    Arithmetic,
    Line,
    Printed,
    Summands,
    format_number,
    number,
    with_fewest_digits,
)
from attention.base.tokens import Patch, place_label, shows_several_pictures
from attention.explanation.subwords import MergedLayer
from attention.formula.edit_kinds import explain_edit
from attention.formula.formula import Formula
from attention.formula.names import WEIGHTS, Cell
from attention.formula.steps import HEAD_AXES, Parameter, Step, declared, find_step, is_step
from attention.trace.layer import Layer
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from torch import Tensor


_TOLERANCE = 1e-4  # of arithmetic in double precision against the tensor's number, relative to the summands
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
    tolerance: float = field(default=_TOLERANCE, repr=False)

    def __post_init__(self) -> None:
        if not _matches_value([term.value for term in self.terms], self.operation, self.value, self.tolerance):
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


def _matches_value(
    values: Sequence[float], operation: Literal["sum", "quotient"], value: float, near: float = _TOLERANCE
) -> bool:
    """Whether the sum or quotient of `values` equals the tensor's `value`, which is infinite outside the range of its dtype."""
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


def _nearly_equal(number: float, other: float) -> bool:
    """Whether two numbers are equal in single precision."""
    return number == other or math.isclose(number, other, rel_tol=_SAME) or (math.isnan(number) and math.isnan(other))


def _single_term(value: float, tex: str) -> tuple[Term, ...]:
    """A number as its own only term; no term for 0."""
    return (Term(tex, value),) if value else ()


def tolerance_of(tensor: Tensor) -> float:
    """The tolerance of the arithmetic against a number of this tensor, relative to the summands."""
    import torch

    return max(_TOLERANCE, 16 * torch.finfo(tensor.dtype).eps) if tensor.dtype.is_floating_point else _TOLERANCE


_POSITION = re.compile(r"\b(query|key) (\d+)\b")  # of a query or a key, in words
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
        return self._build(_single_term(self.value, number(self.value).tex), [number(self.value).tex], words)

    def from_claim(
        self, claim: float, words: str, why: str = "", came_from: tuple[Cell, ...] = (), right_sides: Sequence[str] = ()
    ) -> Explanation:
        """A number that needs no arithmetic, with a reason in words for its `claim`: 0 since the mask hides the key.

        If the tensor's number differs from the claim, it is given as recorded.
        """
        if not _nearly_equal(claim, self.value):
            return self.as_recorded()
        sides = right_sides or [number(self.value).tex]
        short = f"{format_number(self.value)}: {why}" if why else ""
        return self._build(_single_term(claim, sides[-1]), sides, words, came_from=came_from, short=short)

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
        if not _matches_value(work.values, work.operation, self.value, self._tolerance) or (work.reason and self.value):
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
            self.step, self.cell, self.value, operation, terms, lines, words, parts, available, short, sign, self._tolerance
        )  # fmt: skip

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
        return float(self.row_of(name, row)[column])

    def row_of(self, name: str, index: int) -> Tensor:
        """A row of another step or parameter, in this cell's head."""
        return (
            self.layer.row(self.cell.head, index, name)
            if is_step(name)
            else self.layer.matrix(name, self.cell.head)[index]
        )

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
        if not is_step(self.step.name):  # a derived map
            return _TOLERANCE
        return tolerance_of(self.row_of(self.step.name, self.cell.row))

    def _align(self, right_sides: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """Lines of LaTeX, the first with the symbol of the number in front."""
        symbol = self.step.tex + self.indices_tex(self.cell.row, self.cell.column)
        return tuple(f"{'' if i else symbol + ' '}&{relation} {side}" for i, (relation, side) in enumerate(right_sides))


def _terms(expression: Printed, values: Sequence[float]) -> tuple[Term, ...]:
    parts = expression.parts or (expression,)
    return tuple(Term(part.tex, value) for part, value in zip(parts, values, strict=True))


def explain(trace: Trace, step: str, layer: int = 0, head: int = 0, q: int = 0, k: int = 0) -> Explanation:
    """The arithmetic behind the number in row `q` and column `k` of a step.

    In maps of scores and weights the row is query_pos and the column key_pos; in other steps they follow the step's axes,
    such as key_pos and d_v for `value`. The number is given as recorded if its inputs are not available, or if the arithmetic
    does not reproduce it: `ExplanationBuilder` checks every statement. A patch of a picture is named with its place.

    Raises:
        MissingError: the trace has no such layer, step, head or cell.
    """
    definition, source = find_step(step), trace.layer(layer)
    for axis, index, size in zip(
        (definition.row_axis, definition.column_axis), (q, k), source.shape(step)[-2:], strict=True
    ):
        check_index(f"{axis} of {step}", index, size, "counts")
    value = float(source.row(head, q, step)[k]) + 0.0  # −0 is 0
    work = ExplanationBuilder(
        source.for_head(head) if definition.per_head else source, definition, Cell(layer, step, head, q, k), value
    )
    explanation = _explained(work, source)
    words = _with_places(explanation.words, source)
    return explanation if words == explanation.words else replace(explanation, words=words)


def _explained(work: ExplanationBuilder, source: Layer) -> Explanation:
    """The explanation as the source of the numbers allows it."""
    if source.wrapped is not source:
        return _explain_merged(work)
    if source.formula is None and work.step.by_formula:
        return work.as_recorded()
    if source.formula is not None and (explanation := explain_edit(work)) is not None:
        return explanation
    if work.step.name in source.provenance:  # the source changed the step further, which not all of its numbers reveal
        return work.as_recorded()
    return work.step.explain(work)


def _with_places(words: str, layer: Layer) -> str:
    """The words, with the place of each patch that they count: "key 80 (patch row 5, column 9)"."""

    def name(match: re.Match[str]) -> str:
        tokens, position = layer.labels_of(f"{match[1]}_pos") or (), int(match[2])
        token = tokens[position] if position < len(tokens) else ""
        if not isinstance(token, Patch):
            return match[0]
        return f"{match[0]} ({place_label(token, shows_several_pictures(tokens))})"

    return _POSITION.sub(name, words)


def _explain_merged(work: ExplanationBuilder) -> Explanation:
    """The subword weights, summed over the key's tokens and averaged over the query's, or divided by their total."""
    layer, cell = work.layer, work.cell
    assert isinstance(layer, MergedLayer)
    rows, columns = layer.queries.spans[cell.row], layer.keys.spans[cell.column]
    (pieces,) = layer.original.blocks(WEIGHTS, heads=slice(cell.head, cell.head + 1), rows=slice(*rows))
    values = pieces[0, :, slice(*columns)].double().flatten().tolist()
    left = math.fsum(float(pieces[0, :, slice(*span)].double().sum()) for span in layer.keys.spans)
    if layer.renormalised and not left:
        words = "These queries give no weight to any visible token, so there is nothing to normalize."
        return work.from_claim(0.0, words, "no visible token gets any weight")
    below = left if layer.renormalised else float(rows[1] - rows[0])
    parts, above = Summands(values), math.fsum(values)

    def line(digits: int) -> Printed:
        summands = parts.printed(lambda i: printed.bracketed(values[i], digits), digits)
        return printed.quotient(printed.sum_of(summands, per_line=99), number(below, digits))

    def short(digits: int) -> Printed:
        return printed.quotient(number(above, digits), number(below, digits))

    words = f"{_count(columns)} of the key, {_count(rows)} of the query: the weights are summed over the key"
    words += (
        ", and divided by the total that these queries give to visible tokens."
        if layer.renormalised
        else ", and averaged over the query."
    )
    tex = r"\frac{\sum_{i,j} A_{ij}}{" + (r"\sum_{i,l} A_{il}" if layer.renormalised else "n") + "}"
    return work.from_arithmetic(Arithmetic(tex, [line, short], [short], words, [above, below], "quotient"))


def _count(span: tuple[int, int]) -> str:
    return "1 piece" if span[1] - span[0] == 1 else f"{span[1] - span[0]} pieces"
