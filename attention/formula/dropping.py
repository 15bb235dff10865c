"""Dropout: which weights are dropped, what becomes of the others, how that is explained and written as Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from attention.formula import kept
from attention.formula.inline import inlined
from attention.formula.names import DROPPED_WEIGHTS
from attention.printed import Arithmetic, Printed, number, product, quotient

if TYPE_CHECKING:  # torch takes more than a second to import; a page must open before that
    import torch
    from torch import Tensor

    from attention.formula.axes import Weights
    from attention.formula.tensors import Tensors


@dataclass(frozen=True)
class Dropping:
    """A share of the weights that is dropped at random; false where none is.

    Attributes:
        share: from 0 to less than 1; the weights that are left are divided by 1 − share.
        seed: of what is drawn.
        formula: plain text.
        given: whether the source brings it along, and no knob turns it.
        knobs: which knob of a layer each field is, by its name.

    Source: Srivastava et al. 2014, "Dropout"; on the weights as in `nn.MultiheadAttention`.
    """

    share: float = 0.0
    seed: int = 0
    formula: ClassVar[str] = "A, a share of it dropped, the rest divided by 1 − dropout"
    given: ClassVar[bool] = False
    knobs: ClassVar[dict[str, str]] = {"share": "dropout", "seed": "seed"}

    def __bool__(self) -> bool:
        return self.share > 0

    @property
    def settings(self) -> dict[str, float]:
        """Its number, by the name that exported files have for it."""
        return {"dropout": self.share}

    def weights(self, layer: Tensors, before: Weights, heads: slice, rows: slice) -> Weights:
        """What is left of the weights of some heads and some queries of a layer."""
        import torch

        drawn = torch.stack([self._drawn(layer, head).luck[rows] for head in range(layer.n_heads)[heads]])
        return drop_weights(before, self.share, drawn)

    def python(self, weights: str) -> list[str]:
        """Lines of plain torch that make `dropped_weights` from a variable of that name; they need a `generator`."""
        return [
            f'dropout, luck = {self.share!r}, torch.rand({weights}.shape, generator=generator("dropout"))',
            *inlined(drop_weights, DROPPED_WEIGHTS, weights=weights, share="dropout"),
        ]

    def arithmetic(self, symbol: str, weight: float, query: int, key: int, hidden: bool, by: float) -> Arithmetic:
        """How a weight, `symbol` as LaTeX, became what is left of it; `hidden` says whether the mask hides the key.

        `by` is what it is multiplied by: 0 where it is dropped.
        """
        if weight == 0 and hidden:
            words = f"The mask hides key {key} from query {query}: its weight is 0 before the dropout, and after it."
            return Arithmetic.zero(words, "hidden by the mask")
        if weight == 0:
            words = f"The weight of key {key} is 0, and stays 0 whether dropout fell on it or not."
            return Arithmetic.zero(words, "the weight is 0")
        if by == 0:
            words = f"Dropout fell on this cell: query {query} does without key {key} this time."
            return Arithmetic.zero(words, "dropped")
        said = number(self.share, 9)

        def line(digits: int) -> Printed:
            return quotient(number(weight, digits), number(1 - self.share, digits))

        def short(digits: int) -> Printed:
            above = number(weight, digits)
            return Printed("", f"{above.text} / (1 − {said.text})", above.value / (1 - said.value))

        words = (
            "Dropout left this cell: it is divided by the share that is kept, so that the row keeps its sum on average."
        )
        formula, values = rf"\frac{{{symbol}}}{{1 - {said.tex}}}", [weight, 1 - self.share]
        return Arithmetic(formula, [line], [short], words, values, "quotient")

    def _drawn(self, layer: Tensors, head: int) -> Drawn:
        """What is drawn for a head: head by head, so that each has its own part."""
        from attention.formula import seeds

        def make() -> Drawn:
            own = seeds.generator(self.seed, "dropout")
            if head:
                own.set_state(self._drawn(layer, head - 1).state)
            return Drawn.of(own, layer.sizes["query_pos"], layer.sizes["key_pos"])

        return kept.matrix(layer.number, ("luck", head), self.seed, make)


@dataclass(frozen=True)
class GivenDropping(Dropping):
    """A matrix that the weights are multiplied by as it was given: 0 drops one; 1, or 1 / (1 − dropout), keeps it.

    Attributes:
        names: what others call it, in small letters without lines between.
    """

    names: ClassVar[str] = "drop dropmask dropoutmask"
    formula: ClassVar[str] = "A, times dropout_mask, cell by cell"
    given: ClassVar[bool] = True

    def __bool__(self) -> bool:
        return True

    def weights(self, layer: Tensors, before: Tensor, heads: slice, rows: slice) -> Tensor:
        """The weights of some heads and some queries, times what the layer's `dropout_mask` has there: [head query_pos key_pos]."""
        return before * layer["dropout_mask"][heads, rows]

    def python(self, weights: str) -> list[str]:
        """A line of plain torch that makes `dropped_weights` from a variable of that name, and `dropout_mask`."""
        return [f"{DROPPED_WEIGHTS} = {weights} * dropout_mask"]

    def arithmetic(self, symbol: str, weight: float, query: int, key: int, hidden: bool, by: float) -> Arithmetic:
        """How a weight, `symbol` as LaTeX, became what is left of it, times `by`."""
        if weight == 0 or by == 1:
            return super().arithmetic(symbol, weight, query, key, hidden, by) if weight == 0 else _kept(weight)
        if by == 0:
            return Arithmetic.zero(
                f"The given matrix drops this cell: query {query} does without key {key}.", "dropped"
            )

        def line(digits: int) -> Printed:
            return product(weight, by, digits)

        words = f"The weight, times what the given matrix has for query {query} and key {key}."
        return Arithmetic(rf"{symbol} \cdot \text{{dropout\_mask}}", [line], [line], words, [weight * by])


def _kept(weight: float) -> Arithmetic:
    def line(digits: int) -> Printed:
        return number(weight, digits)

    return Arithmetic("", [line], [line], "The given matrix has a 1 here: the weight stays as it is.", [weight])


def drop_weights(weights: Weights, share: float, luck: Weights) -> Weights:
    """The weights with a share of them set to 0, where `luck` is below it, and the rest divided by 1 − share.

    Rows sum to 1 only on average. A larger share drops what a smaller one has dropped, and more.
    """
    import torch

    return torch.where(luck >= share, weights / (1 - share), torch.zeros_like(weights))


class Drawn(NamedTuple):
    """Random numbers that decide which weights are dropped, [query_pos key_pos], and the state of the generator after them."""

    luck: Tensor
    state: Tensor

    @classmethod
    def of(cls, generator: torch.Generator, n_queries: int, n_keys: int) -> Drawn:
        """The next that a generator draws."""
        import torch

        return cls(torch.rand(n_queries, n_keys, generator=generator), generator.get_state())

    @property
    def nbytes(self) -> int:
        """The memory of both, in bytes."""
        return self.luck.nbytes + self.state.nbytes
