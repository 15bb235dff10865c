"""How a query is compared with a key: one entry for each way, and the product that all sums are made with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from attention.formula import names
from attention.formula.inline import inlined
from attention.formula.work import E_co, Work
from attention.printed import Arithmetic, Printed, factor, number, product, quotient

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.axes import HeadRow, Key, Query, Scores
    from attention.formula.cell import Cell


ROWS = 256  # rows of a large product that are made at once: they stay in the processor's cache


@dataclass(frozen=True)
class Score:
    """One way to compare queries with keys; this one is the dot product.

    Attributes:
        name: as in `AttentionConfig.score` and in links.
        words: what it changes and who uses it, one sentence.
        paper: where it comes from.
        formula: plain text; `scaled` that of the scaled scores.
        how: the kind of arithmetic that makes a cell.
        told: what happened, of one cell.
        parameter: what it needs beside Q and K, by the name of the layer's parameter.
        in_page: whether the page's own arithmetic knows it, under this name.
    """

    name: str = "dot"
    words: str = (
        "The dot product: large where a query and a key are long and point the same way. Nearly every transformer."
    )
    paper: str = "Vaswani et al. 2017, Attention Is All You Need, equation 1"
    formula: str = "Q Kᵀ"
    scaled: str = "S / (√d_k · temperature)"
    how: Literal["product", "cosine", "additive"] = "product"
    told: str = "The dot product of query {row} and key {column}: how well they match."
    parameter: str = ""
    in_page: bool = True

    def divisor(self, d_k: int) -> float:
        """What the scores of vectors this wide are divided by where they are scaled."""
        return math.sqrt(d_k)

    def scores(self, query: Query, key: Key, weights: HeadRow | None = None) -> Scores:
        """How well each query matches each key, of which every head has its own here; `weights` is its parameter."""
        return times(query, key.transpose(-2, -1))

    def python(self, query: str, key: str, dot: str) -> list[str]:
        """Lines that compute `scores` from variables of these names; `dot` is the product's function, empty for @."""
        product = f"{dot}({query}, {key}.mT)" if dot else f"{query} @ {key}.mT"
        return [f"{names.SCORES} = {product}  # [head query_pos key_pos]"]

    def explain(self, work: Work[E_co], left: str, right: str) -> E_co:
        """The arithmetic of a score of the rows of two steps, where it is no plain product."""
        raise NotImplementedError(f"{self.name} has no explain: say how a cell is made.")


@dataclass(frozen=True)
class Cosine(Score):
    """Both sides normalised: the cosine of the angle between query and key, −1 to 1."""

    name: str = "cosine"
    words: str = (
        "The cosine of the angle: the lengths of query and key no longer count. It is multiplied by √d_k instead of divided, "
        "so that temperature 1 is usable. As QK-norm in ViT-22B; OLMo 2 and Qwen 3 normalise both sides too."
    )
    paper: str = "Henry et al. 2020, Query-Key Normalization for Transformers, equation 2"
    formula: str = "Q Kᵀ / (|Q| |K|)"
    scaled: str = "S · √d_k / temperature"
    how: Literal["product", "cosine", "additive"] = "cosine"
    told: str = (
        "The cosine of the angle between query {row} and key {column}: their dot product, divided by both lengths."
    )

    def divisor(self, d_k: int) -> float:
        """1 / √d_k: a cosine is small, and is multiplied."""
        return 1 / math.sqrt(d_k)

    def scores(self, query: Query, key: Key, weights: HeadRow | None = None) -> Scores:
        """The cosine of each query and each key; 0 where one of them is all zeros."""
        both = [one.double() for one in (query, key)]
        unit = [one / one.norm(dim=-1, keepdim=True).clamp_min(1e-300) for one in both]
        return times(unit[0], unit[1].transpose(-2, -1)).to(query.dtype)

    def python(self, query: str, key: str, dot: str) -> list[str]:
        """Lines that compute `scores`."""
        return inlined(Cosine.scores, names.SCORES, query=query, key=key, times="torch.matmul")

    def explain(self, work: Work[E_co], left: str, right: str) -> E_co:
        """The dot product over both lengths."""
        row, column = work.cell.row, work.cell.column
        words = self.told.format(row=row, column=column)
        query, key = work.row_of(left, row).double().tolist(), work.row_of(right, column).double().tolist()
        cells = work.cell_of(left, row, 0), work.cell_of(right, column, 0)
        dot = math.fsum(a * b for a, b in zip(query, key, strict=True))
        lengths = math.hypot(*query), math.hypot(*key)
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


