"""What fills the fields of the source "matrices": a layer of another source, fitting sizes, or one text.

Such a text has `Q = …`, `K = …`, `V = …`, by many names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.files.matrix import Matrix, ParsedText, Stack
from attention.formula.mask import RULES
from attention.formula.names import (
    DROPPED_WEIGHTS,
    INPUT,
    KEY,
    MEMORY,
    QUERY,
    ROTATED_KEY,
    ROTATED_QUERY,
    SCORES,
    VALUE,
    WEIGHTS,
)
from attention.formula.normalizers import NORMALIZERS
from attention.sources.matrices import ATTN_MASK, MATRIX_FIELDS, OPTIONAL_MATRIX_FIELDS, SYMBOLS, Shape

if TYPE_CHECKING:
    from torch import Tensor

    from attention.trace.layer import Layer


class _LayerAsMatrices(NamedTuple):
    """A layer as arguments of `Matrices`.

    Attributes:
        matrices: the matrices by field; a stack if there are several heads.
        knobs: the knobs that reproduce the same numbers.
        omissions: a sentence for each property of the layer that `Matrices` cannot represent.
    """

    matrices: dict[str, Matrix | Stack]
    knobs: dict[str, Any]
    omissions: tuple[str, ...]


def matrices_of_layer(layer: Layer) -> _LayerAsMatrices | None:
    """A layer as matrices that reproduce its digits; None if the layer has no scores and values."""
    lost, matrices = [], _matrices(layer)
    if matrices is None:
        return None
    if layer.has(ROTATED_QUERY):
        lost.append("Q and K are taken after their rotary embedding.")
    if layer.weights is None:
        lost.append("The layer has no softmax. Your own matrices always use one, so the steps after the scores differ.")
    formula = layer.formula
    normalizer = (formula and formula.normalizer) or "softmax"
    if NORMALIZERS[normalizer].parameter:
        lost.append(f"Its {NORMALIZERS[normalizer].parameter} are left out, and softmax is used instead.")
        normalizer = "softmax"
    d_k = layer.sizes.get("d_k", 1) if SCORES not in matrices else 1
    has_labels = layer.tokens != tuple(f"x{i}" for i in range(len(layer.tokens)))
    knobs = {
        "labels": " ".join("_".join(token.split()) or "∅" for token in layer.tokens) if has_labels else "",
        "scaled": layer.divisor != 1,
        "divisor": None if layer.divisor in (1, math.sqrt(d_k)) else layer.divisor,
        "temperature": layer.temperature,
        "cap": formula and formula.cap,
        "normalizer": normalizer,
        **_mask_knobs(layer),
    }
    return _LayerAsMatrices(matrices, knobs, tuple(lost))


def resize_to_fit(matrices: Mapping[str, Matrix | Stack]) -> Mapping[str, Matrix | Stack]:
    """The matrices resized to fit the first of them, X or Q: existing numbers keep their place, new cells are 0.

    A matrix that fits already, and an absent one, stay unchanged. W_O keeps its width; biases [head column] and maps stay unchanged.
    If there are stacks, everything stays unchanged, since no matrix of a stack is the reference for the others.
    """
    shapes = {name: Shape.of(matrix) for name, matrix in matrices.items() if matrix}
    if any(shape.stack for shape in shapes.values()):
        return matrices
    rows, columns = ({name: getattr(shape, side) for name, shape in shapes.items()} for side in ("rows", "columns"))
    target_sizes: dict[str, tuple[int, int]] = {}
    if {"x", "w_q", "w_v"} <= columns.keys():
        d_model, d_k = columns["x"], columns["w_q"]
        target_sizes = {"w_q": (d_model, d_k), "w_k": (d_model, d_k), "w_v": (d_model, columns["w_v"])}
    elif {QUERY, KEY} <= columns.keys():
        target_sizes = {KEY: (rows[KEY], columns[QUERY]), VALUE: (rows[KEY], columns[VALUE])}
    if "w_o" in columns and (d_v := columns.get("w_v", columns.get(VALUE, columns.get("x", 0)))):
        target_sizes["w_o"] = (d_v, columns["w_o"])
    if MEMORY in columns and "x" in columns:
        target_sizes[MEMORY] = (rows[MEMORY], columns["x"])
    for bias in (bias for bias in ("b_q", "b_k", "b_v", "b_o") if rows.get(bias) == 1):
        target_sizes[bias] = (1, target_sizes.get(f"w_{bias[-1]}", (0, columns[bias]))[1])
    return {
        name: _resized(matrix, *target_sizes[name]) if matrix and name in target_sizes else matrix  # type: ignore[arg-type]  # checked above: no stack
        for name, matrix in matrices.items()
    }


def describe_sizes(matrices: Mapping[str, Matrix | Stack]) -> str:
    """The sizes of the matrices, such as X 4 × 3 · W_Q 3 × 3, with line breaks allowed only between matrices."""
    sizes = (f"{SYMBOLS[name]} {Shape.of(matrix)}" for name, matrix in matrices.items() if matrix)
    return " · ".join(size.replace(" ", "\xa0") for size in sizes)


def _matrices(layer: Layer) -> dict[str, Matrix | Stack] | None:
    """The matrices from which scores and output can be computed: X and its projections; Q, K and V; or the scores and V."""
    formula = layer.formula
    is_dot_product = SCORES not in layer.recorded and (formula is None or formula.score == "dot")
    if (
        is_dot_product
        and all(layer.has(name) for name in (INPUT, "w_q", "w_k", "w_v"))
        and not layer.has(ROTATED_QUERY)
    ):
        names: tuple[str, ...] = (INPUT, MEMORY, "w_q", "w_k", "w_v", "b_q", "b_k", "b_v")
    elif is_dot_product and all(layer.has(name) for name in (QUERY, KEY, VALUE)):
        rotated = layer.has(ROTATED_QUERY)
        names = (ROTATED_QUERY, ROTATED_KEY, VALUE) if rotated else (QUERY, KEY, VALUE)
    elif layer.has(SCORES) and layer.has(VALUE):
        names = (SCORES, VALUE)
    else:
        return None
    present = [name for name in (*names, "w_o", "b_o", "bias") if layer.has(name)]
    is_stack = layer.n_heads > 1
    present = [name for name in present if name != "b_o" or "w_o" in present]
    matrices = {_FIELDS.get(name, name): _to_tuples(layer[name], is_stack) for name in present}
    if layer.has(DROPPED_WEIGHTS):
        assert layer.formula is not None  # a layer with dropped weights has a formula
        ones = layer[WEIGHTS].new_ones(layer.shape(WEIGHTS))
        factors = layer.formula.dropping.weights(layer, ones, slice(None), slice(None))
        matrices["dropout_mask"] = _to_tuples(factors, is_stack)
    return matrices


_FIELDS = {INPUT: "x", ROTATED_QUERY: QUERY, ROTATED_KEY: KEY}


def _mask_knobs(layer: Layer) -> dict[str, Any]:
    from attention.formula import mask_tensor

    mask = layer.formula.mask if layer.formula else None
    if mask is None or mask.real is not None or mask.kind == "custom" or mask.needs_patches:
        return {"mask": "custom", "cells": mask_tensor.encode(layer["mask"])} if layer.hides_keys else {"mask": "none"}
    size = {name: getattr(mask, name) for name in RULES[mask.kind].fields} if mask.kind in RULES else {}
    return {"mask": mask.kind if mask.may_hide else "none", **size}


def _to_tuples(tensor: Tensor, as_stack: bool) -> Matrix | Stack:
    """The tensor as tuples, with the shortest decimals of its precision; a stack if there are several heads."""
    if tensor.ndim == 3 and as_stack:
        return tuple(_rows(matrix) for matrix in tensor)
    return _rows(tensor[0] if tensor.ndim == 3 else tensor[None] if tensor.ndim == 1 else tensor)


def _rows(matrix: Tensor) -> Matrix:
    return tuple(tuple(float(str(number)) for number in row) for row in matrix.numpy())


def _resized(matrix: Matrix, rows: int, columns: int) -> Matrix:
    resized_rows = ((*row[:columns], *(0.0,) * (columns - len(row))) for row in matrix[:rows])
    return (*resized_rows, *((0.0,) * columns,) * (rows - len(matrix)))


_ALIASES = {
    "x": "x input inputs embedding embeddings",
    MEMORY: "x2 memory",
    QUERY: "q query queries",
    KEY: "k key keys",
    VALUE: "v value values",
    SCORES: "s score scores attnscores attentionscores",
    **{f"w_{letter}": f"w{letter} w{word} m{letter}" for letter, word in zip("qkv", (QUERY, KEY, VALUE), strict=True)},
    **{f"b_{letter}": f"b{letter} b{word}" for letter, word in zip("qkv", (QUERY, KEY, VALUE), strict=True)},
    "w_o": "wo wout woutput",
    "b_o": "bo bout boutput",
    "bias": "bias",
    ATTN_MASK: "mask attnmask attentionmask srcmask tgtmask",
    "dropout_mask": "drop dropmask dropoutmask",
}
_FIELD_OF_LABEL = {name: field for field, names in _ALIASES.items() for name in names.split()}
_OPTIONAL = {name for names in OPTIONAL_MATRIX_FIELDS.values() for name in names} | {"w_o"}


def field_of_label(label: str) -> str:
    """The field of `Matrices` for a name such as W_query, self.Wq or Queries; empty if there is none."""
    return _FIELD_OF_LABEL.get(re.sub(r"[\W_]", "", label.rpartition(".")[2]).lower(), "")


def matrices_by_field(reading: ParsedText) -> dict[str, Matrix | Stack]:
    """The matrices of a text by field; empty if fewer than two have a known name, or if one of them is ambiguous."""
    matrices_by_field: dict[str, Matrix | Stack] = {}
    for part in reading.parts:
        field, matrices = field_of_label(part.label), list(part.choices.values())
        if field and (len(matrices) > 1 or matrices_by_field.get(field, matrices[0]) != matrices[0]):
            return {}
        if field:
            matrices_by_field[field] = matrices[0]
    return matrices_by_field if len(matrices_by_field) > 1 else {}


def kind_of_fields(fields: Iterable[str], current: str) -> str:
    """The kind of matrices, a key of `MATRIX_FIELDS`, to which these fields belong: the one that uses most of them, preferably `current`.

    `current` if the fields only change a part of it; empty if they form no complete kind.
    """
    present = set(fields)
    n_used = {kind: len(present & {*names, *OPTIONAL_MATRIX_FIELDS[kind]}) for kind, names in MATRIX_FIELDS.items()}
    complete = [kind for kind, names in MATRIX_FIELDS.items() if {*names} - _OPTIONAL <= present]
    if complete:
        return max(complete, key=lambda kind: (n_used[kind], kind == current))
    return current if n_used[current] == len(present) else ""


def fields_of_kind(matrices: Mapping[str, Matrix | Stack], kind: str) -> dict[str, Matrix | Stack]:
    """The matrices for which this kind has a field."""
    return {
        field: matrix
        for field, matrix in matrices.items()
        if field in (*MATRIX_FIELDS[kind], *OPTIONAL_MATRIX_FIELDS[kind])
    }
