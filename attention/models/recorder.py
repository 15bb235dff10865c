"""The hook into each attention call of a model, whose own attention computes the output bit for bit: to record, patch or replace it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from attention.models.attention_call import (
    IMPLEMENTATION,
    SDPA_IMPLEMENTATION,
    Call,
    MaskCache,
    ModelCall,
    OwnAttention,
    as_model_output,
    in_float32,
)
from attention.models.packed_sequences import current_packing

_AttentionWrapper = Callable[[ModelCall], tuple[Tensor, Tensor | None]]
"""Receives each call. Returns the head output [batch query_pos head d_v] with which the model continues, and the weights if there are any."""
_CallHook = Callable[[Call], Tensor | None]
"""Receives each recorded call. May return a patched head output [head query_pos d_v], with which the model continues."""

_MEMORY_ARGUMENTS = ("key_value_states", "encoder_hidden_states", "cross_attention_states")
_WRAPPER: ContextVar[tuple[_AttentionWrapper, MaskCache] | None] = ContextVar("wrapper", default=None)


def register() -> None:
    """Register `IMPLEMENTATION` with transformers; idempotent."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    for implementation, own in ((IMPLEMENTATION, "eager"), (SDPA_IMPLEMENTATION, "sdpa")):
        AttentionInterface.register(implementation, _attend)
        AttentionMaskInterface.register(implementation, ALL_MASK_ATTENTION_FUNCTIONS[own])


@contextmanager
def wrapping_attention(wrapper: _AttentionWrapper) -> Iterator[None]:
    """A context in which `wrapper` computes every attention call of this thread; of nested contexts, the inner one applies."""
    token = _WRAPPER.set((wrapper, MaskCache()))
    try:
        yield
    finally:
        _WRAPPER.reset(token)


@contextmanager
def recording(on_call: _CallHook, weights: bool = True) -> Iterator[None]:
    """A context in which `on_call` receives every attention call of this thread; without `weights`, large weights are dropped."""
    with wrapping_attention(_Recorder(on_call, weights)):
        yield


class _Recorder:
    """The wrapper that records each call; every recorded pass has its own."""

    def __init__(self, on_call: _CallHook, weights: bool) -> None:
        # By the id of each attention module: its input [query_pos d_model], and its memory [key_pos d_model].
        self.inputs: dict[int, tuple[Tensor | None, Tensor | None]] = {}
        self._on_call, self._keep_weights = on_call, weights

    def __call__(self, call: ModelCall) -> tuple[Tensor, Tensor | None]:
        output, weights = call.run(self._keep_weights)
        x, memory = self.inputs.get(id(call.module), (None, None))
        patched = self._on_call(call.detached(output, weights, x, memory))
        return output if patched is None else as_model_output(patched, output), weights


def record_inputs(module: Module) -> RemovableHandle:
    """From now on, record the inputs of this module with its calls, until the handle is removed."""
    return module.register_forward_pre_hook(_record_inputs, with_kwargs=True)


def _record_inputs(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    wrapper, _ = _WRAPPER.get() or (None, None)
    if not isinstance(wrapper, _Recorder):
        return
    arguments = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
    arguments |= arguments.pop("kwargs", {})
    memory = next((arguments[name] for name in _MEMORY_ARGUMENTS if arguments.get(name) is not None), None)
    x = arguments.get("hidden_states", args[0] if args else None)
    wrapper.inputs[id(module)] = (_without_batch(x), _without_batch(memory))


def _attend(module: Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Head output and weights of one call, by the wrapper of this thread or the model's own attention."""
    wrapper, masks = _WRAPPER.get() or (ModelCall.run, MaskCache())
    call, packing = ModelCall(query, key, value, OwnAttention(module, args, kwargs), masks), current_packing()
    return wrapper(call) if packing is None or _WRAPPER.get() is None else packing.run(wrapper, call)


def _without_batch(x: Any) -> Tensor | None:
    """The sequence [pos d_model] of a batch of one text, with all its pictures; None for anything else."""
    if current_packing() is not None and isinstance(x, Tensor) and x.ndim in (2, 3):
        return in_float32(x.reshape(-1, x.shape[-1]))
    return in_float32(x[0]) if isinstance(x, Tensor) and x.ndim == 3 and len(x) == 1 else None
