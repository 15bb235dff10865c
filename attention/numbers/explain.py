"""One cell of one step: the arithmetic that made it, with the numbers in it. One function for each kind of arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

from attention import printed
from attention.errors import MissingError
from attention.formula.biases import BIASES
from attention.formula.cell import Cell
from attention.formula.formula import Formula
from attention.formula.positions import BASE, partner
from attention.formula.scores import SCORES
from attention.formula.shares import SHARES
from attention.formula.shares.share import Row
from attention.formula.steps import STEPS, Factor, How, find_step
from attention.formula.trace import Trace
from attention.numbers.arithmetic import Explanation, Term
from attention.numbers.working import Working
from attention.printed import Arithmetic, Printed, factor, number, product, quotient, shown


def explain(trace: Trace, step: str, layer: int = 0, head: int = 0, q: int = 0, k: int = 0) -> Explanation:
    """The arithmetic behind the number in row `q` and column `k` of a step.

    For the maps of scores and weights the row is query_pos and the column key_pos; for the others
    they are whatever the step's axes say, such as key_pos and d_v for `value`. Where the source does not have what made the
    number, or the arithmetic does not make it, the number is said to be as it was recorded.

    Raises:
        MissingError: the trace has no such layer, step, head or cell.
    """
    found, chosen = find_step(step), trace.layer(layer)
    matrix = chosen.matrix(step, head)
    for axis, index, size in ((found.row_axis, q, matrix.shape[0]), (found.column_axis, k, matrix.shape[1])):
        if not 0 <= index < size:
            raise MissingError(f"{axis} of {step} counts from 0 to {size - 1}; got {index}: choose one of these.")
    value = float(matrix[q, k]) + 0.0  # −0 is 0
    work = Working(chosen, found, Cell(layer, step, head, q, k), value)
    if chosen.formula is None and found.after_projections:
        return work.given()
    return _KINDS[found.how](work)


def _given(work: Working) -> Explanation:
    return work.given(f"Looked up, not computed: {work.step.formula}.")


def _sum(work: Working) -> Explanation:
    """Two cells, added; where there is one of them only, it is taken over."""
    row, column = work.cell.row, work.cell.column
    names = [name for _, name in work.layer.factors(work.step)]
    if not names:
        return work.given()
    values, symbols = (
        [work.number_at(name, row, column) for name in names],
        [work.symbol(name, row, column) for name in names],
    )
    came_from = tuple(work.cell_of(name, row, column) for name in names if _is_step(name))
    if len(names) == 1:
        words = {
            "embedding": "The token's embedding; no positions are added.",
            "position": "The encoding of the position; there is no embedding to add it to.",
        }.get(names[0], work.step.unknown)
        return work.copied(symbols[0], values[0], words, f"the token's {names[0]} alone", came_from)

    if -math.inf in values:
        text = f"The bias of this pair is −∞: it hides key {column} from query {row}, as a mask would."
        told = work.told((" + ".join(symbols), r"-\infty"), text, "−∞: hidden by the bias", came_from)
        return replace(told, terms=(Term(r"-\infty", work.value),))

    def line(digits: int) -> Printed:
        return printed.total([factor(value, digits) for value in values])

    words = work.step.words
    if "bias" in names and work.layer.formula is not None and work.layer.formula.bias in BIASES:
        words += f" The bias is {BIASES[work.layer.formula.bias].words}."
    return work.made(Arithmetic(" + ".join(symbols), [line], [line], words, values), came_from)


def _elementwise(work: Working) -> Explanation:
    return _wave(work) if work.step.name == "position" else _capped(work)


def _wave(work: Working) -> Explanation:
    """A sine or cosine of the position; a table that has something else is said to be one."""
    row, column = work.cell.row, work.cell.column
    d_model = work.layer["position"].shape[1]
    rate, even = f"{column // 2 * 2}/{d_model}", column % 2 == 0
    angle = row / BASE ** (column // 2 * 2 / d_model)
    wave, turn = ("sin", math.sin) if even else ("cos", math.cos)

    def turned(digits: int) -> Printed:
        at = number(angle, digits)
        return Printed(rf"\{wave}({at.tex})", f"{wave}({at.text})", Decimal(turn(float(at.value))))

    def short(_: int) -> Printed:
        return Printed("", f"{wave}({row} / 10000^({rate}))", Decimal(turn(angle)))

    words = f"Position {row} in column {column}: {'a sine' if even else 'a cosine'} that turns more slowly in later columns."
    formula = rf"\{wave}\left({row} \,/\, 10000^{{{rate}}}\right)"
    return work.made(Arithmetic(formula, [turned], [short], words, [turn(angle)]))


def _capped(work: Working) -> Explanation:
    row, column = work.cell.row, work.cell.column
    (_, before), cap = work.layer.factors(work.step)[0], _formula(work).cap or 1.0
    score = work.number_at(before, row, column)
    came_from = (work.cell_of(before, row, column),)
    if work.layer.temperature == 0:
        words = f"Temperature 0 is the limit: every score that is not 0 goes all the way to the cap, {shown(cap)}."
        return work.told((number(work.value).tex,), words, f"{shown(work.value)}: as far as the cap lets it", came_from)

    def line(digits: int) -> Printed:
        limit, inside = number(cap, 9), quotient(number(score, digits), number(cap, 9))
        value = limit.value * Decimal(math.tanh(float(inside.value)))
        return Printed(rf"{limit.tex} \cdot \tanh\left({inside.tex}\right)", f"{limit.text}·tanh({inside.text})", value)

    words = f"The score bent so that it stays between −{shown(cap)} and {shown(cap)}; near 0 it stays what it is."
    formula = rf"\text{{cap}} \cdot \tanh({work.symbol(before, row, column)} / \text{{cap}})"
    return work.made(Arithmetic(formula, [line], [line], words, [cap * math.tanh(score / cap)]), came_from)


def _rotation(work: Working) -> Explanation:
    """Two columns of a row, turned by an angle that grows with the position."""
    row, column = work.cell.row, work.cell.column
    ((_, before),) = work.layer.factors(work.step)
    vector = work.row_of(before, row).double().tolist()
    half, base = len(vector) // 2, _formula(work).rotary or BASE
    pair, first = column % half, column < half
    angle = row * base ** (-2 * pair / len(vector))
    other = partner(column, len(vector))
    factors = [(vector[column], math.cos(angle)), (vector[other], -math.sin(angle) if first else math.sin(angle))]
    sign = "-" if first else "+"
    symbols = work.symbol(before, row, column), work.symbol(before, row, other)
    formula = rf"{symbols[0]} \cos({row}\,\theta_{{{pair}}}) {sign} {symbols[1]} \sin({row}\,\theta_{{{pair}}})"
    return work.summed(
        [a * b for a, b in factors],
        lambda i, digits: product(*factors[i], digits),
        formula,
        f"Columns {pair} and {pair + half} are a pair, turned by position {row} times θ = {shown(base ** (-2 * pair / len(vector)))}: "
        f"by {shown(angle)} radians. A score then depends on how far two positions are apart.",
        lambda i: (work.cell_of(before, row, (column, other)[i]),),
    )


def _product(work: Working) -> Explanation:
    """A row times a column: every pair of numbers multiplied, and all products added."""
    formula = work.layer.formula
    if work.step.name == "scores" and formula is not None and SCORES[formula.score].how != "product":
        return _compared(work)
    factors = work.layer.factors(work.step)
    if len(factors) < len(work.step.of):
        return _unprojected(work, factors)
    (left, left_name), (right, right_name) = factors
    row, column = work.cell.row, work.cell.column
    if left.side_by_side:
        one, other = work.layer[left_name][:, row].flatten(), work.layer[right_name][:, :, column].flatten()
        width = work.layer.shape(left_name)[-1]
        tex = rf"\sum_{{h,i}} Z^{{(h)}}_{{{row},i}}\, W^{{O(h)}}_{{i,{column}}}"
        cells = [work.cell_of(left_name, row, i % width, i // width) for i in range(len(one))]

        def back(i: int) -> tuple[Cell, ...]:
            return (cells[i],)
    else:
        one = work.row_of(left_name, row)
        by_row = right.row == "column"  # Q Kᵀ: a row of K
        other = work.row_of(right_name, column) if by_row else work.column_of(right_name, column)
        letter = "j" if find_step(left_name).column_axis == "key_pos" else "i"
        places = (column, letter) if by_row else (letter, column)
        tex = rf"\sum_{letter} {work.symbol(left_name, row, letter)}\, {work.symbol(right_name, *places)}"

        def back(i: int) -> tuple[Cell, ...]:
            there = [(left_name, row, i), (right_name, column, i) if by_row else (right_name, i, column)]
            return tuple(work.cell_of(*place) for place in there if _is_step(place[0]))

    bias = f"b_{work.step.name[0]}" if work.step.name in ("query", "key", "value", "output") else ""
    plus = None
    if bias and work.layer.has(bias):
        added = work.layer[bias]
        plus = float(added[column] if added.ndim == 1 else work.layer.matrix(bias, work.cell.head)[column])
        tex += f" + {work.symbol(bias, '', column)}"
    pairs = list(zip(one.double().tolist(), other.double().tolist(), strict=True))
    share = "score" if left_name == "scores" else "weight"
    words = SCORES[formula.score].told if work.step.name == "scores" and formula else work.step.words
    words = words.format(row=row, column=column, left=find_step(left_name).symbol, share=share)
    if share == "score" and work.step.name == "head_output":
        words = words.replace(" says.", " says; there is no softmax.")
    return work.summed([a * b for a, b in pairs], lambda i, digits: product(*pairs[i], digits), tex, words, back, plus)


def _unprojected(work: Working, factors: list[tuple[Factor, str]]) -> Explanation:
    """A step that one of its factors is not known of; where it is the other factor itself, that is said."""
    row, column, name = work.cell.row, work.cell.column, work.step.name
    if name not in ("query", "key", "value") or not factors or not _is_step(factors[0][1]):
        return work.given()
    source = factors[0][1]
    x = work.layer[source]
    if column >= x.shape[1] or float(x[row, column]) != work.value:
        return work.given(f"The {name} as the source recorded it; its projection is not known.")
    symbol = find_step(source).symbol
    words = f"No projection: {work.step.symbol} is {symbol} itself."
    cells = (work.cell_of(source, row, column),)
    return work.copied(work.symbol(source, row, column), work.value, words, f"{symbol} itself, no projection", cells)


def _compared(work: Working) -> Explanation:
    """A score that is no plain product: a cosine, or a weighed tanh."""
    row, column, formula = work.cell.row, work.cell.column, _formula(work)
    if len(work.layer.factors(work.step)) < 2:
        return work.given()
    left, right = (name for _, name in work.layer.factors(work.step))
    query, key = work.row_of(left, row).double().tolist(), work.row_of(right, column).double().tolist()
    words = SCORES[formula.score].told.format(row=row, column=column)
    cells = work.cell_of(left, row, 0), work.cell_of(right, column, 0)
    if SCORES[formula.score].how == "cosine":
        dot, lengths = math.fsum(a * b for a, b in zip(query, key, strict=True)), math.hypot(*query) * math.hypot(*key)
        if not lengths:
            return work.told(("0",), f"{words} One of them has no length.", "0: one of them has no length", cells)

        def line(digits: int) -> Printed:
            return quotient(number(dot, digits), product(math.hypot(*query), math.hypot(*key), digits))

        def short(digits: int) -> Printed:
            below = product(math.hypot(*query), math.hypot(*key), digits)
            return quotient(number(dot, digits), Printed(below.tex, f"({below.text})", below.value))

        tex = rf"\frac{{\sum_i {work.symbol(left, row, 'i')}\, {work.symbol(right, column, 'i')}}}{{\lVert Q_{{{row}}} \rVert \, \lVert K_{{{column}}} \rVert}}"
        return work.made(Arithmetic(tex, [line], [short], words, [dot, lengths], "quotient"), cells)
    weights = work.layer["w_s"][work.cell.head].double().tolist()
    sums = [a + b for a, b in zip(query, key, strict=True)]

    def piece(i: int, digits: int) -> Printed:
        weight, inside = factor(weights[i], digits), number(sums[i], digits)
        value = weight.value * Decimal(math.tanh(float(inside.value)))
        return Printed(rf"{weight.tex} \cdot \tanh({inside.tex})", f"{weight.text}·tanh({inside.text})", value)

    tex = rf"\sum_i w_{{S,i}} \tanh({work.symbol(left, row, 'i')} + {work.symbol(right, column, 'i')})"
    values = [weight * math.tanh(one) for weight, one in zip(weights, sums, strict=True)]
    return work.summed(
        values, piece, tex, words, lambda i: (work.cell_of(left, row, i), work.cell_of(right, column, i))
    )


def _division(work: Working) -> Explanation:
    row, column, formula = work.cell.row, work.cell.column, _formula(work)
    score, divisor, temperature = work.number_at("scores", row, column), formula.divisor or 1.0, work.layer.temperature
    d_k = work.layer.sizes.get("d_k", 0)
    below, texts, reason, warmth = [], [], "", number(temperature, 9)
    if d_k > 1 and math.isclose(divisor, 1 / math.sqrt(d_k)):
        below, texts, words = [rf"(1/\sqrt{{{d_k}}})"], [f"(1/√{d_k})"], "The score times √d_k"
    elif d_k > 1 and math.isclose(divisor, math.sqrt(d_k)):
        below, texts, words = [rf"\sqrt{{{d_k}}}"], [f"√{d_k}"], "The score divided by √d_k"
    elif divisor == 1:
        reason = "d_k is 1, and so is √d_k" if d_k == 1 else "scaling is off" if d_k else "no query and key made it"
        words = f"The score is not divided by √d_k: {reason}"
    else:
        below, texts, words = [number(divisor).tex], [number(divisor).text], "The score divided by its divisor"
    came_from, symbol = (work.cell_of("scores", row, column),), work.symbol("scores", row, column)
    if temperature == 0:
        words += "; the division by temperature 0 is left out, the weights take its limit instead."
    elif temperature == 1:
        words += "."
    else:
        words += ", and by the temperature." if texts else "; it is divided by the temperature."
        below, texts = [*below, warmth.tex], [*texts, warmth.text]
    if not texts:
        return work.copied(symbol, score, words, f"the score itself, {reason}", came_from)
    whole = divisor * (temperature or 1.0)
    said, under = " · ".join(texts), r" \cdot ".join(below)

    def line(digits: int) -> Printed:
        return quotient(number(score, digits), number(whole, digits))

    def short(digits: int) -> Printed:
        above = number(score, digits)
        text = f"{above.text} / {f'({said})' if len(texts) > 1 else said}"
        # A root has no last digit; a temperature may be printed with fewer than it has.
        return Printed("", text, above.value / (Decimal(divisor) * (warmth.value or 1)))

    return work.made(
        Arithmetic(rf"\frac{{{symbol}}}{{{under}}}", [line], [short], words, [score, whole], "quotient"), came_from
    )


def _drawn(work: Working) -> Explanation:
    """A weight that was dropped, or left."""
    row, column = work.cell.row, work.cell.column
    weight, hidden = work.number_at("weights", row, column), _hides(work)
    symbol, dropping = work.symbol("weights", row, column), _formula(work).dropping
    arithmetic = dropping.arithmetic(symbol, weight, work.value, row, column, hidden)
    return work.made(arithmetic, (work.cell_of("weights", row, column),))


def _hidden(work: Working) -> Explanation:
    row, column = work.cell.row, work.cell.column
    before = next((name for factor_, name in work.layer.factors(work.step) if _is_step(name)), "")
    if not before:
        return work.given("The masked score as the source recorded it; what made it is not known.")
    came_from = (work.cell_of(before, row, column),)
    if work.value == -math.inf and _hider(work) == "mask":
        explanation = work.told(
            (r"-\infty \quad \text{(hidden)}",),
            f"The mask hides key {column} from query {row}: its score becomes −∞, so that its weight will be exactly 0.",
            "−∞: hidden by the mask",
            came_from,
        )
        return replace(explanation, terms=(Term(r"-\infty", work.value),))
    words = f"The mask lets query {row} see key {column}: its score stays as it is."
    if work.value == -math.inf:
        words = f"The bias has hidden key {column} from query {row} already: its score stays −∞."
    symbol, score = work.symbol(before, row, column), work.number_at(before, row, column)
    return work.copied(symbol, score, words, "stays as it is, the key is visible", came_from)


def _shared_out(work: Working) -> Explanation:
    row, column, formula = work.cell.row, work.cell.column, _formula(work)
    if not work.layer.has("masked_scores"):
        return work.given()
    masked = work.row_of("masked_scores", row).double().tolist()
    learned = SHARES[formula.share].parameter
    own = float(work.layer[learned][work.cell.head]) if learned else 0.0
    scores = Row(masked, column, work.at(row, column), work.at(row, "j"), own)
    came_from = (work.cell_of("masked_scores", row, column),)
    hides = _hider(work)
    if not scores.visible:
        words = (
            f"The {hides} hides every key from query {row}: there is nothing to share out, so all its weights are 0."
        )
        return work.told(("0",), words, f"0: the {hides} hides every key", came_from)
    seen = column in scores.visible
    hiding = "" if seen else f"The {hides} hides key {column} from query {row}: its score is −∞, so its weight is 0. "
    if work.layer.temperature == 0 and not formula.cap:
        return _coldest(work, scores, hiding, came_from)
    arithmetic = SHARES[formula.share].arithmetic(scores)
    made = work.made(replace(arithmetic, words=hiding + arithmetic.words.format(row=row)), came_from)
    return made if seen else replace(made, short=f"0: hidden by the {hides}", sign="=")


def _hider(work: Working) -> str:
    """What hides a key: the mask, or a bias of −∞."""
    return "mask" if _hides(work) or not work.layer.has("bias") else "bias"


def _hides(work: Working) -> bool:
    """Whether the mask hides the key from the query."""
    return work.layer.has("mask") and not bool(work.layer["mask"][work.cell.row, work.cell.column])


def _coldest(work: Working, row: Row, hiding: str, came_from: tuple[Cell, ...]) -> Explanation:
    """The limit of temperature 0."""
    formula, highest = _formula(work), max(row.scores)
    if formula.share not in ("softmax", "sparsemax") or formula.bias:
        words = f"{hiding}Temperature 0 is the limit of ever smaller ones: scores above, at and below the largest, or 0, are told apart and nothing else."
        tex, short = number(work.value).tex, f"{shown(work.value)}: the limit of temperature 0"
        return work.told((tex,), words, short, came_from, (Term(tex, work.value),))
    winners = [j for j in row.visible if row.scores[j] == highest]
    won, shared = float(row.column in winners), float(len(winners))

    def line(digits: int) -> Printed:
        return quotient(number(won, digits), Printed(f"{len(winners)}", f"{len(winners)}", Decimal(len(winners))))

    words = f"{hiding}Temperature 0 is argmax: the largest score, {shown(highest)}, takes all"
    words += f", shared by {len(winners)} keys." if len(winners) > 1 else "."
    made = work.made(Arithmetic("", [line], [line], words, [won, shared], "quotient"), came_from)
    reason = "hidden by the mask" if hiding else "not the largest score"
    return made if won else replace(made, short=f"0: {reason}")


def _formula(work: Working) -> Formula:
    assert work.layer.formula is not None  # `explain` has looked
    return work.layer.formula


def _is_step(name: str) -> bool:
    return any(step.name == name for step in STEPS)


_KINDS: dict[How, Callable[[Working], Explanation]] = {
    "given": _given,
    "sum": _sum,
    "product": _product,
    "rotation": _rotation,
    "division": _division,
    "elementwise": _elementwise,
    "hidden": _hidden,
    "shared out": _shared_out,
    "drawn": _drawn,
}
