"""Given matrices as heads: cut by columns as `nn.MultiheadAttention` does, or as a stack of one matrix a head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.errors import MatrixError, ShapeError
from attention.formula.names import KEY, MEMORY, QUERY, SCORES, VALUE
from attention.sources.reading.matrix import MAX_NUMBERS, Matrix, Stack, checked, too_large

if TYPE_CHECKING:
    from torch import Tensor

Given = Matrix | tuple[float, ...] | Stack
"""A matrix, one flat row of it, or a stack [head …] of matrices."""

SYMBOLS = {
    "x": "X",
    "w_q": "W_Q",
    "w_k": "W_K",
    "w_v": "W_V",
    "w_o": "W_O",
    QUERY: "Q",
    KEY: "K",
    VALUE: "V",
    MEMORY: "X₂",
    SCORES: "S",
    "bias": "bias",
    "dropout_mask": "dropout_mask",
    "b_q": "b_Q",
    "b_k": "b_K",
    "b_v": "b_V",
    "b_o": "b_O",
}
"""The fields of `Matrices` that hold a matrix, and their letters in the formula."""

_KEYS = ("w_k", "w_v", KEY, VALUE, "b_k", "b_v")  # of which several heads of queries may share one
_UNCUT = ("x", MEMORY, "b_o")
_MAPS = {"bias": "added to the scores", "dropout_mask": "multiplied with the weights"}
_ROWS = ("b_q", "b_k", "b_v", "b_o")
_EQUAL = (
    ("x", "columns", MEMORY, "columns"),
    ("x", "columns", "w_q", "rows"),
    ("x", "columns", "w_k", "rows"),
    ("x", "columns", "w_v", "rows"),
    ("w_q", "columns", "w_k", "columns"),
    (QUERY, "columns", KEY, "columns"),
    (SCORES, "columns", VALUE, "rows"),
    (KEY, "rows", VALUE, "rows"),
    ("w_v", "columns", "w_o", "rows"),
    (VALUE, "columns", "w_o", "rows"),
    ("b_q", "columns", "w_q", "columns"),
    ("b_k", "columns", "w_k", "columns"),
    ("b_v", "columns", "w_v", "columns"),
    ("b_o", "columns", "w_o", "columns"),
)


class Shape(NamedTuple):
    """How a matrix was given: how many of them in a stack, 0 where it is one, and the size of each."""

    stack: int
    rows: int
    columns: int

    @classmethod
    def of(cls, given: Any) -> Shape:
        """That of a matrix, of a flat row, or of a stack."""
        if not isinstance(given[0], Sequence):
            return cls(0, 1, len(given))
        if given[0] and isinstance(given[0][0], Sequence):
            return cls(len(given), len(given[0]), len(given[0][0]))
        return cls(0, len(given), len(given[0]))

    def __str__(self) -> str:
        return f"{f'{self.stack} × ' if self.stack else ''}{self.rows} × {self.columns}"


def heads(shapes: Mapping[str, Shape], n_heads: int) -> int:
    """How many heads there are: as many as asked for, or as the longest stack has."""
    return n_heads if n_heads > 1 else max((shape.stack for shape in shapes.values()), default=0) or 1


def tensors(given: Mapping[str, Any], n_heads: int) -> dict[str, Tensor]:
    """The matrices as [head row column], X and X₂ as [pos d_model], biases as [head column], b_O as [d_model].

    Raises:
        MatrixError: one holds something else than finite numbers; where something is added to the scores, −∞ may stand too.
        ShapeError: one cannot be cut into so many heads, or two do not fit together.
    """
    shapes = {name: Shape.of(matrix) for name, matrix in given.items()}
    count = heads(shapes, n_heads)
    shared = next((shapes[name].stack for name in _KEYS if name in shapes and shapes[name].stack), count)
    if count > 1 and not shapes.keys() & {"w_q", QUERY, SCORES}:
        raise ShapeError(
            f"X alone is one head, since no projection makes others of it; got {count} heads: give W_Q, W_K and W_V, or choose 1 head."
        )
    if count % shared:
        raise ShapeError(
            f"{count} heads cannot share {shared} of keys in equal groups: give a stack of {count}, or of a divisor."
        )
    found = {
        name: _cut(name, given[name], shape, shared if name in _KEYS else count)
        for name, shape in shapes.items()
        if name not in _MAPS
    }
    for left, left_axis, right, right_axis in _EQUAL:
        if {left, right} <= found.keys() and _size(found[left], left_axis) != _size(found[right], right_axis):
            sides = " but ".join(f"{SYMBOLS[name]} is {shapes[name]}" for name in (left, right))
            raise ShapeError(
                f"{sides}: {SYMBOLS[left]}'s {left_axis} must be as many as {SYMBOLS[right]}'s {right_axis}."
            )
    for name in (name for name in _MAPS if name in given):
        found[name] = _map(name, given[name], shapes[name], count, sizes(found))
    return found


def sizes(found: Mapping[str, Tensor]) -> tuple[int, int]:
    """How many queries there are, and how many keys."""
    queries = next(found[name] for name in ("x", QUERY, SCORES) if name in found)
    keys = next(found[name] for name in (MEMORY, "x", KEY, VALUE) if name in found)
    return queries.shape[-2], keys.shape[-2]


def _cut(name: str, given: Any, shape: Shape, parts: int) -> Tensor:
    """One matrix as heads: [head row column], or as `tensors` says."""
    import torch

    symbol, numbers = SYMBOLS[name], _numbers(name, given, shape)
    if shape.stack:
        if name in (*_UNCUT, *_ROWS):
            raise ShapeError(
                f"{symbol} is one {'row' if name in _ROWS else 'matrix'} for all heads; got a stack of {shape}: give one."
            )
        if shape.stack != parts:
            raise ShapeError(
                f"{symbol} is a stack of {shape.stack} but there are {parts} heads: give one matrix for each head."
            )
        return torch.tensor(numbers, dtype=torch.float64)
    whole = torch.tensor(numbers[0], dtype=torch.float64)
    if name in _ROWS:
        if name != "b_o" and shape.rows == parts:  # one row for each head, as Keras keeps it
            return whole
        if shape.rows != 1:
            raise ShapeError(f"{symbol} is one row, which is added to every other; got {shape}: give one row.")
    if name in _UNCUT:
        return whole[0] if name in _ROWS else whole
    axis, side = (0, "rows") if name == "w_o" else (1, "columns")
    if whole.shape[axis] % parts:
        raise ShapeError(
            f"{symbol} is {shape} and is cut into {parts} heads: its {side} must be a multiple of {parts}; change them, or the number of heads."
        )
    if name == "w_o":
        return whole.reshape(parts, -1, whole.shape[1])
    cut = _beside(whole, parts)
    return cut[:, 0] if name in _ROWS else cut


def _map(name: str, given: Any, shape: Shape, parts: int, places: tuple[int, int]) -> Tensor:
    """What every score or weight has one of, [head query_pos key_pos]: one for all heads, one for each beside each other, or a stack."""
    import torch

    whole = torch.tensor(_numbers(name, given, shape), dtype=torch.float64)
    if not shape.stack and parts > 1 and whole.shape[1:] == (places[0], parts * places[1]):
        return _beside(whole[0], parts)
    if whole.shape[1:] != places or len(whole) not in (1, parts):
        raise ShapeError(
            f"{name} is {_MAPS[name]}, which are {parts} × {places[0]} × {places[1]}; got {shape}: "
            f"give {places[0]} × {places[1]} for all heads, or a stack of {parts}."
        )
    return whole.expand(parts, -1, -1)


def _numbers(name: str, given: Any, shape: Shape) -> list[Matrix]:
    """The matrices of a stack, or the one matrix, of numbers that were looked at."""
    symbol = SYMBOLS[name]
    if shape.stack * shape.rows * shape.columns > MAX_NUMBERS:
        raise too_large(symbol, str(shape))
    matrices = given if shape.stack else [given if isinstance(given[0], Sequence) else (given,)]
    found = [checked(one, f"{symbol} of head {i}" if shape.stack else symbol) for i, one in enumerate(matrices)]
    for i, one in enumerate(found):
        if (len(one), len(one[0])) != shape[1:]:
            raise MatrixError(
                f"{symbol} needs matrices of one size; that of head {i} is {len(one)} × {len(one[0])}, that of head 0 is {shape.rows} × {shape.columns}: "
                "make them equal."
            )
    return found


def _beside(whole: Tensor, parts: int) -> Tensor:
    """A matrix cut by its columns, [part row column]."""
    return whole.reshape(len(whole), parts, -1).transpose(0, 1).contiguous()


def _size(tensor: Tensor, axis: str) -> int:
    return tensor.shape[-1 if axis == "columns" else -2]
