"""What follows from the places of patches: masks that hide a rectangle or all but neighbours, and measures of how weights lie over a picture."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from attention.base import cache
from attention.base.tokens import any_patch
from attention.formula.mask import Mask
from attention.formula.names import WEIGHTS
from attention.metrics.find_rule import NEAR, PatchBox
from attention.metrics.patterns import CELLS_PER_SECOND, PATCH, Pattern, iterate_patterns, kind_of

if TYPE_CHECKING:
    from torch import Tensor

    from attention.trace.layer import Layer
    from attention.trace.trace import Trace

_PLACE = "sink patch"


def hide_patches(layer: Layer, head: int, patches: str) -> str:
    """The mask of a head with some patches hidden from every query, in the encoding of `attention.formula.mask_tensor.encode`.

    Args:
        layer: a layer whose keys are patches.
        head: the head.
        patches: a rectangle, as `PatchBox` reads it.

    Raises:
        ConfigError: it is none, or no key is one of these patches.
    """
    from attention.formula import mask_tensor

    hidden = PatchBox.parse(patches).hide_from(layer.visible_cells(head), layer.key_tokens)
    return mask_tensor.encode(hidden)


def mask_near_patches(layer: Layer, head: int, size: int) -> str:
    """The mask of a head with all patches hidden but those at most `size` rows and columns away, in the same encoding.

    Raises:
        ConfigError: queries or keys have no patches.
    """
    from attention.formula import mask_tensor

    window = Mask("patch window", size).build(len(layer.tokens), len(layer.key_tokens), layer.patch_places)
    return mask_tensor.encode(layer.visible_cells(head) & window)


def patch_distance(pattern: Pattern) -> Tensor:
    """The mean distance between the patch of a query and those that it attends to, in patches, [head query_pos]."""
    import torch

    offsets = pattern.patch_offsets
    if offsets is None:
        return pattern.nan_unless(False, pattern.row_sums[..., 0])
    rows, columns, same_picture = offsets
    distances = torch.hypot(rows, columns).to(pattern.weights.dtype)
    total = torch.linalg.vecdot(pattern.weights, same_picture.to(pattern.weights.dtype)).double()
    weighted = torch.linalg.vecdot(pattern.weights, distances).double()
    return pattern.nan_unless(total > 0, weighted / total)


def near_patches(pattern: Pattern) -> Tensor:
    """The patches at most `NEAR` rows and `NEAR` columns from that of the query, and its own, [query_pos key_pos]."""
    import torch

    offsets = pattern.patch_offsets
    if offsets is None:
        return torch.zeros(1, 1, dtype=torch.bool)
    rows, columns, same_picture = offsets
    return same_picture & (rows.abs() <= NEAR) & (columns.abs() <= NEAR)


def keys_of_kind(kind: str) -> Callable[[Pattern], Tensor]:
    """The keys of one kind, one of `patterns`, in a layer that has patches; elsewhere none."""

    def keys(pattern: Pattern) -> Tensor:
        import torch

        if not pattern.has_patches:
            return torch.zeros(1, 1, dtype=torch.bool)
        special = pattern.tokens.special
        return pattern.mask_of_tokens(
            ("kind", kind), lambda tokens: torch.tensor([kind_of(token, special) == kind for token in tokens])
        )

    return keys


def sink_patches(trace: Trace) -> Tensor | None:
    """The largest mean weight of one patch over all queries that see it, [layer head]; None if the trace has no patches."""
    import torch

    if not any(_has_patches(layer) for layer in trace.layers):
        return None
    n_heads = [layer.n_heads if layer.has(WEIGHTS) else 0 for layer in trace.layers]
    result = torch.full((len(n_heads), max(n_heads, default=0)), math.nan)
    for index, layer in enumerate(trace.layers):
        if _has_patches(layer):
            result[index, : n_heads[index]] = cache.memoize(layer.uid, _PLACE, layer.formula, lambda: _sinks(layer))  # noqa: B023  # called at once
    return result


def sink_seconds(trace: Trace) -> float:
    """The estimated seconds of `sink_patches` on one thread, without the cached layers."""
    layers = [each for each in trace.layers if _has_patches(each) and cache.CACHE.get((each.uid, _PLACE, each.formula)) is None]  # fmt: skip
    return sum(math.prod(layer.shape(WEIGHTS)) for layer in layers) / (4 * CELLS_PER_SECOND)


def _sinks(layer: Layer) -> Tensor:
    """The largest mean weight of one patch, [head]."""
    import torch

    is_patch = torch.tensor([kind_of(token) == PATCH for token in layer.key_tokens])
    shape = layer.n_heads, len(is_patch)
    sums, counts = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    for heads, _, pattern in iterate_patterns(layer):
        sums[heads] += pattern.weights.sum(-2, dtype=torch.float64)
        counts[heads] += pattern.visible.sum(-2)
    means = torch.where(is_patch & (counts > 0), sums / counts, -1.0)
    largest = means.amax(-1)
    return largest.masked_fill(largest < 0, math.nan)


def _has_patches(layer: Layer) -> bool:
    return layer.has(WEIGHTS) and any_patch(layer.key_tokens)
