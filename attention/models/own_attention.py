"""The attention that a model computes itself: its family's eager attention, or torch's fused attention, with all arguments of one call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

import torch
from torch import Tensor

from attention.core.scores import BLOCK_ROWS

if TYPE_CHECKING:
    from torch.nn import Module

    from attention.models.loaded import Site

EagerAttention = Callable[..., tuple[Tensor, Tensor | None]]

IMPLEMENTATION = "lab"
"""The name under which transformers knows the recorder with eager attention; models are loaded with it."""
SDPA_IMPLEMENTATION = "lab_sdpa"
"""The same with torch's fused attention, for a model in memory that runs it: the output is that of the model, weights are recomputed."""

_MAX_WEIGHT_BYTES = (
    2**22
)  # of the weights of all heads in one call; larger calls are computed in blocks of `BLOCK_ROWS` queries
_BYTES_PER_NUMBER = 4
_ROW_BLOCK_MODULES: WeakSet[Module] = WeakSet()  # modules whose attention can be computed in blocks of queries


@dataclass(frozen=True, eq=False)
class OwnAttention:
    """The attention function of a model with the arguments of one call, except query, key and value.

    These are [batch head query_pos d_k], [batch kv_head key_pos d_k] and [batch kv_head key_pos d_v]. All methods return the head output
    [batch query_pos head d_v], and the weights [batch head query_pos key_pos] if the function gives some.

    Attributes:
        module: the attention module of the model.
        args: positional arguments after the value: the mask, the scaling.
        kwargs: named arguments.
    """

    module: Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def is_fused(self) -> bool:
        """Whether the model runs torch's fused attention, recorded."""
        config: Any = getattr(self.module, "config", None)
        return getattr(config, "_attn_implementation", None) == SDPA_IMPLEMENTATION

    @property
    def mask(self) -> Tensor | None:
        """The additive mask; for fused attention it may be boolean, or missing where a flag says the same."""
        mask: Tensor | None = self.args[0] if self.args else self.kwargs.get("attention_mask")
        return mask

    @property
    def scaling(self) -> float | None:
        """Multiplies the scores; None: the reciprocal root of their width."""
        scaling: float | None = self.kwargs.get("scaling", self.args[1] if len(self.args) > 1 else None)
        return scaling

    @property
    def cap(self) -> float | None:
        """The bound of the absolute value of the scores (softcap)."""
        cap: float | None = self.kwargs.get("softcap")
        return cap

    def with_mask(self, mask: Tensor | None) -> OwnAttention:
        """The same with another mask."""
        if self.args:
            return replace(self, args=(mask, *self.args[1:]))
        return replace(self, kwargs={**self.kwargs, "attention_mask": mask})

    def in_dtype(self, dtype: torch.dtype) -> OwnAttention:
        """The same with masks and biases of this dtype, for one text."""

        def convert(argument: Any) -> Any:
            if isinstance(argument, Tensor) and argument.ndim == 4:
                argument = argument[:1]  # all texts of a batch have the same mask
            if not isinstance(argument, Tensor) or not argument.is_floating_point() or argument.dtype == dtype:
                return argument
            smallest = torch.finfo(dtype).min  # what hides a key; no −∞, or a row without keys would be NaN
            return (argument.clamp_min(smallest) if smallest > torch.finfo(argument.dtype).min else argument).to(dtype)

        return self._with_each_argument(convert)

    def run(self, query: Tensor, key: Tensor, value: Tensor, keep_weights: bool = True) -> tuple[Tensor, Tensor | None]:
        """The attention that the model runs. Large calls of eager attention are computed in blocks of queries.

        Their weights are None unless `keep_weights`.
        """
        if self.is_fused:
            from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

            fused = ALL_ATTENTION_FUNCTIONS["sdpa"]
            return cast(tuple[Tensor, None], fused(self.module, query, key, value, *self.args, **self.kwargs))
        n_heads, n_queries, n_keys = (*query.shape[1:3], key.shape[-2])
        if self.module not in _ROW_BLOCK_MODULES or not is_large(n_heads, n_queries, n_keys):
            return self.run_eager(query, key, value)
        output_blocks, weight_blocks = [], []
        for start in range(0, n_queries, BLOCK_ROWS):
            output, weights = self.run_eager_rows(query, key, value, slice(start, start + BLOCK_ROWS))
            output_blocks.append(output)
            if keep_weights and weights is not None:
                weight_blocks.append(weights)
        return torch.cat(output_blocks, dim=1), torch.cat(weight_blocks, dim=2) if weight_blocks else None

    def run_eager(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor | None]:
        """Its family's eager attention of all queries."""
        return _eager_attention(self.module)(self.module, query, key, value, *self.args, **self.kwargs)

    def run_eager_rows(self, query: Tensor, key: Tensor, value: Tensor, rows: slice) -> tuple[Tensor, Tensor | None]:
        """Eager attention of a slice of the queries, with these rows of all masks and biases."""
        n_queries, n_keys = query.shape[-2], key.shape[-2]

        def select_rows(argument: Any) -> Any:
            is_map = (
                isinstance(argument, Tensor)
                and argument.ndim == 4
                and argument.shape[-2] == n_queries
                and argument.shape[-1] >= n_keys
            )
            return argument[..., rows, :] if is_map else argument

        return self._with_each_argument(select_rows).run_eager(query[:, :, rows], key, value)

    def _with_each_argument(self, change: Callable[[Any], Any]) -> OwnAttention:
        kwargs = {name: change(argument) for name, argument in self.kwargs.items()}
        return replace(self, args=tuple(map(change, self.args)), kwargs=kwargs)


def rows_at_once(site: Site, longest: int, keep_weights: bool) -> int:
    """The number of queries whose weights a site computes at a time; all of them if the weights are kept (`keep_weights`)."""
    in_blocks = site.supports_row_blocks and not keep_weights and is_large(site.n_heads, longest, longest)
    return min(BLOCK_ROWS, longest) if in_blocks else longest


def allow_row_blocks(module: Module) -> None:
    """From now on, compute large calls of this module in blocks of queries."""
    _ROW_BLOCK_MODULES.add(module)


def is_large(n_heads: int, n_queries: int, n_keys: int) -> bool:
    """Whether the weights of all heads in one call are computed in blocks of queries."""
    return n_heads * n_queries * n_keys * _BYTES_PER_NUMBER > _MAX_WEIGHT_BYTES


def _eager_attention(module: Module) -> EagerAttention:
    """The eager attention function of the module's model family; Llama's if the family has none."""
    for cls in type(module).__mro__:
        function = getattr(sys.modules.get(cls.__module__), "eager_attention_forward", None)
        if function is not None:
            return cast(EagerAttention, function)
    from transformers.models.llama.modeling_llama import eager_attention_forward

    return cast(EagerAttention, eager_attention_forward)
