"""Which axis of the tensors of an attention is what.

Tensors of the code may be [batch head query key], [batch · head query key], [query batch key] or anything else: the axes of products say what is a query and a
key, and the projections what is a batch and a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attention.recording.trails import (
    Event,
    Kind,
    Multiplication,
    Product,
    Ref,
    Spec,
    Trail,
    arrange,
    factor,
    positions,
    run,
)


class UnclearError(Exception):
    """The axes of an attention are not those of queries and keys; the message says why."""


class Axes(NamedTuple):
    """Which axis of a map is that of the queries, if there is one, and of the keys; the others are batches and heads."""

    shape: tuple[int, ...]  # of the map
    query: int | None  # the axis of the queries; None: each map has one query, and no axis for it
    key: int  # the axis of the keys

    @property
    def others(self) -> list[int]:
        """The axes of batches and heads, in order."""
        return [axis for axis in range(len(self.shape)) if axis not in (self.query, self.key)]

    @property
    def lead(self) -> list[int]:
        """The lengths of the axes of batches and heads."""
        return [self.shape[axis] for axis in self.others]

    def picked(self, tensor: Tensor, maps: Tensor | None = None) -> Tensor:
        """A tensor of this shape (or with one key) as [map query_pos key_pos]: all maps, or those with these numbers."""
        query = self.query
        if query is None:
            tensor, query = tensor[..., None], len(self.shape)
        tensor = tensor.permute(*self.others, query, self.key)
        lead, chosen = self.lead, torch.arange(math.prod(self.lead)) if maps is None else maps
        if not lead:
            return tensor[None]
        return tensor[torch.unravel_index(chosen.to(tensor.device), lead)]


class Factor(NamedTuple):
    """Q, K or V as a factor of a product."""

    tensor: Tensor  # the factor; with its scaling undone
    trail: Trail | None  # where it comes from, without the scaling
    scale: float  # by which the code multiplied it
    letters: str  # of its axes; groups and sizes as for `factor`
    groups: tuple[str, str, str]
    sizes: dict[str, int]
    side: int = 0  # which factor it is

    @classmethod
    def of(cls, tensor: Tensor, trail: Trail | None, spec: Spec, side: int, sizes: dict[str, int]) -> Factor:
        """The factor Q or K of a product, as it was before it was scaled."""
        groups = (spec.shared, spec.only(side), spec.summed)
        events = trail.events if trail is not None else ()
        first = next((i for i, event in enumerate(events) if event.kind == Kind.SCALE), len(events))
        before, after = events[:first], events[first:]
        if trail is None or not after or {event.kind for event in after} - {Kind.VIEW, Kind.KEEP, Kind.SCALE}:
            return cls(tensor, trail, 1.0, spec[side], groups, sizes, side)
        unscaled = _before(trail, before, after[0])
        scale = math.prod(event.factor for event in after if event.kind == Kind.SCALE)
        views = tuple(event for event in after if event.kind == Kind.VIEW)
        unscaled = arrange(views, unscaled)
        return cls(unscaled, Trail(trail.origin, before + views), scale, spec[side], groups, sizes, side)

    def arranged(self, tensor: Tensor) -> Tensor:
        """A tensor with the axes of the factor, as [shared row d]."""
        return factor(tensor, self.letters, self.groups, self.sizes)


def _before(trail: Trail, events: tuple[Event, ...], scaling: Event) -> Tensor:
    """A tensor before the first event that scales it."""
    if isinstance(scaling.operand, Ref):
        return scaling.operand.tensor
    assert isinstance(trail.origin, Product | Ref)
    return run(events, trail.origin.compute() if isinstance(trail.origin, Product) else trail.origin.tensor)


class Projected(NamedTuple):
    """The projection that made a factor."""

    # The row of the input and the feature that each number comes from, and what is added: with the axes of the factor.
    row: Tensor
    feature: Tensor
    bias: Tensor | None
    inputs: Tensor  # [row d_model]
    weights: Tensor  # [feature d_model]


def read_projection(of: Factor) -> Projected | None:
    """The projection that made a factor, if it was one, and nothing but an arrangement and a bias came after it."""
    trail = of.trail
    if (
        trail is None
        or not isinstance(trail.origin, Product)
        or trail.has(Kind.OTHER, Kind.TANH, Kind.MASK, Kind.GATE, Kind.EXP, Kind.DROPOUT, Kind.MIXED)
    ):
        return None
    origin, device = trail.origin, of.tensor.device
    spec, matrix = origin.spec, origin.matrix
    if spec.shared:
        return None
    factors = origin.left.tensor, origin.right.tensor
    sizes = spec.sizes(*factors)
    row_letters, features = spec.only(1 - matrix), spec.only(matrix)
    row, feature = (positions(spec.out, letters, sizes, device) for letters in (row_letters, features))
    bias = None if origin.bias is None else origin.bias.tensor.expand(row.shape)
    for event in trail.events:
        if event.kind == Kind.VIEW:
            row, feature = event.apply(row), event.apply(feature)
            bias = None if bias is None else event.apply(bias)
        elif event.kind == Kind.ADD:
            added = event.factor * operand_of(event, device)
            bias = (added if bias is None else bias + added).expand(row.shape)
    if row.shape != of.tensor.shape:
        return None
    inputs = factor(factors[1 - matrix], spec[1 - matrix], (row_letters, spec.summed), sizes)
    return Projected(row, feature, bias, inputs, factor(factors[matrix], spec[matrix], (features, spec.summed), sizes))


def operand_of(event: Event, device: torch.device) -> Tensor:
    """What an event adds, as a tensor."""
    operand = event.operand
    return operand.tensor.to(device) if isinstance(operand, Ref) else torch.tensor(float(operand), device=device)


class Maps(NamedTuple):
    """The maps of an attention, and where the numbers of their queries and keys stand in the product of Q and K."""

    axes: Axes  # of the map
    shared: Tensor  # the index along the axes that Q and K share, [map query_pos]
    query: Tensor  # the index of the row of the query, [map query_pos]
    key: Tensor  # the index of the row of the key, [map key_pos]
    side: int  # which factor has the queries


def read_maps(product: Product, events: Sequence[Event], shape: tuple[int, ...], axis: int) -> Maps:
    """The maps with this shape that events made of a product, whose keys are along `axis`.

    Raises:
        UnclearError: queries and keys are not along one axis each.
    """
    spec, device = product.spec, product.left.tensor.device
    sizes = spec.sizes(product.left.tensor, product.right.tensor)

    def index(letters: str) -> Tensor:
        return _arranged(events, positions(spec.out, letters, sizes, device), shape, "scores")

    shared, left, right = (index(letters) for letters in (spec.shared, spec.only(0), spec.only(1)))
    in_left, in_right = (axis in varying(each) for each in (left, right))
    side = 1 if in_left and not in_right else 0
    query, key = (left, right) if side == 0 else (right, left)
    if (in_left and in_right) or axis in varying(shared):
        raise UnclearError(f"its softmax is along axis {axis} of {len(shape)}, which is none of keys")
    along = [each for each in varying(query) if each != axis]
    ones = [each for each, size in enumerate(shape) if size == 1 and each != axis]
    axes = Axes(shape, (along or ones or [None])[-1], axis)  # type: ignore[list-item]  # no axis at all
    if axes.query in varying(key):
        raise UnclearError("each of its queries has other keys")
    shared, query = (axes.picked(each.narrow(axis, 0, 1))[..., 0].cpu().long() for each in (shared, query))
    key = axes.picked(key if axes.query is None else key.narrow(axes.query, 0, 1))[:, 0].cpu().long()
    return Maps(axes, shared, query, key, side)


def _arranged(events: Sequence[Event], index: Tensor, shape: tuple[int, ...], noun: str) -> Tensor:
    try:
        arranged = arrange(events, index)
    except RuntimeError:  # such as windows that overlap
        arranged = index.new_empty(0)
    if arranged.shape != shape:
        raise UnclearError(f"its {noun} are arranged in a way that is not followed")
    return arranged


def varying(index: Tensor) -> list[int]:
    """The axes along which an index differs."""
    axes = [axis for axis in range(index.ndim) if index.shape[axis] > 1 and index.stride(axis)]
    return [axis for axis in axes if bool((index != index.narrow(axis, 0, 1)).any())]


def batches(lead: Sequence[int], rows: Sequence[tuple[Tensor, Tensor]], sizes: Sequence[int]) -> Tensor:
    """The numbers of the maps as [batch head].

    Args:
        lead: the lengths of the axes of the maps.
        rows: for Q, K and V, as far as they are projections: the row of the input and the feature that each map begins with, [map].
        sizes: how many elements the batch may have, the likeliest first.
    """
    count = math.prod(lead)
    for row, feature in rows:
        elements, heads = torch.unique(row), torch.unique(feature)
        if len(elements) * len(heads) == count:
            order = torch.argsort(row * (int(feature.max()) + 1) + feature, stable=True)
            return order.reshape(len(elements), len(heads))
    if len(lead) > 1:
        numbers = torch.arange(count).reshape(lead)
        if len(lead) == 2 and lead[0] not in sizes and lead[1] in sizes:
            numbers = numbers.T
        return numbers.reshape(-1, numbers.shape[-1])
    size = next((size for size in sizes if count % size == 0), 1)
    return torch.arange(count).reshape(size, -1)


class Mixing(NamedTuple):
    """Where the maps stand in their product with the values."""

    shared: Tensor  # the index along the axes that weights and values share, [map query_pos]
    row: Tensor  # the index of the row of the weights, [map query_pos]
    spec: Spec  # of the product
    side: int  # the factor of the weights
    sizes: dict[str, int]  # the lengths of the axes

    def weights(self, tensor: Tensor, maps: Tensor) -> Tensor:
        """Numbers of the weights, [map query_pos key_pos]."""
        spec, own = self.spec, self.spec.only(self.side)
        arranged = factor(tensor, spec[self.side], (spec.shared, own, spec.summed), self.sizes)
        return arranged[self.shared[maps], self.row[maps]]

    def output(self, tensor: Tensor, maps: Tensor) -> Tensor:
        """Numbers of the result, [map query_pos d_v]."""
        spec = self.spec
        groups = (spec.shared, spec.only(self.side), spec.only(1 - self.side))
        return factor(tensor, spec.out, groups, self.sizes)[self.shared[maps], self.row[maps]]


def read_mixing(axes: Axes, events: Sequence[Event], product: Multiplication, side: int) -> Mixing:
    """Where maps that events arranged stand in a product with values.

    Raises:
        UnclearError: the product does not sum over all keys, in their order.
    """
    spec, factors = product.spec, (product.left, product.right)
    sizes, device = spec.sizes(*factors), factors[side].device
    letters = "".join(chr(ord("a") + axis) for axis in range(len(axes.shape)))
    of_axis = dict(zip(letters, axes.shape, strict=True))
    groups = [
        "".join(letters[axis] for axis in axes.others),
        "" if axes.query is None else letters[axes.query],
        letters[axes.key],
    ]
    used = tuple(factors[side].shape)
    maps, query, key = (
        _arranged(events, positions(letters, group, of_axis, device), used, "weights") for group in groups
    )
    own, n_keys = spec.only(side), axes.shape[axes.key]

    def arranged(index: Tensor) -> Tensor:
        return factor(index, spec[side], (spec.shared, own, spec.summed), sizes)

    if len(spec.summed) > 1 or sizes[spec.summed] != n_keys:
        raise UnclearError(
            "its weights are cut into windows or blocks, or multiplied along another axis than that of the softmax"
        )
    keys = arranged(key)
    if bool((keys != torch.arange(n_keys, device=device)).any()):
        raise UnclearError("its softmax is not along the axis over which its product with the values sums")
    maps, query = (arranged(each)[..., 0].cpu().long() for each in (maps, query))
    n_maps, n_queries = math.prod(axes.lead), 1 if axes.query is None else axes.shape[axes.query]
    if maps.numel() != n_maps * n_queries:
        raise UnclearError("only a part of its weights multiplies the values")
    place = torch.empty(n_maps * n_queries, dtype=torch.long)
    place[(maps * n_queries + query).flatten()] = torch.arange(maps.numel())
    shared, row = (place // maps.shape[1], place % maps.shape[1])
    return Mixing(shared.reshape(n_maps, n_queries), row.reshape(n_maps, n_queries), spec, side, sizes)
