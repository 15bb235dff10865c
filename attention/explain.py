"""One cell of one step: the arithmetic that made it, with the numbers in it.

Longer than most files here because it has a method for every kind of step; they share the last ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attention.arithmetic import Cell, Explanation, Term, exponent, factor, largest, number, summed
from attention.errors import MissingError
from attention.trace import Layer, Step, Trace, find_step

if TYPE_CHECKING:
    from torch import Tensor


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


_MADE_FROM = {
    "scaled_scores": ("query", "scores"),
    "weights": ("masked_scores",),
    "dropped_weights": ("weights",),
}


@dataclass(frozen=True)
class _Explainer:
    layer: Layer
    step: Step
    cell: Cell
    value: float

    def explain(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        if any(getattr(self.layer, name) is None for name in _MADE_FROM.get(self.step.name, ())):
            return self._given(f"The {self.step.name} as the source recorded it; what made it is not known.")
        match self.step.name:
            case "input":
                return self._input()
            case "position":
                return self._position()
            case "query" | "key" | "value" as name:
                return self._projection(name)
            case "scores" if self.layer.query is None or self.layer.key is None:
                return self._given("The score as it was given: no query and key made it.")
            case "scores":
                return self._products(
                    self._row("query", row),
                    self._row("key", column),
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
            case "dropped_weights":
                return self._dropped()
            case "head_output":
                return self._head_output()
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
            (" + ".join(f"{tex}{at}" for _, tex, _ in there), " + ".join(factor(value) for *_, value in there)),
            "The token's embedding plus the encoding of its position."
            if len(there) > 1
            else "The token's embedding; no positions are added.",
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
        turned = f"{angle:.7g}"  # 4 digits of an angle do not give 4 digits of its sine
        return self._made(
            (Term(rf"{wave}({turned})", value),),
            (rf"{wave}\left({row} \,/\, 10000^{{{exponent}}}\right)", rf"{wave}({turned})"),
            f"Position {row} in column {column}: {'a sine' if column % 2 == 0 else 'a cosine'} that turns more slowly in later columns.",
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
                (Term(number(self.value), self.value),),
                (rf"{tex}_{{{row},{column}}}",),
                f"No projection: {self.step.symbol} is {find_step(source).symbol} itself.",
                came_from=(Cell(source, 0, row, column),),
            )
        return self._products(
            x[row],
            w[head, :, column],
            rf"\sum_i {tex}_{{{row},i}}\, W^{{{letter}({head})}}_{{i,{column}}}",
            f"Row {row} of {find_step(source).symbol} times column {column} of this head's W_{letter}.",
            lambda i: (Cell(source, 0, row, i),),
        )

    def _scaled(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        score = float(self._row("scores", row)[column])
        divisor, temperature = self.layer.divisor, self.layer.temperature
        d_k = self.layer["query"].shape[-1]
        scaled = math.isclose(divisor, math.sqrt(d_k))
        whole = divisor * (temperature or 1.0)
        below = rf"\sqrt{{{d_k}}}" if scaled else number(divisor)
        words = f"The score divided by {'√d_k' if scaled else 'nothing, scaling is off'}"
        if temperature == 0:
            words += "; the division by temperature 0 is left out, the softmax takes its limit instead."
        elif temperature == 1:
            words += "."
        else:
            below += rf" \cdot {number(temperature)}"
            words += ", and by the temperature."
        return self._made(
            (Term(number(score), score), Term(number(whole), whole)),
            (rf"\frac{{S{self._at(row, column)}}}{{{below}}}", rf"\frac{{{number(score)}}}{{{number(whole)}}}"),
            words,
            "quotient",
            came_from=(self._cell("scores", row, column),),
        )

    def _masked(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        unmasked = "scores" if self.layer.scaled_scores is None else "scaled_scores"
        if getattr(self.layer, unmasked) is None:
            return self._given("The masked score as the source recorded it; what made it is not known.")
        before = float(self._row(unmasked, row)[column])
        came_from = (self._cell(unmasked, row, column),)
        if math.isinf(self.value):
            return self._made(
                (Term(r"-\infty", self.value),),
                (r"-\infty \quad \text{(hidden)}",),
                f"The mask hides key {column} from query {row}: its score becomes −∞, so that its weight will be exactly 0.",
                came_from=came_from,
            )
        return self._made(
            (Term(number(before), before),),
            (f"{find_step(unmasked).tex}{self._at(row, column)}",),
            f"The mask lets query {row} see key {column}: the score stays as it is.",
            came_from=came_from,
        )

    def _weights(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        masked = self._row("masked_scores", row).double()
        visible = (masked > -math.inf).nonzero().flatten().tolist()
        came_from = (self._cell("masked_scores", row, column),)
        if not visible:
            return self._made(
                (),
                (),
                f"The mask hides every key from query {row}: there is nothing to share out, so all its weights are 0.",
                came_from=came_from,
            )
        highest = float(masked.max())
        if self.layer.temperature == 0:
            winners = [j for j in visible if float(masked[j]) == highest]
            won = float(column in winners)
            return self._made(
                (Term(number(won), won), Term(str(len(winners)), float(len(winners)))),
                (rf"\frac{{{number(won)}}}{{{len(winners)}}}",),
                f"Temperature 0 is argmax: the largest score, {highest:.4g}, takes all"
                + (f", shared by {len(winners)} keys." if len(winners) > 1 else "."),
                "quotient",
                came_from=came_from,
            )
        power = {j: math.exp(float(masked[j]) - highest) for j in visible}
        top = power.get(column, 0.0)
        parts = largest([Term(rf"e^{{{exponent(float(masked[j]) - highest)}}}", power[j]) for j in visible])
        total = math.fsum(part.value for part in parts)
        at, peak = self._at(row, column), exponent(highest)
        less = f"- {peak}" if highest >= 0 else f"- ({peak})"
        above = rf"e^{{{exponent(float(masked[column]))} {less}}}"
        return self._made(
            (Term(above, top), Term(number(total), total)),
            (
                rf"\frac{{e^{{M{at} - m}}}}{{\sum_j e^{{M{self._at(row, 'j')} - m}}}}, \quad m = \max_j M{self._at(row, 'j')} = {peak}",
                rf"\frac{{{above}}}{{{summed(parts, per_line=99)}}}"
                if len(parts) <= 4
                else rf"{above} \;\big/\; \big({summed(parts)}\big)",
                rf"\frac{{{number(top)}}}{{{number(total)}}}",
            ),
            f"The share of key {column} in everything query {row} can see ({len(visible)} {'key' if len(visible) == 1 else 'keys'}).",
            "quotient",
            parts,
            came_from,
        )

    def _dropped(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        weight, kept = float(self._row("weights", row)[column]), 1 - self.layer.dropout
        came_from = (self._cell("weights", row, column),)
        if self.value == 0 and weight != 0:
            words = f"Dropout fell on this cell: query {row} does without key {column} this time."
            return self._made((), (), words, came_from=came_from)
        at = self._at(row, column)
        return self._made(
            (Term(number(weight), weight), Term(number(kept), kept)),
            (rf"\frac{{A{at}}}{{1 - {number(self.layer.dropout)}}}", rf"\frac{{{number(weight)}}}{{{number(kept)}}}"),
            "Dropout left this cell: it is divided by the share that is kept, so that the row sums to 1 on average.",
            "quotient",
            came_from=came_from,
        )

    def _head_output(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        # What mixes the values is the last there is; without a softmax, the scores themselves.
        last = ("dropped_weights", "weights", "scores")
        share = next((name for name in last if getattr(self.layer, name) is not None), None)
        if share is None or self.layer.value is None:
            return self._given("The head_output as the source recorded it; what made it is not known.")
        says = "its score says; there is no softmax" if share == "scores" else "its weight says"
        return self._products(
            self._row(share, row),
            self._column("value", column),
            rf"\sum_j {find_step(share).tex}{self._at(row, 'j')}\, V{self._at('j', column)}",
            f"Query {row} takes from each key's value as much as {says}.",
            lambda i: (self._cell(share, row, i), self._cell("value", i, column)),
        )

    def _output(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        z, w_o = self.layer.head_output, self.layer.w_o
        if z is None or w_o is None:
            return self._given("The output as the source recorded it; its W_O is not known.")
        d_v = z.shape[-1]
        return self._products(
            z[:, row].flatten(),
            w_o[:, :, column].flatten(),
            rf"\sum_{{h,i}} Z^{{(h)}}_{{{row},i}}\, W^{{O(h)}}_{{i,{column}}}",
            f"The heads' outputs for query {row}, side by side, times column {column} of W_O.",
            lambda i: (Cell("head_output", i // d_v, row, i % d_v),),
        )

    def _given(self, words: str) -> Explanation:
        return self._made((Term(number(self.value), self.value),), (), words)

    # -- shared ------------------------------------------------------------------------------

    def _products(
        self, left: Tensor, right: Tensor, formula: str, words: str, back: Callable[[int], tuple[Cell, ...]]
    ) -> Explanation:
        """A sum of products of two rows, the largest first where there are many."""
        pairs = list(zip(left.double().tolist(), right.double().tolist(), strict=True))
        terms = largest([Term(rf"{factor(a)} \cdot {factor(b)}", a * b) for a, b in pairs])
        strongest = max(range(len(pairs)), key=lambda i: abs(pairs[i][0] * pairs[i][1]))
        return self._made(terms, (formula, summed(terms)), words, came_from=back(strongest))

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
        said = bool(right_sides) and right_sides[-1].startswith(r"-\infty")
        first, *rest = right_sides if said else (*right_sides, number(self.value))
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