@dataclass(frozen=True)
class Additive(Score):
    """A small network: the columns of tanh(q + k), weighed and added."""

    name: str = "additive"
    words: str = (
        "A small network instead of a product: tanh of query plus key, column by column, weighed by w_S and added. The first attention, "
        "in translation before the transformer; never divided by √d_k."
    )
    paper: str = (
        "Bahdanau et al. 2015, Neural Machine Translation by Jointly Learning to Align and Translate, appendix A.1.2"
    )
    formula: str = "w_S · tanh(Q + K)"
    scaled: str = "S / temperature"
    how: Literal["product", "cosine", "additive"] = "additive"
    told: str = "Query {row} and key {column} added, column by column; the tanh of each sum, weighed by w_S."
    parameter: str = "w_s"

    def divisor(self, d_k: int) -> float:
        """1: a sum of weighed tanh is not scaled."""
        return 1.0

    def scores(self, query: Query, key: Key, weights: HeadRow | None = None) -> Scores:
        """The weighed tanh of each query plus each key; `weights` is w_S."""
        import torch

        assert weights is not None
        whole = query.new_empty(*query.shape[:-1], key.shape[-2])
        # Query rows at a time, column by column: no cube of numbers is ever there.
        few = max(1, ROWS * ROWS // max(1, key.shape[-2]))
        for at in range(0, query.shape[-2], few):
            some = query[:, at : at + few].double()
            total = torch.zeros(*some.shape[:-1], key.shape[-2], dtype=torch.float64)
            for column in range(query.shape[-1]):
                together = some[:, :, None, column] + key[:, None, :, column].double()
                total += weights[:, None, None, column].double() * torch.tanh(together)
            whole[:, at : at + few] = total
        return whole

    def explain(self, work: Work[E_co], left: str, right: str) -> E_co:
        """A weighed tanh for each column."""
        row, column = work.cell.row, work.cell.column
        query, key = work.row_of(left, row).double().tolist(), work.row_of(right, column).double().tolist()
        weights = work.layer[self.parameter][work.cell.head].double().tolist()
        sums = [a + b for a, b in zip(query, key, strict=True)]

        def piece(i: int, digits: int) -> Printed:
            weight, inside = factor(weights[i], digits), number(sums[i], digits)
            value = weight.value * Decimal(math.tanh(float(inside.value)))
            return Printed(rf"{weight.tex} \cdot \tanh({inside.tex})", f"{weight.text}·tanh({inside.text})", value)

        def back(i: int) -> tuple[Cell, ...]:
            return work.cell_of(left, row, i), work.cell_of(right, column, i)

        tex = rf"\sum_i w_{{S,i}} \tanh({work.symbol(left, row, 'i')} + {work.symbol(right, column, 'i')})"
        values = [weight * math.tanh(one) for weight, one in zip(weights, sums, strict=True)]
        return work.summed(values, piece, tex, self.told.format(row=row, column=column), back)

    def python(self, query: str, key: str, dot: str) -> list[str]:
        """Lines that compute `scores` at once; `scores` itself makes some rows at a time."""
        return [
            f"together = torch.tanh({query}.double()[:, :, None] + {key}.double()[:, None])  # [head query_pos key_pos d_k]",
            "scores = (together @ w_s.double()[:, None, :, None])[..., 0].to(query.dtype)",
        ]


SCORES: dict[str, Score] = {score.name: score for score in (Score(), Cosine(), Additive())}
"""Every way to compare a query with a key, by its name in links."""


def dot(left: Tensor, right: Tensor) -> Tensor:
    """Left @ right, summed in double precision and rounded once."""
    return (left.double() @ right.double()).to(left.dtype)  # equal words get equal scores


def times(left: Tensor, right: Tensor, plus: Tensor | None = None) -> Tensor:
    """Left @ right + plus, summed in double precision and rounded once.

    In single precision BLAS sums the last rows and columns in another order, so that the same word
    twice would have two scores, and the argmax of temperature 0 would miss the tie.
    """
    # Some rows at a time: the doubles of a whole large product would go through memory twice.
    whole, right = left.new_empty(*left.shape[:-1], right.shape[-1]), right.double()
    for at in range(0, left.shape[-2], ROWS):
        rows = left[..., at : at + ROWS, :].double() @ right
        whole[..., at : at + ROWS, :] = rows if plus is None else rows + plus.double()
    return whole
