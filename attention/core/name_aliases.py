"""The former names of steps, of parameters and of fields of a formula: the only table of them.

Files, lessons and links that have a former name are read with these functions; nothing writes such a name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from attention.core.names import PATCHED_OUTPUT

_T = TypeVar("_T")

NAME_ALIASES: Mapping[str, str] = {
    "kept_output": PATCHED_OUTPUT,
    "taken_output": "patched_head_output",
    "taken_weights": "patched_weights",
    "drop": "dropout_mask",
    "share": "normalizer",
}
"""The former names with the present ones."""


def current_name(name: str) -> str:
    """The present name of a step, of a parameter, or of a field of a formula; what stands before a dot ("L0.H2.") stays."""
    before, dot, last = name.rpartition(".")
    return f"{before}{dot}{NAME_ALIASES.get(last, last)}"


def with_current_names(entries: Mapping[str, _T], known: Collection[str]) -> dict[str, _T]:
    """The entries of a file, each under its present name where that is one of the `known` names.

    An entry keeps its former name where the file also has an entry of the present name, which is the one that is read.
    """
    return {_unless_taken(name, entries, known): entry for name, entry in entries.items()}


def _unless_taken(name: str, entries: Mapping[str, object], known: Collection[str]) -> str:
    new = current_name(name)
    return name if new in entries or new.rpartition(".")[2] not in known else new
