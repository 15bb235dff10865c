"""A trace as a file of numbers: every step and parameter of every layer, as .npz or .safetensors.

The tensors are called "L0.weights", "L0.w_q", …, with layers counted from 0, and keep their dtype and every bit. In a file of
a single head the name includes it: "L0.H2.weights", [query_pos key_pos]; in a file of some layers these keep their numbers.
What a model saw of its pictures is in "picture0", "picture1", …, [row column 3] from 0 to 255.
The file also describes each layer and its formula, so that `attention.File` opens it to the same digits.
The same trace always gives the same bytes.
"""

from __future__ import annotations

import io
import json
import math
from math import prod
from typing import TYPE_CHECKING, Any

from attention.base.pieces import ids_of_words
from attention.base.tokens import Letter
from attention.files import saved_pictures
from attention.files.stored_names import PAIRS, RESIDUES, WORD_IDS
from attention.formula.formula import to_json
from attention.formula.steps import DECLARED, find_step, is_step
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from torch import Tensor

    from attention.trace.layer import Layer


def npz(trace: Trace, head: int | None = None, layers: Collection[int] | None = None) -> bytes:
    """All numbers of a trace, or those of one head or of some layers, as an uncompressed .npz file that `numpy.load` opens without pickle.

    The tensors come in the order of the formula; then "tokens" and "key_tokens" (arrays of text), the numbers of
    `Layer.settings` for each layer, such as "L0.divisor", and "about", JSON. NumPy has no bfloat16; such a tensor is
    widened to float32 without loss. NumPy drops a NUL at the end of a text, so a NUL is written as "U+0000".
    """
    import numpy as np
    import torch

    arrays = {name: np.array([token.replace("\0", "U+0000") for token in tokens]) for name, tokens in _texts(trace)}
    for name, tensor in _tensors(trace, head, layers):
        arrays[name] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    arrays |= saved_pictures.arrays(trace)
    arrays |= {name: np.array(value) for name, value in _settings(trace, layers)}
    arrays["about"] = np.array(json.dumps(_about(trace, layers)).encode())
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def safetensors(trace: Trace, head: int | None = None, layers: Collection[int] | None = None) -> bytes:
    """All numbers of a trace, or those of one head or of some layers, as a .safetensors file.

    The metadata have one entry, "trace", a JSON object with "tokens" and "key_tokens" (lists of text), the numbers of
    `Layer.settings` for each layer, such as "L0.divisor", readable by `float` (JSON has no infinity, so it is the text "inf"), and
    the content of "about" in an .npz file.
    """
    import numpy as np
    import torch
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    stored = set()
    for name, tensor in _tensors(trace, head, layers):
        copy = tensor.contiguous()
        # Without a mask, masked_scores and scaled_scores share memory, which the format does not allow.
        tensors[name] = copy.clone() if copy.untyped_storage().data_ptr() in stored else copy
        stored.add(tensors[name].untyped_storage().data_ptr())
    tensors |= {name: torch.from_numpy(np.array(rgb)) for name, rgb in saved_pictures.arrays(trace).items()}
    settings = {name: value if math.isfinite(value) else repr(value) for name, value in _settings(trace, layers)}
    # A single entry: the format writes several in an order that varies between calls.
    return save(tensors, {"trace": json.dumps({**dict(_texts(trace)), **settings, **_about(trace, layers)})})


def size(trace: Trace, head: int | None = None, layers: Collection[int] | None = None) -> int:
    """The size of these numbers in bytes, computed from shapes alone."""
    total = sum(picture.rgb.nbytes for picture in trace.pictures)
    for _, layer in _chosen(trace, layers):
        shapes = (layer.shape(name)[_is_per_head(name, head) :] for name in filter(layer.has, DECLARED))
        itemsize = max((tensor.element_size() for tensor in layer.recorded.values()), default=0)
        total += itemsize * sum(map(prod, shapes))
    return total


