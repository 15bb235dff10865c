"""The beginning of a copied program, which a source provides."""

from __future__ import annotations

from typing import NamedTuple


class Snippet(NamedTuple):
    """The beginning of a copied program; `attention.export.program` writes `tokens` before it and the formula after it.

    Variables have the names of the steps and parameters, with `x` for `input` and `x2` for `memory`.

    Attributes:
        about: the origin of the numbers, ASCII, a few words that follow "from".
        lines: the lines that compute the steps on which the others depend: `x` and the projections; `query`, `key` and `value` without
            projections; `value` and `scores` without queries; and so on. A layer with random steps also needs a function `generator`.
        omitted: the steps and parameters that the lines do not compute; the program omits them.
        patched_layers: the indices of the layers that are patched while the lines run. The program defines a function such as `layer_5` for each,
            which computes the patched head outputs from query, key and value.
    """

    about: str
    lines: tuple[str, ...]
    omitted: tuple[str, ...] = ()
    patched_layers: tuple[int, ...] = ()
