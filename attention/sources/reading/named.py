"""Several matrices of one text by the names they have there: `Q = …`, `K = …`, `V = …` fill three fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from attention.formula.dropping import GivenDropping
from attention.formula.names import KEY, MEMORY, QUERY, SCORES, VALUE
from attention.sources.knobs import GIVEN, MORE
from attention.sources.reading.matrix import Matrix, Stack
from attention.sources.reading.reading import Reading

_CALLED = {
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
    "dropout_mask": GivenDropping.names,
}
_FIELDS = {name: field for field, names in _CALLED.items() for name in names.split()}
_OPTIONAL = {name for names in MORE.values() for name in names} | {"w_o"}


def field_of(label: str) -> str:
    """The field of `Matrices` that a name such as W_query, self.Wq or Queries means; empty where it means none."""
    return _FIELDS.get(re.sub(r"[\W_]", "", label.rpartition(".")[2]).lower(), "")


def named(reading: Reading) -> dict[str, Matrix | Stack]:
    """The matrices of a text by the field that each is called after; nothing where only one is, or anything of them is open."""
    found: dict[str, Matrix | Stack] = {}
    for part in reading.parts:
        field, matrices = field_of(part.label), list(part.choices.values())
        if field and (len(matrices) > 1 or found.get(field, matrices[0]) != matrices[0]):
            return {}
        if field:
            found[field] = matrices[0]
    return found if len(found) > 1 else {}


def given_by(fields: Iterable[str], now: str) -> str:
    """What a person has who has these fields, one of `GIVEN`: what uses most of them; `now` where they only change a part of it.

    Empty where they make nothing whole.
    """
    there = set(fields)
    used = {gives: len(there & {*names, *MORE[gives]}) for gives, names in GIVEN.items()}
    whole = [gives for gives, names in GIVEN.items() if {*names} - _OPTIONAL <= there]
    if whole:
        return max(whole, key=lambda gives: (used[gives], gives == now))
    return now if used[now] == len(there) else ""


def filled(found: Mapping[str, Matrix | Stack], gives: str) -> dict[str, Matrix | Stack]:
    """Those of the matrices that this kind of source has a field for."""
    return {field: matrix for field, matrix in found.items() if field in (*GIVEN[gives], *MORE[gives])}
