"""What a page needs to follow a hand by itself: queries, keys and values, the rule of the mask, the divisor.

From these, or the input and its projections, the page computes scores and weights (attention/pictures/figure/kernel.js), which for a long text is a
fraction of the bytes of the matrices, and needs no server while a knob is turned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attention.formula.mask import Mask
from attention.formula.names import (
    HEAD_OUTPUT,
    INPUT,
    KEY,
    MEMORY,
    OUTPUT,
    QUERY,
    SCORES,
    VALUE,
    WEIGHTS,
)
from attention.formula.scores import SCORES as WAYS
from attention.formula.shares import SHARES
from attention.formula.steps import MAP_AXES, STEPS
from attention.pictures.contract import Live

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attention.formula.layer import Layer


MOST_BYTES = 124_000
"""What all heads may take together; beyond, only the shown one is sent."""

FROM_SCORES = tuple(step.name for step in STEPS if step.in_page == "head")
FROM_ALL = tuple(step.name for step in STEPS if step.in_page)


def live(layer: Layer, head: int) -> Live | None:
    """What makes scores and weights in a page: each matrix as its rows, rows that repeat once, or as input times projection.

    All heads where they are small, with their values and `w_o`, so that the page can make the output too; otherwise
    the shown one without its values. With the mask, the divisor, the temperature and the steps that can be `made`.
    None where the page's arithmetic does not know this formula.
    """
    formula = layer.formula
    if formula is None or not in_page(layer):
        return None
    # What comes after the weights and is not made in the page the server alone makes; and nothing there adds a bias to the output.
    whole = not any(step.axes == MAP_AXES and not step.in_page for step in layer.steps) and not layer.has("b_o")
    heads, inputs = _matrices(layer, list(range(layer.n_heads)), (QUERY, KEY, VALUE)) if whole else ({}, {})
    w_o = None if layer.w_o is None else layer.w_o.flatten(0, 1).numpy()
    if not whole or _size(heads, inputs) + (0 if w_o is None else w_o.nbytes) > MOST_BYTES:
        heads, inputs = _matrices(layer, [head], (QUERY, KEY))
        whole, w_o = False, None
    return {
        "head": head,
        "heads": heads,
        "inputs": inputs,
        "w_o": w_o,
        "score": formula.score,
        "share": formula.share,
        "cap": formula.cap,
        "divisor": layer.divisor,
        "temperature": layer.temperature,
        "mask": rule_of(layer),
        "made": [
            name
            for name in (FROM_ALL if whole else FROM_SCORES)
            if layer.has(name) and not _recorded(layer, name) and (name != OUTPUT or w_o is not None)
        ],
    }


def in_page(layer: Layer) -> bool:
    """Whether the page's own arithmetic knows a layer's formula, and has what it needs: it is declared, never guessed from numbers."""
    formula = layer.formula
    if formula is None or not all(map(layer.has, (SCORES, WEIGHTS, VALUE))):
        return False
    if any(name in layer.holds for name in FROM_SCORES):
        return False  # what is recorded need not be what the page would make
    maps = [step for step in layer.steps if step.axes == MAP_AXES]
    chain = all(step.in_page for step in maps[: [step.name for step in maps].index(WEIGHTS)])
    knows = WAYS[formula.score].in_page and SHARES[formula.share].in_page and chain and not formula.changed
    # The limits of the others are Python's.
    cold = layer.temperature == 0 and (formula.share != "softmax" or formula.cap)
    return bool(knows and formula.divisor and not cold)


def _recorded(layer: Layer, name: str) -> bool:
    """Whether a step, or the one that it is made of, is recorded, and so need not be what the page would make."""
    return name in layer.holds or (name == OUTPUT and HEAD_OUTPUT in layer.holds)


def rule_of(layer: Layer) -> dict[str, Any]:
    """The mask of a layer as the page's arithmetic reads it, see `attention.formula.mask.Mask.in_page`."""
    shape = layer.sizes["query_pos"], layer.sizes["key_pos"]
    if layer.formula is not None and layer.formula.mask is not None:
        return layer.formula.mask.in_page(*shape)
    rule = Mask().in_page(*shape)
    return rule | ({"kind": "custom", "bits": layer["mask"].numpy().astype(np.uint8)} if layer.hides else {})


def _matrices(layer: Layer, heads: list[int], names: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """By head and step, and the inputs they are made from: whichever of the two ways is smaller.

    What is turned by its position is sent turned, under the name of what it was: scores are made of that.
    """
    inputs: dict[str, Any] = {INPUT: _once(layer[INPUT].numpy())} if layer.has(INPUT) else {}
    if layer.has(MEMORY):
        inputs[MEMORY] = _once(layer[MEMORY].numpy())
    other = MEMORY if MEMORY in inputs else INPUT
    made_from = {QUERY: (INPUT, "w_q"), KEY: (other, "w_k"), VALUE: (other, "w_v")}
    turned = {name: f"rotated_{name}" for name in (QUERY, KEY) if layer.has(f"rotated_{name}")}
    plainly = not turned and not any(layer.has(name) for name in ("b_q", "b_k", "b_v"))
    projected = bool(inputs) and plainly and all(layer.has(w) for _, w in made_from.values())

    # Rows of the same word are the same in every matrix made of them.
    firsts = {
        name: np.unique(matrix["index"], return_index=True)[1] for name, matrix in inputs.items() if "index" in matrix
    }

    def rows(name: str, head: int) -> dict[str, Any]:
        source = made_from[name][0]
        matrix = layer.matrix(turned.get(name, name), head).numpy()
        if not projected:
            return _once(matrix)
        if source not in firsts:
            return {"rows": matrix}
        return {"rows": matrix[firsts[source]], "index": inputs[source]["index"]}

    def product(name: str, head: int) -> dict[str, Any]:
        source, w = made_from[name]
        return {"from": source, "w": layer.matrix(w, head).numpy()}

    own = {head: {"w_s": {"rows": layer["w_s"][head : head + 1].numpy()}} if layer.has("w_s") else {} for head in heads}
    plain = {str(head): {name: rows(name, head) for name in names} | own[head] for head in heads}
    if not projected:
        return plain, {}
    products = {str(head): {name: product(name, head) for name in names} | own[head] for head in heads}
    return (products, inputs) if _size(products, inputs) < _size(plain, {}) else (plain, {})


def _size(heads: dict[str, Any], inputs: dict[str, Any]) -> int:
    matrices = [*inputs.values(), *(matrix for head in heads.values() for matrix in head.values())]
    return sum(part.nbytes for matrix in matrices for part in matrix.values() if isinstance(part, np.ndarray))


def _once(matrix: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The different rows of a matrix, and for each of its rows which of them it is: the same word is sent once."""
    found: dict[bytes, int] = {}
    index = [found.setdefault(row.tobytes(), len(found)) for row in matrix]
    if len(found) > 0.8 * len(matrix):
        return {"rows": matrix}
    small = np.array(index, dtype=np.uint16 if len(found) < 2**16 else np.uint32)
    return {"rows": matrix[np.unique(small, return_index=True)[1]], "index": small}
