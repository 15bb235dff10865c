"""Source "matrices": the user's own matrices, and every step computed from them; its knobs, and how it is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attention.base.errors import AttentionError, MatrixError, ShapeError
from attention.base.knobs import Choice, Integer, Knob, Real, Text
from attention.files.given_mask import MEANINGS
from attention.files.matrix import Matrix, Stack, as_stack
from attention.files.matrix_text import parse_matrix
from attention.files.user_tensors import table_labels, token_texts
from attention.formula.config import AttentionConfig, HeadSizes
from attention.formula.dropout import Dropout, ProvidedDropout
from attention.formula.formula import Formula
from attention.formula.mask import Mask
from attention.formula.names import INPUT, KEY, MASKED_SCORES, MEMORY, QUERY, SCORES, VALUE
from attention.sources import Source, split_heads
from attention.sources.layer_knobs import read_config
from attention.sources.reader import Field, Reader, SourceKind
from attention.sources.split_heads import ATTN_MASK, SYMBOLS, MatrixInput, Shape
from attention.trace.cost import Cost
from attention.trace.layer import Layer
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from attention.program.literals import Snippet


_FROM_PROJECTIONS, _FROM_QKV, _FROM_SCORES = ("x", "w_q", "w_k", "w_v"), (QUERY, KEY, VALUE), (SCORES, VALUE)
_REQUIRES = {"b_q": "w_q", "b_k": "w_k", "b_v": "w_v", "b_o": "w_o", MEMORY: "x"}  # a field that needs another one
_FIELDS = {name: "mask" if name == ATTN_MASK else name for name in SYMBOLS}
_ROWS_OF_QUERIES, _ROWS_OF_KEYS = ("x", QUERY, SCORES), (MEMORY, KEY, SCORES)  # whose labels are tokens
_MAX_DRAWABLE = 3.4028234663852886e38  # plots use single precision; a mask may hold its smallest number


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
        read = split_heads.as_matrices(inputs)
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
        recorded = split_heads.to_tensors(provided, self.n_heads)
        n_queries, n_keys = split_heads.sequence_lengths(recorded)
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
            n_heads = split_heads.count_heads(self._shapes(), self.n_heads)
            mask = split_heads.given_mask(self.mask, self.mask_means, n_heads, (n_queries, n_keys))
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
        n_heads = split_heads.count_heads(shapes, self.n_heads)

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
