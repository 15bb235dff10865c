"""A forward pass as a sum: with the scales of all norms and the outputs of attention and MLPs frozen, a transformer is linear.

The residual stream is the sum of what the embedding, each head, each MLP and the biases write into it, and a frozen norm is linear.
So every logit is a sum over these parts, and every query, key and value is a sum of vectors, one for each part.

The file is long because recording a run and reading from it share the leaves of its graph.

Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", "Virtual weights and the residual stream".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attention.base.errors import MissingError
from attention.trace.residual_parts import BIAS, LOGITS, NO_UNEMBEDDING, ROUNDING, Part, head_part, order_of

_TOLERANCE = 1e-3  # of the sum over all parts, relative to the largest number: a larger difference is no rounding
_BATCH_BYTES = 2**25  # of the gradients in one backward pass, unless the run itself is larger
_BYTES_PER_SECOND = 3e9  # of gradients, measured with SmolLM2 and rounded down


_NOT_LINEAR = (
    "the residual stream of this model is expected to be the sum of what its heads and MLPs write; with the norms frozen it is not: "
    "a layer computes something else between them."
)


@dataclass(frozen=True, eq=False)
class _Write:
    """A tensor that is written to the residual stream, [… pos d], as a leaf of the graph.

    `split` divides the row of one position into its parts: [part d], in the order of `parts`.
    """

    parts: tuple[Part, ...]
    leaf: Tensor
    split: Callable[[int], Tensor]


@dataclass(frozen=True, eq=False)
class _HeadOutputs:
    """The head outputs of a layer on their way into the residual stream."""

    z: Tensor  # as they enter W_O, [1 query_pos head·d_v], a leaf
    written: (
        Tensor | None
    )  # W_O applied to them with its bias, [1 query_pos d_model]; None if `z` itself is the leaf of the graph
    leaf: Tensor  # from which the pass goes on
    n_heads: int
    bias: Tensor | None = None  # of W_O, [d_model]

    def effects(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """From the gradient of the leaf: what each head adds, and the bias if `written` has one, [part pos]; the gradient of `z`, [head pos d_v]."""
        added = []
        if self.written is not None and self.bias is not None:
            added = [_products(self.bias.expand_as(gradient), gradient)[None]]
            (gradient,) = torch.autograd.grad(self.written, self.z, gradient, retain_graph=True)
        z, gradient = (
            tensor.detach()[0].cpu().reshape(tensor.shape[1], self.n_heads, -1).transpose(0, 1)
            for tensor in (self.z, gradient)
        )
        return torch.cat([_products(z, gradient).reshape(self.n_heads, -1), *added]), gradient


@dataclass(frozen=True, eq=False)
class DirectEffects:
    """What each part of a run adds to a number of each position, such as the logit of a token.

    Attributes:
        parts: the parts, in the order of the model.
        values: what each adds, [part pos], in double precision.
        whole: the numbers, [pos].
        gradients: for each layer, how the number of a position changes with the head outputs there, [head pos d_v].
    """

    parts: tuple[Part, ...]
    values: Tensor
    whole: Tensor
    gradients: Mapping[int, Tensor]

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors."""
        return sum(tensor.nbytes for tensor in (self.values, self.whole, *self.gradients.values()))

    def at(self, position: int) -> tuple[tuple[Part, ...], Tensor]:
        """What each part adds at a position, [part], and at the end what single precision left over.

        Raises:
            MissingError: the parts do not add up, since this model is not linear in them.
        """
        values, whole = self.values[:, position].tolist(), float(self.whole[position])
        rest = whole - math.fsum(values)
        if abs(rest) > _TOLERANCE * max(1e-6, abs(whole), *map(abs, values)):
            raise MissingError(_NOT_LINEAR)
        return (*self.parts, ROUNDING), torch.tensor([*values, rest], dtype=torch.float64)

    def of_heads(self, layer: int) -> Tensor:
        """What each head of a layer adds, [head pos]."""
        own = self.gradients[layer]
        places = {part: i for i, part in enumerate(self.parts)}
        rows = [places.get(head_part(layer, head)) for head in range(len(own))]
        return torch.stack([self.values.new_zeros(own.shape[1]) if row is None else self.values[row] for row in rows])


