"""One call of attention: as the model makes it (`ModelCall`), and as it is recorded (`Call`).

The model's own attention, its family's eager one or torch's fused one, computes the output (`OwnAttention`). Additive
masks are converted to rules or cells once in a pass (`MaskCache`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast
from weakref import WeakSet

import torch
from torch import Tensor
from torch.nn import Module

from attention.formula.mask import Mask, detect_mask
from attention.formula.scores import BLOCK_ROWS
from attention.models.loaded import Site
from attention.patching.forward import AttentionCall

_EagerAttention = Callable[..., tuple[Tensor, Tensor | None]]

IMPLEMENTATION = "lab"
"""The name under which transformers knows the recorder with eager attention; models are loaded with it."""
SDPA_IMPLEMENTATION = "lab_sdpa"
"""The same with torch's fused attention, for a model in memory that runs it: the output is that of the model, weights are recomputed."""


@dataclass(frozen=True, eq=False)
class Call(AttentionCall):
    """One call of attention, without the batch axis."""

    module: Module  # the attention module of the model
    mask: Mask | Tensor | None  # the mask as a rule, or as its cells [query_pos key_pos]; None if nothing is hidden
    bias: Tensor | None  # added to the scores, [head query_pos key_pos]
    scaling: float  # multiplies the scores
    cap: float | None  # bound of the absolute value of the scores (softcap)
    sinks: Tensor | None  # one extra score in every row, [head]
    input: Tensor | None  # input of the module, [query_pos d_model]
    memory: Tensor | None  # the other text in cross-attention, [key_pos d_model]
    dtype: torch.dtype  # in which the model computes; the tensors of a call are float32, on the CPU
    has_own_weights: bool  # whether the attention of the model gives weights, as eager attention does
    # The model's own attention, computed in a dtype: weights if it gives some, and head output.
    rerun_in: Callable[[torch.dtype, Tensor, Tensor, Tensor], tuple[Tensor | None, Tensor]]
    # Its family's eager attention of a slice of the queries, computed in a dtype.
    attend_in: Callable[[torch.dtype, Tensor, Tensor, Tensor, slice], tuple[Tensor | None, Tensor]]

    def attend_rows(self, rows: slice, dtype: torch.dtype = torch.float32) -> tuple[Tensor | None, Tensor]:
        """Eager attention for a slice of the queries: weights [head query_pos key_pos], and head output."""
        return self.attend_in(dtype, self.query, self.key, self.value, rows)


