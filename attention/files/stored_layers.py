"""The layers of an export: their plan, tokens, formulas and names; and the formulas of other files."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from attention.base.errors import AttentionError, FileError
from attention.base.pieces import joins_of_ids
from attention.base.tokens import PairToken, Patch, Piece
from attention.files.archives import Archive, format_shape, quote
from attention.files.plan import (
    MAX_LAYERS,
    METADATA,
    Place,
    Plan,
    PlannedArray,
    StoredLayer,
    View,
    axes_error,
    in_words,
    unused_rows,
)
from attention.files.stored_names import AxisTokens, are_tokens, clean, length_error
from attention.formula import formula
from attention.formula.dropout import Dropout
from attention.formula.formula import Formula
from attention.formula.steps import declared
from attention.vision import saved_pictures
from attention.vision.saved_pictures import PATCHES

if TYPE_CHECKING:
    from torch import Tensor

EXPORTED_KEY = re.compile(r"L(\d{1,4})\.(?:H(\d{1,4})\.)?(\w{1,40})", re.ASCII)
"""The name of an array in an export."""
_MAX_NUMBER = 10**4  # of a layer, by the pattern above
_MIXER = re.compile(r"[a-z0-9 ]{1,30}")
_SLICED_BY_HEAD = ("w_q", "w_k", "w_v", "b_q", "b_k", "b_v", "w_s", "bias", "dropout_mask")  # one head has a slice of these  # fmt: skip


def export_plan(name: str, archive: Archive, matches: Mapping[str, re.Match[str]]) -> Plan:
    """How an export of the Lab is read, by the matches of `EXPORTED_KEY`.

    Raises:
        AxesError: an array has other axes than its step.
    """
    layers: dict[int, dict[str, Place]] = {}
    heads = {int(match[1]): int(match[2]) for match in matches.values() if match[2]}
    for key, match in matches.items():
        number, step, entry = int(match[1]), match[3], archive.arrays[key]
        axes, single_head = declared(step).axes, heads.get(number)
        n_axes = len(axes) - bool(match[2])
        if len(entry.shape) != n_axes:
            raise axes_error(name, key, entry.shape, axes[-n_axes:])
        view = View((None,) * n_axes, tuple(range(n_axes)))
        if single_head is not None and {"head", "kv_head"} & {*axes}:
            if match[2] and int(match[2]) == single_head:
                view = view._replace(adds_head=True)
            else:
                # The array has all heads: slice the one of this file. Query heads may share a key head.
                keys = (f"L{number}.{other}" for other in ("w_q", "bias", "dropout_mask"))
                n_heads = next((archive.arrays[other].shape[0] for other in keys if other in matches), 0)
                if step not in _SLICED_BY_HEAD or single_head >= n_heads:
                    continue
                head = single_head * entry.shape[0] // n_heads
                view = view._replace(taken=(slice(head, head + 1), *view.taken[1:]))
        place = Place(((key, view),), view.shape(entry.shape), low_precision=entry.kind.low_precision)
        layers.setdefault(number, {})[step] = place
    stored = [StoredLayer(number, heads.get(number), places) for number, places in layers.items()]
    stored += [StoredLayer(n, None, {}, mixer) for n, mixer in _mixers(archive).items() if n not in layers]
    read = matches.keys() | saved_pictures.entries(archive).keys()
    names = (key for key in (*archive.arrays, *archive.refused) if key not in read)
    unused = [key for key in names if key.rpartition(".")[2] not in METADATA]  # "L0.divisor" is a setting
    rows = [PlannedArray((key,), format_shape(archive.arrays[key].shape), match[3], in_words(declared(match[3]).axes)) for key, match in matches.items()]  # fmt: skip
    rows += unused_rows(archive, unused, {})
    return Plan(name, tuple(sorted(stored, key=lambda layer: layer.number)), True, rows=tuple(rows))


def _mixers(archive: Archive) -> dict[int, str]:
    """What each layer without attention of an exported hybrid model has instead, by its number."""
    entries = metadata_by_number(archive.metadata.get("layers"))
    mixers = {number: entry.get("mixer") for number, entry in entries.items() if 0 <= number < _MAX_NUMBER}
    return {number: mixer for number, mixer in mixers.items() if isinstance(mixer, str) and _MIXER.fullmatch(mixer)}


WORD_IDS = {"tokens": "word_ids", "key_tokens": "key_word_ids"}
"""The name of the words beside each list of tokens: the number of the word of each token, as a tokenizer's `word_ids()`."""
PAIRS = {"tokens": "pair", "key_tokens": "key_pair"}
"""The name of the texts of a pair, "A" or "B" for each token, beside each list of tokens; "" stands for neither."""
_TOKEN_KEYS = (*PATCHES, *PATCHES.values(), *WORD_IDS.values(), *PAIRS.values())
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
    position: int,
    layer_metadata: Mapping[str, Any],
    recorded: Mapping[str, Tensor],
) -> tuple[Formula | None, str]:
    """The formula that may have computed a layer at an index of the file, and a sentence if it cannot be read.

    The metadata of a layer in an export have its formula; other files have scores, or queries and keys, and numbers such as a divisor.
    """
    if layer_metadata.get("formula") is not None:
        try:
            saved_formula = formula.from_json(layer_metadata["formula"])
            if stored.head is not None:
                # A file of one head records its part of tensors that are drawn or computed for all heads at once.
                dropping = saved_formula.dropping if saved_formula.dropping.is_provided else Dropout()
                bias = "given" if saved_formula.bias and "bias" in recorded else saved_formula.bias
                saved_formula = replace(saved_formula, dropping=dropping, bias=bias)
            return saved_formula, ""
        except AttentionError as error:
            return None, f"Its formula is unknown, so the numbers are shown as recorded: {error}"
    from attention.files.read_layers import usual_formula  # imports torch

    if "formula" in layer_metadata:
        return None, ""
    prefix, index = (f"L{stored.number}.", stored.number) if exported else ("", position)
    return usual_formula(recorded, lambda name: _number(archive, f"{prefix}{name}", index)), ""


