"""Where a tensor of a pass comes from: the product that made it, and what was done to it since.

Steps are run again rather than kept: a trail holds the operands of its product, and the calls after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count
from math import prod
from string import ascii_letters
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Spec(NamedTuple):
    """A product in the notation of einsum: the letters of the axes of both factors, and of the result."""

    left: str
    right: str
    out: str

    @property
    def shared(self) -> str:
        """The letters of batches and heads, which both factors and the result have."""
        return "".join(letter for letter in self.out if letter in self.left and letter in self.right)

    @property
    def summed(self) -> str:
        """The letters over which the product sums."""
        return "".join(letter for letter in self.left if letter in self.right and letter not in self.out)

    def only(self, side: int) -> str:
        """The letters of the result that only one factor has: the first, 0, or the second, 1."""
        return "".join(letter for letter in self.out if letter in self[side] and letter not in self[1 - side])

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        """The product of two tensors with these axes."""
        if len(self.right) > 1 and self.out == self.left[:-1] + self.right[-1] and self.left[-1] == self.right[-2]:
            return left @ right  # by the kernel that most code uses
        return torch.einsum(f"{self.left},{self.right}->{self.out}", left, right)

    def sizes(self, left: Tensor, right: Tensor) -> dict[str, int]:
        """The length of each axis; one factor may have 1 where the other is broadcast."""
        sizes: dict[str, int] = {}
        for letters, tensor in ((self.left, left), (self.right, right)):
            for letter, size in zip(letters, tensor.shape, strict=True):
                sizes[letter] = max(size, sizes.get(letter, 1))
        return sizes


def factor(tensor: Tensor, letters: str, groups: Sequence[str], sizes: Mapping[str, int]) -> Tensor:
    """A factor with one axis for each group of letters, in their order; letters that it does not have are repeated."""
    wanted = "".join(groups)
    missing = [letter for letter in wanted if letter not in letters]
    tensor = tensor[(..., *[None] * len(missing))]
    letters += "".join(missing)
    tensor = tensor.permute([letters.index(letter) for letter in wanted])
    return tensor.expand([sizes[letter] for letter in wanted]).reshape(
        [prod(sizes[letter] for letter in group) for group in groups]
    )


def positions(letters: str, group: str, sizes: Mapping[str, int], device: torch.device) -> Tensor:
    """The index of each number along a group of the axes of a result, as one flat number; views of few numbers."""
    index = torch.arange(prod(sizes[letter] for letter in group), dtype=torch.int32, device=device).reshape(
        [sizes[letter] if letter in group else 1 for letter in letters]
    )
    return index.expand([sizes[letter] for letter in letters])


class Multiplication(NamedTuple):
    """A call that multiplies two tensors."""

    spec: Spec  # the axes
    left: Tensor
    right: Tensor
    alpha: float = 1.0  # multiplies the product
    added: Tensor | None = None  # what is added to it
    beta: float = 1.0  # multiplies that


def multiplication(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Multiplication | None:
    """The product that a call of a function with this name computes; None if it is none of two tensors."""
    read = _READERS.get(name)
    try:
        found = read(*args, **kwargs) if read else None
    except (TypeError, ValueError, IndexError, AttributeError):  # other arguments: not ours to understand
        return None
    if found is None or not all(
        isinstance(each, Tensor) and each.layout == torch.strided for each in (found.left, found.right)
    ):
        return None
    spec = found.spec
    lone = (set(spec.left) ^ set(spec.right)) - set(spec.out)
    if lone or not spec.summed or any(len(set(letters)) < len(letters) for letters in spec):
        return None
    return found


# ruff: noqa: A002  # the arguments have their names in torch
def _matmul(input: Tensor, other: Tensor, *, out: Any = None) -> Multiplication | None:
    if input.ndim < 2 or other.ndim < 1:
        return None
    letters = iter(ascii_letters)
    row, summed, column = next(letters), next(letters), next(letters)
    n_lead = max(input.ndim, other.ndim) - 2
    lead = "".join(next(letters) for _ in range(n_lead))
    left, right = lead[n_lead - input.ndim + 2 :] + row + summed, lead[n_lead - other.ndim + 2 :] + summed + column
    if other.ndim == 1:
        return Multiplication(Spec(left, summed, lead + row), input, other)
    return Multiplication(Spec(left, right, lead + row + column), input, other)


def _rmatmul(input: Tensor, other: Tensor) -> Multiplication | None:
    return _matmul(other, input)


def _baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1, out: Any = None
) -> Multiplication | None:
    found = _matmul(batch1, batch2)
    return found and found._replace(alpha=alpha, beta=beta, added=input if beta else None)


def _addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1, out: Any = None
) -> Multiplication | None:
    return _baddbmm(input, mat1, mat2, beta=beta, alpha=alpha)


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Multiplication | None:
    lead = ascii_letters[2 : input.ndim + 1]
    return Multiplication(Spec(lead + "a", "ba", lead + "b"), input, weight, added=bias)


def _convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Multiplication | None:  # fmt: skip
    """A convolution of single positions is a projection of channels."""
    sizes = stride if isinstance(stride, tuple | list) else (stride,)
    pads = padding if isinstance(padding, tuple | list) else (padding,)
    if weight.shape[2:].numel() != 1 or groups != 1 or {*sizes} != {1} or {*pads} - {0, "valid", "same"}:
        return None
    if input.ndim != weight.ndim:
        return None
    places = ascii_letters[3 : input.ndim + 1]
    bias = None if bias is None else bias[(..., *[None] * len(places))]
    return Multiplication(Spec("ca" + places, "ba", "cb" + places), input, weight.flatten(1), added=bias)


def _einsum(equation: str, *operands: Any) -> Multiplication | None:
    left, right = operands[0] if len(operands) == 1 else operands
    if not isinstance(equation, str):
        return None
    equation = equation.replace(" ", "")
    inputs, arrow, out = equation.partition("->")
    parts = inputs.split(",")
    unused = iter(letter for letter in ascii_letters if letter not in equation)
    dots = "".join(next(unused) for _ in range(max(left.ndim, right.ndim))) if "..." in equation else ""
    full = []
    for part, tensor in zip(parts, (left, right), strict=True):
        n = tensor.ndim - len(part.replace("...", ""))
        full.append(part.replace("...", dots[len(dots) - n :] if n else ""))
    if not arrow:
        once = sorted(letter for letter in {*inputs} - {*".,"} if inputs.count(letter) == 1)
        out = ("..." if dots else "") + "".join(once)
    n_dots = max(len([letter for letter in part if letter in dots]) for part in full)
    out = out.replace("...", dots[len(dots) - n_dots :] if n_dots else "")
    return Multiplication(Spec(full[0], full[1], out), left, right)


def _tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Any = None) -> Multiplication | None:
    if isinstance(dims, int):
        dims = [*range(a.ndim - dims, a.ndim)], [*range(dims)]
    first, second = ([axis % tensor.ndim for axis in axes] for axes, tensor in zip(dims, (a, b), strict=True))
    letters = count()
    left = [ascii_letters[next(letters)] for _ in range(a.ndim)]
    right = [ascii_letters[next(letters)] for _ in range(b.ndim)]
    for axis, other in zip(first, second, strict=True):
        right[other] = left[axis]
    out_letters = [letter for letter in (*left, *right) if (letter in left) != (letter in right)]
    return Multiplication(Spec("".join(left), "".join(right), "".join(out_letters)), a, b)


_READERS: dict[str, Callable[..., Multiplication | None]] = {
    "matmul": _matmul, "bmm": _matmul, "mm": _matmul, "__matmul__": _matmul, "__rmatmul__": _rmatmul, "baddbmm": _baddbmm, "addmm": _addmm,
    "linear": _linear, "einsum": _einsum, "tensordot": _tensordot, "conv1d": _convolution, "conv2d": _convolution, "conv3d": _convolution,
}  # fmt: skip
PROJECTIONS = ("linear", "addmm", "conv1d", "conv2d", "conv3d")
"""Functions that multiply by a parameter."""


HERE = object()
"""Stands for the followed tensor among the arguments of an event."""


class Kind(Enum):
    """What a call does to a tensor."""

    VIEW = auto()  # arranges numbers anew
    KEEP = auto()  # changes none
    SCALE = auto()  # multiplies all by one number
    TANH = auto()
    ADD = auto()
    MASK = auto()  # writes one number into cells
    GATE = auto()  # multiplies by 0 and 1
    EXP = auto()
    DROPOUT = auto()
    OTHER = auto()  # changes each number alone
    MIXED = auto()  # computes numbers from several ones


class Ref:
    """A tensor of the pass; a copy of it once another call changes it in place."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()


