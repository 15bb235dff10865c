"""The norm-weighted view: not how much a query looks at a key, but how long the vector is that it gets from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attention.errors import MissingError
from attention.formula import kept
from attention.formula.cell import Cell
from attention.formula.layer import Layer
from attention.formula.names import VALUE, WEIGHTS
from attention.formula.steps import Step
from attention.formula.trace import Trace
from attention.numbers.arithmetic import Explanation
from attention.numbers.readings import Reading
from attention.numbers.working import Working
from attention.printed import Arithmetic, Printed, product

if TYPE_CHECKING:
    from torch import Tensor


def reach(layer: Layer) -> Tensor | None:
    """The length ‖f(x_j)‖ of what each key would bring if its weight were 1, [head key_pos]; None where V or W_O is not known.

    f(x_j) = (x_j W_V + b_V) W_O, with the rows of W_O that belong to the head: the key's value, as the output gets it.
    Source: Kobayashi et al. 2020, "Attention is Not Only a Weight: Analyzing Transformers with Vector Norms", section 3.
    """
    if not (layer.has(VALUE) and layer.has("w_o")):
        return None

    def make() -> Tensor:
        import torch

        value, w_o = layer[VALUE], layer["w_o"]
        group = len(w_o) // len(value)  # query heads that share a key head
        return torch.stack([(value[head // group] @ w_o[head]).norm(dim=-1) for head in range(len(w_o))])

    return kept.matrix(layer.number, "reach", None, make)


def has(layer: Layer) -> bool:
    """Whether a layer has what the norm-weighted view needs; nothing is worked out."""
    return all(layer.has(name) for name in (WEIGHTS, VALUE, "w_o"))


def _norms(trace: Trace, layer: int, head: int) -> Tensor:
    its = trace.layer(layer)
    lengths = reach(its)
    if lengths is None:
        raise MissingError(
            "The norm-weighted view needs values and W_O, which this layer does not have: choose another layer or source."
        )
    own = lengths[head]
    return kept.matrix(its.number, ("norms", head), its.formula, lambda: its.matrix(WEIGHTS, head) * own)


def _told(work: Working, _: Trace) -> Explanation:
    cell, lengths = work.cell, reach(work.layer)
    assert lengths is not None  # the map is there
    weight, length = work.number_at(WEIGHTS, cell.row, cell.column), float(lengths[cell.head, cell.column])

    def line(digits: int) -> Printed:
        return product(weight, length, digits)

    words = (
        f"The weight of key {cell.column}, times the length of what it brings: its value through the head's part of W_O. "
        f"A key with a short value has little effect, however large its weight is."
    )
    at = f"{cell.row},{cell.column}"
    tex = rf"\lVert A_{{{at}}} f(x_{{{cell.column}}}) \rVert = A_{{{at}}} \, \lVert f(x_{{{cell.column}}}) \rVert"
    back = Cell(cell.layer, WEIGHTS, cell.head, cell.row, cell.column)
    return work.made(Arithmetic(tex, [line], [line], words, [weight * length]), (back,))


NORMS = Reading(
    Step("norm-weighted", "‖A f(x)‖", r"\lVert A f \rVert", ("head", "query_pos", "key_pos"), "A ‖f(x)‖, f(x) = (x W_V + b_V) W_O",
         "probability", masked=True),  # a length has no sign: it is drawn as a share is, stretched to the largest
    "How long the vector is that a query gets from each key. A large weight on a key whose value is short does little.",
    "Kobayashi et al. 2020, Attention is Not Only a Weight: Analyzing Transformers with Vector Norms",
    _norms, _told, per_head=True,
)  # fmt: skip
"""The weights times the lengths of what they weigh; the residual, LayerNorm and sums of vectors are left out."""

CAUTION = (
    "Attention is not by itself an explanation: other weights can give the same output (Jain & Wallace 2019), and whether that "
    "matters depends on what is asked (Wiegreffe & Pinter 2019). A weight says where a vector was read, not what it did."
)
"""What stands beside it."""
