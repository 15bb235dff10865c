"""Activation patching: a step of a head is replaced by its values in the other state."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from attention.core.edit_kinds.edit import Checks, InterventionFields, InterventionKind
from attention.core.head_edits import OTHER_STATE, HeadEdits
from attention.core.names import HEAD_OUTPUT, KEY, PATCHED_OUTPUT, QUERY, VALUE, WEIGHTS

if TYPE_CHECKING:
    from torch import Tensor

    from attention.core.explainer import E_co
    from attention.core.formula import Formula
    from attention.core.step import LayerView, StepContext
    from attention.core.tensor_types import Scores

PATCH_CODES = {QUERY: "Q", KEY: "K", VALUE: "V", WEIGHTS: "A", HEAD_OUTPUT: "Z"}
"""The steps that can be patched from the other state, with their letters in links."""
_WORDS = {
    QUERY: "queries",
    KEY: "keys",
    VALUE: "values",
    WEIGHTS: "weights",
    HEAD_OUTPUT: "output, before W_O,",
}
_CHECKS: Checks = {"patch": (lambda value: value in ("", *PATCH_CODES), f"one of {', '.join(PATCH_CODES)}, or empty")}


@dataclass(frozen=True)
class ActivationPatch(InterventionKind):
    """Activation patching. Patched queries, keys and values are recorded as such; patched weights and outputs as parameters."""

    name: str = "Patch from the other state"
    term: str = "activation patching"
    fields: tuple[str, ...] = ("patch",)
    pattern: str = f"take([{''.join(PATCH_CODES.values())}])"
    examples: tuple[str, ...] = tuple(f"take{letter}" for letter in PATCH_CODES.values())
    checks: Checks = field(default_factory=lambda: _CHECKS, compare=False)

    def parse(self, match: re.Match[str]) -> dict[str, Any]:
        """The patched step."""
        return {"patch": next(name for name, letter in PATCH_CODES.items() if letter == match[1])}

    def format(self, change: InterventionFields) -> str:
        """The code, such as takeQ."""
        return f"take{PATCH_CODES[change.patch]}"

    def words(self, change: InterventionFields) -> str:
        """The patched step in words."""
        return f"its {_WORDS[change.patch]} patched from the other state (activation patching)"

    def changes_weights(self, change: InterventionFields) -> bool:
        """Whether the weights change: those of patched queries or keys do."""
        return change.patch in (QUERY, KEY)

    def affects_kv_group(self, change: InterventionFields) -> bool:
        """Whether keys or values are patched, which heads may share."""
        return change.patch in (KEY, VALUE)

    def only_output(self, change: InterventionFields) -> bool:
        """Whether the head output itself is patched."""
        return change.patch == HEAD_OUTPUT

    def edit_formula(self, formula: Formula, change: InterventionFields) -> Formula:
        """The formula with this patch, which replaces an earlier one of the same step."""
        return replace(formula, head_edits=formula.head_edits.with_patch(change.patch, OTHER_STATE))

    def compute(
        self, edits: HeadEdits, layer: LayerView, step: str, heads: slice, rows: slice, make: Callable[[], Scores]
    ) -> Scores:
        """The weights of the other run, if they are patched."""
        return layer["patched_weights"][heads, rows] if step == WEIGHTS and edits.is_patched(step) else make()

    def output(self, edits: HeadEdits, z: Tensor, other: Tensor | None) -> Tensor:
        """The head output of the other run, if it is patched."""
        return z if other is None or not edits.is_patched(HEAD_OUTPUT) else other

    def explain(self, work: StepContext[E_co]) -> E_co | None:
        """The run from which the number comes."""
        row, column, step = work.cell.row, work.cell.column, work.cell.step
        patched = dict(work.formula.head_edits.patches)
        if step == PATCHED_OUTPUT and HEAD_OUTPUT in patched:
            value = float(work.layer["patched_head_output"][work.cell.head][row, column])
            words = f"Patched from {patched[HEAD_OUTPUT]}, before W_O (activation patching)."
            return work.from_claim(value, words, f"from {patched[HEAD_OUTPUT]}")
        if step not in patched or step == HEAD_OUTPUT:
            return None
        words = f"Patched from {patched[step]}: it is not computed in this run (activation patching)."
        # Patched queries, keys and values are recorded as such: there is nothing to compare them with.
        value = work.number_at("patched_weights", row, column) if step == WEIGHTS else work.value
        return work.from_claim(value, words, f"from {patched[step]}")

    def python(self, edits: HeadEdits, step: str, lines: list[str]) -> list[str]:
        """A line that assigns the weights of the other run."""
        return [f"{step} = patched_weights"] if step == WEIGHTS and edits.is_patched(step) else lines

    def output_python(self, edits: HeadEdits, z: str) -> str:
        """An expression of the patched output."""
        return z.replace(HEAD_OUTPUT, "patched_head_output") if edits.is_patched(HEAD_OUTPUT) else z
