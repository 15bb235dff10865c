"""Products of two tensors by the letters of their axes, whichever function computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    """A call that multiplies two tensors.

    Attributes:
        spec: the axes.
        left: the first factor; `right` the second one.
        alpha: multiplies the product.
        added: what is added to it.
        beta: multiplies that.
    """

    spec: Spec
    left: Tensor
    right: Tensor
    alpha: float = 1.0
    added: Tensor | None = None
    beta: float = 1.0


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