class Event(NamedTuple):
    """One call on the way of a tensor."""

    kind: Kind  # what it does
    func: Callable[..., Any]  # the function that ran
    args: tuple[Any, ...] = (HERE,)  # its arguments; `HERE` is the followed tensor, and other tensors are `Ref`
    kwargs: Mapping[str, Any] = {}  # its named arguments, likewise
    item: int | None = None  # which item of a tuple it gave; None for a tensor
    where: str = ""  # the line of code
    factor: float = 1.0  # by which it multiplies
    operand: Any = None  # what it adds, or writes into cells

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
    """A product of two tensors, or a projection of one."""

    left: Ref
    right: Ref
    spec: Spec  # the axes of both, and of the result
    left_trail: Trail | None = None  # where the factors come from, if it is known
    right_trail: Trail | None = None
    bias: Ref | None = None  # what a projection adds to each of its features
    is_projection: bool = False  # whether one factor is a parameter
    matrix: int = 1  # which factor is the matrix, 0 or 1, if it is a projection
    dtype: torch.dtype | None = None  # of the result; autocast gives another one than that of the factors
    where: str = ""  # the line of code

    def compute(self, dtype: torch.dtype | None = None) -> Tensor:
        """The product, without its bias."""
        left, right = (each.tensor if dtype is None else each.tensor.to(dtype) for each in (self.left, self.right))
        return self.spec.multiply(left, right)