def part_that_fits(
    trace: Trace, layer: int, head: int, most: int, only_layer: bool = False
) -> tuple[int | None, tuple[int, ...] | None]:
    """The head and the layers that fit into one file of at most `most` bytes, as arguments of `npz`.

    The choices are the complete trace, the layer, or one head of the layer regardless of its size; `only_layer` skips the first.
    """
    parts: list[tuple[int | None, tuple[int, ...] | None]] = [(None, None), (None, (layer,)), (head, (layer,))]
    return next((part for part in parts[only_layer:] if size(trace, *part) <= most), parts[-1])


def _texts(trace: Trace) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return ("tokens", trace.tokens), ("key_tokens", trace.key_tokens)


def _tensors(trace: Trace, head: int | None, layers: Collection[int] | None) -> Iterator[tuple[str, Tensor]]:
    for i, layer in _chosen(trace, layers):
        for name in filter(layer.has, DECLARED):
            if _is_per_head(name, head):
                yield f"L{i}.H{head}.{name}", layer.matrix(name, head or 0)
            else:
                yield f"L{i}.{name}", layer[name]


def _chosen(trace: Trace, layers: Collection[int] | None) -> list[tuple[int, Layer]]:
    return [(i, layer) for i, layer in enumerate(trace.layers) if layers is None or i in layers]


def _is_per_head(name: str, head: int | None) -> bool:
    """Whether a file of one head contains only that head's matrix of this tensor."""
    return head is not None and is_step(name) and find_step(name).per_head


def _settings(trace: Trace, layers: Collection[int] | None) -> Iterator[tuple[str, float]]:
    for i, layer in _chosen(trace, layers):
        if layer.has_attention:
            yield from ((f"L{i}.{name}", float(value)) for name, value in layer.settings.items())


def _about(trace: Trace, layers: Collection[int] | None) -> dict[str, Any]:
    """The description that tensors cannot hold: the pictures, the places of patches, and for each layer its name and formula, and its tokens if they differ from the trace's."""
    layer_entries, numbers = list[dict[str, Any]](), dict[str, int]()
    of_trace = _described_tokens(trace)
    for i, layer in _chosen(trace, layers):
        texts = _described_tokens(layer)
        if texts == of_trace:
            texts = {}
        # A model that reads a picture in its text has hundreds of tokens in each layer: layers with the same ones name the first.
        elif (first := numbers.setdefault(json.dumps(texts), i)) != i:
            texts = {"tokens_of": first}
        patched = layer.formula is None or layer.formula.is_edited  # inside the model: then only the numbers are valid
        formula = None if patched or layer.formula is None else to_json(layer.formula)
        mixer = {} if layer.has_attention else {"mixer": layer.mixer}
        layer_entries.append({"number": i, "name": layer.name, "formula": formula, **texts, **mixer})
    spans = {"spans": [(span.name, span.first, span.last) for span in trace.spans]} if trace.spans else {}
    pictures = {"pictures": saved_pictures.descriptions(trace)} if trace.pictures else {}
    of_tokens = {name: value for name, value in of_trace.items() if name not in (*WORD_IDS, *PAIRS)}
    return {"random": trace.random, "notes": trace.notes, **spans, **pictures, **of_tokens, "layers": layer_entries}


def _described_tokens(source: Trace | Layer) -> dict[str, Any]:
    """The tokens of queries and keys, the numbers of their words, the places of those that are patches, the texts of those that are of a pair, and the numbers of residues."""
    described: dict[str, Any] = {"tokens": source.tokens, "key_tokens": source.key_tokens}
    for name, key in WORD_IDS.items():
        if word_ids := ids_of_words(described[name]):
            described[key] = word_ids
    for name, key in saved_pictures.PATCHES.items():
        if places := saved_pictures.places(described[name]):
            described[key] = places
    for name, key in PAIRS.items():
        if any(marks := [getattr(token, "of", "") for token in described[name]]):
            described[key] = marks
    for name, key in RESIDUES.items():
        if any(numbers := [token.place.number if isinstance(token, Letter) else 0 for token in described[name]]):
            described[key] = numbers
    return described