class LinearRun:
    """A forward pass with frozen norms, attention and MLPs. `source`, `heads`, `norm`, `constant` and `read` record it.

    Attributes:
        w_u: the unembedding, [token d_model]; None if the model predicts no tokens, or not linearly.
        b_u: its bias, [token]; None if it has none.
        model_uid: identifies the loaded model whose tensors the graph refers to; None: no model that can be removed from memory.
        logit_factor: the factors from products with rows of `w_u`, plus `b_u`, to logits; a softcap is frozen at its value.
    """

    def __init__(self) -> None:
        self.w_u: Tensor | None = None
        self.b_u: Tensor | None = None
        self.model_uid: int | None = None
        self.logit_factor: Callable[[Tensor], Tensor] = torch.ones_like
        self._writes: list[_Write] = []
        self._reads: dict[str, Tensor] = {}
        self._heads: dict[int, _HeadOutputs] = {}

    # -- recording ----------------------------------------------------------------------------

    def source(self, part: Part, output: Tensor) -> Tensor:
        """The output of a part of the model as a leaf, with which the pass goes on."""
        leaf = output.detach().requires_grad_()

        def split(position: int) -> Tensor:
            return _row(leaf.detach(), position)[None]

        self._writes.append(_Write((part,), leaf, split))
        return leaf

    def head_outputs(self, layer: int, n_heads: int, z: Tensor) -> Tensor:
        """The head outputs, side by side as they enter W_O, as a leaf with which the pass goes on; for small models."""
        leaf = z.detach().requires_grad_()

        def split(position: int) -> Tensor:
            shares = _row(leaf.detach(), position).reshape(n_heads, -1)
            return (torch.eye(n_heads)[:, :, None] * shares).flatten(1)

        self._heads[layer] = _HeadOutputs(leaf, None, leaf, n_heads)
        self._writes.append(_Write(tuple(head_part(layer, head) for head in range(n_heads)), leaf, split))
        return leaf

    def heads(self, layer: int, n_heads: int, z: Tensor, w_o: Callable[[Tensor], Tensor]) -> Tensor:
        """The output of attention as a leaf, with which the pass goes on.

        Args:
            z: the head outputs of all heads, side by side as they enter W_O, [1 query_pos head·d_v].
            w_o: applies W_O and its bias.
        """
        z = z.detach().requires_grad_()
        with torch.enable_grad():
            written = w_o(z)
        with torch.no_grad():
            bias = w_o(torch.zeros_like(z[:, :1]))[0, 0]
        leaf = written.detach().requires_grad_()
        self._heads[layer] = _HeadOutputs(z, written, leaf, n_heads, bias)
        parts = tuple(head_part(layer, head) for head in range(n_heads))

        def split(position: int) -> Tensor:
            """What each head writes, and the bias of W_O, [head + 1  d_model]."""
            by_head = _row(z, position).reshape(n_heads, -1)
            alone = torch.zeros(n_heads + 1, n_heads, by_head.shape[-1], dtype=z.dtype, device=z.device)
            alone[range(n_heads), range(n_heads)] = by_head.detach()
            with torch.no_grad():
                rows = w_o(alone.flatten(1)[None])[0].double()
            return torch.cat([rows[:-1] - rows[-1], rows[-1:]])

        self._writes.append(_Write((*parts, BIAS), leaf, split))
        return leaf

    def constant(self, value: Tensor) -> Tensor:
        """A constant that a module adds, such as a bias, as a leaf."""
        return self.source(BIAS, value)

    def norm(self, x: Tensor, y: Tensor, bias: Tensor | None, centered: bool) -> Tensor:
        """The output y of a norm of x as a linear function of x: the scale is frozen, and the bias is a constant.

        Args:
            x: the input of the norm, [… d].
            y: its output.
            bias: what it adds at the end; None if it adds nothing.
            centered: whether it subtracts the mean of the row (LayerNorm), or not (RMSNorm).
        """
        base = x - x.mean(-1, keepdim=True) if centered else x
        scaled = y.detach() if bias is None else y.detach() - bias.detach()
        divisor = base.detach()
        # A column that is 0 in one row has the scale of no column: its product is 0 anyway.
        scale = torch.where(divisor == 0, torch.zeros_like(scaled), scaled / torch.where(divisor == 0, 1, divisor))
        linear = base * scale
        return linear if bias is None else linear + self.constant(bias.detach().expand_as(y))

    def read(self, name: str, tensor: Tensor) -> None:
        """Records a tensor that the pass computed as a function of the parts, under a name."""
        self._reads[name] = tensor

    # -- reading ------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """The bytes of the leaves, and about those of the graph between them."""
        return 4 * sum(write.leaf.nbytes for write in self._writes)

    def estimate_seconds(self, name: str) -> float:
        """The estimated seconds of `parts_of` for one row of a recorded tensor."""
        return self._tensor(name).shape[-1] * sum(write.leaf.nbytes for write in self._writes) / _BYTES_PER_SECOND

    def has(self, name: str) -> bool:
        """Whether a tensor was recorded under this name."""
        return name in self._reads

    def value(self, name: str) -> Tensor:
        """The tensor that was recorded under this name."""
        return self._tensor(name).detach()

    def direct_effects(self, directions: Tensor, constants: Tensor) -> DirectEffects:
        """What each part adds to the product of the row under `LOGITS` and a direction, at all positions at once.

        Args:
            directions: the vector for each position, [pos d].
            constants: what is added to the products, [pos]; a bias.
        """
        tensor = self._tensor(LOGITS)
        directions = directions.to(tensor)
        leaves = [write.leaf for write in self._writes]
        gradients = torch.autograd.grad(tensor, leaves, directions[None], retain_graph=True, allow_unused=True)
        heads = {id(outputs.leaf): (layer, outputs) for layer, outputs in self._heads.items()}
        values, by_layer = {BIAS: constants.cpu()}, {}
        for write, gradient in zip(self._writes, gradients, strict=True):
            if id(write.leaf) in heads:
                layer, outputs = heads[id(write.leaf)]
                # None: a decoder reads the heads of an encoder through its attention only.
                added, by_layer[layer] = outputs.effects(torch.zeros_like(write.leaf) if gradient is None else gradient)
            elif gradient is not None:
                added = _products(write.leaf, gradient)[None]
            if gradient is not None:
                for part, value in zip(write.parts, added, strict=True):
                    values[part] = values.get(part, 0) + value
        parts = tuple(sorted(values, key=order_of))
        whole = _products(tensor, directions[None]) + constants
        return DirectEffects(parts, torch.stack([values[part] for part in parts]), whole, by_layer)

    @property
    def unread_layers(self) -> tuple[int, ...]:
        """The layers whose heads do not enter the vectors under `LOGITS` as parts: the model applies another matrix to what they write."""
        tensor = self._tensor(LOGITS)
        leaves = [outputs.leaf for outputs in self._heads.values()]
        gradients = torch.autograd.grad(tensor.sum(), leaves, retain_graph=True, allow_unused=True)
        return tuple(layer for layer, gradient in zip(self._heads, gradients, strict=True) if gradient is None)

    def written_by(self, layer: int, head: int, position: int) -> Tensor:
        """What a head adds to the row of `LOGITS` at a position, [d_model]: the product of its write and the frozen norms after it.

        The derivative forward is that of the derivative backward with respect to its cotangent, which is linear.
        """
        outputs, tensor = self._heads[layer], self._tensor(LOGITS)
        write = next(write for write in self._writes if write.leaf is outputs.leaf)
        tangent = torch.zeros_like(outputs.leaf)
        tangent[0, position] = write.split(position)[head].to(tangent)
        cotangent = torch.zeros_like(tensor, requires_grad=True)
        (gradient,) = torch.autograd.grad(
            tensor, outputs.leaf, cotangent, create_graph=True, retain_graph=True, allow_unused=True
        )
        if gradient is None:
            return torch.zeros(tensor.shape[-1], dtype=torch.float64)
        (pushed,) = torch.autograd.grad(gradient, cotangent, tangent)
        return pushed[0, position].detach().cpu().double()

    def direction(self, token: int) -> Tensor:
        """The row of the unembedding of a token, [d_model], which is multiplied with the vector of a position.

        Raises:
            MissingError: the model predicts no tokens, or not linearly.
        """
        if self.w_u is None:
            raise MissingError(NO_UNEMBEDDING)
        return self.w_u[token].detach().cpu().double()

    def parts_of(
        self, name: str, position: int, head: int | None, recorded: Tensor | None = None
    ) -> tuple[tuple[Part, ...], Tensor]:
        """The parts of a recorded row, and the vector of each, [part d]: they add up to the row.

        Args:
            name: what was recorded: of shape [1 pos d], or [1 head pos d].
            head: its head, if it has heads.
            recorded: the exact row, which the sum is to give; None: the row as this pass computed it.

        Raises:
            MissingError: the parts do not add up to the row, since this model is not linear in them.
        """
        tensor = self._tensor(name)
        place = (0, position) if head is None else (0, head, position)
        row = (tensor.detach()[place] if recorded is None else recorded).detach().double()
        size = row.shape[-1]
        vectors: dict[Part, Tensor] = {}
        for write, gradient in zip(self._writes, self._gradients(tensor, place, position), strict=True):
            if gradient is None:
                continue
            by_part = write.split(position).double() @ gradient.T.double()  # [part d]
            for part, vector in zip(write.parts, by_part, strict=True):
                vectors[part] = vectors.get(part, torch.zeros(size, dtype=torch.float64)) + vector.cpu()
        rest = row.cpu() - sum(vectors.values(), torch.zeros(size, dtype=torch.float64))
        largest = max((float(vector.abs().max()) for vector in (*vectors.values(), row)), default=0.0)
        if float(rest.abs().max()) > _TOLERANCE * max(largest, 1e-6):
            raise MissingError(_NOT_LINEAR)
        ordered = sorted(vectors, key=order_of)
        return (*ordered, ROUNDING), torch.stack([*(vectors[part] for part in ordered), rest])

    def _gradients(self, tensor: Tensor, place: tuple[int, ...], position: int) -> list[Tensor | None]:
        """The Jacobian of a row of `tensor` with respect to each leaf at this position, [d d_leaf]; None where it is 0."""
        size = tensor.shape[-1]
        leaves = [write.leaf for write in self._writes]
        # After norms, each leaf has a gradient of its own; together they take at most as much as the run itself.
        step = max(1, min(size, max(_BATCH_BYTES, self.nbytes) // sum(leaf.nbytes for leaf in leaves)))
        blocks: list[list[Tensor | None]] = [[] for _ in leaves]
        for start in range(0, size, step):
            stop = min(start + step, size)
            basis = torch.zeros(stop - start, *tensor.shape, dtype=tensor.dtype, device=tensor.device)
            basis[tuple(map(torch.as_tensor, (range(stop - start), *place, range(start, stop))))] = 1
            gradients = torch.autograd.grad(
                tensor, leaves, basis, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
            for block, gradient in zip(blocks, gradients, strict=True):
                block.append(None if gradient is None else _row(gradient, position).clone())
        return [
            None if block[0] is None else torch.cat([rows for rows in block if rows is not None]) for block in blocks
        ]

    def _tensor(self, name: str) -> Tensor:
        if name not in self._reads:
            raise MissingError(_NOT_LINEAR)
        return self._reads[name]


def _row(tensor: Tensor, position: int) -> Tensor:
    """The rows of one position, [… d]: the position is the axis before the last, and a batch axis is dropped."""
    rows = tensor[..., position, :]
    return rows.reshape(*rows.shape[:-2], rows.shape[-1]) if rows.ndim > 1 and rows.shape[-2] == 1 else rows


def _products(left: Tensor, right: Tensor) -> Tensor:
    """The product of each row of one tensor with the same row of another, one after the other, [row], in double precision."""
    left, right = (tensor.detach().flatten(0, -2).double() for tensor in (left, right))
    return (left * right).sum(-1).cpu()
