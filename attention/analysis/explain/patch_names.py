"""The sentence of an explanation names patches: a position in a picture says little, its row and column say where to look."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from attention.tokens import Patch, label

if TYPE_CHECKING:
    from attention.analysis.explain.arithmetic import Explanation
    from attention.core.layer import Layer

_NOUNS = {"query_pos": "query|row", "key_pos": "key|row"}  # what a sentence calls a position of each axis


def name_patches(explanation: Explanation, layer: Layer) -> Explanation:
    """The explanation with the name of the query and of the key after their positions, if these are patches: "query 50 (patch row 3, column 1)"."""
    step, cell, words = explanation.step, explanation.cell, explanation.words
    for axis, position in ((step.row_axis, cell.row), (step.column_axis, cell.column)):
        tokens = layer.labels_of(axis)
        if tokens is None or not isinstance(token := tokens[position], Patch):
            continue
        name = label(token, escape=False)
        words = re.sub(rf"\b({_NOUNS[axis]}) {position}\b", rf"\g<0> ({name})", words, count=1, flags=re.IGNORECASE)
    return explanation if words == explanation.words else replace(explanation, words=words)
