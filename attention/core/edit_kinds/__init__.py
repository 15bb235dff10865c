"""Interventions on the heads of a model: one file for each kind, one line of the table for each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from attention.core.edit_kinds.ablation import ABLATIONS, Ablation
from attention.core.edit_kinds.edit import Checks, InterventionFields, InterventionKind, LayerSize, check_index
from attention.core.edit_kinds.other_mask import MASKS, MaskOverride
from attention.core.edit_kinds.other_scale import NoScaling, TemperatureOverride
from attention.core.edit_kinds.patch import PATCH_CODES, ActivationPatch
from attention.core.edit_kinds.set_cells import CellEdits
from attention.core.head_edits import HeadEdits, SetCell

if TYPE_CHECKING:
    from torch import Tensor

    from attention.core.explainer import E_co
    from attention.core.step import LayerView, StepContext
    from attention.core.tensor_types import Scores

__all__ = [
    "ABLATIONS",
    "KINDS",
    "MASKS",
    "PATCH_CODES",
    "Checks",
    "InterventionFields",
    "InterventionKind",
    "LayerSize",
    "SetCell",
    "check_index",
    "explain_edit",
    "output_python",
    "patched_block",
    "patched_output",
    "python",
]  # fmt: skip

KINDS: tuple[InterventionKind, ...] = (
    Ablation(),
    TemperatureOverride(),
    NoScaling(),
    MaskOverride(),
    CellEdits(),
    ActivationPatch(),
)
"""All kinds of interventions. Numbers are changed in reverse order: a patched output can be ablated."""


def patched_block(
    edits: HeadEdits, layer: LayerView, step: str, heads: slice, rows: slice, make: Callable[[], Scores]
) -> Scores:
    """A block of a map with all interventions; `make` computes the block without them."""
    if edits != HeadEdits():
        for kind in reversed(KINDS):
            make = partial(kind.compute, edits, layer, step, heads, rows, make)
    return make()


def patched_output(edits: HeadEdits, z: Tensor, other: Tensor | None) -> Tensor:
    """The patched output [query_pos d_v] of a head; `other` is its output in another run."""
    for kind in reversed(KINDS):
        z = kind.output(edits, z, other)
    return z


def explain_edit(work: StepContext[E_co]) -> E_co | None:
    """The explanation of a number that an intervention changed; None for other numbers."""
    return next((explanation for kind in KINDS if (explanation := kind.explain(work)) is not None), None)


def python(edits: HeadEdits, step: str, lines: list[str]) -> list[str]:
    """Lines that compute a map with all interventions; `lines` compute it without."""
    for kind in reversed(KINDS):
        lines = kind.python(edits, step, lines)
    return lines


def output_python(edits: HeadEdits, z: str) -> str:
    """An expression of plain torch for the patched output of a head."""
    for kind in reversed(KINDS):
        z = kind.output_python(edits, z)
    return z
