"""Where a tensor of a pass comes from: the product that made it, and what was done to it since.

Steps are run again rather than kept: a trail holds the operands of its product, and the calls after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attention.recording.products import Spec

HERE = object()
"""Stands for the followed tensor among the arguments of an event."""

VIEW, KEEP, SCALE, TANH, ADD, MASK, GATE, EXP, DROPOUT, OTHER, MIXED = (
    *("view", "keep", "scale", "tanh", "add", "mask", "gate", "exp", "dropout", "other", "mixed"),
)
"""What a call does: arranges numbers anew; changes none; multiplies all by one number; adds; writes one number into cells; multiplies by
0 and 1; drops at random; changes each number alone; or computes numbers from several ones."""


class Ref:
    """A tensor of the pass; a copy of it once another call changes it in place."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()


class Event(NamedTuple):
    """One call on the way of a tensor.

    Attributes:
        kind: one of the kinds above.
        func: the function that ran.
        args: its arguments; `HERE` is the followed tensor, and other tensors are `Ref`.
        kwargs: its named arguments, likewise.
        item: which item of a tuple it gave; None for a tensor.
        where: the line of code.
        factor: by which it multiplies.
        operand: what it adds, or writes into cells.
    """

    kind: str
    func: Callable[..., Any]
    args: tuple[Any, ...] = (HERE,)
    kwargs: Mapping[str, Any] = {}
    item: int | None = None
    where: str = ""
    factor: float = 1.0
    operand: Any = None

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self.func, "__name__", "a function").strip("_")

    def apply(self, tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """The same call with another tensor; with a dtype, other floating tensors have it."""

        def value(argument: Any) -> Any:
            if argument is HERE:
                return tensor
            if isinstance(argument, Ref):
                other = argument.tensor
                return other.to(dtype) if dtype is not None and other.is_floating_point() else other
            if isinstance(argument, tuple | list):
                return type(argument)(map(value, argument))
            return argument

        result = self.func(*map(value, self.args), **{name: value(each) for name, each in self.kwargs.items()})
        made: Tensor = tensor if result is None else result if self.item is None else result[self.item]
        return made  # an assignment to cells returns nothing


@dataclass(frozen=True, eq=False)
class Product:
    """A product of two tensors, or a projection of one.

    Attributes:
        left: its first factor; `right` its second one.
        spec: the axes of both, and of the result.
        shape: of the result.
        left_trail: where the first factor comes from, if it is known; `right_trail` the same of the second one.
        bias: what a projection adds to each of its features.
        is_projection: whether one factor is a parameter.
        matrix: which factor is the matrix, 0 or 1, if it is a projection.
        dtype: of the result; autocast gives another one than that of the factors.
        where: the line of code.
    """

    left: Ref
    right: Ref
    spec: Spec
    shape: tuple[int, ...]
    left_trail: Trail | None = None
    right_trail: Trail | None = None
    bias: Ref | None = None
    is_projection: bool = False
    matrix: int = 1
    dtype: torch.dtype | None = None
    where: str = ""

    def compute(self, dtype: torch.dtype | None = None) -> Tensor:
        """The product, without its bias."""
        left, right = (each.tensor if dtype is None else each.tensor.to(dtype) for each in (self.left, self.right))
        return self.spec.multiply(left, right)


@dataclass(eq=False)
class Normalized:
    """What a softmax, or something in its place, gave.

    Attributes:
        before: the trail of its input.
        scores: its input.
        weights: its result.
        axis: along which it normalizes.
        normalizer: our name of it.
        unknown: what it is instead, in words, if we have none.
        where: the line of code.
        name: the module that called it.
        is_used: whether it multiplied values.
    """

    before: Trail
    scores: Ref | None
    weights: Ref
    axis: int
    normalizer: str
    where: str
    name: str
    unknown: str = ""
    is_used: bool = False


@dataclass(frozen=True, eq=False)
class Reduced:
    """What a softmax written by hand takes from its scores.

    Attributes:
        of: the trail of the scores.
        how: "max", "sum" (of exponentials), "logsumexp"; or "log", the logarithms of the weights.
        axis: along which.
        plus: what was added to a sum.
        scores: the scores, of logarithms.
    """

    of: Trail
    how: str
    axis: int
    plus: float = 0.0
    scores: Ref | None = None


@dataclass(frozen=True, eq=False)
class Heads:
    """The outputs of the heads of a call, as its product with the values gave them.

    Attributes:
        index: of the call.
        places: where the head outputs of the recorded element stand in the result, [head query_pos d_v].
        shape: of the result.
    """

    index: int
    places: Tensor
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Leaf:
    """A tensor whose making is not followed."""

    tensor: Ref
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Trail:
    """An origin, and the calls since."""

    origin: Product | Normalized | Reduced | Heads | Leaf
    events: tuple[Event, ...] = ()

    def then(self, *events: Event) -> Trail:
        """The trail after more calls."""
        return Trail(self.origin, self.events + events)

    def has(self, *kinds: str) -> bool:
        """Whether a call of one of these kinds is on the trail."""
        return any(event.kind in kinds for event in self.events)

    def is_same_as(self, other: Trail) -> bool:
        """Whether two trails are of equal numbers: the same calls of the same tensor, once or twice."""
        return (
            self.origin is other.origin
            and len(self.events) == len(other.events)
            and all(
                a is b or (a.kind == b.kind == EXP and a.func == b.func)
                for a, b in zip(self.events, other.events, strict=True)
            )
        )


def arrange(events: Iterable[Event], tensor: Tensor) -> Tensor:
    """A tensor of the shape of an origin, arranged as the calls arrange the numbers."""
    for event in events:
        if event.kind == VIEW:
            tensor = event.apply(tensor)
    return tensor


def run(events: Iterable[Event], tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The calls again; in another dtype, those that only change the dtype are left out."""
    for event in events:
        if event.kind == KEEP and dtype is not None:
            continue
        # Calls that work in place would change what the caller has.
        in_place = event.kind not in (VIEW, KEEP)
        tensor = event.apply(tensor.clone() if in_place else tensor, dtype)
    return tensor
