"""Where a person's own matrices may begin: with those of another source, or with sizes that fit each other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.formula.dropping import Dropping
from attention.sources.cutting import SYMBOLS
from attention.sources.reading.matrix import Matrix

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.layer import Layer
    from attention.formula.trace import Trace


class Carried(NamedTuple):
    """One head as `Matrices` takes it: the matrices by field, the knobs of the same numbers, and what is lost, in sentences."""

    matrices: dict[str, Matrix]
    knobs: dict[str, Any]
    lost: tuple[str, ...]


def carried(trace: Trace, layer: int, head: int) -> Carried | None:
    """One head of a trace as somebody's own matrices, which give the same digits; None where no matrices make its scores."""
    found = trace.layer(layer)
    matrices, lost = _matrices(found, head), []
    if matrices is None:
        return None
    if found.n_heads > 1:
        lost.append(f"One head is carried over, head {head} of {found.n_heads}.")
    if found.w_o is not None and found.n_heads > 1:
        lost.append("W_O is left out: it mixes the outputs of all heads.")
    if found.query is None:
        lost.append("Q and K are zeros, since all its scores are 0.")
    if found.weights is None:
        lost.append("It has no softmax; your own matrices always have one, so the steps after the scores are others.")
    if any(step.how == "drawn" for step in found.steps):
        lost.append(Dropping.left_out)
    d_k = len(matrices.get("w_q", matrices.get("query", ()))[0])
    divisor = (found.formula and found.formula.divisor) or 1.0
    if divisor not in (1, math.sqrt(d_k)):
        lost.append(f"Its scores are divided by {divisor:g}; here they are divided by √d_k or not at all.")
    named = trace.tokens != tuple(f"x{i}" for i in range(len(trace.tokens)))
    knobs = {
        "labels": " ".join("_".join(token.split()) or "∅" for token in trace.tokens) if named else "",
        "scaled": divisor != 1,
        "temperature": found.temperature,
        **_mask(found),
    }
    return Carried(matrices, knobs, tuple(lost))


def fitted(given: dict[str, Matrix]) -> dict[str, Matrix]:
    """The matrices with their sizes made to fit the first of them, X or Q: a number stays at its place, a new place is 0.

    A matrix that fits already stays as it is, and one that is not given stays so. W_O keeps its width, and what is cut into heads
    by rows or maps stays as it is.
    """
    rows, columns = ({name: size(matrix) for name, matrix in given.items() if matrix} for size in (len, _width))
    sizes: dict[str, tuple[int, int]] = {}
    if {"x", "w_q", "w_v"} <= columns.keys():
        d_model, d_k = columns["x"], columns["w_q"]
        sizes = {"w_q": (d_model, d_k), "w_k": (d_model, d_k), "w_v": (d_model, columns["w_v"])}
    elif {"query", "key"} <= columns.keys():
        sizes = {"key": (rows["key"], columns["query"]), "value": (rows["key"], columns["value"])}
    if "w_o" in columns and (d_v := columns.get("w_v", columns.get("value", columns.get("x", 0)))):
        sizes["w_o"] = (d_v, columns["w_o"])
    if "memory" in columns and "x" in columns:
        sizes["memory"] = (rows["memory"], columns["x"])
    for bias in (bias for bias in ("b_q", "b_k", "b_v", "b_o") if rows.get(bias) == 1):
        sizes[bias] = (1, sizes.get(f"w_{bias[-1]}", (0, columns[bias]))[1])
    return {
        name: _sized(matrix, *sizes[name]) if matrix and name in sizes else matrix for name, matrix in given.items()
    }


def said(given: dict[str, Matrix]) -> str:
    """The sizes of the matrices, such as X 4 × 3 · W_Q 3 × 3, which a line breaks between two of them only."""
    sizes = (f"{SYMBOLS[name]} {len(matrix)} × {_width(matrix)}" for name, matrix in given.items() if matrix)
    return " · ".join(size.replace(" ", "\xa0") for size in sizes)


def _matrices(layer: Layer, head: int) -> dict[str, Matrix] | None:
    """What makes the scores and the output of one head, from X where it has projections."""
    w_o = {"w_o": _rows(layer.w_o[0])} if layer.w_o is not None and layer.n_heads == 1 else {}
    projections = {"w_q": layer.w_q, "w_k": layer.w_k, "w_v": layer.w_v}
    if layer.input is not None and layer.memory is None and all(one is not None for one in projections.values()):
        return {
            "x": _rows(layer.input),
            **{name: _rows(one[head]) for name, one in projections.items() if one is not None},
            **w_o,
        }
    if layer.value is None or layer.scores is None:
        return None
    if layer.query is not None and layer.key is not None:
        return {
            "query": _rows(layer.query[head]),
            "key": _rows(layer.key[head]),
            "value": _rows(layer.value[head]),
            **w_o,
        }
    if bool(layer.scores.any()):
        return None
    zeros = {name: ((0.0,),) * size for name, size in zip(("query", "key"), layer.scores.shape[-2:], strict=True)}
    return {**zeros, "value": _rows(layer.value[head]), **w_o}


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


def _rows(matrix: Tensor) -> Matrix:
    """The numbers in as few digits as their precision has."""
    return tuple(tuple(float(str(number)) for number in row) for row in matrix.numpy())


def _sized(matrix: Matrix, rows: int, columns: int) -> Matrix:
    kept = ((*row[:columns], *(0.0,) * (columns - len(row))) for row in matrix[:rows])
    return (*kept, *((0.0,) * columns,) * (rows - len(matrix)))


def _width(matrix: Matrix) -> int:
    return len(matrix[0])
