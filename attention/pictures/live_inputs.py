"""The data from which a page computes steps itself: queries, keys and values, the rule of the mask, the divisor.

From these, or from the input and its projections, the page computes scores and weights while the user changes a knob
(attention/pictures/figure/kernel.js), without the server. For a long text they are a fraction of the bytes of the matrices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attention.formula import scores
from attention.formula.mask import Mask
from attention.formula.names import HEAD_OUTPUT, INPUT, KEY, MEMORY, OUTPUT, QUERY, SCORES, VALUE, WEIGHTS
from attention.formula.normalizers import NORMALIZERS
from attention.formula.steps import MAP_AXES, STEPS
from attention.pictures.message_contract import Live

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attention.trace.layer import Layer


_MAX_LIVE_BYTES = 124_000
"""The maximum size of all heads together; above it, only the chosen head is sent."""

_HEAD_STEPS = tuple(step.name for step in STEPS if step.in_page == "head")
_LIVE_STEPS = tuple(step.name for step in STEPS if step.in_page)


def live_inputs(layer: Layer, head: int, max_bytes: int = _MAX_LIVE_BYTES) -> Live | None:
    """Returns the data from which a page computes steps; None where its arithmetic does not support this formula, or a map is too large for it.

    Each matrix is sent as rows, as distinct rows with an index, or as input times projection.
    Small layers send all heads with values and `w_o`, so that the page can compute the output; others send only
    the chosen head, without values. Small are those whose heads take at most `max_bytes`. The mask, divisor, temperature
    and the `computable` steps are always sent.
    """
    formula = layer.formula
    if formula is None or not layer.keeps_maps or not _is_computable_in_page(layer):
        return None
    # Only the server computes further steps after the weights.
    all_heads = not any(step.axes == MAP_AXES and not step.in_page for step in layer.steps)
    heads, inputs = _matrices(layer, list(range(layer.n_heads)), (QUERY, KEY, VALUE)) if all_heads else ({}, {})
    # The page does not add an output bias.
    w_o = None if layer.w_o is None or layer.has("b_o") else layer.w_o.flatten(0, 1).numpy()
    if not all_heads or _size(heads, inputs) + (0 if w_o is None else w_o.nbytes) > max_bytes:
        heads, inputs = _matrices(layer, [head], (QUERY, KEY))
        all_heads, w_o = False, None
    steps = _LIVE_STEPS if all_heads else _HEAD_STEPS
    computable = [name for name in steps if layer.has(name) and not _recorded(layer, name)]
    return {
        "head": head, "heads": heads, "inputs": inputs, "w_o": w_o,
        "score": formula.score, "normalizer": formula.normalizer, "cap": formula.cap,
        "divisor": layer.divisor, "temperature": layer.temperature, "mask": _mask_rule(layer),
        "computable": [name for name in computable if name != OUTPUT or w_o is not None],
    }  # fmt: skip


def _is_computable_in_page(layer: Layer) -> bool:
    """Whether the page's arithmetic supports a layer's formula and has its inputs; steps declare this, it is never inferred from numbers."""
    formula = layer.formula
    if formula is None or not all(map(layer.has, (SCORES, WEIGHTS, VALUE))):
        return False
    if any(name in layer.available for name in _HEAD_STEPS):
        return False  # recorded values may differ from what the page would compute
    map_steps = [step for step in layer.steps if step.axes == MAP_AXES]
    steps_supported = all(step.in_page for step in map_steps[: [step.name for step in map_steps].index(WEIGHTS)])
    # Only Python computes the other limits at temperature 0.
    unsupported_limit = layer.temperature == 0 and (formula.normalizer != "softmax" or formula.cap)
    if formula.is_edited or not formula.divisor or unsupported_limit:
        return False
    return scores.SCORES[formula.score].in_page and NORMALIZERS[formula.normalizer].in_page and steps_supported


def _recorded(layer: Layer, name: str) -> bool:
    """Whether a step, or the step that it is computed from, is recorded and may differ from what the page would compute."""
    return name in layer.available or (name == OUTPUT and HEAD_OUTPUT in layer.available)


def _mask_rule(layer: Layer) -> dict[str, Any]:
    """Returns the mask of a layer as a rule for the page, see `attention.formula.mask.Mask.for_page`."""
    shape = layer.sizes["query_pos"], layer.sizes["key_pos"]
    if layer.formula is not None and layer.formula.mask is not None:
        places = layer.patch_places if layer.formula.mask.needs_patches else None
        return layer.formula.mask.for_page(*shape, places)
    rule = Mask().for_page(*shape)
    return rule | ({"kind": "custom", "bits": layer["mask"].numpy().astype(np.uint8)} if layer.hides_keys else {})


def _matrices(layer: Layer, heads: list[int], names: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns matrices by head and step, and the inputs that they are projected from, in the smaller of both forms.

    Rotated queries and keys are sent under the names `query` and `key`, because scores are computed from them.
    """
    inputs: dict[str, Any] = {INPUT: _distinct_rows(layer[INPUT].numpy())} if layer.has(INPUT) else {}
    if layer.has(MEMORY):
        inputs[MEMORY] = _distinct_rows(layer[MEMORY].numpy())
    key_source = MEMORY if MEMORY in inputs else INPUT
    projections = {QUERY: (INPUT, "w_q"), KEY: (key_source, "w_k"), VALUE: (key_source, "w_v")}
    rotated = {name: f"rotated_{name}" for name in (QUERY, KEY) if layer.has(f"rotated_{name}")}
    unchanged = not rotated and not any(layer.has(name) for name in ("b_q", "b_k", "b_v"))
    can_project = bool(inputs) and unchanged and all(layer.has(w) for _, w in projections.values())

    # Rows of the same word are equal in every matrix projected from them.
    indices = {name: matrix["index"] for name, matrix in inputs.items() if "index" in matrix}
    first_rows = {name: np.unique(index, return_index=True)[1] for name, index in indices.items()}

    def rows(name: str, head: int) -> dict[str, Any]:
        source = projections[name][0]
        matrix = layer.matrix(rotated.get(name, name), head).numpy()
        if not can_project:
            return _distinct_rows(matrix)
        if source not in first_rows:
            return {"rows": matrix}
        return {"rows": matrix[first_rows[source]], "index": indices[source]}

    def product(name: str, head: int) -> dict[str, Any]:
        source, w = projections[name]
        return {"from": source, "w": layer.matrix(w, head).numpy()}

    def additive(head: int) -> dict[str, Any]:
        return {"w_s": {"rows": layer["w_s"][head : head + 1].numpy()}} if layer.has("w_s") else {}

    direct = {str(head): {name: rows(name, head) for name in names} | additive(head) for head in heads}
    if not can_project:
        return direct, {}
    products = {str(head): {name: product(name, head) for name in names} | additive(head) for head in heads}
    return (products, inputs) if _size(products, inputs) < _size(direct, {}) else (direct, {})


def _size(heads: dict[str, Any], inputs: dict[str, Any]) -> int:
    matrices = [*inputs.values(), *(matrix for head in heads.values() for matrix in head.values())]
    return sum(array.nbytes for matrix in matrices for array in matrix.values() if isinstance(array, np.ndarray))


def _distinct_rows(matrix: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Returns the distinct rows of a matrix, and for each row its index among them: each word is sent once."""
    row_numbers: dict[bytes, int] = {}
    index = [row_numbers.setdefault(row.tobytes(), len(row_numbers)) for row in matrix]
    if len(row_numbers) > 0.8 * len(matrix):
        return {"rows": matrix}
    indices = np.array(index, dtype=np.min_scalar_type(len(row_numbers)))
    return {"rows": matrix[np.unique(indices, return_index=True)[1]], "index": indices}