@dataclass(frozen=True, eq=False)
class ModelCall:
    """One call of attention as the model makes it: its tensors have a batch axis, and the gradients of the pass."""

    query: Tensor  # [batch head query_pos d_k]
    key: Tensor  # [batch kv_head key_pos d_k]
    value: Tensor  # [batch kv_head key_pos d_v]
    attention: OwnAttention  # the attention function of the model, with all other arguments
    masks: MaskCache

    @property
    def module(self) -> Module:
        """The attention module of the model."""
        return self.attention.module

    def run(self, keep_weights: bool = False) -> tuple[Tensor, Tensor | None]:
        """The head output [batch query_pos head d_v] of the model's own attention, and its weights [batch head query_pos key_pos].

        Without `keep_weights`, large weights are dropped. Fused attention gives none.
        """
        return self.attention.run(self.query, self.key, self.value, keep_weights)

    def run_eager(self) -> tuple[Tensor, Tensor | None]:
        """The same by the eager attention of the model's family, of all queries, also where the model runs fused attention."""
        return self.masks.eager(self.attention, self.query, self.key).run_eager(self.query, self.key, self.value)

    def detached_text(self, index: int, output: Tensor, weights: Tensor | None) -> Call:
        """The recorded call of one text of a batch, with weights if the model gives some, from the result of `run`."""
        row = slice(index, index + 1)
        text = replace(self, query=self.query[row], key=self.key[row], value=self.value[row])
        if weights is None:  # computed with the mask of one text
            of_text = self.attention.in_dtype(self.query.dtype)
            return text.detached(output[row], of_text.run(text.query, text.key, text.value)[1])
        return text.detached(output[row], weights[row])

    def detached(
        self, output: Tensor, weights: Tensor | None, x: Tensor | None = None, memory: Tensor | None = None
    ) -> Call:
        """The recorded call of a batch of one text, from the result of `run`; `x` and `memory` are the inputs of the module, [pos d_model]."""
        query, key, value = (in_float32(tensor[0]) for tensor in (self.query, self.key, self.value))
        own, device, own_dtype = self.attention, self.query.device, self.query.dtype
        mask, mask_bias = self.masks.split(own, query.shape[-2], key.shape[-2])
        biases = [bias for bias in (own.kwargs.get("position_bias"), mask_bias) if bias is not None]
        biases = [in_float32(bias[0] if bias.ndim == 4 else bias) for bias in biases]
        # A bias of zeros would be a step that changes nothing.
        biases = [bias for bias in biases if bool(bias.any())]
        # gpt-oss passes them on; where a family does not, they are a parameter of its module.
        sinks = own.kwargs.get("s_aux", getattr(self.module, "sinks", None))

        def inputs(dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = (tensor[None].to(device, dtype) for tensor in tensors)
            return q, k, v

        def rerun_in(dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor | None, Tensor]:
            return _without_batch(*own.in_dtype(dtype).run(*inputs(dtype, *tensors)))

        def attend_in(
            dtype: torch.dtype, query: Tensor, key: Tensor, value: Tensor, rows: slice
        ) -> tuple[Tensor | None, Tensor]:
            attention = self.masks.eager(own, self.query, self.key, rows).in_dtype(dtype)
            return _without_batch(*attention.run_eager_rows(*inputs(dtype, query, key, value), rows))

        recorded_weights, head_output = _without_batch(output, weights)
        return Call(
            query=query,
            key=key,
            value=value,
            weights=recorded_weights,
            head_output=head_output,
            rerun=partial(rerun_in, own_dtype),
            module=self.module,
            mask=mask,
            bias=sum(biases[1:], biases[0]).expand(len(query), -1, -1) if biases else None,
            scaling=1 / math.sqrt(query.shape[-1]) if own.scaling is None else float(own.scaling),
            cap=own.cap,
            sinks=None if sinks is None else in_float32(sinks).flatten(),
            input=x,
            memory=memory,
            dtype=own_dtype,
            has_own_weights=weights is not None or not own.is_fused,
            rerun_in=rerun_in,
            attend_in=attend_in,
        )


# Of the weights of all heads in one call; larger calls are computed in blocks of `BLOCK_ROWS` queries.
_MAX_WEIGHT_BYTES = 2**22
_BYTES_PER_NUMBER = 4
_ROW_BLOCK_MODULES: WeakSet[Module] = WeakSet()  # modules whose attention can be computed in blocks of queries


@dataclass(frozen=True, eq=False)
class OwnAttention:
    """The attention function of a model with the arguments of one call, except query, key and value.

    These are [batch head query_pos d_k], [batch kv_head key_pos d_k] and [batch kv_head key_pos d_v]. All methods return the head output
    [batch query_pos head d_v], and the weights [batch head query_pos key_pos] if the function gives some.
    """

    module: Module  # the attention module of the model
    args: tuple[Any, ...]  # positional arguments after the value: the mask, the scaling
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

    def is_causal(self, n_queries: int) -> bool:
        """Whether fused attention without a mask hides later keys: a flag says it."""
        # As transformers' sdpa: a single query, of a text with cached keys, sees all of them whatever the flag says.
        flag = self.kwargs.get("is_causal")
        flag = getattr(self.module, "is_causal", True) if flag is None else flag
        return bool(flag) and n_queries > 1

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

    @property
    def n_sequences(self) -> int:
        """How many sequences of a text, each with a mask of its own, the model runs as a batch."""
        return 1

    def with_mask(self, mask: Tensor | None) -> OwnAttention:
        """The same with another mask."""
        if self.args:
            return replace(self, args=(mask, *self.args[1:]))
        return replace(self, kwargs={**self.kwargs, "attention_mask": mask})

    def in_dtype(self, dtype: torch.dtype) -> OwnAttention:
        """The same with masks and biases of this dtype, for one text."""

        def convert(argument: Any) -> Any:
            if isinstance(argument, Tensor) and argument.ndim == 4:
                argument = argument[: self.n_sequences]  # all texts of a batch have the same masks
            if not isinstance(argument, Tensor) or not argument.is_floating_point() or argument.dtype == dtype:
                return argument
            smallest = torch.finfo(dtype).min  # what hides a key; no −∞, or a row without keys would be NaN
            return (argument.clamp_min(smallest) if smallest > torch.finfo(argument.dtype).min else argument).to(dtype)

        return self.with_each_argument(convert)

    def run(self, query: Tensor, key: Tensor, value: Tensor, keep_weights: bool = True) -> tuple[Tensor, Tensor | None]:
        """The attention that the model runs. Large calls of eager attention are computed in blocks of queries.

        Their weights are None unless `keep_weights`.
        """
        if self.is_fused:
            from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

            # The function that the recorder stands for.
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
                # A mask may be wider than the keys, as for a cache of fixed size.
                and argument.shape[-1] >= n_keys
            )
            return argument[..., rows, :] if is_map else argument

        return self.with_each_argument(select_rows).run_eager(query[:, :, rows], key, value)

    def with_each_argument(self, change: Callable[[Any], Any]) -> OwnAttention:
        """The same with other arguments."""
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


