"""What a page needs to follow a hand by itself: queries, keys and values, the rule of the mask, the divisor.

From these the page computes scores and weights (pages/ui/figure/kernel.js), which for a long text is a
fraction of the bytes of the matrices, and needs no server while a knob is turned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from attention.trace import Layer


MOST_BYTES = 96_000
"""What all heads may take together; beyond, only the shown one is sent."""


def live(layer: Layer, head: int) -> dict[str, Any] | None:
    """Queries, keys and values by head, rows that repeat once, with the mask, the divisor and the temperature.

    All heads where they are small, with `w_o`, so that the page can make the output too; otherwise the
    shown one without its values. None where the scores are not the product of queries and keys, or the
    source has no weights.
    """
    query, key, scores = layer.query, layer.key, layer.scores
    if query is None or key is None or scores is None or layer.weights is None:
        return None
    first = query[head][:1].double() @ key[head].double().T
    if not bool(np.allclose(first.numpy(), scores[head][:1].numpy(), rtol=1e-5, atol=1e-6)):
        return None  # a source that adds something to its scores
    sent: dict[str, Any] = {
        "head": head,
        "heads": {str(head): _of_head(layer, head, values=False)},
        "w_o": None,
        "divisor": layer.divisor,
        "temperature": layer.temperature,
        "mask": rule_of(layer.mask, *scores.shape[-2:]),
    }
    everything = {str(i): _of_head(layer, i, values=True) for i in range(layer.n_heads)} if _small(layer) else {}
    if (
        everything
        and sum(_size(matrix) for matrices in everything.values() for matrix in matrices.values()) <= MOST_BYTES
    ):
        sent["heads"] = everything
        sent["w_o"] = None if layer.w_o is None else layer.w_o.flatten(0, 1).numpy()
    return sent


def _of_head(layer: Layer, head: int, values: bool) -> dict[str, Any]:
    names = ("query", "key", "value") if values else ("query", "key")
    return {name: _once(layer[name][head]) for name in names}


def _small(layer: Layer) -> bool:
    """Whether all heads could be sent; dropped weights are drawn by the server alone."""
    longest = max(layer["query"].shape[1], layer["key"].shape[1])
    return layer.value is not None and layer.dropped_weights is None and longest <= 1024


def _size(matrix: dict[str, NDArray[Any]]) -> int:
    return sum(array.nbytes for array in matrix.values())


def rule_of(mask: Tensor | None, rows: int, columns: int) -> dict[str, Any]:
    """A mask [query_pos key_pos] as the rule that gives it: {kind, window, prefix, real, bits}.

    `real` (by key_pos) is 0 for keys that no query sees; `bits` (by cell) is there when no rule says it.
    """
    rule: dict[str, Any] = {"kind": "none", "window": 0, "prefix": 0, "real": None, "bits": None}
    if mask is None or bool(mask.all()):
        return rule
    visible = mask.numpy()
    real = visible.any(axis=0)
    if not real.all():
        rule["real"] = real.astype(np.uint8)
    apart = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    window = int(visible[0].sum()) - 1
    causal_window = int(visible[:, 0].sum()) - 1
    prefix = int(visible[0].sum())
    for kind, size, cells in (
        ("none", 0, lambda: np.ones_like(visible)),
        ("causal", 0, lambda: apart <= 0),
        ("window", window, lambda: np.abs(apart) <= window),
        ("causal window", causal_window, lambda: (apart <= 0) & (apart >= -causal_window)),
        ("prefix", prefix, lambda: (apart <= 0) | (np.arange(columns) < prefix)),
    ):
        if np.array_equal(cells() & real, visible):
            return rule | {"kind": kind, "prefix" if kind == "prefix" else "window": size}
    return rule | {"kind": "custom", "real": None, "bits": visible.astype(np.uint8)}


def _once(matrix: Tensor) -> dict[str, NDArray[Any]]:
    """The different rows of a matrix, and for each of its rows which of them it is: the same word is sent once."""
    numbers = matrix.numpy()
    rows, index = np.unique(numbers, axis=0, return_inverse=True)
    if len(rows) > 0.8 * len(numbers):
        return {"rows": numbers}
    return {"rows": rows, "index": index.reshape(-1).astype(np.uint16 if len(rows) < 2**16 else np.uint32)}
