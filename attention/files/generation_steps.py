"""The attention of a text that a model wrote token by token, joined into one map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attention.base.errors import ShapeError

if TYPE_CHECKING:
    from torch import Tensor


def join_steps(steps: Sequence[Tensor], keys_grow: bool = True) -> Tensor:
    """The weights of all steps of a generation as one map, [head query_pos key_pos].

    With a cache, the first step has the rows of the prompt, and each other one the row of its last token, which has a key more; without one,
    each step has all rows again. A cache of fixed length has keys that no query sees yet, which are cut, and a cache with a window has the
    last keys only. Where the first step has more keys than queries, an earlier text was in the cache: its keys are kept, and it has no rows.

    Args:
        steps: of one layer, each [head query_pos key_pos], in their order.
        keys_grow: whether each new token is also a new key; in cross-attention it is not.

    Raises:
        ShapeError: a step fits none of this.
    """
    import torch

    first = steps[0]
    if not keys_grow:
        if len({step.shape[-1] for step in steps}) > 1:
            raise ShapeError(
                f"the steps of cross-attention have the same keys; got {[step.shape[-1] for step in steps[:8]]}: give the steps of one text."
            )
        parts: list[Tensor] = []
        for step in steps:
            has_all_rows = 1 < step.shape[-2] > sum(part.shape[-2] for part in parts)
            parts = [step] if has_all_rows else [*parts, step]
        return torch.cat(parts, dim=-2)
    n_more = first.shape[-1] - first.shape[-2]
    n_past = n_more if n_more > 0 and bool(first[..., -n_more:].any()) else 0
    placed: list[tuple[int, Tensor]] = []  # the first key of each part
    n_keys = n_past
    for step in steps:
        rows, width = step.shape[-2:]
        if rows == width > max(1, n_keys):
            placed, n_keys = [(0, step)], rows
            continue
        n_keys += rows
        if width > n_keys and bool(step[..., n_keys:].any()):
            raise ShapeError(
                f"step {len(placed)} of a generation has {n_keys:,} tokens so far; got weights of {width:,} keys: give all steps, in their order."
            )
        part = step[..., :n_keys] if width >= n_keys else _without_later_keys(step)
        placed.append((n_keys - part.shape[-1], part))
    return torch.cat(
        [torch.nn.functional.pad(part, (left, n_keys - left - part.shape[-1])) for left, part in placed], dim=-2
    )


def _without_later_keys(step: Tensor) -> Tensor:
    """The weights of a window without the keys of tokens that were guessed after the last query, which no head sees."""
    seen = step[..., -1, :].any(0).nonzero()
    return step[..., : int(seen[-1]) + 1] if len(seen) else step
