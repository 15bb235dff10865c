"""Numbers that a row and a column make: a product, or a score that is none."""

from __future__ import annotations

import math
from decimal import Decimal

from attention.formula.cell import Cell
from attention.formula.scores import SCORES
from attention.formula.steps import Factor, find_step, is_step
from attention.numbers.arithmetic import Explanation
from attention.numbers.working import Working
from attention.printed import Arithmetic, Printed, factor, number, product, quotient


def multiplied(work: Working) -> Explanation:
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
            return tuple(work.cell_of(*place) for place in there if is_step(place[0]))

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
    if name not in ("query", "key", "value") or not factors or not is_step(factors[0][1]):
        return work.as_recorded()
    source = factors[0][1]
    x = work.layer[source]
    if column >= x.shape[1] or float(x[row, column]) != work.value:
        return work.as_recorded(f"The {name} as the source recorded it; its projection is not known.")
    symbol = find_step(source).symbol
    words = f"No projection: {work.step.symbol} is {symbol} itself."
    return work.copied(source, row, column, words, f"{symbol} itself, no projection")


def _compared(work: Working) -> Explanation:
    """A score that is no plain product: a cosine, or a weighed tanh."""
    names = [name for _, name in work.layer.factors(work.step)]
    if len(names) < 2:
        return work.as_recorded()
    score = SCORES[work.formula.score]
    words = score.told.format(row=work.cell.row, column=work.cell.column)
    return (_cosine if score.how == "cosine" else _additive)(work, names[0], names[1], words)


def _cosine(work: Working, left: str, right: str, words: str) -> Explanation:
    row, column = work.cell.row, work.cell.column
    query, key = work.row_of(left, row).double().tolist(), work.row_of(right, column).double().tolist()
    cells = work.cell_of(left, row, 0), work.cell_of(right, column, 0)
    dot, lengths = math.fsum(a * b for a, b in zip(query, key, strict=True)), (math.hypot(*query), math.hypot(*key))
    if not math.prod(lengths):
        return work.stated(0.0, f"{words} One of them has no length.", "one of them has no length", cells)

    def line(digits: int) -> Printed:
        return quotient(number(dot, digits), product(*lengths, digits))

    def short(digits: int) -> Printed:
        below = product(*lengths, digits)
        return quotient(number(dot, digits), Printed(below.tex, f"({below.text})", below.value))

    above = rf"\sum_i {work.symbol(left, row, 'i')}\, {work.symbol(right, column, 'i')}"
    tex = rf"\frac{{{above}}}{{\lVert Q_{{{row}}} \rVert \, \lVert K_{{{column}}} \rVert}}"
    values = [dot, math.prod(lengths)]
    return work.made(Arithmetic(tex, [line], [short], words, values, "quotient"), cells)


def _additive(work: Working, left: str, right: str, words: str) -> Explanation:
    row, column = work.cell.row, work.cell.column
    query, key = work.row_of(left, row).double().tolist(), work.row_of(right, column).double().tolist()
    weights = work.layer["w_s"][work.cell.head].double().tolist()
    sums = [a + b for a, b in zip(query, key, strict=True)]

    def piece(i: int, digits: int) -> Printed:
        weight, inside = factor(weights[i], digits), number(sums[i], digits)
        value = weight.value * Decimal(math.tanh(float(inside.value)))
        return Printed(rf"{weight.tex} \cdot \tanh({inside.tex})", f"{weight.text}·tanh({inside.text})", value)

    def back(i: int) -> tuple[Cell, ...]:
        return work.cell_of(left, row, i), work.cell_of(right, column, i)

    tex = rf"\sum_i w_{{S,i}} \tanh({work.symbol(left, row, 'i')} + {work.symbol(right, column, 'i')})"
    values = [weight * math.tanh(one) for weight, one in zip(weights, sums, strict=True)]
    return work.summed(values, piece, tex, words, back)
