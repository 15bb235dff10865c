"""Splits matrices into heads: by columns as in `nn.MultiheadAttention`, or from a stack with one matrix for each head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from attention.base.errors import MatrixError, ShapeError
from attention.files.given_mask import GivenMask, MaskSizes
from attention.files.matrix import MAX_NUMBERS, Matrix, too_large_error, validate_matrix
from attention.files.user_tensors import as_tuples
from attention.formula.names import INPUT, KEY, MEMORY, QUERY, SCORES, VALUE
from attention.formula.steps import DECLARED

if TYPE_CHECKING:
    from torch import Tensor

MatrixInput: TypeAlias = Any
"""A matrix, one flat row, or a stack [head …] of matrices: as tuples, or as `user_tensors.as_tensor` reads it; of W_Q and its like, an `nn.Linear`."""

ATTN_MASK = "attn_mask"
"""The matrix of `Matrices.mask`; "mask" is the knob."""

_FIELDS = (
    "x", "w_q", "w_k", "w_v", "w_o", QUERY, KEY, VALUE, MEMORY, SCORES, "bias", ATTN_MASK, "dropout_mask",
    "b_q", "b_k", "b_v", "b_o",
)  # fmt: skip
SYMBOLS = {name: DECLARED[{"x": INPUT, ATTN_MASK: "mask"}.get(name, name)].symbol for name in _FIELDS}
"""The matrix fields of `Matrices`, and their symbols in the formula."""

_PER_KV_HEAD = ("w_k", "w_v", KEY, VALUE, "b_k", "b_v")  # several query heads may share one of these
_SHARED_BY_HEADS = ("x", MEMORY, "b_o")
_MAPS = {"bias": "added to the scores", "dropout_mask": "multiplied with the weights"}
_ROWS = ("b_q", "b_k", "b_v", "b_o")
_EQUAL_SIZES = (
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
    """The shape of a matrix input: the size of the stack (0 for a single matrix), and the rows and columns of each matrix."""

    stack: int
    rows: int
    columns: int

    @classmethod
    def of(cls, matrix: Any) -> Shape:
        """The shape of a matrix, of a flat row, or of a stack."""
        if not isinstance(matrix[0], Sequence):
            return cls(0, 1, len(matrix))
        if matrix[0] and isinstance(matrix[0][0], Sequence):
            return cls(len(matrix), len(matrix[0]), len(matrix[0][0]))
        return cls(0, len(matrix), len(matrix[0]))

    def __str__(self) -> str:
        return f"{f'{self.stack} × ' if self.stack else ''}{self.rows} × {self.columns}"


def as_matrices(inputs: Mapping[str, MatrixInput]) -> dict[str, tuple[Any, ...]]:
    """The matrices as tuples, by the names of the fields of `Matrices`; of a batch of one, that one.

    Raises:
        MatrixError: an input has no numbers, too many, or too many axes.
    """
    inputs = dict(inputs)
    for letter in "qkvo":
        weight, bias = _of_linear(inputs[f"w_{letter}"], f"W_{letter.upper()}")
        inputs[f"w_{letter}"] = weight
        if bias is not None and inputs[f"b_{letter}"] in ((), None):
            inputs[f"b_{letter}"] = bias
    matrices = {name: as_tuples(value, SYMBOLS.get(name, name)) for name, value in inputs.items()}
    depths = {name: len(_sizes(matrix)) for name, matrix in matrices.items()}
    for name, matrix in matrices.items():
        if depths[name] == 4 and len(matrix) == 1:
            matrices[name], depths[name] = matrix[0], 3
    # Heads, if some matrix has several: then a stack of one is a head that all share.
    stacked = any(len(matrices[name]) > 1 for name in matrices if depths[name] == 3)
    for name, matrix in matrices.items():
        symbol = SYMBOLS.get(name, name)
        if not isinstance(matrix, tuple):
            raise MatrixError(f"{symbol} has rows of numbers; got one number: give a matrix, such as [[1.0]].")
        if depths[name] > 3:
            sizes = " × ".join(map(str, _sizes(matrix)))
            raise MatrixError(
                f"{symbol} is one sequence, [row column] or [head row column]; got {sizes}, of which the first axis would be a batch: choose one, such as {name}[0]."
            )
        if matrix is not inputs[name] and depths[name] == 3 and len(matrix) == 1:
            matrices[name] = matrix[0] if name in _SHARED_BY_HEADS or not stacked else matrix
    return matrices


def _of_linear(value: Any, symbol: str) -> tuple[Any, Any]:
    """The matrix and the row of an `nn.Linear`, or of the layer that GPT-2 has instead; of everything else, itself and None."""
    weight = getattr(value, "weight", None)
    if weight is None or not hasattr(weight, "ndim"):
        return value, None
    sizes = getattr(value, "out_features", None), getattr(value, "in_features", None)
    if None not in sizes and tuple(weight.shape) != sizes:
        raise MatrixError(
            f"{symbol} is a plain nn.Linear, whose weight is {sizes[0]} × {sizes[1]}; got a {type(value).__name__} with {list(weight.shape)}: give its matrix."
        )
    return weight if None in sizes else weight.T, getattr(value, "bias", None)


def _sizes(matrix: Any) -> tuple[int, ...]:
    return (len(matrix), *_sizes(matrix[0])) if isinstance(matrix, tuple) and matrix else ()


def count_heads(shapes: Mapping[str, Shape], n_heads: int) -> int:
    """The number of heads: the requested number, or the size of the largest stack."""
    return n_heads if n_heads > 1 else max((shape.stack for shape in shapes.values()), default=0) or 1


def to_tensors(matrices: Mapping[str, Any], n_heads: int) -> dict[str, Tensor]:
    """The matrices as [head row column], X and X₂ as [pos d_model], biases as [head column], b_O as [d_model].

    Raises:
        MatrixError: a value is not a finite number; a bias may also hold −∞.
        ShapeError: a matrix cannot be split into this many heads, or two do not fit together.
    """
    shapes = {name: Shape.of(matrix) for name, matrix in matrices.items()}
    n_heads_total = count_heads(shapes, n_heads)
    kv_heads = next(
        (shapes[name].stack for name in _PER_KV_HEAD if name in shapes and shapes[name].stack), n_heads_total
    )
    if n_heads_total > 1 and not shapes.keys() & {"w_q", QUERY, SCORES}:
        raise ShapeError(
            f"X alone has one head, since there are no projections; got {n_heads_total} heads: add W_Q, W_K and W_V, or choose 1 head."
        )
    if n_heads_total % kv_heads:
        raise ShapeError(
            f"{n_heads_total} query heads cannot share {kv_heads} key heads in equal groups: provide a stack of {n_heads_total}, or of a divisor."
        )
    head_tensors = {
        name: _split(name, matrices[name], shape, kv_heads if name in _PER_KV_HEAD else n_heads_total)
        for name, shape in shapes.items()
        if name not in (*_MAPS, ATTN_MASK)
    }
    for left, left_axis, right, right_axis in _EQUAL_SIZES:
        if {left, right} <= head_tensors.keys() and _size(head_tensors[left], left_axis) != _size(
            head_tensors[right], right_axis
        ):
            sides = " but ".join(f"{SYMBOLS[name]} is {shapes[name]}" for name in (left, right))
            raise ShapeError(f"{sides}: {SYMBOLS[left]}'s {left_axis} must equal {SYMBOLS[right]}'s {right_axis}.")
    for name in (name for name in _MAPS if name in matrices):
        head_tensors[name] = _map(name, matrices[name], shapes[name], n_heads_total, sequence_lengths(head_tensors))
    return head_tensors


def given_mask(mask: Any, means: str, n_heads: int, sizes: tuple[int, int]) -> GivenMask:
    """The user's mask: one matrix or one row for all heads, or a stack; of numbers or of truth values.

    Args:
        means: what 1 means in it, one of `MEANINGS`.
        sizes: the numbers of queries and of keys.

    Raises:
        MatrixError: as for `to_tensors`; a mask may also hold −∞.
        ShapeError: it does not fit the scores.
    """
    import torch

    shape = Shape.of(mask)
    rows = _validated(ATTN_MASK, mask, shape)
    is_truth = all(isinstance(cell, bool) for matrix in rows for row in matrix for cell in row)
    tensor = torch.tensor(rows if shape.stack else rows[0], dtype=torch.bool if is_truth else torch.float64)
    return GivenMask.of(tensor, MaskSizes(None, n_heads, *sizes), means)


def sequence_lengths(tensors: Mapping[str, Tensor]) -> tuple[int, int]:
    """The numbers of queries and of keys."""
    queries = next(tensors[name] for name in ("x", QUERY, SCORES) if name in tensors)
    keys = next(tensors[name] for name in (MEMORY, "x", KEY, VALUE) if name in tensors)
    return queries.shape[-2], keys.shape[-2]


def _split(name: str, matrix: Any, shape: Shape, n_parts: int) -> Tensor:
    """One matrix split into heads, with the axes that `to_tensors` documents."""
    import torch

    symbol, numbers = SYMBOLS[name], _validated(name, matrix, shape)
    if shape.stack:
        if name in (*_SHARED_BY_HEADS, *_ROWS):
            raise ShapeError(
                f"{symbol} is one {'row' if name in _ROWS else 'matrix'} for all heads; got a stack of {shape}: provide one."
            )
        if shape.stack != n_parts:
            raise ShapeError(
                f"{symbol} is a stack of {shape.stack} but there are {n_parts} heads: provide one matrix for each head."
            )
        return torch.tensor(numbers, dtype=torch.float64)
    tensor = torch.tensor(numbers[0], dtype=torch.float64)
    if name in _ROWS:
        if name != "b_o" and shape.rows == n_parts:  # one row for each head, as in Keras
            return tensor
        if shape.rows != 1:
            raise ShapeError(f"{symbol} is one row, which is added to every row; got {shape}: provide one row.")
    if name in _SHARED_BY_HEADS:
        return tensor[0] if name in _ROWS else tensor
    axis, side = (0, "rows") if name == "w_o" else (1, "columns")
    if tensor.shape[axis] % n_parts:
        raise ShapeError(
            f"{symbol} is {shape} and is split into {n_parts} heads: its {side} must be a multiple of {n_parts}; change them, or the number of heads."
        )
    if name == "w_o":
        return tensor.reshape(n_parts, -1, tensor.shape[1])
    columns = _split_columns(tensor, n_parts)
    return columns[:, 0] if name in _ROWS else columns


def _map(name: str, matrix: Any, shape: Shape, n_heads: int, map_size: tuple[int, int]) -> Tensor:
    """A map with one value for each score or weight, [head query_pos key_pos].

    The input is one matrix for all heads, one matrix for each head side by side, or a stack.
    """
    import torch

    maps = torch.tensor(_validated(name, matrix, shape), dtype=torch.float64)
    if not shape.stack and n_heads > 1 and maps.shape[1:] == (map_size[0], n_heads * map_size[1]):
        return _split_columns(maps[0], n_heads)
    if maps.shape[1:] != map_size or len(maps) not in (1, n_heads):
        raise ShapeError(
            f"{name} is {_MAPS[name]}, whose shape is {n_heads} × {map_size[0]} × {map_size[1]}; got {shape}: "
            f"provide {map_size[0]} × {map_size[1]} for all heads, or a stack of {n_heads}."
        )
    return maps.expand(n_heads, -1, -1)


def _validated(name: str, matrix: Any, shape: Shape) -> list[Matrix]:
    """The matrices of a stack, or the single matrix in a list, with their numbers checked."""
    symbol = SYMBOLS[name]
    if shape.stack * shape.rows * shape.columns > MAX_NUMBERS:
        raise too_large_error(symbol, str(shape))
    matrices = matrix if shape.stack else [matrix if isinstance(matrix[0], Sequence) else (matrix,)]
    checked_matrices = [
        validate_matrix(rows, f"{symbol} of head {i}" if shape.stack else symbol) for i, rows in enumerate(matrices)
    ]
    for i, rows in enumerate(checked_matrices):
        if (len(rows), len(rows[0])) != shape[1:]:
            raise MatrixError(
                f"{symbol} needs matrices of equal size; head {i} has {len(rows)} × {len(rows[0])}, head 0 has {shape.rows} × {shape.columns}: "
                "make them equal."
            )
    return checked_matrices


def _split_columns(matrix: Tensor, n_parts: int) -> Tensor:
    """A matrix split by its columns, [part row column]."""
    return matrix.reshape(len(matrix), n_parts, -1).transpose(0, 1).contiguous()


def _size(tensor: Tensor, axis: str) -> int:
    return tensor.shape[-1 if axis == "columns" else -2]
