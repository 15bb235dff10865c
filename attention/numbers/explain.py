"""One cell of one step: the arithmetic that made it, with the numbers in it.

Longer than most files here because it has a method for every kind of step; they share the last ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, TypeAlias

from attention.errors import MissingError
from attention.formula.trace import Layer, Step, Trace, find_step
from attention.numbers import printed
from attention.numbers.arithmetic import SHOWN_TERMS, Cell, Explanation, Term, largest
from attention.numbers.printed import Printed, factor, fitting, number, quotient, shown

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
    value = float(matrix[q, k]) + 0.0  # −0 is 0
    return _Explainer(chosen, found, Cell(step, head, q, k), value).explain()


_Line: TypeAlias = Callable[[int], Printed]  # arithmetic, given how many digits its numbers have
_FEWEST = 3  # digits of a number in the arithmetic in one line
_SHORT = 70  # characters that the arithmetic in one line may take
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
        came_from = tuple(self._cell(name, row, column) for name, *_ in there)
        if len(there) == 1:
            ((name, tex, value),) = there
            words = (
                "The token's embedding; no positions are added."
                if name == "embedding"
                else "The encoding of the position; there is no embedding to add it to."
            )
            return self._copied(f"{tex}{at}", value, words, f"the token's {name} alone", came_from)

        def line(digits: int) -> Printed:
            return printed.total([factor(value, digits) for *_, value in there])

        return self._made(
            " + ".join(f"{tex}{at}" for _, tex, _ in there),
            [line],
            [line],
            "The token's embedding plus the encoding of its position.",
            [value for *_, value in there],
            came_from=came_from,
        )

    def _position(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        d_model = self.layer["position"].shape[1]
        rate, even = f"{column // 2 * 2}/{d_model}", column % 2 == 0
        angle = row / 10000 ** (column // 2 * 2 / d_model)
        wave, turn = ("sin", math.sin) if even else ("cos", math.cos)
        if not math.isclose(turn(angle), self.value, abs_tol=1e-4):
            return self._given("The row this position has in the table of positions: nothing is computed here.")

        def turned(digits: int) -> Printed:
            at = number(angle, digits)
            return Printed(rf"\{wave}({at.tex})", f"{wave}({at.text})", Decimal(turn(float(at.value))))

        def short(_: int) -> Printed:
            return Printed("", f"{wave}({row} / 10000^({rate}))", Decimal(turn(angle)))

        return self._made(
            rf"\{wave}\left({row} \,/\, 10000^{{{rate}}}\right)",
            [turned],
            [short],
            f"Position {row} in column {column}: {'a sine' if even else 'a cosine'} that turns more slowly in later columns.",
            [turn(angle)],
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
            return self._copied(
                rf"{tex}_{{{row},{column}}}",
                self.value,
                f"No projection: {self.step.symbol} is {find_step(source).symbol} itself.",
                f"{find_step(source).symbol} itself, no projection",
                (Cell(source, 0, row, column),),
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
        by_root = d_k > 1 and math.isclose(divisor, math.sqrt(d_k))
        below, texts, reason, warmth = [], [], "", number(temperature, 9)
        if by_root:
            below, texts, words = [rf"\sqrt{{{d_k}}}"], [f"√{d_k}"], "The score divided by √d_k"
        elif divisor == 1:
            reason = "d_k is 1, and so is √d_k" if d_k == 1 else "scaling is off"
            words = f"The score is not divided by √d_k: {reason}"
        else:
            below, texts, words = [number(divisor).tex], [number(divisor).text], "The score divided by its divisor"
        if temperature == 0:
            words += "; the division by temperature 0 is left out, the softmax takes its limit instead."
        elif temperature == 1:
            words += "."
        else:
            below, texts = [*below, warmth.tex], [*texts, warmth.text]
            words += ", and by the temperature." if divisor != 1 else "; it is divided by the temperature."
        symbol, came_from = f"S{self._at(row, column)}", (self._cell("scores", row, column),)
        if not below:
            return self._copied(symbol, score, words, f"the score itself, {reason}", came_from)
        whole = divisor * (temperature or 1.0)
        said, under = " · ".join(texts), r" \cdot ".join(below)

        def line(digits: int) -> Printed:
            return quotient(number(score, digits), number(whole, digits))

        def short(digits: int) -> Printed:
            above = number(score, digits)
            text = f"{above.text} / {f'({said})' if len(texts) > 1 else said}"
            # A root has no last digit; a temperature may be printed with fewer than it has.
            return Printed("", text, above.value / (Decimal(divisor) * (warmth.value or 1)))

        return self._made(
            rf"\frac{{{symbol}}}{{{under}}}",
            [line],
            [short],
            words,
            [score, whole],
            "quotient",
            came_from=came_from,
        )

    def _masked(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        unmasked = "scores" if self.layer.scaled_scores is None else "scaled_scores"
        if getattr(self.layer, unmasked) is None:
            return self._given("The masked score as the source recorded it; what made it is not known.")
        came_from = (self._cell(unmasked, row, column),)
        if self.value == -math.inf:
            return self._told(
                (r"-\infty \quad \text{(hidden)}",),
                f"The mask hides key {column} from query {row}: its score becomes −∞, so that its weight will be exactly 0.",
                "−∞: hidden by the mask",
                came_from,
                (Term(r"-\infty", self.value),),
            )
        before = float(self._row(unmasked, row)[column])
        symbol = f"{find_step(unmasked).tex}{self._at(row, column)}"
        words = f"The mask lets query {row} see key {column}: its score stays as it is."
        return self._copied(symbol, before, words, "stays as it is, the key is visible", came_from)

    def _weights(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        masked = self._row("masked_scores", row).double().tolist()
        visible = [j for j, score in enumerate(masked) if score > -math.inf]
        came_from = (self._cell("masked_scores", row, column),)
        if not visible:
            words = (
                f"The mask hides every key from query {row}: there is nothing to share out, so all its weights are 0."
            )
            return self._told(("0",), words, "0: the mask hides every key", came_from)
        seen = column in visible
        hiding = "" if seen else f"The mask hides key {column} from query {row}: its score is −∞, so its weight is 0. "
        highest = max(masked)
        if self.layer.temperature == 0:
            return self._largest_takes_all(masked, visible, hiding, came_from)
        power = {j: math.exp(masked[j] - highest) for j in visible}
        top, total = power.get(column, 0.0), math.fsum(power.values())
        few = [visible[i] for i in largest(list(power.values()))]
        others = math.fsum(power[j] for j in visible if j not in set(few))

        def parts(digits: int) -> list[Printed]:
            more = [printed.rest(others, len(visible) - len(few), digits)] if len(few) < len(visible) else []
            return [*(printed.powered(masked[j], highest, digits) for j in few), *more]

        def above(digits: int) -> Printed:
            return printed.power(masked[column], highest, digits)

        def whole(digits: int) -> Printed:
            if len(few) <= 4:
                return quotient(above(digits), printed.total(parts(digits), per_line=99))
            one, below = above(digits), printed.total(parts(digits))
            tex = rf"{one.tex} \;\big/\; \big({below.tex}\big)"
            return Printed(tex, "", one.value / below.value, (one, below))

        def shares(digits: int) -> Printed:
            return quotient(number(top, digits), number(total, digits))

        def short(digits: int) -> Printed:
            return quotient(above(digits), number(total, digits))

        at, any_at = self._at(row, column), self._at(row, "j")
        made = self._made(
            rf"\frac{{e^{{M{at} - m}}}}{{\sum_j e^{{M{any_at} - m}}}}, \quad m = \max_j M{any_at} = {printed.exponent(highest).tex}",
            [whole, shares],
            [short],
            hiding
            + f"The share of key {column} in everything query {row} can see ({len(visible)} {'key' if len(visible) == 1 else 'keys'}).",
            [top, total],
            "quotient",
            [power[j] for j in few] + [others] * (len(few) < len(visible)),
            came_from,
        )
        return made if seen else replace(made, short="0: hidden by the mask", sign="=")

    def _largest_takes_all(
        self, masked: list[float], visible: list[int], hiding: str, came_from: tuple[Cell, ...]
    ) -> Explanation:
        """The limit of temperature 0."""
        column, highest = self.cell.column, max(masked)
        winners = [j for j in visible if masked[j] == highest]
        won, shared = float(column in winners), float(len(winners))

        def line(digits: int) -> Printed:
            return quotient(number(won, digits), Printed(f"{len(winners)}", f"{len(winners)}", Decimal(len(winners))))

        made = self._made(
            "",
            [line],
            [line],
            f"{hiding}Temperature 0 is argmax: the largest score, {shown(highest)}, takes all"
            + (f", shared by {len(winners)} keys." if len(winners) > 1 else "."),
            [won, shared],
            "quotient",
            came_from=came_from,
        )
        reason = "hidden by the mask" if hiding else "not the largest score"
        return made if won else replace(made, short=f"0: {reason}")

    def _dropped(self) -> Explanation:
        row, column = self.cell.row, self.cell.column
        weight, kept = float(self._row("weights", row)[column]), 1 - self.layer.dropout
        came_from = (self._cell("weights", row, column),)
        mask = self.layer.mask
        if weight == 0 and mask is not None and not bool(mask[row, column]):
            words = f"The mask hides key {column} from query {row}: its weight is 0 before the dropout, and after it."
            return self._told(("0",), words, "0: hidden by the mask", came_from)
        if self.value == 0 and weight != 0:
            words = f"Dropout fell on this cell: query {row} does without key {column} this time."
            return self._told(("0",), words, "0: dropped", came_from)
        if weight == 0:
            words = f"The weight of key {column} is 0, and stays 0 whether dropout fell on it or not."
            return self._told(("0",), words, "0: the weight is 0", came_from)
        at, share = self._at(row, column), number(self.layer.dropout, 9)

        def line(digits: int) -> Printed:
            return quotient(number(weight, digits), number(kept, digits))

        def short(digits: int) -> Printed:
            above = number(weight, digits)
            return Printed("", f"{above.text} / (1 − {share.text})", above.value / (1 - share.value))

        return self._made(
            rf"\frac{{A{at}}}{{1 - {share.tex}}}",
            [line],
            [short],
            "Dropout left this cell: it is divided by the share that is kept, so that the row sums to 1 on average.",
            [weight, kept],
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

    # -- shared ------------------------------------------------------------------------------

    def _products(
        self, left: Tensor, right: Tensor, formula: str, words: str, back: Callable[[int], tuple[Cell, ...]]
    ) -> Explanation:
        """A sum of products of two rows, the largest where there are many."""
        pairs = list(zip(left.double().tolist(), right.double().tolist(), strict=True))
        products = [a * b for a, b in pairs]

        def line(few: list[int]) -> _Line:
            others = _without(products, few)

            def summed(digits: int) -> Printed:
                more = [printed.rest(others, len(pairs) - len(few), digits)] if len(few) < len(pairs) else []
                return printed.total([*(printed.product(*pairs[i], digits) for i in few), *more])

            return summed

        few, something = largest(products), sum(product != 0 for product in products)
        # In one line as many as it holds, and none that adds nothing where the rest says so.
        most = something if 0 < something < len(pairs) - 1 else len(pairs)
        counts = [count for count in range(min(most, SHOWN_TERMS), 0, -1) if len(pairs) - count != 1]
        return self._made(
            formula,
            [line(few)],
            [line(largest(products, count)) for count in counts],
            words,
            [*(products[i] for i in few), *([_without(products, few)] if len(few) < len(pairs) else [])],
            came_from=back(max(range(len(pairs)), key=lambda i: abs(products[i]))),
        )

    def _given(self, words: str) -> Explanation:
        """A number that nothing here has made."""
        tex = number(self.value).tex
        return self._told((tex,), words, terms=(Term(tex, self.value),))

    def _copied(self, symbol: str, value: float, words: str, why: str, came_from: tuple[Cell, ...]) -> Explanation:
        """A number of an earlier step, taken over as it is."""
        tex = number(self.value).tex
        return self._told((symbol, tex), words, f"{shown(self.value)}: {why}", came_from, (Term(tex, value),))

    def _told(
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

    def _made(
        self,
        formula: str,
        lines: Sequence[_Line],
        shorts: Sequence[_Line],
        words: str,
        values: Sequence[float],
        operation: Literal["sum", "quotient"] = "sum",
        below: Sequence[float] = (),
        came_from: tuple[Cell, ...] = (),
    ) -> Explanation:
        """A number and the arithmetic that made it, every line with the digits that it needs.

        `values` are those of the last line's parts, `below` of the summands under the first line's fraction, in full
        precision. Of the `shorts` the first is taken that is short enough, or the last.
        """
        fitted = [fitting(line, self.value) for line in lines]
        right_sides = [("=", formula)] if formula else []
        exact = True
        for one in fitted:  # "≈" stands before and after a line that does not give the value
            right_sides.append(("=" if exact and one.agrees else r"\approx", one.printed.tex))
            exact = one.agrees
        right_sides.append(("=" if exact else r"\approx", number(self.value).tex))
        brief = [short for short in shorts if len(short(_FEWEST).text) <= _SHORT] or [shorts[-1]]
        for make in brief:
            short = fitting(make, self.value, _FEWEST)
            if len(short.printed.text) <= _SHORT:
                break
        return Explanation(
            self.step,
            self.cell,
            self.value,
            operation,
            _terms(fitted[-1].printed, values),
            self._aligned(right_sides),
            words,
            _terms(fitted[0].printed.parts[1], below) if below else (),
            self._there(came_from),
            short.printed.text,
            "=" if short.agrees else "≈",
        )

    def _aligned(self, right_sides: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """Lines of LaTeX with the number's symbol in front of the first."""
        symbol = self.step.tex + self._at(self.cell.row, self.cell.column)
        return tuple(f"{'' if i else symbol + ' '}&{relation} {side}" for i, (relation, side) in enumerate(right_sides))

    def _there(self, cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
        return tuple(cell for cell in cells if getattr(self.layer, cell.step) is not None)

    def _at(self, row: object, column: object) -> str:
        head = f"^{{({self.cell.head})}}" if self.step.per_head else ""
        return f"{head}_{{{row},{column}}}"

    def _cell(self, step: str, row: int, column: int) -> Cell:
        return Cell(step, self.cell.head if find_step(step).per_head else 0, row, column)

    def _row(self, name: str, index: int) -> Tensor:
        return self.layer.matrix(name, self.cell.head)[index]

    def _column(self, name: str, index: int) -> Tensor:
        return self.layer.matrix(name, self.cell.head)[:, index]


def _without(values: list[float], few: list[int]) -> float:
    """The sum of all values but a few."""
    shown = set(few)
    return math.fsum(value for i, value in enumerate(values) if i not in shown)


def _terms(printed: Printed, values: Sequence[float]) -> tuple[Term, ...]:
    parts = printed.parts or (printed,)
    return tuple(Term(part.tex, value) for part, value in zip(parts, values, strict=True))