def _number(archive: Archive, key: str, layer: int) -> float | None:
    """A positive number for all layers, or one from a list for each layer; None if it is absent."""
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


def layer_tokens(name: str, metadata: Mapping[str, Any], sizes: Mapping[str, int]) -> AxisTokens:
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
            saved = [f"{letter}{position}" for position in range(size)]
        if not are_tokens(saved) or len(saved) != size:
            raise length_error(name, key, size, saved)
        labels.append(clean(saved))
    return labels[0], labels[1]


def with_marks(name: str, tokens: tuple[str, ...], described: Mapping[str, Any], side: str) -> tuple[str, ...]:
    """The tokens of an axis as pieces of words, and as those of a pair of texts, where the export says so.

    Raises:
        FileError: it says something else, or not of each token.
    """

    def marks(key: str, what: str, is_valid: Callable[[Any], bool]) -> list[Any]:
        saved = described.get(key)
        if saved is None or (isinstance(saved, list) and len(saved) == len(tokens) and all(map(is_valid, saved))):
            return saved or []
        raise FileError(
            f"{key} in {quote(name)} needs {what} for each of {len(tokens):,} tokens; got {quote(str(saved))}: save the trace again."
        )

    if word_ids := marks(WORD_IDS[side], "the number of a word", lambda number: number is None or type(number) is int):
        joined = zip(tokens, joins_of_ids(word_ids), strict=True)
        tokens = tuple(each if isinstance(each, Patch) else Piece(each, joins, "the word_ids of the file") for each, joins in joined)  # fmt: skip
    if texts := marks(PAIRS[side], "A, B or an empty text", lambda text: text in ("", "A", "B")):
        tokens = tuple(PairToken(each, text) if text else each for each, text in zip(tokens, texts, strict=True))
    return tokens


def layer_name(exported: bool, position: int, stored: StoredLayer, layer_metadata: Mapping[str, Any]) -> str:
    """The name of a layer: the name in its export if it has no markup; otherwise its number if it is not the layer at `position` of the file."""
    if not exported:
        return stored.name
    saved_name = layer_metadata.get("name")
    name = saved_name if isinstance(saved_name, str) and _NAME.fullmatch(saved_name) else ""
    if not name and (stored.number != position or stored.head is not None):
        name = f"layer {stored.number}"
    return name if stored.head is None else f"{name}, head {stored.head}"
