"""Dropout of attention weights: its numbers, their explanation, and its Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from attention.base import cache
from attention.base.printed import Arithmetic, Printed, number, product, quotient
from attention.formula.inline import inlined
from attention.formula.names import DROPPED_WEIGHTS

if TYPE_CHECKING:  # torch takes more than a second to import; a page must open before that
    from torch import Tensor

    from attention.formula.explainer import Tensors
    from attention.formula.tensor_types import Weights


@dataclass(frozen=True)
class Dropout:
    """Random dropout of weights; falsy when the rate is 0.

    Attributes:
        share: the dropout rate, from 0 to less than 1; surviving weights are scaled by 1 / (1 − share).
        seed: the seed of the random numbers.
        formula: plain text.
        is_provided: whether the source provides the dropout mask, so that no knob changes it.
        knobs: the knob of a layer for each field, by the field's name.

    Source: Srivastava et al. 2014, "Dropout"; on the weights as in `nn.MultiheadAttention`.
    """

    share: float = 0.0
    seed: int = 0
    formula: ClassVar[str] = "A with a fraction of weights set to 0, the others divided by 1 − dropout"
    is_provided: ClassVar[bool] = False
    knobs: ClassVar[dict[str, str]] = {"share": "dropout", "seed": "seed"}

    def __bool__(self) -> bool:
        return self.share > 0

    def weights(self, layer: Tensors, before: Weights, heads: slice, rows: slice) -> Weights:
        """The weights of some heads and queries of a layer after dropout, [head query_pos key_pos]."""
        import torch

        random = torch.stack([self._drawn(layer, head).random[rows] for head in range(layer.n_heads)[heads]])
        return _drop_weights(before, self.share, random)

    def python(self, weights: str) -> list[str]:
        """Lines of plain torch that compute `dropped_weights` from the variable `weights`; they need a `generator`."""
        return [
            f'dropout, random = {self.share!r}, torch.rand({weights}.shape, generator=generator("dropout"))',
            *inlined(_drop_weights, DROPPED_WEIGHTS, weights=weights, rate="dropout"),
        ]

    def arithmetic(self, symbol: str, weight: float, query: int, key: int, hidden: bool, by: float) -> Arithmetic:
        """The arithmetic of one weight after dropout.

        Args:
            symbol: the weight as LaTeX.
            weight: its value before dropout.
            query: the row; `key` is the column.
            hidden: whether the mask hides the key.
            by: the factor of the weight; 0: the weight is dropped.
        """
        if weight == 0 and hidden:
            words = f"The mask hides key {key} from query {query}: its weight is 0 before and after dropout."
            return Arithmetic.zero(words, "hidden by the mask")
        if weight == 0:
            words = f"The weight of key {key} is 0, with or without dropout."
            return Arithmetic.zero(words, "the weight is 0")
        if by == 0:
            words = f"Dropout sets this weight to 0: query {query} ignores key {key} in this pass."
            return Arithmetic.zero(words, "dropped")
        rate = number(self.share, 9)

        def line(digits: int) -> Printed:
            return quotient(number(weight, digits), number(1 - self.share, digits))

        def short(digits: int) -> Printed:
            numerator = number(weight, digits)
            return Printed("", f"{numerator.text} / (1 − {rate.text})", numerator.value / (1 - rate.value))

        words = "This weight survives dropout: it is divided by 1 − dropout, so that the row keeps its sum on average."
        formula, values = rf"\frac{{{symbol}}}{{1 - {rate.tex}}}", [weight, 1 - self.share]
        return Arithmetic(formula, [line], [short], words, values, "quotient")

    def _drawn(self, layer: Tensors, head: int) -> _RandomNumbers:
        """The random numbers of a head; each head continues the generator of the one before it."""
        import torch

        from attention.formula import functions

        def draw() -> _RandomNumbers:
            generator = functions.generator(self.seed, "dropout")
            if head:
                generator.set_state(self._drawn(layer, head - 1).state)
            random = torch.rand(layer.sizes["query_pos"], layer.sizes["key_pos"], generator=generator)
            return _RandomNumbers(random, generator.get_state())

        return cache.memoize(layer.uid, ("dropout", head), self.seed, draw)


@dataclass(frozen=True)
class ProvidedDropout(Dropout):
    """A provided dropout mask that multiplies the weights: 0 drops a weight; 1 or 1 / (1 − dropout) keeps it."""

    formula: ClassVar[str] = "A · dropout_mask, cell by cell"
    is_provided: ClassVar[bool] = True

    def __bool__(self) -> bool:
        return True

    def weights(self, layer: Tensors, before: Tensor, heads: slice, rows: slice) -> Tensor:
        """The weights of some heads and queries, times the layer's `dropout_mask`: [head query_pos key_pos]."""
        return before * layer["dropout_mask"][heads, rows]

    def python(self, weights: str) -> list[str]:
        """A line of plain torch that computes `dropped_weights` from the variables `weights` and `dropout_mask`."""
        return [f"{DROPPED_WEIGHTS} = {weights} * dropout_mask"]

    def arithmetic(self, symbol: str, weight: float, query: int, key: int, hidden: bool, by: float) -> Arithmetic:
        """The arithmetic of one weight times its factor `by`; arguments as in `Dropout.arithmetic`."""
        if weight == 0 or by == 1:
            return super().arithmetic(symbol, weight, query, key, hidden, by) if weight == 0 else _unchanged(weight)
        if by == 0:
            return Arithmetic.zero(
                f"The provided mask sets this weight to 0: query {query} ignores key {key}.", "dropped"
            )

        def line(digits: int) -> Printed:
            return product(weight, by, digits)

        words = f"The weight, times the cell of the provided mask for query {query} and key {key}."
        return Arithmetic(rf"{symbol} \cdot \text{{dropout\_mask}}", [line], [line], words, [weight * by])


def _unchanged(weight: float) -> Arithmetic:
    def line(digits: int) -> Printed:
        return number(weight, digits)

    return Arithmetic("", [line], [line], "The provided mask has a 1 here: the weight does not change.", [weight])


def _drop_weights(weights: Weights, rate: float, random: Weights) -> Weights:
    """The weights after dropout: 0 where `random` is below `rate`, the others divided by 1 − rate.

    Rows sum to 1 only on average. With the same random numbers, a larger rate drops a superset of cells.
    """
    import torch

    return torch.where(random >= rate, weights / (1 - rate), torch.zeros_like(weights))


class _RandomNumbers(NamedTuple):
    """The random numbers of dropout in one head, [query_pos key_pos], and the state of the generator after them."""

    random: Tensor
    state: Tensor

    @property
    def nbytes(self) -> int:
        return self.random.nbytes + self.state.nbytes
