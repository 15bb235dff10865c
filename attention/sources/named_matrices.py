"""Matrices by the names in one text: `Q = …`, `K = …`, `V = …` fill three fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from attention.core.dropout import ProvidedDropout
from attention.core.names import KEY, MEMORY, QUERY, SCORES, VALUE
from attention.io.text.matrix import Matrix, Stack
from attention.io.text.parsed import ParsedText
from attention.sources.kinds.matrices_source import MATRIX_FIELDS, OPTIONAL_MATRIX_FIELDS

_ALIASES = {
    "x": "x input inputs embedding embeddings",
    MEMORY: "x2 memory",
    QUERY: "q query queries",
    KEY: "k key keys",
    VALUE: "v value values",
    SCORES: "s score scores attnscores attentionscores",
    **{f"w_{letter}": f"w{letter} w{word} m{letter}" for letter, word in zip("qkv", (QUERY, KEY, VALUE), strict=True)},
    **{f"b_{letter}": f"b{letter} b{word}" for letter, word in zip("qkv", (QUERY, KEY, VALUE), strict=True)},
    "w_o": "wo wout woutput",
    "b_o": "bo bout boutput",
    "bias": "bias",
    "dropout_mask": ProvidedDropout.names,
}
_FIELDS = {name: field for field, names in _ALIASES.items() for name in names.split()}
_OPTIONAL = {name for names in OPTIONAL_MATRIX_FIELDS.values() for name in names} | {"w_o"}


def field_of_label(label: str) -> str:
    """The field of `Matrices` for a name such as W_query, self.Wq or Queries; empty if there is none."""
    return _FIELDS.get(re.sub(r"[\W_]", "", label.rpartition(".")[2]).lower(), "")


def matrices_by_field(reading: ParsedText) -> dict[str, Matrix | Stack]:
    """The matrices of a text by field; empty if fewer than two have a known name, or if one of them is ambiguous."""
    matrices_by_field: dict[str, Matrix | Stack] = {}
    for part in reading.parts:
        field, matrices = field_of_label(part.label), list(part.choices.values())
        if field and (len(matrices) > 1 or matrices_by_field.get(field, matrices[0]) != matrices[0]):
            return {}
        if field:
            matrices_by_field[field] = matrices[0]
    return matrices_by_field if len(matrices_by_field) > 1 else {}


def kind_of_fields(fields: Iterable[str], current: str) -> str:
    """The kind of matrices, a key of `MATRIX_FIELDS`, to which these fields belong: the one that uses most of them, preferably `current`.

    `current` if the fields only change a part of it; empty if they form no complete kind.
    """
    present = set(fields)
    n_used = {kind: len(present & {*names, *OPTIONAL_MATRIX_FIELDS[kind]}) for kind, names in MATRIX_FIELDS.items()}
    complete = [kind for kind, names in MATRIX_FIELDS.items() if {*names} - _OPTIONAL <= present]
    if complete:
        return max(complete, key=lambda kind: (n_used[kind], kind == current))
    return current if n_used[current] == len(present) else ""


def fields_of_kind(matrices: Mapping[str, Matrix | Stack], kind: str) -> dict[str, Matrix | Stack]:
    """The matrices for which this kind has a field."""
    return {
        field: matrix
        for field, matrix in matrices.items()
        if field in (*MATRIX_FIELDS[kind], *OPTIONAL_MATRIX_FIELDS[kind])
    }
