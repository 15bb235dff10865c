"""Numbers that are made of one or two others: added, divided, bent, turned."""

from __future__ import annotations

import math
from decimal import Decimal

from attention import printed
from attention.formula.biases import BIASES
from attention.formula.positions import BASE, partner
from attention.formula.steps import is_step
from attention.numbers.arithmetic import Explanation
from attention.numbers.working import Working
from attention.printed import Arithmetic, Printed, factor, number, product, quotient, shown


def given(work: Working) -> Explanation:
    """A number that was looked up."""
    return work.as_recorded(f"Looked up, not computed: {work.step.formula}.")


def added(work: Working) -> Explanation:
    """Two cells, added; where there is one of them only, it is taken over."""
    row, column = work.cell.row, work.cell.column
    names = [name for _, name in work.layer.factors(work.step)]
    if not names:
        return work.as_recorded()
    values = [work.number_at(name, row, column) for name in names]
    symbols = [work.symbol(name, row, column) for name in names]
    came_from = tuple(work.cell_of(name, row, column) for name in names if is_step(name))
    if len(names) == 1:
        words = {
            "embedding": "The token's embedding; no positions are added.",
            "position": "The encoding of the position; there is no embedding to add it to.",
        }.get(names[0], work.step.unknown)
        return work.copied(names[0], row, column, words, f"the token's {names[0]} alone")
    if -math.inf in values and names[values.index(-math.inf)] == "bias":
        text = f"The bias of this pair is −∞: it hides key {column} from query {row}, as a mask would."
        return work.stated(-math.inf, text, "hidden by the bias", came_from, (" + ".join(symbols), r"-\infty"))

    def line(digits: int) -> Printed:
        return printed.total([factor(value, digits) for value in values])

    words = work.step.words
    if "bias" in names and work.layer.formula is not None and work.layer.formula.bias in BIASES:
        words += f" The bias is {BIASES[work.layer.formula.bias].words}."
    return work.made(Arithmetic(" + ".join(symbols), [line], [line], words, values), came_from)


def elementwise(work: Working) -> Explanation:
    """A number that another was put through, or its own place."""
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
    (_, before), cap = work.layer.factors(work.step)[0], work.formula.cap or 1.0
    score = work.number_at(before, row, column)
    came_from = (work.cell_of(before, row, column),)
    if work.layer.temperature == 0:
        words = f"Temperature 0 is the limit: every score that is not 0 goes all the way to the cap, {shown(cap)}."
        return work.stated(cap * ((score > 0) - (score < 0)), words, "as far as the cap lets it", came_from)

    def line(digits: int) -> Printed:
        limit, inside = number(cap, 9), quotient(number(score, digits), number(cap, 9))
        value = limit.value * Decimal(math.tanh(float(inside.value)))
        return Printed(rf"{limit.tex} \cdot \tanh\left({inside.tex}\right)", f"{limit.text}·tanh({inside.text})", value)

    words = f"The score bent so that it stays between −{shown(cap)} and {shown(cap)}; near 0 it stays what it is."
    formula = rf"\text{{cap}} \cdot \tanh({work.symbol(before, row, column)} / \text{{cap}})"
    return work.made(Arithmetic(formula, [line], [line], words, [cap * math.tanh(score / cap)]), came_from)


def divided(work: Working) -> Explanation:
    """A score, divided by √d_k and by the temperature, as far as they change anything."""
    row, column, formula = work.cell.row, work.cell.column, work.formula
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
        return work.copied("scores", row, column, words, f"the score itself, {reason}")
    whole, rooted, under = divisor * (temperature or 1.0), "√" in texts[0], r" \cdot ".join(below)

    def line(digits: int) -> Printed:
        return quotient(number(score, digits), number(whole, digits))

    def short(digits: int) -> Printed:
        above, by = number(score, digits), number(divisor, digits)
        # A root has no last digit; a temperature may be printed with fewer than it has.
        exact = Decimal(divisor) if rooted else by.value
        said = " · ".join(texts if rooted or divisor == 1 else [by.text, *texts[1:]])
        text = f"{above.text} / {f'({said})' if len(texts) > 1 else said}"
        return Printed("", text, above.value / (exact * (warmth.value or 1)))

    made = Arithmetic(rf"\frac{{{symbol}}}{{{under}}}", [line], [short], words, [score, whole], "quotient")
    return work.made(made, came_from)


def rotated(work: Working) -> Explanation:
    """Two columns of a row, turned by an angle that grows with the position."""
    row, column = work.cell.row, work.cell.column
    ((_, before),) = work.layer.factors(work.step)
    vector = work.row_of(before, row).double().tolist()
    half, base = len(vector) // 2, work.formula.rotary or BASE
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
