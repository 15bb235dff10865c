"""One cell of one step: the arithmetic that made it, with the numbers in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attention.errors import MissingError
from attention.trace import Layer, Step, Trace, find_step

if TYPE_CHECKING:
    from torch import Tensor

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


def explain(trace: Trace, step: str, layer: int = 0, head: int = 0, q: int = 0, k: int = 0) -> Explanation:
    """The arithmetic behind the number in row `q` and column `k` of a step.

    For the maps of scores and weights the row is query_pos and the column key_pos; for the others
    they are whatever the step's axes say, such as key_pos and d_v for `value`.

    Raises:
        MissingError: the trace has no such layer, step, head or cell.
    """
    found, chosen = find_step(step), trace.layer(layer)
    matrix = chosen.matrix(step, head)
    for axis, index, size in ((found.row_axis, q, matrix.shape[0]), (found.column_axis, k, matrix.shape[1])):
        if not 0 <= index < size:
            raise MissingError(f"{axis} of {step} counts from 0 to {size - 1}; got {index}: choose one of these.")
    return _Explainer(chosen, found, Cell(step, head, q, k), float(matrix[q, k])).explain()


def number(value: float) -> str:
    """A number as LaTeX with 4 significant digits: 0.3573, -\\infty, 1.235 \\cdot 10^{-7}."""
    if math.isinf(value):
        return r"\infty" if value > 0 else r"-\infty"
    if value == 0:
        return "0"
    mantissa, _, exponent = f"{value:#.4g}".partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa.rstrip(".")


def _factor(value: float) -> str:
    return f"({number(value)})" if value < 0 else number(value)


@dataclass(frozen=True)
class _Explainer:
    layer: Layer
    step: Step
    cell: Cell
    value: float

    def explain(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        match self.step.name:
            case "input":
                return self._input()
            case "position":
                return self._position()
            case "query" | "key" | "value" as name:
                return self._projection(name)
            case "scores":
                return self._products(
                    self._row("query", row), self._row("key", column),
                    rf"\sum_i Q{self._at(row, 'i')}\, K{self._at(column, 'i')}",
                    f"The dot product of query {row} and key {column}: how well they match.",
                    lambda i: (self._cell("query", row, i), self._cell("key", column, i)),
                )
            case "scaled_scores":
                return self._scaled()
            case "masked_scores":
                return self._masked()
            case "weights":
                return self._weights()
            case "head_output":
                return self._products(
                    self._row("weights", row), self._column("value", column),
                    rf"\sum_j A{self._at(row, 'j')}\, V{self._at('j', column)}",
                    f"Query {row} takes from each key's value as much as its weight says.",
                    lambda i: (self._cell("weights", row, i), self._cell("value", i, column)),
                )
            case "output":
                return self._output()
            case _:
                return self._given(f"Looked up, not computed: {self.step.formula}.")

    # -- one method per kind of step ----------------------------------------------------------

    def _input(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        parts = [(name, find_step(name).tex, getattr(self.layer, name)) for name in ("embedding", "position")]
        there = [(name, tex, float(tensor[row, column])) for name, tex, tensor in parts if tensor is not None]
        if not there:
            return self._given("The input as it was given: nothing is computed here.")
        at = self._at(row, column)
        return self._made(
            tuple(Term(number(value), value) for *_, value in there),
            (" + ".join(f"{tex}{at}" for _, tex, _ in there), " + ".join(_factor(value) for *_, value in there)),
            "The token's embedding plus the encoding of its position." if len(there) > 1 else "The token's embedding; no positions are added.",
            came_from=tuple(self._cell(name, row, column) for name, *_ in there),
        )

    def _position(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        d_model = self.layer["position"].shape[1]
        angle = row / 10000 ** (column // 2 * 2 / d_model)
        wave, value = (r"\sin", math.sin(angle)) if column % 2 == 0 else (r"\cos", math.cos(angle))
        if not math.isclose(value, self.value, abs_tol=1e-4):
            return self._given("The row this position has in the table of positions: nothing is computed here.")
        exponent = rf"{column // 2 * 2}/{d_model}"
        return self._made(
            (Term(rf"{wave}({number(angle)})", value),),
            (rf"{wave}\left({row} \,/\, 10000^{{{exponent}}}\right)", rf"{wave}({number(angle)})"),
            f"Position {row} in column {column}: {'a sine' if wave == chr(92) + 'sin' else 'a cosine'} that turns more slowly in later columns.",
        )

    def _projection(self, name: str) -> Explanation:
        row, column, head = self.cell.row, self.cell.column, self.cell.head
        crossed = name != "query" and self.layer.memory is not None
        source = "memory" if crossed else "input"
        x = getattr(self.layer, source)
        w = {"query": self.layer.w_q, "key": self.layer.w_k, "value": self.layer.w_v}[name]
        if x is None:
            return self._given(f"The {name} as it was given: nothing is computed here.")
        tex, letter = find_step(source).tex, name[0].upper()
        if w is None:
            if column >= x.shape[1] or float(x[row, column]) != self.value:
                return self._given(f"The {name} as the source recorded it; its projection is not known.")
            return self._made(
                (Term(number(self.value), self.value),), (rf"{tex}_{{{row},{column}}}",),
                f"No projection: {self.step.symbol} is {find_step(source).symbol} itself.",
                came_from=(Cell(source, 0, row, column),),
            )
        return self._products(
            x[row], w[head, :, column],
            rf"\sum_i {tex}_{{{row},i}}\, W^{{{letter}({head})}}_{{i,{column}}}",
            f"Row {row} of {find_step(source).symbol} times column {column} of this head's W_{letter}.",
            lambda i: (Cell(source, 0, row, i),),
        )

    def _scaled(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        score = float(self._row("scores", row)[column])
        divisor, temperature = self.layer.divisor, self.layer.temperature
        whole = divisor * (temperature or 1.0)
        root = rf"\sqrt{{{round(divisor**2)}}}" if divisor != 1 and math.isclose(divisor**2, round(divisor**2)) else number(divisor)
        below = root if temperature in (0, 1) else rf"{root} \cdot {number(temperature)}"
        words = "The score divided by " + ("√d_k" if divisor != 1 else "1: scaling is off")
        words += {0: "; at temperature 0 the division is left out and the softmax takes the largest score.", 1: "."}.get(
            temperature, " and by the temperature."
        )
        return self._made(
            (Term(number(score), score), Term(number(whole), whole)),
            (rf"\frac{{S{self._at(row, column)}}}{{{below}}}", rf"\frac{{{number(score)}}}{{{number(whole)}}}"),
            words, "quotient", came_from=(self._cell("scores", row, column),),
        )

    def _masked(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        before = float(self._row("scaled_scores", row)[column])
        came_from = (self._cell("scaled_scores", row, column),)
        if math.isinf(self.value):
            return self._made(
                (Term(r"-\infty", self.value),), (r"-\infty \quad \text{(hidden)}",),
                f"The mask hides key {column} from query {row}: its score becomes −∞, so that its weight will be exactly 0.", came_from=came_from,
            )
        return self._made(
            (Term(number(before), before),), (f"S'{self._at(row, column)}",),
            f"The mask lets query {row} see key {column}: the score stays as it is.", came_from=came_from,
        )

    def _weights(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        masked = self._row("masked_scores", row).double()
        visible = (masked > -math.inf).nonzero().flatten().tolist()
        came_from = (self._cell("masked_scores", row, column),)
        if not visible:
            return self._made(
                (), (),
                f"The mask hides every key from query {row}: there is nothing to share out, so all its weights are 0.", came_from=came_from,
            )
        highest = float(masked.max())
        if self.layer.temperature == 0:
            winners = [j for j in visible if float(masked[j]) == highest]
            won = float(column in winners)
            return self._made(
                (Term(number(won), won), Term(str(len(winners)), float(len(winners)))),
                (rf"\frac{{{number(won)}}}{{{len(winners)}}}",),
                f"Temperature 0 is argmax: the largest score, {highest:.4g}, takes all" + (f", shared by {len(winners)} keys." if len(winners) > 1 else "."),
                "quotient", came_from=came_from,
            )
        power = {j: math.exp(float(masked[j]) - highest) for j in visible}
        top = power.get(column, 0.0)
        parts = _largest([Term(rf"e^{{{number(float(masked[j]) - highest)}}}", power[j]) for j in visible])
        total = math.fsum(part.value for part in parts)
        at, peak = self._at(row, column), number(highest)
        above = rf"e^{{{number(float(masked[column]))} - {_factor(highest)}}}"
        return self._made(
            (Term(above, top), Term(number(total), total)),
            (
                rf"\frac{{e^{{M{at} - m}}}}{{\sum_j e^{{M{self._at(row, 'j')} - m}}}}, \quad m = \max_j M{self._at(row, 'j')} = {peak}",
                rf"\frac{{{above}}}{{{_summed(parts, per_line=99)}}}" if len(parts) <= 4 else rf"{above} \;\big/\; \big({_summed(parts)}\big)",
                rf"\frac{{{number(top)}}}{{{number(total)}}}",
            ),
            f"The share of key {column} in everything query {row} can see ({len(visible)} {'key' if len(visible) == 1 else 'keys'}).",
            "quotient", parts, came_from,
        )

    def _output(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        z, w_o = self.layer.head_output, self.layer.w_o
        if z is None or w_o is None:
            return self._given("The output as the source recorded it; its W_O is not known.")
        d_v = z.shape[-1]
        return self._products(
            z[:, row].flatten(), w_o[:, :, column].flatten(),
            rf"\sum_{{h,i}} Z^{{(h)}}_{{{row},i}}\, W^{{O(h)}}_{{i,{column}}}",
            f"The heads' outputs for query {row}, side by side, times column {column} of W_O.",
            lambda i: (Cell("head_output", i // d_v, row, i % d_v),),
        )

    def _given(self, words: str) -> Explanation:
        return self._made((Term(number(self.value), self.value),), (), words)

    # -- shared ------------------------------------------------------------------------------

    def _products(self, left: Tensor, right: Tensor, formula: str, words: str, back: Callable[[int], tuple[Cell, ...]]) -> Explanation:
        """A sum of products of two rows, the largest first where there are many."""
        pairs = list(zip(left.double().tolist(), right.double().tolist(), strict=True))
        terms = _largest([Term(rf"{_factor(a)} \cdot {_factor(b)}", a * b) for a, b in pairs])
        strongest = max(range(len(pairs)), key=lambda i: abs(pairs[i][0] * pairs[i][1]))
        return self._made(terms, (formula, _summed(terms)), words, came_from=back(strongest))

    def _made(
        self,
        terms: tuple[Term, ...],
        right_sides: tuple[str, ...],
        words: str,
        operation: Literal["sum", "quotient"] = "sum",
        parts: tuple[Term, ...] = (),
        came_from: tuple[Cell, ...] = (),
    ) -> Explanation:
        there = tuple(cell for cell in came_from if getattr(self.layer, cell.step) is not None)
        symbol = self.step.tex + self._at(self.cell.row, self.cell.column)
        result = () if right_sides and right_sides[-1].startswith(r"-\infty") else (number(self.value),)
        first, *rest = (*right_sides, *result)
        lines = (f"{symbol} &= {first}", *(f"&= {line}" for line in rest))
        return Explanation(self.step, self.cell, self.value, operation, terms, lines, words, parts, there)

    def _at(self, row: object, column: object) -> str:
        head = f"^{{({self.cell.head})}}" if self.step.per_head else ""
        return f"{head}_{{{row},{column}}}"

    def _cell(self, step: str, row: int, column: int) -> Cell:
        return Cell(step, self.cell.head if find_step(step).per_head else 0, row, column)

    def _row(self, name: str, index: int) -> Tensor:
        return self.layer.matrix(name, self.cell.head)[index]

    def _column(self, name: str, index: int) -> Tensor:
        return self.layer.matrix(name, self.cell.head)[:, index]


def _largest(terms: list[Term]) -> tuple[Term, ...]:
    """All terms in their order if they are few; otherwise the largest in theirs, and the rest as one sum."""
    if len(terms) <= SHOWN_TERMS:
        return tuple(terms)
    ranked = sorted(range(len(terms)), key=lambda i: -abs(terms[i].value))
    shown = sorted(ranked[:SHOWN_TERMS])
    rest = math.fsum(terms[i].value for i in ranked[SHOWN_TERMS:])
    return (*(terms[i] for i in shown), Term(rf"\underbrace{{{_factor(rest)}}}_{{{len(terms) - SHOWN_TERMS}\text{{ more}}}}", rest))


def _summed(terms: tuple[Term, ...], per_line: int = 2) -> str:
    """The terms with plus signs, broken into lines of an aligned block."""
    chunks = [terms[i : i + per_line] for i in range(0, len(terms), per_line)]
    return r" \\ &\quad + ".join(" + ".join(term.tex for term in chunk) for chunk in chunks)
