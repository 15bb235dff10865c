"""What stands in a file beside the arrays of a layer: its tokens, and what its formula is."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from attention.errors import AttentionError, FileError
from attention.formula import written
from attention.formula.dropping import Dropping
from attention.formula.formula import Formula
from attention.formula.names import KEY, QUERY, SCORES
from attention.sources.archive import Archive, quoted
from attention.sources.archive.layers import MOST_LAYERS, Stored

if TYPE_CHECKING:
    from torch import Tensor

LONGEST_TOKEN = 1000  # characters
_NAME = re.compile(r"[\w ,.:()-]{1,60}")


def formula(
    archive: Archive, exported: bool, stored: Stored, own: Mapping[str, Any], recorded: Mapping[str, Tensor]
) -> tuple[Formula | None, str]:
    """What may have made a layer, and a sentence where that cannot be read.

    Args:
        archive: what the file holds.
        exported: whether it was exported here.
        stored: which layer of it.
        own: what an export says of the layer, its formula among it; others have scores, or queries and keys, and numbers beside them.
        recorded: the tensors of the layer.
    """
    if own.get("formula") is not None:
        try:
            said = written.read(own["formula"])
            if stored.head is not None:
                # Of what all heads have drawn or made together, a file of one has its part recorded.
                dropping = said.dropping if said.dropping.given else Dropping()
                bias = "given" if said.bias and "bias" in recorded else said.bias
                said = replace(said, dropping=dropping, bias=bias)
            return said, ""
        except AttentionError as error:
            return None, f"Its formula is not known here, so the numbers are shown as recorded: {error}"
    if "formula" in own or not ({QUERY, KEY} <= recorded.keys() or SCORES in recorded):
        return None, ""
    before = f"L{stored.number}." if exported else ""
    divisor, scaling, temperature = (
        _number(archive, f"{before}{key}", stored.number) for key in ("divisor", "scaling", "temperature")
    )
    divisor = divisor or (1 / scaling if scaling else None)
    usual = math.sqrt(recorded[QUERY].shape[-1]) if QUERY in recorded else None
    bias = "given" if "bias" in recorded else ""
    return Formula(divisor=divisor or usual, temperature=temperature or 1.0, bias=bias, own_divisor=divisor), ""


def _number(archive: Archive, key: str, layer: int) -> float | None:
    """A number above 0 that stands in a file for all layers, or in a list for each; None where there is none.

    Raises:
        FileError: there is something else.
    """
    entry = archive.arrays.get(key)
    said: Any = archive.said.get(key)
    if entry is not None and prod(entry.shape) <= MOST_LAYERS:
        numbers = entry.load().flatten().tolist()
        said = numbers[layer] if layer < len(numbers) else numbers[0] if len(numbers) == 1 else numbers
    if said is None:
        return None
    if said == "inf" or (said == math.inf and key.endswith("temperature")):
        return math.inf
    if type(said) not in (int, float) or not 0 < said < math.inf:
        raise FileError(
            f"{key} needs a number above 0, or one for each layer; got {quoted(str(said))}: save one, or leave it out."
        )
    return float(said)


def tokens(name: str, said: Mapping[str, Any], sizes: Mapping[str, int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens of queries and of keys: those of the file, or numbers.

    Raises:
        FileError: they are no texts, or not as many as there are positions.
    """
    found: list[tuple[str, ...]] = []
    for key, axis, letter in (("tokens", "query_pos", "x"), ("key_tokens", "key_pos", "k")):
        size = sizes.get(axis, sizes.get("key_pos", 1))
        there = said.get(key)
        if key == "key_tokens" and there is None and size == len(found[0]):
            there = list(found[0])
        if there is None:
            found.append(tuple(f"{letter}{at}" for at in range(size)))
            continue
        texts = isinstance(there, list) and all(isinstance(one, str) and len(one) <= LONGEST_TOKEN for one in there)
        if not texts or len(there) != size:
            came = f"{len(there):,} texts" if texts else f"{quoted(str(there))}"
            raise FileError(
                f"{key} in {quoted(name)} needs a list of {size:,} texts of at most {LONGEST_TOKEN:,} characters, one for each {axis.removesuffix('_pos')}; "
                f"got {came}: save as many, or none."
            )
        # A lone surrogate cannot be sent to a browser.
        found.append(tuple(one.encode("utf-8", "replace").decode() for one in there))
    return found[0], found[1]


def name_of(exported: bool, at: int, stored: Stored, own: Mapping[str, Any]) -> str:
    """What a layer is called: as its export says, in words that are no markup; by its number where it is not the `at`-th of the file."""
    said = own.get("name")
    name = said if isinstance(said, str) and _NAME.fullmatch(said) else ""
    if exported and not name and (stored.number != at or stored.head is not None):
        name = f"layer {stored.number}"
    return name if stored.head is None else f"{name}, head {stored.head}"
