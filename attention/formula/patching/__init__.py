"""Interventions on the heads of a model: one file for each kind, one line of the table for each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from attention.formula.by_hand import ByHand, SetCell
from attention.formula.patching.cells import Cells
from attention.formula.patching.kind import Change, Checks, Extent, Kind, counts
from attention.formula.patching.masking import MASKS, OtherMask
from attention.formula.patching.scaling import NoScaling, Temperature
from attention.formula.patching.silence import SILENCES, Silence
from attention.formula.patching.take import TAKES, Take

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.axes import Scores
    from attention.formula.steps.step import Steps, StepWork
    from attention.formula.work import E_co

__all__ = [
    "KINDS", "MASKS", "SILENCES", "TAKES", "Change", "Checks", "Extent", "Kind", "SetCell",
    "computed", "counts", "explained", "output_python", "patched_output", "python",
]  # fmt: skip

KINDS: tuple[Kind, ...] = (Silence(), Temperature(), NoScaling(), OtherMask(), Cells(), Take())
"""All kinds of interventions. Numbers are changed in reverse order: a patched output can be ablated."""


def computed(edits: ByHand, layer: Steps, step: str, heads: slice, rows: slice, make: Callable[[], Scores]) -> Scores:
    """A block of a map with all interventions; `make` computes the block without them."""
    if edits != ByHand():
        for kind in reversed(KINDS):
            make = partial(kind.compute, edits, layer, step, heads, rows, make)
    return make()


def patched_output(edits: ByHand, z: Tensor, other: Tensor | None) -> Tensor:
    """The patched output [query_pos d_v] of a head; `other` is its output in another run."""
    for kind in reversed(KINDS):
        z = kind.output(edits, z, other)
    return z


def explained(work: StepWork[E_co]) -> E_co | None:
    """The explanation of a number that an intervention changed; None for other numbers."""
    return next((explanation for kind in KINDS if (explanation := kind.explain(work)) is not None), None)


def python(edits: ByHand, step: str, lines: list[str]) -> list[str]:
    """Lines that compute a map with all interventions; `lines` compute it without."""
    for kind in reversed(KINDS):
        lines = kind.python(edits, step, lines)
    return lines


def output_python(edits: ByHand, z: str) -> str:
    """An expression of plain torch for the patched output of a head."""
    for kind in reversed(KINDS):
        z = kind.output_python(edits, z)
    return z
