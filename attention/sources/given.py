"""Where a person's own matrices may begin: with those of another source, or with sizes that fit each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

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
from attention.formula.shares import SHARES
from attention.sources.cutting import SYMBOLS, Shape
from attention.sources.reading.matrix import Matrix, Stack

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.layer import Layer
    from attention.formula.trace import Trace


class Carried(NamedTuple):
    """The layer as `Matrices` takes it: the matrices by field, the knobs of the same numbers, and what is lost, in sentences.

    Of several heads a field has a matrix for each.
    """

    matrices: dict[str, Matrix | Stack]
    knobs: dict[str, Any]
    lost: tuple[str, ...]


def carried(trace: Trace, layer: int) -> Carried | None:
    """A layer of a trace as somebody's own matrices, which give the same digits; None where it has no scores and values."""
    found, lost = trace.layer(layer), []
    matrices = _matrices(found)
    if matrices is None:
        return None
    if found.has(ROTATED_QUERY):
        lost.append("Q and K are taken as their positions have turned them.")
    if found.weights is None:
        lost.append("It has no softmax; your own matrices always have one, so the steps after the scores are others.")
    formula = found.formula
    share = (formula and formula.share) or "softmax"
    if SHARES[share].parameter:
        lost.append(f"Its {SHARES[share].parameter} are left out, and the softmax shares out.")
        share = "softmax"
    d_k = found.sizes.get("d_k", 1) if SCORES not in matrices else 1
    named = found.tokens != tuple(f"x{i}" for i in range(len(found.tokens)))
    knobs = {
        "labels": " ".join("_".join(token.split()) or "∅" for token in found.tokens) if named else "",
        "scaled": found.divisor != 1,
        "divisor": None if found.divisor in (1, math.sqrt(d_k)) else found.divisor,
        "temperature": found.temperature,
        "cap": formula and formula.cap,
        "normalizer": share,
        **_mask(found),
    }
    return Carried(matrices, knobs, tuple(lost))


def fitted(given: Mapping[str, Matrix | Stack]) -> Mapping[str, Matrix | Stack]:
    """The matrices with their sizes made to fit the first of them, X or Q: a number stays at its place, a new place is 0.

    A matrix that fits already stays as it is, and one that is not given stays so. W_O keeps its width, and what is cut into heads
    by rows or maps stays as it is. Where there is a matrix for each head, all stay: which of them is right nobody knows.
    """
    shapes = {name: Shape.of(matrix) for name, matrix in given.items() if matrix}
    if any(shape.stack for shape in shapes.values()):
        return given
    rows, columns = ({name: getattr(one, side) for name, one in shapes.items()} for side in ("rows", "columns"))
    sizes: dict[str, tuple[int, int]] = {}
    if {"x", "w_q", "w_v"} <= columns.keys():
        d_model, d_k = columns["x"], columns["w_q"]
        sizes = {"w_q": (d_model, d_k), "w_k": (d_model, d_k), "w_v": (d_model, columns["w_v"])}
    elif {QUERY, KEY} <= columns.keys():
        sizes = {KEY: (rows[KEY], columns[QUERY]), VALUE: (rows[KEY], columns[VALUE])}
    if "w_o" in columns and (d_v := columns.get("w_v", columns.get(VALUE, columns.get("x", 0)))):
        sizes["w_o"] = (d_v, columns["w_o"])
    if MEMORY in columns and "x" in columns:
        sizes[MEMORY] = (rows[MEMORY], columns["x"])
    for bias in (bias for bias in ("b_q", "b_k", "b_v", "b_o") if rows.get(bias) == 1):
        sizes[bias] = (1, sizes.get(f"w_{bias[-1]}", (0, columns[bias]))[1])
    return {
        name: _sized(matrix, *sizes[name]) if matrix and name in sizes else matrix  # type: ignore[arg-type]  # no stack
        for name, matrix in given.items()
    }


def said(given: Mapping[str, Matrix | Stack]) -> str:
    """The sizes of the matrices, such as X 4 × 3 · W_Q 3 × 3, which a line breaks between two of them only."""
    sizes = (f"{SYMBOLS[name]} {Shape.of(matrix)}" for name, matrix in given.items() if matrix)
    return " · ".join(size.replace(" ", "\xa0") for size in sizes)


def _matrices(layer: Layer) -> dict[str, Matrix | Stack] | None:
    """What makes the scores and the output: X and its projections; or Q, K and V; or the scores themselves."""
    formula = layer.formula
    plain = SCORES not in layer.recorded and (formula is None or formula.score == "dot")
    if plain and all(layer.has(name) for name in (INPUT, "w_q", "w_k", "w_v")) and not layer.has(ROTATED_QUERY):
        names: tuple[str, ...] = (INPUT, MEMORY, "w_q", "w_k", "w_v", "b_q", "b_k", "b_v")
    elif plain and all(layer.has(name) for name in (QUERY, KEY, VALUE)):
        turned = layer.has(ROTATED_QUERY)
        names = (ROTATED_QUERY, ROTATED_KEY, VALUE) if turned else (QUERY, KEY, VALUE)
    elif layer.has(SCORES) and layer.has(VALUE):
        names = (SCORES, VALUE)
    else:
        return None
    there = [name for name in (*names, "w_o", "b_o", "bias") if layer.has(name)]
    many = layer.n_heads > 1
    given = {_FIELDS.get(name, name): _given(layer[name], many) for name in there if name != "b_o" or "w_o" in there}
    return given | ({"dropout_mask": _given(_dropped(layer), many)} if layer.has(DROPPED_WEIGHTS) else {})


def _dropped(layer: Layer) -> Tensor:
    """What the weights are multiplied by, [head query_pos key_pos]."""
    assert layer.formula is not None  # which has dropped them
    ones = layer[WEIGHTS].new_ones(layer.shape(WEIGHTS))
    return layer.formula.dropping.weights(layer, ones, slice(None), slice(None))


_FIELDS = {INPUT: "x", ROTATED_QUERY: QUERY, ROTATED_KEY: KEY}


def _mask(layer: Layer) -> dict[str, Any]:
    """The mask as the knobs that give it."""
    from attention.formula import masks

    mask = layer.formula.mask if layer.formula else None
    if mask is None or mask.real is not None or mask.kind == "custom":
        return {"mask": "custom", "cells": masks.encode(layer["mask"])} if layer.hides else {"mask": "none"}
    size = (
        {"prefix": mask.prefix} if mask.kind == "prefix" else {"window": mask.window} if "window" in mask.kind else {}
    )
    return {"mask": mask.kind if mask.hides else "none", **size}


def _given(tensor: Tensor, many: bool) -> Matrix | Stack:
    """The numbers in as few digits as their precision has; where there are many heads, a matrix for each."""
    if tensor.ndim == 3 and many:
        return tuple(_rows(one) for one in tensor)
    return _rows(tensor[0] if tensor.ndim == 3 else tensor[None] if tensor.ndim == 1 else tensor)


def _rows(matrix: Tensor) -> Matrix:
    return tuple(tuple(float(str(number)) for number in row) for row in matrix.numpy())


def _sized(matrix: Matrix, rows: int, columns: int) -> Matrix:
    kept = ((*row[:columns], *(0.0,) * (columns - len(row))) for row in matrix[:rows])
    return (*kept, *((0.0,) * columns,) * (rows - len(matrix)))
