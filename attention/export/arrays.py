"""Trace to files of numbers: every step and every parameter of every layer, as .npz or .safetensors.

The tensors are called "L0.weights", "L0.w_q", …, layers from zero, and keep their dtype and every bit. Where one
head only is asked for, the name says which: "L0.H2.weights", [query_pos key_pos]; where some layers are, those keep their numbers.
Beside them stands what each layer is and which formula made it, so that `attention.File` opens the file to the same digits.
The same trace always gives the same bytes.
"""

from __future__ import annotations

import io
import json
import math
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.formula.steps import DECLARED, find_step, is_step
from attention.formula.trace import Trace
from attention.formula.written import written

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from torch import Tensor

    from attention.formula.layer import Layer


def npz(trace: Trace, head: int | None = None, layers: Collection[int] | None = None) -> bytes:
    """All numbers of a trace, or those of one head or of some layers, as an uncompressed .npz file, which `numpy.load` opens without pickle.

    Beside the tensors, in the order of the formula: "tokens" and "key_tokens" (arrays of text) and, per layer,
    the numbers that `Layer.settings` has, such as "L0.divisor"; last "about", JSON. NumPy has no bfloat16; such a tensor is
    widened to float32, which holds the same numbers. It drops a NUL at the end of a text, so a NUL is written "U+0000".
    """
    import torch

    arrays = {name: np.array([token.replace("\0", "U+0000") for token in tokens]) for name, tokens in _texts(trace)}
    for name, tensor in _tensors(trace, head, layers):
        arrays[name] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    arrays |= {name: np.array(value) for name, value in _settings(trace, layers)}
    arrays["about"] = np.array(json.dumps(_about(trace, layers)).encode())
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def safetensors(trace: Trace, head: int | None = None, layers: Collection[int] | None = None) -> bytes:
    """All numbers of a trace, or those of one head or of some layers, as a .safetensors file.

    Its metadata have one entry, "trace", a JSON object: "tokens" and "key_tokens", lists of text, and, per layer,
    those of `Layer.settings`, such as "L0.divisor", which `float` reads (JSON has no infinity; it is the text "inf"); and what
    an .npz file has under "about".
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    stored = set()
    for name, tensor in _tensors(trace, head, layers):
        whole = tensor.contiguous()
        # Without a mask, masked_scores is the very tensor scaled_scores; the format wants each in memory of its own.
        tensors[name] = whole.clone() if whole.untyped_storage().data_ptr() in stored else whole
        stored.add(tensors[name].untyped_storage().data_ptr())
    settings = {name: value if math.isfinite(value) else repr(value) for name, value in _settings(trace, layers)}
    # One entry only: the format writes several in an order that changes from call to call.
    return save(tensors, {"trace": json.dumps({**dict(_texts(trace)), **settings, **_about(trace, layers)})})


def size(trace: Trace, head: int | None = None, layers: Collection[int] | None = None) -> int:
    """The bytes of all these numbers, counted before one of them is made."""
    shapes = (
        (layer, name, _alone(name, head)) for _, layer in _chosen(trace, layers) for name in DECLARED if layer.has(name)
    )
    return sum(prod(layer.shape(name)[1 if alone else 0 :]) * _itemsize(layer) for layer, name, alone in shapes)


def part_within(
    trace: Trace, layer: int, head: int, most: int, only_layer: bool = False
) -> tuple[int | None, tuple[int, ...] | None]:
    """Which head and which layers one file of at most so many bytes has, as `npz` takes them.

    All of the trace; or the layer; or that head of it, whatever it takes. With `only_layer` the first is left out.
    """
    parts: list[tuple[int | None, tuple[int, ...] | None]] = [(None, None), (None, (layer,)), (head, (layer,))]
    return next((part for part in parts[only_layer:] if size(trace, *part) <= most), parts[-1])


def _texts(trace: Trace) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return ("tokens", trace.tokens), ("key_tokens", trace.key_tokens)


def _tensors(trace: Trace, head: int | None, layers: Collection[int] | None) -> Iterator[tuple[str, Tensor]]:
    for i, layer in _chosen(trace, layers):
        for name in filter(layer.has, DECLARED):
            if _alone(name, head):
                yield f"L{i}.H{head}.{name}", layer.matrix(name, head or 0)
            else:
                yield f"L{i}.{name}", layer[name]


def _chosen(trace: Trace, layers: Collection[int] | None) -> list[tuple[int, Layer]]:
    return [(i, layer) for i, layer in enumerate(trace.layers) if layers is None or i in layers]


def _alone(name: str, head: int | None) -> bool:
    """Whether a file of one head has that head's matrix of it, and no other."""
    return head is not None and is_step(name) and find_step(name).per_head


def _itemsize(layer: Layer) -> int:
    return max((tensor.element_size() for tensor in layer.recorded.values()), default=0)


def _settings(trace: Trace, layers: Collection[int] | None) -> Iterator[tuple[str, float]]:
    for i, layer in _chosen(trace, layers):
        yield from ((f"L{i}.{name}", float(value)) for name, value in layer.settings.items())


def _about(trace: Trace, layers: Collection[int] | None) -> dict[str, Any]:
    """What no tensor says: of each layer its name, its formula, and its tokens where they are its own."""
    found = []
    for i, layer in _chosen(trace, layers):
        own = (layer.tokens, layer.key_tokens) != (trace.tokens, trace.key_tokens)
        texts = {"tokens": layer.tokens, "key_tokens": layer.key_tokens} if own else {}
        changed = layer.formula is None or layer.formula.changed  # inside its model: then the numbers alone say it
        said = None if changed or layer.formula is None else written(layer.formula)
        found.append({"number": i, "name": layer.name, "formula": said, **texts})
    return {"random": trace.random, "notes": trace.notes, "layers": found}
