"""Several heads as one map, for who asks: each way is declared once, with what it hides. Nothing is averaged unasked."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING

from attention.errors import MissingError, ShapeError
from attention.formula import kept
from attention.formula.cell import Cell
from attention.formula.names import WEIGHTS
from attention.formula.steps import Step
from attention.formula.trace import Trace
from attention.numbers.arithmetic import Explanation
from attention.numbers.patterns import blocks, is_crossed
from attention.numbers.readings import Reading
from attention.numbers.working import Working
from attention.printed import Arithmetic, Parts, Printed, factor, number, product, quotient, shown, total

if TYPE_CHECKING:
    from torch import Tensor

_AXES = ("query_pos", "key_pos")


def _mean(trace: Trace, layer: int, _: int = 0) -> Tensor:
    return _over_heads(trace, layer, "mean")


def _max(trace: Trace, layer: int, _: int = 0) -> Tensor:
    return _over_heads(trace, layer, "max")


def _over_heads(trace: Trace, layer: int, name: str) -> Tensor:
    """The mean or the largest of all heads' weights, [query_pos key_pos]; no more than a few heads are ever there at once."""
    import torch

    its = trace.layer(layer)

    def make() -> Tensor:
        n_heads, *shape = its.shape(WEIGHTS)
        whole = torch.zeros(*shape, dtype=torch.float64)
        kind = torch.float32
        for heads, rows in blocks(n_heads, *shape):
            (weights,) = its.part(WEIGHTS, heads=heads, rows=rows)
            kind = weights.dtype
            if name == "mean":
                whole[rows] += weights.sum(dim=0, dtype=torch.float64)
            else:
                whole[rows] = torch.maximum(whole[rows], weights.amax(dim=0).double())
        return (whole / n_heads if name == "mean" else whole).to(kind)

    return kept.matrix(its.number, ("aggregate", name), its.formula, make)


def _path(trace: Trace, layer: int) -> tuple[int, ...]:
    """The layers that a rollout multiplies: those up to this one that attend within the same text."""
    own = trace.layer(layer)
    if not own.has(WEIGHTS) or is_crossed(own):
        raise ShapeError(
            f"Rollout follows one text through layers of self-attention; {own.name or f'layer {layer}'} attends from one text "
            "to another: choose mean or max, or another layer."
        )
    weighed = ((at, one) for at, one in enumerate(trace.layers[: layer + 1]) if one.has(WEIGHTS))
    return tuple(at for at, one in weighed if not is_crossed(one) and one.tokens == own.tokens)


def _mixed(trace: Trace, layer: int) -> Tensor:
    """Half of the mean weights and half of what goes past the layer, every row divided by its sum: [query_pos key_pos]."""
    import torch

    mean = _mean(trace, layer)
    both = (mean + torch.eye(len(mean), dtype=mean.dtype)) / 2
    return both / both.sum(dim=-1, keepdim=True)


def _rollout(trace: Trace, layer: int, _: int = 0) -> Tensor:
    path = _path(trace, layer)
    place = "rollout", tuple(trace.layer(at).number for at in path)

    def make() -> Tensor:
        own = _mixed(trace, layer)
        return own if len(path) == 1 else own @ _rollout(trace, path[-2])

    formulas = tuple(trace.layer(at).formula for at in path)
    return kept.matrix(trace.layer(layer).number, place, formulas, make)


def _warned(trace: Trace, layer: int) -> str:
    """In a causal model every path leads back."""
    import torch

    if bool(torch.triu(_mean(trace, layer), 1).any()):
        return ""
    return "No query looks at a later key here, so every path leads back: the first tokens gain with each layer, whatever the heads do."


def _told_mean(work: Working, _: Trace) -> Explanation:
    values = _of_heads(work)
    row, column, n_heads = work.cell.row, work.cell.column, len(values)
    parts, sum_of_all, many = Parts(values), math.fsum(values), Printed(f"{n_heads}", f"{n_heads}", Decimal(n_heads))

    def whole(digits: int) -> Printed:
        above = total(parts.printed(lambda i: factor(values[i], digits), digits))
        if n_heads <= 4:
            return quotient(total(above.parts, per_line=99), many)
        return Printed(rf"\big({above.tex}\big) \;\big/\; {n_heads}", "", above.value / many.value, (above, many))

    def short(digits: int) -> Printed:
        return quotient(number(sum_of_all, digits), many)

    words = (
        f"The mean of {n_heads} numbers: what each head of layer {work.cell.layer} gives key {column} for query {row}."
    )
    tex = rf"\frac{{1}}{{{n_heads}}} \sum_h A^{{(h)}}_{{{row},{column}}}"
    made = Arithmetic(tex, [whole, short], [short], words, [sum_of_all, float(n_heads)], "quotient")
    return work.made(made, (_largest_head(work, values),))


