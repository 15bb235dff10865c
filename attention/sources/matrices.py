"""Source "matrices": the user's own matrices, and every step computed from them; its knobs, and how it is read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from attention.base.errors import AttentionError, MatrixError, ShapeError
from attention.base.knobs import Choice, Integer, Knob, Real, Text
from attention.files.given_mask import MEANINGS, GivenMask, MaskSizes
from attention.files.matrix import MAX_NUMBERS, Matrix, Stack, as_stack, too_large_error, validate_matrix
from attention.files.matrix_text import parse_matrix
from attention.files.user_tensors import as_tuples, table_labels, token_texts
from attention.formula.config import AttentionConfig, HeadSizes
from attention.formula.dropout import Dropout, ProvidedDropout
from attention.formula.formula import Formula
from attention.formula.mask import Mask
from attention.formula.names import INPUT, KEY, MASKED_SCORES, MEMORY, QUERY, SCORES, VALUE
from attention.formula.steps import DECLARED
from attention.sources import Source
from attention.sources.layer_knobs import read_config
from attention.sources.reader import Field, Reader, SourceKind
from attention.trace.cost import Cost
from attention.trace.layer import Layer
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from torch import Tensor

    from attention.program.literals import Snippet


MatrixInput: TypeAlias = Any
"""A matrix, one flat row, or a stack [head …] of matrices: as tuples, or as `user_tensors.as_tensor` reads it; of W_Q and its like, an `nn.Linear`."""

ATTN_MASK = "attn_mask"
"""The matrix of `Matrices.mask`; "mask" is the knob."""

SYMBOLS = {
    name: DECLARED[{"x": INPUT, ATTN_MASK: "mask"}.get(name, name)].symbol
    for name in (
        "x", "w_q", "w_k", "w_v", "w_o", QUERY, KEY, VALUE, MEMORY, SCORES, "bias", ATTN_MASK, "dropout_mask",
        "b_q", "b_k", "b_v", "b_o",
    )
}  # fmt: skip
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
_FIELDS = {name: "mask" if name == ATTN_MASK else name for name in SYMBOLS}
"""The matrices, and their fields of `Matrices`."""
_FROM_PROJECTIONS, _FROM_QKV, _FROM_SCORES = ("x", "w_q", "w_k", "w_v"), (QUERY, KEY, VALUE), (SCORES, VALUE)
_REQUIRES = {"b_q": "w_q", "b_k": "w_k", "b_v": "w_v", "b_o": "w_o", MEMORY: "x"}  # a field that needs another one
_ROWS_OF_QUERIES, _ROWS_OF_KEYS = ("x", QUERY, SCORES), (MEMORY, KEY, SCORES)  # whose labels are tokens
_MAX_DRAWABLE = 3.4028234663852886e38  # plots use single precision; a mask may hold its smallest number


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


@dataclass(frozen=True)
class Matrices(Source):
    """Attention from the user's matrices: tuples, nested lists, tensors, arrays of NumPy and of other libraries, or tables of pandas.

    The matrices are X, W_Q, W_K and W_V; or X alone, which serves as Q, K and V; or Q, K and V; or scores and V; each with or without
    W_O. An empty tuple means that the matrix is absent. The columns of each matrix, and the rows of W_O, are split into heads as in
    `nn.MultiheadAttention`; or a matrix is a stack [head …], with fewer heads for keys and values if they are shared. An axis of length 1 before
    these is the batch. All are kept as tuples, so that the source is frozen and a cache key; the labels of a table are tokens.

    Attributes:
        x: the input [query_pos d_model].
        w_q: its projection to queries [d_model d_k]; likewise `w_k`, and `w_v` [d_model d_v]. The `weight` of an `nn.Linear` is [d_k d_model], the
            transpose, which nothing shows where it is square: give `linear.weight.T`, or the `nn.Linear` itself, whose bias is then `b_q`.
        w_o: the output projection [d_v d_model], or of any other width; without it the trace has no `output`.
        query: the queries [query_pos d_k], instead of `x` and its projections.
        key: the keys [key_pos d_k], and `value` [key_pos d_v]; their number may differ from that of the queries.
        tokens: a label for each query, as texts, ids or one text with blanks; by default x0, x1, …
        key_tokens: a label for each key; by default those of the queries, or k0, k1, … if the numbers differ.
        config: the knobs after the scores, except random dropout; the others have no effect.
        max_bytes: memory of all steps; more is refused before anything is computed.
        n_heads: the number of heads that the columns are split into; a stack has its own number.
        b_q: a row that is added to every query; likewise `b_k`, `b_v`, and `b_o`, which is added to every output.
        memory: X₂ [key_pos d_model], the input of keys and values instead of X.
        scores: the scores [query_pos key_pos], with `value` and without queries and keys.
        bias: added to the scores before the mask, for all heads or as a stack; −∞ hides a key, as in a float mask.
        mask: the mask of all heads, or of one head each, [query_pos key_pos], or a row of keys: of truth values, of 0 and 1, or of numbers
            that are added to the scores (`attention.files.given_mask.GivenMask`); the knob `mask` hides more. The notes of the trace say how it was read.
        mask_means: what 1 means in it, one of `attention.files.given_mask.MEANINGS`: "numbers" (what they say), "keep", "hide", or "add".
        dropout_mask: multiplied with the weights, for all heads or as a stack: a dropout mask of zeros and ones, or a scaled one.
        divisor: divides the scores instead of √d_k.
        valid: the number of real keys; the keys after them are padding.
    """

    x: MatrixInput = ()
    w_q: MatrixInput = ()
    w_k: MatrixInput = ()
    w_v: MatrixInput = ()
    w_o: MatrixInput = ()
    query: MatrixInput = ()
    key: MatrixInput = ()
    value: MatrixInput = ()
    tokens: Any = ()
    key_tokens: Any = ()
    config: AttentionConfig = field(default_factory=AttentionConfig)
    max_bytes: int = 2**33
    n_heads: int = 1
    b_q: MatrixInput = ()
    b_k: MatrixInput = ()
    b_v: MatrixInput = ()
    b_o: MatrixInput = ()
    memory: MatrixInput = ()
    scores: MatrixInput = ()
    bias: MatrixInput = ()
    divisor: float | None = None
    valid: int | None = None
    dropout_mask: MatrixInput = ()
    mask: MatrixInput = ()
    mask_means: str = MEANINGS[0]

    def __post_init__(self) -> None:
        inputs = {name: getattr(self, name) for name in _FIELDS.values()}
        read = _as_matrices(inputs)
        for name, of in (("tokens", _ROWS_OF_QUERIES), ("key_tokens", _ROWS_OF_KEYS)):
            labels = (table_labels(inputs[each])[each == SCORES and name == "key_tokens"] for each in of)
            read[name] = token_texts(getattr(self, name)) or next(filter(None, labels), ())
        for name, value in read.items():
            object.__setattr__(self, name, value)

    def memory_bytes(self) -> int:
        """The bytes that the trace takes while it is computed, counted in advance.

        Raises:
            ConfigError: more than `max_bytes`.
        """
        return self._cost().check(self.max_bytes)

    def trace(self) -> Trace:
        """Every step that can be computed from the matrices, in float64, so that typed numbers keep their digits.

        Raises:
            MatrixError: a matrix is missing, holds a value that is not a finite number, or makes a step too large to be drawn.
            ShapeError: two matrices, or a matrix and its labels, do not fit together.
            ConfigError: the steps would take more than `max_bytes`.
        """
        # Imported lazily: importing torch takes more than a second.
        from attention.formula.functions import project

        provided = self._provided()
        _check_complete(set(provided))
        self._check_numbers()
        recorded = _to_tensors(provided, self.n_heads)
        n_queries, n_keys = _sequence_lengths(recorded)
        if self.valid is not None and not (isinstance(self.valid, int) and 1 <= self.valid <= n_keys):
            raise ShapeError(
                f"valid is the number of real keys, from 1 to {n_keys}; got {self.valid}: choose one of these."
            )
        self.memory_bytes()
        if "x" in recorded:
            keys = recorded.get(MEMORY, recorded["x"])
            for name, rows in ((QUERY, recorded["x"]), (KEY, keys), (VALUE, keys)):
                w, b = (recorded.get(f"{kind}_{name[0]}") for kind in "wb")
                recorded[name] = rows[None] if w is None else project(rows, w, b)
            recorded[INPUT] = recorded.pop("x")
        tokens = self._labels(self.tokens, "tokens", "queries", "x", n_queries)
        shares_labels = n_keys == n_queries and not self.key_tokens and not self.memory
        key_tokens = tokens if shares_labels else self._labels(self.key_tokens, "key_tokens", "keys", "k", n_keys)
        is_real_key = None if self.valid is None else tuple(position < self.valid for position in range(n_keys))
        notes: tuple[str, ...] = ()
        if self.mask:
            n_heads = _count_heads(self._shapes(), self.n_heads)
            mask = _given_mask(self.mask, self.mask_means, n_heads, (n_queries, n_keys))
            # As a bias of 0 and −∞, so that the knob of the mask can hide more.
            recorded["bias"], notes = mask.as_bias(recorded.get("bias")), (mask.note,) * bool(mask.note)
        formula = Formula(
            mask=Mask(real=is_real_key),
            bias="given" if "bias" in recorded else "",
            own_divisor=self.divisor,
            dropping=ProvidedDropout() if self.dropout_mask else Dropout(),
        )
        layer = Layer(tokens=tokens, key_tokens=key_tokens, recorded=recorded, formula=formula)
        trace = Trace(tokens, (layer,), key_tokens, notes=notes).with_config(self.config)
        _check_drawable(trace.layers[0])
        return trace

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """The beginning of a Python program that computes the trace: the matrices."""
        from attention.program import random_weights

        provided = [name for name in self._provided() if name != ATTN_MASK]  # it is part of the bias
        fields = dict.fromkeys([*provided, *["bias"] * bool(self.mask)])
        return random_weights.matrices(trace.layers[0], tuple(fields))

    def _provided(self) -> dict[str, MatrixInput]:
        return {name: matrix for name, field in _FIELDS.items() if (matrix := getattr(self, field))}

    def _shapes(self) -> dict[str, Shape]:
        return {name: Shape.of(matrix) for name, matrix in self._provided().items()}

    def _cost(self) -> Cost:
        shapes = self._shapes()
        n_heads = _count_heads(shapes, self.n_heads)

        def first(*names: str) -> Shape:
            return next((shapes[name] for name in names if name in shapes), Shape(0, 0, 0))

        def width(*names: str) -> int:
            shape = first(*names)
            return shape.columns if shape.stack else shape.columns // n_heads

        sizes = HeadSizes(n_heads, width("w_q", QUERY, "x"), width("w_v", VALUE, "x"))
        queries, keys = first("x", QUERY, SCORES).rows, first(MEMORY, "x", KEY, VALUE).rows
        n_maps = 3 + (self.config.mask != "none") + (self.config.cap is not None)
        n_maps += 2 * (bool(self.bias or self.mask) + bool(self.dropout_mask))
        d_model = max(first("x").columns, first("w_o").columns)
        memory = int(bool(self.memory))
        return Cost(sizes, n_heads, d_model, queries, keys, n_heads, memory=memory, maps=n_maps, itemsize=8)

    def _check_numbers(self) -> None:
        if not isinstance(self.n_heads, int) or self.n_heads < 1:
            raise MatrixError(
                f"n_heads is a whole number of at least 1; got {self.n_heads}: choose one; 1 does not split the matrices."
            )
        if self.divisor is not None and not (math.isfinite(self.divisor) and self.divisor > 0):
            raise MatrixError(f"divisor is a number above 0; got {self.divisor}: choose one, or None for √d_k.")

    @staticmethod
    def _labels(labels: tuple[str, ...], field_name: str, rows: str, letter: str, size: int) -> tuple[str, ...]:
        if labels and len(labels) != size:
            raise ShapeError(
                f"{field_name} has {len(labels)} labels but there are {size} {rows}: provide one label for each, or none."
            )
        return labels or tuple(f"{letter}{i}" for i in range(size))


def _check_complete(provided: set[str]) -> None:
    from_projections, from_qkv, from_scores = (
        [name for name in names if name in provided] for names in (_FROM_PROJECTIONS, _FROM_QKV, _FROM_SCORES)
    )
    conflicting = [*from_projections, *(name for name in from_qkv if name != VALUE)]
    if SCORES in provided and (conflicting or VALUE not in provided):
        advice = f"leave out {_list_symbols(conflicting)}" if conflicting else "add V"
        raise MatrixError(
            f"Attention from scores needs S and V; got {_list_symbols([*conflicting, *from_scores])}: {advice}."
        )
    if from_projections and from_qkv:
        raise MatrixError(
            f"Attention starts from X, W_Q, W_K and W_V, or from Q, K and V; got {_list_symbols([*from_projections, *from_qkv])}: leave out {_list_symbols(from_qkv)}, or {_list_symbols(from_projections)}."
        )
    if not from_projections and not from_qkv:
        raise MatrixError(
            f"Attention needs X, W_Q, W_K and W_V, or Q, K and V; got {_list_symbols(sorted(provided)) or 'neither'}: provide one set or the other."
        )
    needed: tuple[str, ...] = _FROM_PROJECTIONS if from_projections else _FROM_QKV
    if SCORES in provided:
        needed = _FROM_SCORES
    elif from_projections == ["x"]:
        needed = ("x",)
    missing = [name for name in needed if name not in provided]
    if missing:
        raise MatrixError(
            f"Attention needs {_list_symbols(needed)}; got only {_list_symbols(from_projections or from_qkv)}: add {_list_symbols(missing)}."
        )
    for name, other in _REQUIRES.items():
        if name in provided and other not in provided:
            raise MatrixError(
                f"{SYMBOLS[name]} belongs to {SYMBOLS[other]}; got {SYMBOLS[name]} alone: add {SYMBOLS[other]}, or leave out {SYMBOLS[name]}."
            )


def _check_drawable(layer: Layer) -> None:
    inputs = [(SYMBOLS[name], getattr(layer, INPUT if name == "x" else name)) for name in SYMBOLS if name != ATTN_MASK]
    # Masked scores hold −∞ on purpose.
    steps = [(step.symbol, tensor) for step, tensor in layer if step.name != MASKED_SCORES]
    for symbol, tensor in [*inputs, *steps]:
        if tensor is None:
            continue
        magnitudes = tensor.abs()
        if layer.has("bias") and symbol in ("bias", "B"):
            magnitudes = magnitudes[tensor != -math.inf]  # −∞ in a bias hides a key
        largest = float(magnitudes.max()) if magnitudes.numel() else 0.0
        if not largest <= _MAX_DRAWABLE:  # also refuses NaN, the product of infinities
            raise MatrixError(
                f"{symbol} needs numbers of at most {_MAX_DRAWABLE:.2g} in magnitude, so that they can be drawn; got {largest:.3g}: use smaller numbers, or a higher temperature."
            )


def _list_symbols(names: list[str] | tuple[str, ...]) -> str:
    *first, last = (SYMBOLS[name] for name in names) if names else ("",)
    return f"{', '.join(first)} and {last}" if first else last


# Heads: columns are split as in `nn.MultiheadAttention`; a stack has one matrix for each head.


def _as_matrices(inputs: Mapping[str, MatrixInput]) -> dict[str, tuple[Any, ...]]:
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


def _count_heads(shapes: Mapping[str, Shape], n_heads: int) -> int:
    """The number of heads: the requested number, or the size of the largest stack."""
    return n_heads if n_heads > 1 else max((shape.stack for shape in shapes.values()), default=0) or 1


def _to_tensors(matrices: Mapping[str, Any], n_heads: int) -> dict[str, Tensor]:
    """The matrices as [head row column], X and X₂ as [pos d_model], biases as [head column], b_O as [d_model].

    Raises:
        MatrixError: a value is not a finite number; a bias may also hold −∞.
        ShapeError: a matrix cannot be split into this many heads, or two do not fit together.
    """
    shapes = {name: Shape.of(matrix) for name, matrix in matrices.items()}
    n_heads_total = _count_heads(shapes, n_heads)
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
        head_tensors[name] = _map(name, matrices[name], shapes[name], n_heads_total, _sequence_lengths(head_tensors))
    return head_tensors


def _given_mask(mask: Any, means: str, n_heads: int, sizes: tuple[int, int]) -> GivenMask:
    """The user's mask: one matrix or one row for all heads, or a stack; of numbers or of truth values.

    Args:
        means: what 1 means in it, one of `MEANINGS`.
        sizes: the numbers of queries and of keys.

    Raises:
        MatrixError: as for `_to_tensors`; a mask may also hold −∞.
        ShapeError: it does not fit the scores.
    """
    import torch

    shape = Shape.of(mask)
    rows = _validated(ATTN_MASK, mask, shape)
    is_truth = all(isinstance(cell, bool) for matrix in rows for row in matrix for cell in row)
    tensor = torch.tensor(rows if shape.stack else rows[0], dtype=torch.bool if is_truth else torch.float64)
    return GivenMask.of(tensor, MaskSizes(None, n_heads, *sizes), means)


def _sequence_lengths(tensors: Mapping[str, Tensor]) -> tuple[int, int]:
    """The numbers of queries and of keys."""
    queries = next(tensors[name] for name in ("x", QUERY, SCORES) if name in tensors)
    keys = next(tensors[name] for name in (MEMORY, "x", KEY, VALUE) if name in tensors)
    return queries.shape[-2], keys.shape[-2]


def _split(name: str, matrix: Any, shape: Shape, n_parts: int) -> Tensor:
    """One matrix split into heads, with the axes that `_to_tensors` documents."""
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


# The knobs, and how they are read.

NAME = "matrices"
MATRIX_FIELDS = {
    "X and weights": ("x", "w_q", "w_k", "w_v", "w_o"),
    "Q, K and V": (QUERY, KEY, VALUE, "w_o"),
    "X alone": ("x", "w_o"),
    "scores and V": (SCORES, VALUE, "w_o"),
}
"""The kinds of matrices that users can enter, and the fields of each kind. W_O may be empty."""
OPTIONAL_MATRIX_FIELDS = {
    "X and weights": (MEMORY, "b_q", "b_k", "b_v", "b_o", "bias", ATTN_MASK, "dropout_mask"),
    "Q, K and V": ("b_o", "bias", ATTN_MASK, "dropout_mask"),
    "X alone": (MEMORY, "b_o", "bias", ATTN_MASK, "dropout_mask"),
    "scores and V": ("b_o", "bias", ATTN_MASK, "dropout_mask"),
}
"""The optional fields of each kind; all of them may be empty."""
UPLOADED = "uploaded"
"""Link key: the matrices that are too long for a link, with their sizes, such as x:512x64,w_q:64x64."""

# The integer matrices of the numpy notebook: small enough to compute by hand.
_MATRICES = {
    "x": "1,0,0;0,1,0;1,1,0;0,0,1",
    "w_q": "2,0,2;2,0,0;2,1,2",
    "w_k": "2,2,2;0,2,1;0,1,1",
    "w_v": "1,1,0;0,1,1;0,0,0",
    "w_o": "",
    QUERY: "2,0,2;2,0,0;4,0,2;2,1,2",
    KEY: "2,2,2;0,2,1;2,4,3;0,1,1",
    VALUE: "1,1,0;0,1,1;1,2,1;0,0,0",
    SCORES: "8,2,10,2;4,0,4,0;12,2,14,2;10,4,14,3",
    **dict.fromkeys((MEMORY, "b_q", "b_k", "b_v", "b_o", "bias", "dropout_mask", ATTN_MASK), ""),
}
MAX_MATRIX_CHARACTERS = 20_000  # characters; a longer text makes the text field slow

_PASTE = (
    "In any published form: CSV, spreadsheet cells, a list such as [[1, 0], [0, 1]], the output of NumPy, torch, TensorFlow, "
    "pandas or R, LaTeX, a Markdown table, or a complete notebook cell."
)
# fmt: off
MATRIX_KIND = Knob(
    "matrix_kind", "X and weights", Choice(tuple(MATRIX_FIELDS)), "You have",
    "The input and its projections; queries, keys and values; one matrix for all three; or the scores.",
    (NAME,))
MATRIX_HEADS = Knob(
    "given_heads", 1, Integer(1, limit="heads"), "Heads",
    "The columns of your matrices, and the rows of W_O, are split into this many heads, as nn.MultiheadAttention does.",
    (NAME,), section="More knobs", order=10)
DIVISOR = Knob(
    "divisor", None, Real(1e-6, 1e6, optional=True), "Divisor", "Divides the scores instead of √d_k.",
    (NAME,), section="More knobs", order=20, placeholder="√d_k")
VALID_KEYS = Knob(
    "valid_keys", None, Integer(1, limit="tokens", optional=True), "Valid keys",
    "The number of real keys; the keys after them are padding, hidden from every query.",
    (NAME,), section="More knobs", order=30, placeholder="all")
MASK_MEANS = Knob(
    "mask_means", MEANINGS[0], Choice(MEANINGS, ("what its numbers say", "1 keeps the key", "1 hides the key", "added to the scores")), "The mask means",
    "Truth values, and 0 and 1, keep the keys with 1, as in scaled_dot_product_attention; nn.MultiheadAttention hides them. Other numbers are added to the scores.",
    (NAME, "file"), section="More knobs", order=40)
LABELS = Knob("labels", "", Text(2000), "Names of the tokens", "Separated by spaces. Empty: x0, x1, …", (NAME,))
MATRICES = tuple(
    Knob(name, text, Text(MAX_MATRIX_CHARACTERS, lines=4), f"Paste {SYMBOLS[name]}", _PASTE, (NAME,)) for name, text in _MATRICES.items())
# fmt: on


def _read_matrices(reader: Reader, names: Sequence[str]) -> dict[str, Matrix | Stack]:
    """The matrices by name; one whose default is empty may be empty."""
    knobs = {knob.key: knob for knob in MATRICES}
    missing = uploaded_sizes(reader.texts.get(UPLOADED, ""))
    read: dict[str, Matrix | Stack] = {}
    for name in names:
        knob = knobs[name]
        text = reader.texts.get(name, knob.default)
        value: Matrix | Stack | AttentionError
        try:
            if name in missing and name not in reader.texts:
                raise MatrixError(
                    f"{SYMBOLS[name]} ({missing[name].replace('x', ' × ')}) is too long for a link, and this server does not have it: "
                    "upload it again, or open a state file that holds it."
                )
            value = read[name] = parse_matrix(text, SYMBOLS[name]) if text.strip() or knob.default else ()
        except AttentionError as error:
            value = error
        reader.fields[name] = Field(knob, knob.range, value)
    for name in names:
        if isinstance(problem := reader.fields[name].value, AttentionError):
            raise problem
    return read


def read(reader: Reader) -> Matrices:
    """The user's matrices with their config."""
    kind = reader.knob(MATRIX_KIND)
    labels = reader.knob(LABELS)
    config = read_config(reader, KIND)
    n_heads, divisor, valid, mask_means = (
        reader.knob(knob) for knob in (MATRIX_HEADS, DIVISOR, VALID_KEYS, MASK_MEANS)
    )
    matrices = _read_matrices(reader, (*MATRIX_FIELDS[kind], *OPTIONAL_MATRIX_FIELDS[kind]))
    stack_size = max((len(as_stack(matrix)) for matrix in matrices.values() if matrix), default=1)
    if stack_size > reader.limits.heads:
        raise MatrixError(
            f"This server allows at most {reader.limits.heads} heads; got a stack of {stack_size}: provide fewer matrices."
        )
    return Matrices(
        **{"mask" if name == ATTN_MASK else name: matrix for name, matrix in matrices.items()},
        tokens=tuple(labels.split()),
        config=config,
        max_bytes=reader.limits.trace_bytes,
        n_heads=n_heads,
        divisor=divisor,
        valid=valid,
        mask_means=mask_means,
    )


def uploaded_sizes(uploaded: str) -> dict[str, str]:
    """The sizes of the matrices that are too long for a link, by name, from the value of `uploaded`."""
    entries = (entry.partition(":") for entry in uploaded.split(","))
    return {name: size[:20] for name, _, size in entries if name in SYMBOLS}


KIND = SourceKind(NAME, read)