EAGER_NAMES = ("eager_attention_forward", "simple_eager_attention_forward")
"""What the families of transformers call the function of their eager attention."""


def _eager_attention(module: Module) -> _EagerAttention:
    """The eager attention function of the module's model family; Llama's if the family has none."""
    # A user's subclass of an attention stands in a module of its own, without this function.
    for cls in type(module).__mro__:
        for name in EAGER_NAMES:
            function = getattr(sys.modules.get(cls.__module__), name, None)
            if function is not None:
                return cast(_EagerAttention, function)
    from transformers.models.llama.modeling_llama import eager_attention_forward

    return cast(_EagerAttention, eager_attention_forward)


_HIDDEN_BELOW = -1e30  # an additive mask has a smaller number where a key is hidden


class MaskCache:
    """The masks of the calls of one pass; most layers receive the same tensor.

    Every entry holds the tensor whose id is its key, so that no other tensor gets this id.
    """

    def __init__(self) -> None:
        self._split: dict[int, tuple[Tensor, Mask | Tensor | None, Tensor | None]] = {}
        self._additive: dict[tuple[int, int, int, str], tuple[Tensor | None, Tensor]] = {}

    def eager(self, attention: OwnAttention, query: Tensor, key: Tensor, rows: slice = slice(None)) -> OwnAttention:
        """Attention with the mask of eager attention, for all queries or some: it is additive, also where that of fused attention is only a flag."""
        if not attention.is_fused:
            return attention
        mask, n_queries, n_keys = attention.mask, query.shape[-2], key.shape[-2]
        if mask is None and not attention.is_causal(n_queries):
            return attention
        place = id(mask), n_queries, n_keys, str(rows)
        if place not in self._additive:
            hidden = torch.finfo(query.dtype).min
            if mask is None:
                visible = Mask("causal").build(n_queries, n_keys, rows=rows).to(query.device)[None, None]
            else:
                visible = mask[..., rows, :] if mask.shape[-2] == n_queries else mask
            additive = visible
            if visible.dtype == torch.bool:
                additive = torch.zeros_like(visible, dtype=query.dtype).masked_fill_(~visible, hidden)
            self._additive[place] = mask, additive
        return attention.with_mask(self._additive[place][1])

    def split(self, attention: OwnAttention, n_queries: int, n_keys: int) -> tuple[Mask | Tensor | None, Tensor | None]:
        """The mask (its rule, or its cells [query_pos key_pos]) and the bias [head query_pos key_pos] of a call; a flag is not written out."""
        additive_mask = attention.mask
        if additive_mask is None:
            is_causal = attention.is_fused and attention.is_causal(n_queries)
            return Mask("causal") if is_causal else None, None
        if id(additive_mask) not in self._split:
            cells = additive_mask[0, :, :n_queries, :n_keys].to("cpu")
            if cells.dtype == torch.bool:  # True = may attend
                visible, bias = cells, None
            else:
                visible = cells > max(_HIDDEN_BELOW, torch.finfo(cells.dtype).min)  # the smallest half is −65504
                # A query that sees no key, such as padding: the smallest number, added to all its scores, makes them equal.
                visible |= ~visible.any(-1, keepdim=True) & ~cells.isneginf()
                bias = torch.where(visible, cells, 0)
                bias = bias.expand(-1, n_queries, n_keys) if bool(bias.any()) else None
            if bool((visible != visible[:1]).any()):  # heads have different masks: a bias of −∞
                bias = torch.where(visible, 0 if bias is None else bias, -math.inf)
                self._split[id(additive_mask)] = additive_mask, None, bias
            else:
                mask = detect_mask(visible[0].expand(n_queries, n_keys))
                self._split[id(additive_mask)] = additive_mask, mask, bias
        _, mask_or_cells, bias = self._split[id(additive_mask)]
        return mask_or_cells, bias


def in_float32(tensor: Tensor) -> Tensor:
    """A tensor without its gradient, as float32 on the CPU; half precision loses nothing there."""
    return tensor.detach().to("cpu", torch.float32)


def as_model_output(head_output: Tensor, output: Tensor) -> Tensor:
    """A patched head output [head query_pos d_v] in the form of the model's `output`, [1 query_pos head d_v]."""
    return head_output.to(output).transpose(0, 1).contiguous()[None]


def _without_batch(output: Tensor, weights: Tensor | None) -> tuple[Tensor | None, Tensor]:
    return None if weights is None else in_float32(weights[0]), in_float32(output[0]).transpose(0, 1)
