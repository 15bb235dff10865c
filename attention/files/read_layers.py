"""Layers of tensors that somebody else recorded, in a file or in memory: a formula that reproduces them computes the rest, and they are shown in any case."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

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

    from attention.files.plan import Plan

_TOLERANCE = 0.01  # relative to the largest number of a step; a larger difference means another formula
_MAY_HIDE_KEYS = (BIASED_SCORES, MASKED_SCORES, "bias")  # where −∞ hides a key
_NON_NEGATIVE = (WEIGHTS, DROPPED_WEIGHTS)
_LARGEST = sys.float_info.max
_PROJECTED = {QUERY: ("w_q", "b_q"), KEY: ("w_k", "b_k"), VALUE: ("w_v", "b_v")}


class GivenLayer(NamedTuple):
    """The tensors of one layer, before it is known whether a formula gives them.

    Attributes:
        number: of the layer, for notes.
        name: empty where the number says everything.
        recorded: by step and parameter.
        tokens: of the queries, and `key_tokens` of the keys.
        formula: that may have computed them; None if there is none.
        problem: a sentence on a formula that cannot be read, or "".
        has_formula: whether it came with the tensors; otherwise it is the usual one.
        low_precision: whether the weights had 16 bits or fewer.
        mixer: what a layer without attention has instead.
    """

    number: int
    name: str = ""
    recorded: Mapping[str, Tensor] = {}
    tokens: tuple[str, ...] = ()
    key_tokens: tuple[str, ...] = ()
    formula: Formula | None = None
    problem: str = ""
    has_formula: bool = False
    low_precision: bool = False
    mixer: str = ""


def read_layers(
    given: Iterable[GivenLayer], subject: str, several: bool, max_bytes: int
) -> tuple[tuple[Layer, ...], list[str], str]:
    """The layers, a note on each problem, and a note on rows of weights that do not sum to 1, or "".

    Args:
        given: the tensors of each layer.
        subject: what has them, in errors.
        several: whether errors name the layer.
        max_bytes: that the maps of a layer may take; if all heads take more, one head at a time is computed.

    Raises:
        FileError: numbers that cannot be drawn, or a layer without a map.
    """
    layers, problems, odd_sums = list[Layer](), dict[str, list[int]](), list[float]()
    for each in given:
        if each.mixer:
            layers.append(Layer(each.name or f"layer {each.number}", mixer=each.mixer))
            continue
        where = f" of layer {each.number}" if several else ""
        for step, tensor in each.recorded.items():
            _check_numbers(step, where, tensor, each.tokens, each.key_tokens)
        layer, note = _build_layer(each, max_bytes)
        note = each.problem or note
        if not any(step.axes == MAP_AXES for step in layer.steps):
            raise FileError(
                f"{subject} needs weights, or query and key, or scores; got {', '.join(each.recorded)}{where}: {note or 'add key beside query, or weights.'}"
            )
        if note:
            problems.setdefault(note, []).append(each.number)
        if WEIGHTS in layer.recorded and layer.formula is None:
            sums = layer[WEIGHTS].sum(dim=-1).flatten()
            odd_sums += sums[(sums - 1).abs() > (0.01 if each.low_precision else 1e-3)].tolist()
        layers.append(layer)
    notes = list(problems)
    if len(layers) > 1:
        notes = [
            f"In layer{'s' * (len(numbers) > 1)} {listed_layers(numbers)}: {note}" for note, numbers in problems.items()
        ]
    if not odd_sums:
        return tuple(layers), notes, ""
    rows = f"{len(odd_sums):,} rows of weights sum" if len(odd_sums) > 1 else "1 row of weights sums"
    row_sums = f"{rows} to a value other than 1, from {min(odd_sums):.3g} to {max(odd_sums):.3g}: they are shown unchanged, not renormalised."
    return tuple(layers), notes, row_sums


def listed_layers(numbers: Sequence[int]) -> str:
    """The numbers of layers in a sentence, the first eight of them."""
    return ", ".join(map(str, numbers[:8])) + ", …" * (len(numbers) > 8)


def usual_formula(recorded: Mapping[str, Tensor], number: Callable[[str], float | None]) -> Formula | None:
    """The formula of scores, or of queries and keys; None without these. `number` gives the divisor, scaling or temperature that is known."""
    if not ({QUERY, KEY} <= recorded.keys() or SCORES in recorded):
        return None
    divisor, scaling, temperature = map(number, ("divisor", "scaling", "temperature"))
    divisor = divisor or (1 / scaling if scaling else None)
    usual = math.sqrt(recorded[QUERY].shape[-1]) if QUERY in recorded else None
    bias = "given" if "bias" in recorded else ""
    return Formula(divisor=divisor or usual, temperature=temperature or 1.0, bias=bias, own_divisor=divisor)


def _check_numbers(name: str, where: str, tensor: Tensor, tokens: tuple[str, ...], key_tokens: tuple[str, ...]) -> None:
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


def _build_layer(given: GivenLayer, max_bytes: int) -> tuple[Layer, str]:
    """A layer, with the formula if it reproduces the recorded tensors, and a note on a problem with it, or ""."""
    recorded, formula = _drop_unrelated_projections(given.recorded), given.formula
    layer_fields: dict[str, Any] = {"name": given.name, "tokens": given.tokens, "key_tokens": given.key_tokens}
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
        for step in computed_layer.steps if given.has_formula else ():
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


def _drop_unrelated_projections(recorded: Mapping[str, Tensor]) -> dict[str, Tensor]:
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


def looks_otherwise(plan: Plan, layers: Sequence[Layer]) -> str:
    """A sentence on recorded weights whose numbers say that their axes are others than those that were read, or "".

    Weights of a key that sum to 1 over another axis; and the zeros of a window at both ends of a sequence.
    """
    pairs = [
        (stored.places[WEIGHTS], layer[WEIGHTS])
        for stored, layer in zip(plan.layers, layers, strict=True)
        if WEIGHTS in stored.places and layer.formula is None
    ]
    names = next((list(row.axes) for row in plan.rows if row.step == WEIGHTS), [])
    if not pairs or names[-2:] != [QUERY, KEY]:
        return ""
    place, weights = pairs[0]
    tolerance = 0.01 if place.low_precision else 1e-3

    def sums_to_1(axis: int) -> bool:
        return all(bool(((each.sum(axis) - 1).abs() <= tolerance).all()) for _, each in pairs)

    if not sums_to_1(-1):
        if sums_to_1(-2):
            return f"In weights, every column sums to 1: the axes may be [{' '.join([*names[:-2], KEY, QUERY])}]; if so, write that in Axes."
        if names[-3:-2] == ["head"] and sums_to_1(-3):
            sizes = weights.shape
            rest = [QUERY, "head"] if sizes[-2] == sizes[-3] != sizes[-1] else ["head", QUERY]
            return f"In weights, every sum along the axis read as head is 1: the axes may be [{' '.join([*names[:-3], KEY, *rest])}]; if so, write that in Axes."
    n, width = weights.shape[-2:]
    advice = f"write “{' '.join([*names[:-1], 'window'])}” in Axes"
    if width % 2 and 1 < width <= n and all(_has_window(each) for _, each in pairs):
        return f"The {width} columns have the zeros of a window around each query, as Longformer returns it: they may be no keys. If so, {advice}."
    if width < n and not plan.has_key_tokens:
        advice = advice if width % 2 else "save the columns of the window alone"
        return f"There are {width:,} keys for {n:,} queries; if the columns are those of a window, they are no keys: {advice}."
    return ""


def _has_window(weights: Tensor) -> bool:
    """Whether exactly the cells of a window that are before the first key or after the last one are 0, in some head."""
    n, width = weights.shape[-2:]
    keys = torch.arange(n)[:, None] + torch.arange(width)[None] - width // 2
    outside = (keys < 0) | (keys >= n)
    return not bool(weights[:, outside].any()) and bool((weights[:, ~outside] > 0).any(0).all())
