"""Maps that are derived from the weights and are no steps of the formula, with the arithmetic of each cell.

The norm-weighted view, `NORMS`, is one: the length of the vector that a query receives from each key, instead of the
weight alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attention.base import cache
from attention.base.errors import MissingError, check_index
from attention.base.printed import Arithmetic, Printed, product
from attention.explanation.explanation import Explanation, ExplanationBuilder
from attention.features import features
from attention.formula.names import VALUE, WEIGHTS, Cell
from attention.formula.steps import Step
from attention.trace.layer import Layer
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DerivedMap:
    """A map [query_pos key_pos] derived from a layer's weights.

    Attributes:
        step: its name, symbol, formula and kind of number, for drawing it like a step.
        words: what it shows and what it does not, in one or two sentences.
        paper: its source; empty if it is common knowledge.
        compute: returns the map for a trace, a layer and a head (ignored unless `per_head`).
        explain_cell: returns the arithmetic of a cell.
        layers: the indices of the layers that the map of one layer depends on.
        warning: a caution about this trace and layer; usually empty.
        per_head: whether each head has its own map.
        sides: what both axes of a map are that is not of queries and keys, such as "residue"; usually empty.
    """

    step: Step
    words: str
    paper: str
    compute: Callable[[Trace, int, int], Tensor]
    explain_cell: Callable[[ExplanationBuilder, Trace], Explanation]
    layers: Callable[[Trace, int], tuple[int, ...]] = lambda _, layer: (layer,)
    warning: Callable[[Trace, int], str] = lambda _, __: ""
    per_head: bool = False
    sides: str = ""

    @property
    def name(self) -> str:
        """Its name, as in links."""
        return self.step.name

    def matrix(self, trace: Trace, layer: int, head: int = 0) -> Tensor:
        """The map of a layer, [query_pos key_pos].

        Raises:
            MissingError: there is no such layer or head, or the layer lacks the inputs of the map.
            ShapeError: the layers do not fit together.
        """
        source = trace.layer(layer)
        if not source.has(WEIGHTS):
            raise MissingError(f"{self.name} reads the weights, which this layer does not have: choose another layer.")
        if self.per_head:
            check_index("heads", head, source.n_heads)
        return self.compute(trace, layer, head)

    def explain(self, trace: Trace, cell: Cell) -> Explanation:
        """The arithmetic of the number at the row and column of a cell, whatever the cell's step.

        Raises:
            MissingError: as for `matrix`, or there is no such row or column.
        """
        matrix = self.matrix(trace, cell.layer, cell.head)
        for axis, index, size in zip(self.step.axes[-2:], (cell.row, cell.column), matrix.shape, strict=True):
            check_index(f"{axis} of {self.name}", index, size, "counts")
        address = replace(cell, step=self.name)
        work = ExplanationBuilder(
            trace.layer(cell.layer), self.step, address, float(matrix[cell.row, cell.column]) + 0.0
        )
        return self.explain_cell(work, trace)


def contribution_lengths(layer: Layer) -> Tensor | None:
    """The length ‖f(x_j)‖ of the vector that each key contributes at weight 1, [head key_pos]; None if V or W_O is unknown.

    f(x_j) = (x_j W_V + b_V) W_O with the head's rows of W_O: the value of the key, as projected to the output.
    Source: Kobayashi et al. 2020, "Attention is Not Only a Weight: Analyzing Transformers with Vector Norms", section 3.
    """
    if not (layer.has(VALUE) and layer.has("w_o")):
        return None

    return cache.memoize(layer.uid, "reach", None, lambda: projected_lengths(layer[VALUE], layer["w_o"]))


def projected_lengths(value: Tensor, w_o: Tensor) -> Tensor:
    """The length of each value [… kv_head key_pos d_v] after its head's rows of W_O [head d_v d_model], [… head key_pos]."""
    import torch

    group = len(w_o) // value.shape[-3]  # query heads per key-value head
    lengths = [(value[..., head // group, :, :] @ w_o[head]).norm(dim=-1) for head in range(len(w_o))]
    return torch.stack(lengths, dim=-2)


def _norms(trace: Trace, layer: int, head: int) -> Tensor:
    source = trace.layer(layer)
    lengths = contribution_lengths(source)
    if lengths is None:
        raise MissingError(
            "The norm-weighted view needs values and W_O, which this layer does not have: choose another layer or source."
        )
    head_lengths = lengths[head]
    return cache.memoize(
        source.uid, ("norms", head), source.formula, lambda: source.matrix(WEIGHTS, head) * head_lengths
    )


def _explain(work: ExplanationBuilder, _: Trace) -> Explanation:
    cell, lengths = work.cell, contribution_lengths(work.layer)
    assert lengths is not None  # the map exists
    weight, length = work.number_at(WEIGHTS, cell.row, cell.column), float(lengths[cell.head, cell.column])

    def line(digits: int) -> Printed:
        return product(weight, length, digits)

    words = (
        f"The weight of key {cell.column} times the length of its contribution: its value, projected by the head's part of W_O. "
        f"A key with a short value has little effect, however large its weight."
    )
    at = f"{cell.row},{cell.column}"
    tex = rf"\lVert A_{{{at}}} f(x_{{{cell.column}}}) \rVert = A_{{{at}}} \, \lVert f(x_{{{cell.column}}}) \rVert"
    back = Cell(cell.layer, WEIGHTS, cell.head, cell.row, cell.column)
    return work.from_arithmetic(Arithmetic(tex, [line], [line], words, [weight * length]), (back,))


NORMS = DerivedMap(
    Step("norm-weighted", "‖A f(x)‖", r"\lVert A f \rVert", ("head", "query_pos", "key_pos"), "A ‖f(x)‖, f(x) = (x W_V + b_V) W_O",
         "probability", masked=True),  # a length has no sign: it is drawn like a probability, scaled to the largest value
    "The length of the vector that a query receives from each key. A large weight on a key with a short value has little effect.",
    "Kobayashi et al. 2020, Attention is Not Only a Weight: Analyzing Transformers with Vector Norms",
    _norms, _explain, per_head=True,
)  # fmt: skip
"""Attention weights times the lengths of the weighted vectors; without the residual stream, LayerNorm and the sum over keys."""


@dataclass(frozen=True)
class DerivedView:
    """A view of the Lab that shows the weights beside a map derived from them.

    Attributes:
        name: in links; it never changes.
        symbol: of the map, on the tab of the view.
        shape: what the numbers are, in a word.
        help: what they are, in a few words.
        maps: the names of the maps that it may show.
        caution: what the map does not say.
        is_available: whether a layer of a trace has the map; computes nothing.
        find: the map at a cell of a trace; raises AttentionError if there is none, or it takes too long.
    """

    name: str
    symbol: str
    shape: str
    help: str
    maps: tuple[str, ...]
    caution: str
    is_available: Callable[[Trace, Layer], bool]
    find: Callable[[Trace, Cell], DerivedMap]


_NORMS_VIEW = DerivedView(
    "norms",
    NORMS.step.symbol,
    "lengths",
    NORMS.step.formula,
    (NORMS.name,),
    "Attention is not by itself an explanation: other weights can give the same output (Jain & Wallace 2019), and whether that "
    "matters depends on the question (Wiegreffe & Pinter 2019). A weight tells where a vector was read, not what it did.",
    lambda _, layer: all(layer.has(name) for name in (WEIGHTS, VALUE, "w_o")),
    lambda _, __: NORMS,
)


@functools.cache
def derived_views() -> dict[str, DerivedView]:
    """Every view of a derived map by its name, in the order of the tabs: this one, and those of features."""
    return {view.name: view for view in (_NORMS_VIEW, *(view for feature in features() for view in feature.views))}
