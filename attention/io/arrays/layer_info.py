"""The metadata of a layer in a file: its tokens, its name and its formula."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from attention.core import formula_json
from attention.core.dropout import Dropout
from attention.core.formula import Formula
from attention.core.names import KEY, QUERY, SCORES
from attention.errors import AttentionError, FileError
from attention.io.arrays import Archive, quote
from attention.io.arrays.saved_pictures import PATCHES
from attention.io.arrays.stored_layers import MAX_LAYERS, StoredLayer

if TYPE_CHECKING:
    from torch import Tensor

MAX_TOKEN_CHARACTERS = 1000  # characters
_TOKEN_KEYS = (*PATCHES, *PATCHES.values())
_NAME = re.compile(r"[\w ,.:()-]{1,60}")


def metadata_by_number(saved: Any) -> dict[int, Mapping[str, Any]]:
    """The metadata of each layer in an export, by its number, with the tokens of the layer whose tokens it shares."""
    entries = dict[int, Mapping[str, Any]]()
    for entry in saved if isinstance(saved, list) else ():
        if isinstance(entry, dict) and type(entry.get("number")) is int:
            entries.setdefault(entry["number"], entry)
    shared = {number: entry["tokens_of"] for number, entry in entries.items() if type(entry.get("tokens_of")) is int}
    texts = {
        number: {key: entries[first][key] for key in _TOKEN_KEYS if key in entries[first]}
        for number, first in shared.items()
        if first in entries
    }
    return {number: {**entry, **texts.get(number, {})} for number, entry in entries.items()}


def layer_formula(
    archive: Archive,
    exported: bool,
    stored: StoredLayer,
    layer_metadata: Mapping[str, Any],
    recorded: Mapping[str, Tensor],
) -> tuple[Formula | None, str]:
    """The formula that may have computed a layer, and a sentence if it cannot be read.

    Args:
        archive: the contents of the file.
        exported: whether the file is an export of the Lab.
        stored: the layer.
        layer_metadata: the metadata of the layer in an export, with its formula; other files have scores, or queries and keys, and numbers
            such as a divisor.
        recorded: the tensors of the layer.
    """
    if layer_metadata.get("formula") is not None:
        try:
            saved_formula = formula_json.from_json(layer_metadata["formula"])
            if stored.head is not None:
                # A file of one head records its part of tensors that are drawn or computed for all heads at once.
                dropping = saved_formula.dropping if saved_formula.dropping.is_provided else Dropout()
                bias = "given" if saved_formula.bias and "bias" in recorded else saved_formula.bias
                saved_formula = replace(saved_formula, dropping=dropping, bias=bias)
            return saved_formula, ""
        except AttentionError as error:
            return None, f"Its formula is unknown, so the numbers are shown as recorded: {error}"
    if "formula" in layer_metadata or not ({QUERY, KEY} <= recorded.keys() or SCORES in recorded):
        return None, ""
    prefix = f"L{stored.number}." if exported else ""
    divisor, scaling, temperature = (
        _number(archive, f"{prefix}{key}", stored.number) for key in ("divisor", "scaling", "temperature")
    )
    divisor = divisor or (1 / scaling if scaling else None)
    default_divisor = math.sqrt(recorded[QUERY].shape[-1]) if QUERY in recorded else None
    bias = "given" if "bias" in recorded else ""
    return Formula(
        divisor=divisor or default_divisor, temperature=temperature or 1.0, bias=bias, own_divisor=divisor
    ), ""


def _number(archive: Archive, key: str, layer: int) -> float | None:
    """A positive number for all layers, or one from a list for each layer; None if it is absent.

    Raises:
        FileError: the value is something else.
    """
    entry = archive.arrays.get(key)
    value: Any = archive.metadata.get(key)
    if entry is not None and prod(entry.shape) <= MAX_LAYERS:
        numbers = entry.load().flatten().tolist()
        value = numbers[layer] if layer < len(numbers) else numbers[0] if len(numbers) == 1 else numbers
    if value is None:
        return None
    if value == "inf" or (value == math.inf and key.endswith("temperature")):
        return math.inf
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise FileError(
            f"{key} needs a positive number, or one for each layer; got {quote(str(value))}: save such a number, or leave it out."
        )
    return float(value)


def layer_tokens(
    name: str, metadata: Mapping[str, Any], sizes: Mapping[str, int]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens of queries and of keys: those of the file, or numbered labels.

    Raises:
        FileError: they are not texts, or their number differs from that of the positions.
    """
    labels: list[tuple[str, ...]] = []
    for key, axis, letter in (("tokens", "query_pos", "x"), ("key_tokens", "key_pos", "k")):
        size = sizes.get(axis, sizes.get("key_pos", 1))
        saved = metadata.get(key)
        if key == "key_tokens" and saved is None and size == len(labels[0]):
            saved = list(labels[0])
        if saved is None:
            labels.append(tuple(f"{letter}{position}" for position in range(size)))
            continue
        is_valid = isinstance(saved, list) and all(
            isinstance(text, str) and len(text) <= MAX_TOKEN_CHARACTERS for text in saved
        )
        if not is_valid or len(saved) != size:
            got = f"{len(saved):,} texts" if is_valid else f"{quote(str(saved))}"
            raise FileError(
                f"{key} in {quote(name)} needs a list of {size:,} texts of at most {MAX_TOKEN_CHARACTERS:,} characters, one for each {axis.removesuffix('_pos')}; "
                f"got {got}: save a list of this length, or none."
            )
        # A lone surrogate cannot be sent to a browser.
        labels.append(tuple(text.encode("utf-8", "replace").decode() for text in saved))
    return labels[0], labels[1]


def layer_name(exported: bool, position: int, stored: StoredLayer, layer_metadata: Mapping[str, Any]) -> str:
    """The name of a layer: the name in its export if it has no markup; otherwise its number if it is not the layer at `position` of the file."""
    saved_name = layer_metadata.get("name")
    name = saved_name if isinstance(saved_name, str) and _NAME.fullmatch(saved_name) else ""
    if exported and not name and (stored.number != position or stored.head is not None):
        name = f"layer {stored.number}"
    return name if stored.head is None else f"{name}, head {stored.head}"
