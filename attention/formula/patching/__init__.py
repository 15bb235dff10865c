"""What can be changed of a head inside its model: a file for each kind, a line of the table for each."""

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
"""Every kind of change: what there is to choose from. Of the numbers the last is done first: what is taken may be silenced."""


def computed(hand: ByHand, layer: Steps, step: str, heads: slice, rows: slice, make: Callable[[], Scores]) -> Scores:
    """A block of a map with all changes; `make` makes the block without."""
    if hand != ByHand():
        for kind in reversed(KINDS):
            make = partial(kind.compute, hand, layer, step, heads, rows, make)
    return make()


def patched_output(hand: ByHand, z: Tensor, taken: Tensor | None) -> Tensor:
    """What goes on of a head's output [query_pos d_v]; `taken` is the output of another run."""
    for kind in reversed(KINDS):
        z = kind.output(hand, z, taken)
    return z


def explained(work: StepWork[E_co]) -> E_co | None:
    """A number that a change has made; None where the step made it as always."""
    return next((told for kind in KINDS if (told := kind.explain(work)) is not None), None)


def python(hand: ByHand, step: str, lines: list[str]) -> list[str]:
    """The lines of a map with all changes; `lines` make it without."""
    for kind in reversed(KINDS):
        lines = kind.python(hand, step, lines)
    return lines


def output_python(hand: ByHand, z: str) -> str:
    """What goes on of a head's output, as an expression of plain torch."""
    for kind in reversed(KINDS):
        z = kind.output_python(hand, z)
    return z
