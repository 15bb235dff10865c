"""The layers of a file: the results of a formula are compared with the recorded values, which always take precedence."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from attention.base.errors import AttentionError, FileError, ShapeError
from attention.base.tokens import label
from attention.formula.formula import Formula
from attention.formula.functions import project
from attention.formula.names import (
    BIASED_SCORES,
    DROPPED_WEIGHTS,
    EMBEDDING,
    INPUT,
    KEY,
    MASKED_SCORES,
    MEMORY,
    OUTPUT,
    POSITION,
    QUERY,
    SCORES,
    VALUE,
    WEIGHTS,
)
from attention.formula.steps import MAP_AXES, STEPS, declared
from attention.trace.cost import MAX_TANHS
from attention.trace.layer import Layer

if TYPE_CHECKING:
    from torch import Tensor

_TOLERANCE = 0.01  # relative to the largest number of a step; a larger difference means another formula
_MAY_HIDE_KEYS = (BIASED_SCORES, MASKED_SCORES, "bias")  # where −∞ hides a key
_NON_NEGATIVE = (WEIGHTS, DROPPED_WEIGHTS)
_LARGEST = sys.float_info.max
_PROJECTED = {QUERY: ("w_q", "b_q"), KEY: ("w_k", "b_k"), VALUE: ("w_v", "b_v")}


def check_numbers(name: str, where: str, tensor: Tensor, tokens: tuple[str, ...], key_tokens: tuple[str, ...]) -> None:
    """Checks that the numbers of a step can be drawn.

    Raises:
        FileError: NaN, an infinity that does not hide a key, or a negative weight.
    """
    if tensor.dtype == torch.bool:
        return
    low, high = (float(end) for end in tensor.aminmax())  # NaN if any number is NaN; avoids a copy of the tensor
    minimum = 0.0 if name in _NON_NEGATIVE else -math.inf if name in _MAY_HIDE_KEYS else -_LARGEST
    if minimum <= low and high <= _LARGEST:
        return
    is_invalid, expected = ~tensor.isfinite(), "finite numbers"
    if name in _MAY_HIDE_KEYS:
        is_invalid &= tensor != -math.inf
    advice = "replace it with a number, or leave that token out"
    if name == SCORES and bool((tensor == -math.inf).any()):
        advice = "save the mask and the scores before masking; or save these as masked_scores, with weights"
    if not bool(is_invalid.any()) and name in _NON_NEGATIVE:
        is_invalid, expected = tensor < 0, "values of at least 0"
        advice = "save numbers before the softmax as scores"
    if not bool(is_invalid.any()):
        return
    index = tuple(int(i) for i in is_invalid.nonzero()[0])
    axes = declared(name).axes
    labels = {"query_pos": tokens, "key_pos": key_tokens}
    place = ", ".join(
        f"{axis.removesuffix('_pos')} {i}" + (f" {label(labels[axis][i], 20, False)}" if axis in labels else "")
        for axis, i in zip(axes, index, strict=True)
    )
    raise FileError(f"{name}{where} needs {expected}; got {float(tensor[index]):g} at {place}: {advice}.")


def build_layer(
    recorded: dict[str, Tensor], formula: Formula | None, max_bytes: int, has_formula: bool, **layer_fields: Any
) -> tuple[Layer, str]:
    """A layer from recorded tensors, with the formula if it reproduces them, and a note on a problem of the file, or ""; recorded tensors are shown in any case.

    Args:
        recorded: the tensors by step and parameter.
        formula: that may have computed them.
        max_bytes: that the maps may take; if all heads take more, one head at a time is computed.
        has_formula: whether the formula is saved in the file; otherwise it is the default formula.
        layer_fields: further arguments of `Layer`: its name and tokens.

    Raises:
        ShapeError: two tensors do not fit together.
    """
    recorded = _drop_unrelated_projections(recorded)
    recorded_layer = Layer(recorded=recorded, provenance=_input_provenance(recorded), **layer_fields)
    if formula is None:
        return recorded_layer, ""
    inputs = {name: tensor for name, tensor in recorded.items() if not _is_computed(name, formula)}
    if SCORES in recorded and not {QUERY, KEY} <= inputs.keys():
        inputs[SCORES] = recorded[SCORES]
    try:
        computed_layer = Layer(recorded=inputs, formula=formula, provenance=recorded_layer.provenance, **layer_fields)
        if not computed_layer.has(SCORES):
            return recorded_layer, ""
        head_bytes = _map_bytes(computed_layer)
        computed_layer = replace(computed_layer, materialize_all_heads=head_bytes * computed_layer.n_heads <= max_bytes)
        if head_bytes > max_bytes:
            raise FileError(
                f"The maps of one head would take {head_bytes / 2**20:,.0f} MB; at most {max_bytes / 2**20:,.0f} MB are computed: save fewer tokens."
            )
        for step in computed_layer.steps if has_formula else ():
            computed_layer.matrix(step.name)  # raises here rather than on a page
        others = {name: tensor for name, tensor in recorded_layer.recorded.items() if name not in inputs}
        return _compare(computed_layer, others, recorded_layer)
    except (AttentionError, RuntimeError, IndexError) as error:
        note = f"The formula of the file does not match its numbers, which are shown as recorded: {str(error)[:200]}"
        return recorded_layer, note


def _is_computed(name: str, formula: Formula) -> bool:
    if name == "mask":
        return formula.mask is not None
    if name == "bias":
        return formula.bias not in ("", "given")
    return any(step.name == name and (step.by_formula or name == OUTPUT) for step in STEPS)


def _map_bytes(layer: Layer) -> int:
    size, formula = layer.sizes, layer.formula
    cells = size["query_pos"] * size["key_pos"]
    if formula is not None and formula.score == "additive":
        n_tanh = layer.n_heads * size.get("d_k", 1) * cells
        if n_tanh > MAX_TANHS:
            raise FileError(f"additive scores may take at most {MAX_TANHS:,} tanh; got {n_tanh:,}")
    maps = [step for step in layer.steps if step.axes == MAP_AXES]
    return len(maps) * cells * max(tensor.element_size() for tensor in layer.recorded.values())


def _compare(computed: Layer, recorded: dict[str, Tensor], recorded_layer: Layer) -> tuple[Layer, str]:
    """The computed layer, with recorded tensors where they differ in a bit; the recorded layer if they differ by more than the tolerance."""
    for name, tensor in recorded.items():
        if not computed.has(name):
            computed = computed.with_tensors(**{name: tensor})
            continue
        is_equal, max_difference, max_recorded = True, 0.0, 0.0
        for computed_matrix, recorded_matrix in _matrix_pairs(computed, name, tensor):
            if computed_matrix.dtype == recorded_matrix.dtype and torch.equal(computed_matrix, recorded_matrix):
                continue
            is_equal, ours, other = False, computed_matrix.double(), recorded_matrix.double()
            difference = torch.where(ours == other, 0, ours - other)  # that of two −∞ would be NaN
            max_difference = max(max_difference, float(difference.abs().nan_to_num(math.inf).max()))
            max_recorded = max(max_recorded, float(other.abs().nan_to_num(0, posinf=0).max()))
        if max_difference > _TOLERANCE * max_recorded:
            note = f"{name} differs from the result of the formula for query, key and mask: everything is shown as recorded, and nothing is computed. Save the divisor, mask or bias to let the steps be computed."
            return recorded_layer, note
        if not is_equal:
            computed = computed.with_tensors(**{name: tensor})
    return computed, ""


def _matrix_pairs(computed: Layer, name: str, recorded: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    if recorded.shape != computed.shape(name):
        raise ShapeError(
            f"{name} is {list(recorded.shape)} in the file, but the formula gives {list(computed.shape(name))}"
        )
    if recorded.ndim == 2:
        yield computed.matrix(name), recorded
        return
    for head, matrix in enumerate(recorded):
        yield computed.matrix(name, head * (computed.n_heads // len(recorded))), matrix


def _drop_unrelated_projections(recorded: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors without projections that do not reproduce Q, K and V, as in models that normalize or rotate after the projection."""
    remaining = dict(recorded)
    for name, (w, b) in _PROJECTED.items():
        if w not in remaining:
            continue
        x = remaining.get(INPUT if name == QUERY or MEMORY not in remaining else MEMORY)
        if not is_projection(x, remaining[w], remaining.get(b), remaining.get(name)):
            remaining = {key: tensor for key, tensor in remaining.items() if key not in (w, b)}
    return remaining


def _input_provenance(recorded: dict[str, Tensor]) -> dict[str, str]:
    """The provenance of an input that is not the sum of the recorded embedding and position."""
    parts = [recorded[name].double() for name in (EMBEDDING, POSITION) if name in recorded]
    x = recorded.get(INPUT)
    if x is None or not parts or any(part.shape != x.shape for part in parts):
        return {}
    if torch.allclose(torch.stack(parts).sum(0), x.double(), rtol=0, atol=1e-3 * float(x.abs().max())):
        return {}
    return {INPUT: "The input in the file, which is not the sum of the embedding and position in the file."}


def is_projection(
    x: Tensor | None, w: Tensor, b: Tensor | None, recorded: Tensor | None, tolerance: float = 1e-3
) -> bool:
    """Whether X W + b is a recorded tensor, up to a tolerance relative to its largest number."""
    if x is None or recorded is None or x.shape[-1] != w.shape[-2]:
        return False
    computed = project(x, w.to(x), None if b is None else b.to(x)).double()
    recorded = recorded.double()
    return computed.shape == recorded.shape and torch.allclose(
        computed, recorded, rtol=0, atol=tolerance * float(recorded.abs().max())
    )
