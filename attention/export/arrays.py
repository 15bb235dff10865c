"""Trace to files of numbers: every step and every parameter of every layer, as .npz or .safetensors.

The tensors are called "L0.weights", "L0.w_q", …, layers from zero, and keep their dtype and every bit. Where one
head only is asked for, the name says which: "L0.H2.weights", [query_pos key_pos].
The same trace always gives the same bytes.
"""

from __future__ import annotations

import io
import json
import math
from typing import TYPE_CHECKING

import numpy as np

from attention.formula.steps import PARAMETERS, STEPS
from attention.formula.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


def npz(trace: Trace, head: int | None = None) -> bytes:
    """All numbers of a trace, or one head's, as an uncompressed .npz file, which `numpy.load` opens without pickle.

    Beside the tensors, in the order of the formula: "tokens" and "key_tokens" (arrays of text) and, per layer,
    the numbers that `Layer.settings` has, such as "L0.divisor". NumPy has no bfloat16; such a tensor is widened to
    float32, which holds the same numbers. It drops a NUL at the end of a text, so a NUL is written "U+0000".
    """
    import torch

    arrays = {name: np.array([token.replace("\0", "U+0000") for token in tokens]) for name, tokens in _texts(trace)}
    for name, tensor in _tensors(trace, head):
        arrays[name] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    arrays |= {name: np.array(value) for name, value in _settings(trace)}
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def safetensors(trace: Trace, head: int | None = None) -> bytes:
    """All numbers of a trace, or one head's, as a .safetensors file.

    Its metadata have one entry, "trace", a JSON object: "tokens" and "key_tokens", lists of text, and, per layer,
    those of `Layer.settings`, such as "L0.divisor", which `float` reads (JSON has no infinity; it is the text "inf").
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    stored = set()
    for name, tensor in _tensors(trace, head):
        whole = tensor.contiguous()
        # Without a mask, masked_scores is the very tensor scaled_scores; the format wants each in memory of its own.
        tensors[name] = whole.clone() if whole.untyped_storage().data_ptr() in stored else whole
        stored.add(tensors[name].untyped_storage().data_ptr())
    settings = {name: value if math.isfinite(value) else repr(value) for name, value in _settings(trace)}
    # One entry only: the format writes several in an order that changes from call to call.
    return save(tensors, {"trace": json.dumps({**dict(_texts(trace)), **settings})})


def _texts(trace: Trace) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return ("tokens", trace.tokens), ("key_tokens", trace.key_tokens)


def _tensors(trace: Trace, head: int | None) -> Iterator[tuple[str, Tensor]]:
    steps = {step.name: step for step in STEPS}
    for i, layer in enumerate(trace.layers):
        for name in (*steps, *(parameter.name for parameter in PARAMETERS)):
            if not layer.has(name):
                continue
            if head is not None and name in steps and steps[name].per_head:
                yield f"L{i}.H{head}.{name}", layer.matrix(name, head)
            else:
                yield f"L{i}.{name}", layer[name]


def _settings(trace: Trace) -> Iterator[tuple[str, float]]:
    for i, layer in enumerate(trace.layers):
        yield from ((f"L{i}.{name}", float(value)) for name, value in layer.settings.items())