def _told_max(work: Working, _: Trace) -> Explanation:
    values = _of_heads(work)
    cell = _largest_head(work, values)
    others = sorted((value for head, value in enumerate(values) if head != cell.head), reverse=True)
    words = f"The largest of {len(values)} numbers: head {cell.head} of layer {cell.layer} gives key {work.cell.column} so much"
    words += f", the next at most {shown(others[0])}." if others else "."
    tex = rf"\max_h A^{{(h)}}_{{{work.cell.row},{work.cell.column}}}", number(work.value).tex
    return work.stated(values[cell.head], words, f"the largest of {len(values)}, head {cell.head}", (cell,), tex)


def _told_rollout(work: Working, trace: Trace) -> Explanation:
    layer, row, column = work.cell.layer, work.cell.row, work.cell.column
    path = _path(trace, layer)
    if len(path) == 1:
        mean, stays = _mean(trace, layer)[row].double(), float(row == column)
        weight, below = float(mean[column]), float(mean.sum()) + 1

        def line(digits: int) -> Printed:
            both = total([number(weight, digits), number(stays, digits)], per_line=99)
            above = Printed(both.tex, f"({both.text})", both.value, both.parts)
            return quotient(above, number(below, digits))

        words = "Half of the heads' mean weight and half of what goes past the layer (1 on the diagonal); the row sums to 1."
        tex = (
            rf"\frac{{\bar A_{{{row},{column}}} + I_{{{row},{column}}}}}{{\sum_m (\bar A_{{{row},m}} + I_{{{row},m}})}}"
        )
        return work.made(Arithmetic(tex, [line], [line], words, [weight + stays, below], "quotient"))
    own, before = _mixed(trace, layer)[row].double().tolist(), _rollout(trace, path[-2])[:, column].double().tolist()
    pairs = list(zip(own, before, strict=True))
    words = (
        f"Half of query {row}'s mean weights in layer {layer} and half of itself, times how much of key {column} "
        f"each position held after layer {path[-2]}."
    )
    tex = rf"\sum_m \tfrac12 (\bar A + I)_{{{row},m}} \, R^{{({path[-2]})}}_{{m,{column}}}"
    return work.summed(
        [a * b for a, b in pairs], lambda i, digits: product(*pairs[i], digits), tex, words, lambda _: ()
    )


def _of_heads(work: Working) -> list[float]:
    (weights,) = work.layer.part(WEIGHTS, rows=slice(work.cell.row, work.cell.row + 1))
    found: list[float] = weights[:, 0, work.cell.column].double().tolist()
    return found


def _largest_head(work: Working, values: list[float]) -> Cell:
    head = max(range(len(values)), key=lambda i: values[i])
    return Cell(work.cell.layer, WEIGHTS, head, work.cell.row, work.cell.column)


# fmt: off
AGGREGATES: tuple[Reading, ...] = (
    Reading(
        Step("mean", "Ā", r"\bar A", _AXES, "mean of A over the heads", "probability", masked=True),
        "The mean of all heads of the layer. Heads that do opposite things cancel out: no head need look like this.",
        "", _mean, _told_mean),
    Reading(
        Step("max", "max A", r"\max_h A", _AXES, "largest of A over the heads", "probability", masked=True),
        "The largest weight that any head of the layer gives. Rows may sum to more than 1, since every cell may be another head's.",
        "", _max, _told_max),
    Reading(
        Step("rollout", "R", "R", _AXES, "product of ½ (Ā + I) over the layers, rows divided by their sums", "probability"),
        "How much of each token would reach each position if every layer passed on half of what it had and half of its mean weights. "
        "It knows no values, no MLP and no LayerNorm, ½ is a convention, and it overstates what attention does.",
        "Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers", _rollout, _told_rollout, _path, _warned),
)
# fmt: on
"""Every way to make one map of several heads, in the order in which they are offered."""


def find(name: str) -> Reading:
    """The aggregate of that name.

    Raises:
        MissingError: there is none.
    """
    for one in AGGREGATES:
        if one.name == name:
            return one
    raise MissingError(
        f"an aggregate is one of {', '.join(one.name for one in AGGREGATES)}; got {name!r}: choose one of them."
    )