@dataclass(eq=False)
class Normalized:
    """What a softmax, or something in its place, gave."""

    before: Trail  # the trail of its input
    scores: Ref | None  # its input
    weights: Ref  # its result
    axis: int  # along which it normalizes
    normalizer: str  # our name of it
    where: str  # the line of code
    name: str  # the path of the module that called it
    unknown: str = ""  # what it is instead, in words, if we have none
    is_used: bool = False  # whether it multiplied values


@dataclass(frozen=True, eq=False)
class Reduced:
    """What a softmax written by hand takes from its scores."""

    of: Trail  # the trail of the scores
    how: str  # "max", "sum" (of exponentials), "logsumexp"; or "log", the logarithms of the weights
    axis: int  # along which
    plus: float = 0.0  # what was added to a sum
    scores: Ref | None = None  # the scores, of logarithms


@dataclass(frozen=True, eq=False)
class Heads:
    """The outputs of the heads of a call, as its product with the values gave them."""

    index: int  # of the call
    places: Tensor  # where the head outputs of the recorded element stand in the result, [head query_pos d_v]
    shape: tuple[int, ...]  # of the result


@dataclass(frozen=True, eq=False)
class Trail:
    """An origin, and the calls since."""

    origin: Product | Normalized | Reduced | Heads | Ref  # a `Ref`: a tensor whose making is not followed
    events: tuple[Event, ...] = ()

    def then(self, *events: Event) -> Trail:
        """The trail after more calls."""
        return Trail(self.origin, self.events + events)

    def has(self, *kinds: Kind) -> bool:
        """Whether a call of one of these kinds is on the trail."""
        return any(event.kind in kinds for event in self.events)

    def is_same_as(self, other: Trail) -> bool:
        """Whether two trails are of equal numbers: the same calls of the same tensor, once or twice."""
        return (
            self.origin is other.origin
            and len(self.events) == len(other.events)
            and all(
                a is b or (a.kind == b.kind == Kind.EXP and a.func == b.func)
                for a, b in zip(self.events, other.events, strict=True)
            )
        )


def arrange(events: Iterable[Event], tensor: Tensor) -> Tensor:
    """A tensor of the shape of an origin, arranged as the calls arrange the numbers."""
    for event in events:
        if event.kind == Kind.VIEW:
            tensor = event.apply(tensor)
    return tensor


def run(events: Iterable[Event], tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The calls again; in another dtype, those that only change the dtype are left out."""
    for event in events:
        if event.kind == Kind.KEEP and dtype is not None:
            continue
        # Calls that work in place would change what the caller has.
        in_place = event.kind not in (Kind.VIEW, Kind.KEEP)
        tensor = event.apply(tensor.clone() if in_place else tensor, dtype)
    return tensor
