"""Functions of query and key, biases of the scores, one entry each; and the product in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from attention.base.errors import MissingError
from attention.base.printed import Arithmetic, Printed, bracketed, number, product, quotient
from attention.formula import names
from attention.formula.explainer import E_co, ExplanationBuilding, Tensors
from attention.formula.inline import defined, inlined
from attention.formula.names import QUERY, Cell

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from attention.formula.tensor_types import Distances, HeadRow, Key, PerHead, Query, Scores


BLOCK_ROWS = 256  # rows per block of a large product: a block fits into the processor's cache


class Score:
    """One function that compares queries with keys; this class is the dot product.

    Attributes:
        name: its name in `AttentionConfig.score` and in links.
        words: its effect and the models that use it, in a sentence.
        paper: its source.
        formula: plain text; `scaled` is the formula of the scaled scores.
        cell_words: the explanation of a cell, with {row} and {column}.
        parameter: the layer's parameter that it needs beside Q and K; empty: none.
        in_page: whether kernel.js has it, under this name.
    """

    name = "dot"
    words = "The dot product: large if query and key are long and point in the same direction. Used in nearly every transformer."
    paper = "Vaswani et al. 2017, Attention Is All You Need, equation 1"
    formula = "Q Kᵀ"
    scaled = "S / (√d_k · temperature)"
    cell_words = "The dot product of query {row} and key {column}: how well they match."
    parameter = ""
    in_page = True

    def divisor(self, d_k: int) -> float:
        """The divisor of scaled scores for vectors of width d_k."""
        return math.sqrt(d_k)

    def scores(self, query: Query, key: Key, weights: HeadRow | None = None) -> Scores:
        """The score of each query and key, [head query_pos key_pos]; `key` has all query heads, `weights` is the parameter."""
        return times(query, key.transpose(-2, -1))

    def python(self, query: str, key: str, dot: str) -> list[str]:
        """Lines of Python that compute `scores` from these variables; `dot` is the function of the product, empty for @."""
        product = f"{dot}({query}, {key}.mT)" if dot else f"{query} @ {key}.mT"
        return [f"{names.SCORES} = {product}  # [head query_pos key_pos]"]

    def explain(self, work: ExplanationBuilding[E_co], left: str, right: str) -> E_co | None:
        """The arithmetic of a score of rows of the steps `left` and `right`; None: that of a dot product."""
        return None


class _Cosine(Score):
    """The cosine of the angle between query and key, −1 to 1."""

    name = "cosine"
    words = (
        "The cosine of the angle: the lengths of query and key do not matter. It is multiplied by √d_k instead of divided, "
        "so that temperature 1 is usable. Used as QK-norm in ViT-22B; OLMo 2 and Qwen 3 also normalize query and key."
    )
    paper = "Henry et al. 2020, Query-Key Normalization for Transformers, equation 2"
    formula = "Q Kᵀ / (|Q| |K|)"
    scaled = "S · √d_k / temperature"
    cell_words = (
        "The cosine of the angle between query {row} and key {column}: their dot product, divided by both lengths."
    )

    def divisor(self, d_k: int) -> float:
        return 1 / math.sqrt(d_k)

    def scores(self, query: Query, key: Key, weights: HeadRow | None = None) -> Scores:
        pair = [tensor.double() for tensor in (query, key)]
        # a vector of zeros has cosine 0, not 0 / 0
        unit = [tensor / tensor.norm(dim=-1, keepdim=True).clamp_min(1e-300) for tensor in pair]
        return times(unit[0], unit[1].transpose(-2, -1)).to(query.dtype)

    def python(self, query: str, key: str, dot: str) -> list[str]:
        return inlined(_Cosine.scores, names.SCORES, query=query, key=key, times="torch.matmul")

    def explain(self, work: ExplanationBuilding[E_co], left: str, right: str) -> E_co:
        row, column = work.cell.row, work.cell.column
        words = self.cell_words.format(row=row, column=column)
        query, key = work.row_of(left, row).double().tolist(), work.row_of(right, column).double().tolist()
        cells = work.cell_of(left, row, 0), work.cell_of(right, column, 0)
        dot = math.fsum(a * b for a, b in zip(query, key, strict=True))
        lengths = math.hypot(*query), math.hypot(*key)
        if not math.prod(lengths):
            return work.from_claim(0.0, f"{words} One of them is a zero vector.", "one of them is a zero vector", cells)

        def line(digits: int) -> Printed:
            return quotient(number(dot, digits), product(*lengths, digits))

        def short(digits: int) -> Printed:
            denominator = product(*lengths, digits)
            return quotient(number(dot, digits), Printed(denominator.tex, f"({denominator.text})", denominator.value))

        numerator = rf"\sum_i {work.element_tex(left, row, 'i')}\, {work.element_tex(right, column, 'i')}"
        tex = rf"\frac{{{numerator}}}{{\lVert Q_{{{row}}} \rVert \, \lVert K_{{{column}}} \rVert}}"
        values = [dot, math.prod(lengths)]
        return work.from_arithmetic(Arithmetic(tex, [line], [short], words, values, "quotient"), cells)


class _Additive(Score):
    """A small network: the weighted sum of the columns of tanh(q + k)."""

    name = "additive"
    words = (
        "A small network instead of a product: the sum of tanh(query + key) over columns, weighted by w_S. The first attention, "
        "in translation before the transformer; never divided by √d_k."
    )
    paper = (
        "Bahdanau et al. 2015, Neural Machine Translation by Jointly Learning to Align and Translate, appendix A.1.2"
    )
    formula = "w_S · tanh(Q + K)"
    scaled = "S / temperature"
    cell_words = "The sum over columns of tanh(query {row} + key {column}), weighted by w_S."
    parameter = "w_s"

    def divisor(self, d_k: int) -> float:
        return 1.0

    def scores(self, query: Query, key: Key, weights: HeadRow | None = None) -> Scores:
        import torch

        assert weights is not None
        scores = query.new_empty(*query.shape[:-1], key.shape[-2])
        # Blocks of query rows, column by column, need no tensor with a fourth axis.
        block_rows = max(1, BLOCK_ROWS * BLOCK_ROWS // max(1, key.shape[-2]))
        for start in range(0, query.shape[-2], block_rows):
            rows = query[:, start : start + block_rows].double()
            total = torch.zeros(*rows.shape[:-1], key.shape[-2], dtype=torch.float64)
            for column in range(query.shape[-1]):
                sums = rows[:, :, None, column] + key[:, None, :, column].double()
                total += weights[:, None, None, column].double() * torch.tanh(sums)
            scores[:, start : start + block_rows] = total
        return scores

    def explain(self, work: ExplanationBuilding[E_co], left: str, right: str) -> E_co:
        row, column = work.cell.row, work.cell.column
        query, key = work.row_of(left, row).double().tolist(), work.row_of(right, column).double().tolist()
        weights = work.layer[self.parameter][work.cell.head].double().tolist()
        sums = [a + b for a, b in zip(query, key, strict=True)]

        def piece(i: int, digits: int) -> Printed:
            weight, inside = bracketed(weights[i], digits), number(sums[i], digits)
            value = weight.value * Decimal(math.tanh(float(inside.value)))
            return Printed(rf"{weight.tex} \cdot \tanh({inside.tex})", f"{weight.text}·tanh({inside.text})", value)

        def back(i: int) -> tuple[Cell, ...]:
            return work.cell_of(left, row, i), work.cell_of(right, column, i)

        tex = rf"\sum_i w_{{S,i}} \tanh({work.element_tex(left, row, 'i')} + {work.element_tex(right, column, 'i')})"
        values = [weight * math.tanh(total) for weight, total in zip(weights, sums, strict=True)]
        return work.from_sum(values, piece, tex, self.cell_words.format(row=row, column=column), back)

    def python(self, query: str, key: str, dot: str) -> list[str]:
        return [
            f"activation = torch.tanh({query}.double()[:, :, None] + {key}.double()[:, None])  # [head query_pos key_pos d_k]",
            "scores = (activation @ w_s.double()[:, None, :, None])[..., 0].to(query.dtype)",
        ]


SCORES: dict[str, Score] = {score.name: score for score in (Score(), _Cosine(), _Additive())}
"""Every score, by its name in links."""


def dot(left: Tensor, right: Tensor) -> Tensor:
    """`left` @ `right`, summed in double precision and rounded once."""
    return (left.double() @ right.double()).to(left.dtype)  # so that equal words get equal scores


def times(left: Tensor, right: Tensor, plus: Tensor | None = None) -> Tensor:
    """`left` @ `right` + `plus`, summed in double precision and rounded once.

    In single precision, BLAS sums the last rows and columns in another order: a repeated word would have two
    different scores, and the argmax of temperature 0 would miss the tie.
    """
    # Blocks of rows: the doubles of a large product would go through memory twice.
    result, right = left.new_empty(*left.shape[:-1], right.shape[-1]), right.double()
    for start in range(0, left.shape[-2], BLOCK_ROWS):
        rows = left[..., start : start + BLOCK_ROWS, :].double() @ right
        result[..., start : start + BLOCK_ROWS, :] = rows if plus is None else rows + plus.double()
    return result


def by_blocks(function: Callable[..., Scores], *maps: Scores) -> Scores:
    """`function` of blocks of rows, so that the doubles that it computes with are few at a time."""
    result = maps[0].new_empty(maps[0].shape)
    for start in range(0, result.shape[-2], BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        result[..., rows, :] = function(*(values[..., rows, :] for values in maps))
    return result


# As in T5: the number of distance groups, and the distance from which all are in one group.
BUCKETS, FARTHEST = 32, 128


@dataclass(frozen=True)
class _Bias:
    """One variant of the bias that is added to the scores.

    Attributes:
        bias: computes the bias for some heads and queries of a layer.
        words: a description.
        python: lines of Python that compute `bias` from `query_pos` and `key_pos`, for a number of heads; empty for a
            provided bias.
    """

    bias: Callable[[Tensors, slice, slice], Scores]
    words: str
    python: Callable[[int], list[str]] = lambda _: []

    @property
    def by_distance(self) -> bool:
        """Whether it is computed from positions, and not provided."""
        return bool(self.python(1))


def slopes(n_heads: int) -> PerHead:
    """The ALiBi slope of each head, [head]: 2^(−8/n), 2^(−16/n), … 2^(−8) for n heads.

    If n is not a power of two, the slopes are those of the next smaller power, then every second one of the next larger power.
    Source: Press et al. 2022, "Train Short, Test Long", section 3 and its published code.
    """
    import torch

    power = 2 ** math.floor(math.log2(n_heads))
    first = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    more = [2 ** (-4 * (head + 1) / power) for head in range(0, 2 * (n_heads - power), 2)]
    return torch.tensor(first + more, dtype=torch.float64)


def bucket(distance: Distances) -> Distances:
    """The T5 bucket of each distance key_pos − query_pos: one bucket per small distance, logarithmic buckets for large ones.

    Keys after the query are in the upper half of the buckets.
    Source: Raffel et al. 2020, "T5", section 2.1; bidirectional, as in its encoder.
    """
    import torch

    half = BUCKETS // 2
    near = half // 2
    apart = distance.abs()
    # In single precision as in T5: the precision decides at the edges of buckets.
    ratio = torch.log(apart.clamp_min(1).float() / near) / math.log(FARTHEST / near)
    far = near + (ratio * (half - near)).long()
    return (distance > 0).long() * half + torch.where(apart < near, apart, far.clamp_max(half - 1))


def distances(layer: Tensors, rows: slice) -> Distances:
    """key_pos − query_pos for some queries."""
    import torch

    return torch.arange(layer.sizes["key_pos"]) - torch.arange(layer.sizes["query_pos"])[rows, None]


def _sloped(slopes: PerHead, distance: Distances, dtype: torch.dtype) -> Scores:
    """The ALiBi bias: minus the slope of the head, times the distance between query and key."""
    return (-slopes[:, None, None] * distance.abs()).to(dtype)


def _alibi(layer: Tensors, heads: slice, rows: slice) -> Scores:
    dtype = layer[QUERY].dtype
    return _sloped(slopes(layer.n_heads)[heads], distances(layer, rows), dtype)


def _relative(layer: Tensors, heads: slice, rows: slice) -> Scores:
    table = layer["bias_table"]
    return table[bucket(distances(layer, rows))][..., heads].permute(2, 0, 1)


def _provided(layer: Tensors, heads: slice, rows: slice) -> Scores:
    if "bias" not in layer.recorded:
        raise MissingError("The formula adds a bias that is not here: give bias, too.")
    return layer["bias"][heads, rows]


def _alibi_python(n_heads: int) -> list[str]:
    return [
        f"slopes = torch.tensor({slopes(n_heads).tolist()}, dtype=torch.float64)",
        *inlined(_sloped, "bias", distance="key_pos - query_pos", dtype="query.dtype"),
    ]


def _relative_python(_: int) -> list[str]:
    return [
        f"BUCKETS, FARTHEST = {BUCKETS}, {FARTHEST}",
        *defined(bucket),
        "bias = bias_table[bucket(key_pos - query_pos)].permute(2, 0, 1)  # [head query_pos key_pos]",
    ]


BIASES: dict[str, _Bias] = {
    "alibi": _Bias(_alibi, "minus this head's slope for each position between them", _alibi_python),
    "relative": _Bias(_relative, "the entry of this head's table for this distance", _relative_python),
    "given": _Bias(_provided, "as provided"),
}
"""Every bias, by its name in a `Formula`."""
