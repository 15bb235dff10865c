"""Aggregates: several heads combined into one map. Each is declared once, together with what it hides; nothing is averaged by default."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING

from attention.base import cache
from attention.base.errors import MissingError, ShapeError
from attention.base.printed import (
    Arithmetic,
    Printed,
    Summands,
    bracketed,
    format_number,
    number,
    product,
    quotient,
    sum_of,
)
from attention.explanation.derived import DerivedMap
from attention.explanation.explanation import Explanation, ExplanationBuilder
from attention.formula.names import WEIGHTS, Cell
from attention.formula.steps import Step
from attention.metrics.patterns import is_cross_attention, iterate_blocks
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from torch import Tensor

_AXES = ("query_pos", "key_pos")


def _mean(trace: Trace, layer: int, _: int = 0) -> Tensor:
    return _over_heads(trace, layer, "mean")


def _max(trace: Trace, layer: int, _: int = 0) -> Tensor:
    return _over_heads(trace, layer, "max")


def _over_heads(trace: Trace, layer: int, name: str) -> Tensor:
    """The mean or the maximum of the weights over all heads, [query_pos key_pos]; only a few heads are in memory at a time."""
    import torch

    source = trace.layer(layer)

    def make() -> Tensor:
        n_heads, *shape = source.shape(WEIGHTS)
        result = torch.zeros(*shape, dtype=torch.float64)
        dtype = torch.float32
        for heads, rows in iterate_blocks(n_heads, *shape):
            (weights,) = source.blocks(WEIGHTS, heads=heads, rows=rows)
            dtype = weights.dtype
            if name == "mean":
                result[rows] += weights.sum(dim=0, dtype=torch.float64)
            else:
                result[rows] = torch.maximum(result[rows], weights.amax(dim=0).double())
        return (result / n_heads if name == "mean" else result).to(dtype)

    return cache.memoize(source.uid, ("aggregate", name), source.formula, make)


def _path(trace: Trace, layer: int) -> tuple[int, ...]:
    """The layers that a rollout multiplies: self-attention layers over the same text, up to and including this one."""
    target = trace.layer(layer)
    if not target.has(WEIGHTS) or is_cross_attention(target):
        raise ShapeError(
            f"Rollout follows one text through layers of self-attention; {target.name or f'layer {layer}'} attends from one text "
            "to another: choose mean or max, or another layer."
        )
    return tuple(
        i
        for i, each in enumerate(trace.layers[: layer + 1])
        if each.has(WEIGHTS) and not is_cross_attention(each) and each.tokens == target.tokens
    )


def _mixed(trace: Trace, layer: int) -> Tensor:
    """½ (Ā + I), mean attention and residual stream in equal parts, with every row divided by its sum: [query_pos key_pos]."""
    import torch

    mean = _mean(trace, layer)
    mixed = (mean + torch.eye(len(mean), dtype=mean.dtype)) / 2
    return mixed / mixed.sum(dim=-1, keepdim=True)


def _rollout(trace: Trace, layer: int, _: int = 0) -> Tensor:
    path = _path(trace, layer)
    key = "rollout", tuple(trace.layer(i).uid for i in path)

    def make() -> Tensor:
        mixed = _mixed(trace, layer)
        return mixed if len(path) == 1 else mixed @ _rollout(trace, path[-2])

    formulas = tuple(trace.layer(i).formula for i in path)
    return cache.memoize(trace.layer(layer).uid, key, formulas, make)


def _warning(trace: Trace, layer: int) -> str:
    """A caution for causal models, where rollout always favours the first tokens, and for hybrid models; empty for others."""
    import torch

    cautions = []
    if not bool(torch.triu(_mean(trace, layer), 1).any()):
        cautions.append(
            "No query looks at a later key here, so every path leads back: the first tokens gain with each layer, whatever the heads do."
        )
    if not all(each.has_attention for each in trace.layers[:layer]):
        cautions.append("Layers without attention mix tokens, too, and are not in the product.")
    return " ".join(cautions)


def _explain_mean(work: ExplanationBuilder, _: Trace) -> Explanation:
    values = _head_weights(work)
    row, column, n_heads = work.cell.row, work.cell.column, len(values)
    parts, sum_of_all = Summands(values), math.fsum(values)
    count = Printed(f"{n_heads}", f"{n_heads}", Decimal(n_heads))

    def full(digits: int) -> Printed:
        sum_of_weights = sum_of(parts.printed(lambda i: bracketed(values[i], digits), digits))
        if n_heads <= 4:
            return quotient(sum_of(sum_of_weights.parts, per_line=99), count)
        tex = rf"\big({sum_of_weights.tex}\big) \;\big/\; {n_heads}"
        return Printed(tex, "", sum_of_weights.value / count.value, (sum_of_weights, count))

    def short(digits: int) -> Printed:
        return quotient(number(sum_of_all, digits), count)

    words = (
        f"The mean of {n_heads} numbers: what each head of layer {work.cell.layer} gives key {column} for query {row}."
    )
    tex = rf"\frac{{1}}{{{n_heads}}} \sum_h A^{{(h)}}_{{{row},{column}}}"
    arithmetic = Arithmetic(tex, [full, short], [short], words, [sum_of_all, float(n_heads)], "quotient")
    return work.from_arithmetic(arithmetic, (_largest_head(work, values),))


def _explain_max(work: ExplanationBuilder, _: Trace) -> Explanation:
    values = _head_weights(work)
    cell = _largest_head(work, values)
    others = sorted((value for head, value in enumerate(values) if head != cell.head), reverse=True)
    words = f"The largest of {len(values)} numbers: head {cell.head} of layer {cell.layer} gives key {work.cell.column} this weight"
    words += f"; the next largest is {format_number(others[0])}." if others else "."
    tex = rf"\max_h A^{{(h)}}_{{{work.cell.row},{work.cell.column}}}", number(work.value).tex
    return work.from_claim(values[cell.head], words, f"the largest of {len(values)}, head {cell.head}", (cell,), tex)


def _explain_rollout(work: ExplanationBuilder, trace: Trace) -> Explanation:
    layer, row, column = work.cell.layer, work.cell.row, work.cell.column
    path = _path(trace, layer)
    if len(path) == 1:
        mean, identity = _mean(trace, layer)[row].double(), float(row == column)
        weight, row_sum = float(mean[column]), float(mean.sum()) + 1

        def line(digits: int) -> Printed:
            numerator = sum_of([number(weight, digits), number(identity, digits)], per_line=99)
            bracketed = Printed(numerator.tex, f"({numerator.text})", numerator.value, numerator.parts)
            return quotient(bracketed, number(row_sum, digits))

        words = (
            "Half the mean weight over the heads and half the residual stream (1 on the diagonal); the row sums to 1."
        )
        tex = (
            rf"\frac{{\bar A_{{{row},{column}}} + I_{{{row},{column}}}}}{{\sum_m (\bar A_{{{row},m}} + I_{{{row},m}})}}"
        )
        return work.from_arithmetic(Arithmetic(tex, [line], [line], words, [weight + identity, row_sum], "quotient"))
    previous = _rollout(trace, path[-2])[:, column].double().tolist()
    pairs = list(zip(_mixed(trace, layer)[row].double().tolist(), previous, strict=True))
    words = (
        f"Half of query {row}'s mean weights in layer {layer} and half of itself (the residual stream), times the share of key {column} "
        f"at each position after layer {path[-2]}."
    )
    tex = rf"\sum_m \tfrac12 (\bar A + I)_{{{row},m}} \, R^{{({path[-2]})}}_{{m,{column}}}"
    return work.from_sum(
        [a * b for a, b in pairs], lambda i, digits: product(*pairs[i], digits), tex, words, lambda _: ()
    )


def _head_weights(work: ExplanationBuilder) -> list[float]:
    (weights,) = work.layer.blocks(WEIGHTS, rows=slice(work.cell.row, work.cell.row + 1))
    values: list[float] = weights[:, 0, work.cell.column].double().tolist()
    return values


def _largest_head(work: ExplanationBuilder, values: list[float]) -> Cell:
    head = max(range(len(values)), key=lambda i: values[i])
    return Cell(work.cell.layer, WEIGHTS, head, work.cell.row, work.cell.column)


# fmt: off
AGGREGATES: tuple[DerivedMap, ...] = (
    DerivedMap(
        Step("mean", "Ā", r"\bar A", _AXES, "mean of A over the heads", "probability", masked=True),
        "The mean over all heads of the layer. Heads with opposite patterns cancel out, so no single head need look like this.",
        "", _mean, _explain_mean),
    DerivedMap(
        Step("max", "max A", r"\max_h A", _AXES, "largest of A over the heads", "probability", masked=True),
        "The largest weight over all heads of the layer. Each cell may come from another head, so rows may sum to more than 1.",
        "", _max, _explain_max),
    DerivedMap(
        Step("rollout", "R", "R", _AXES, "product of ½ (Ā + I) over the layers, rows divided by their sums", "probability"),
        "How much of each token would reach each position if every layer passed on half of its input and half of its mean attention. "
        "It ignores values, MLPs and LayerNorm, the factor ½ is a convention, and it overstates what attention does.",
        "Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers", _rollout, _explain_rollout, _path, _warning),
)
# fmt: on
"""Every aggregate, in the order of the menu."""


def find_aggregate(name: str) -> DerivedMap:
    """The aggregate of this name.

    Raises:
        MissingError: no aggregate has this name.
    """
    for aggregate in AGGREGATES:
        if aggregate.name == name:
            return aggregate
    raise MissingError(
        f"an aggregate is one of {', '.join(aggregate.name for aggregate in AGGREGATES)}; got {name!r}: choose one of them."
    )
