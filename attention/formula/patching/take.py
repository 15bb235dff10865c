"""Activation patching: a step of a head is replaced by its values in the other state."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from attention.formula.by_hand import OTHER, ByHand
from attention.formula.names import HEAD_OUTPUT, KEY, PATCHED_OUTPUT, QUERY, VALUE, WEIGHTS
from attention.formula.patching.kind import Change, Checks, Kind

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.axes import Scores
    from attention.formula.formula import Formula
    from attention.formula.steps.step import Steps, StepWork
    from attention.formula.work import E_co

TAKES = {QUERY: "Q", KEY: "K", VALUE: "V", WEIGHTS: "A", HEAD_OUTPUT: "Z"}
"""The steps that can be patched from the other state, with their letters in links."""
_WORDS = {
    QUERY: "queries",
    KEY: "keys",
    VALUE: "values",
    WEIGHTS: "weights",
    HEAD_OUTPUT: "output, before W_O,",
}
_CHECKS: Checks = {"take": (lambda value: value in ("", *TAKES), f"one of {', '.join(TAKES)}, or empty")}


@dataclass(frozen=True)
class Take(Kind):
    """Activation patching. Patched queries, keys and values are recorded as such; patched weights and outputs as parameters."""

    name: str = "Patch from the other state"
    term: str = "activation patching"
    fields: tuple[str, ...] = ("take",)
    pattern: str = f"take([{''.join(TAKES.values())}])"
    examples: tuple[str, ...] = tuple(f"take{letter}" for letter in TAKES.values())
    checks: Checks = field(default_factory=lambda: _CHECKS, compare=False)

    def read(self, match: re.Match[str]) -> dict[str, Any]:
        """The patched step."""
        return {"take": next(name for name, letter in TAKES.items() if letter == match[1])}

    def write(self, change: Change) -> str:
        """The code, such as takeQ."""
        return f"take{TAKES[change.take]}"

    def words(self, change: Change) -> str:
        """The patched step in words."""
        return f"its {_WORDS[change.take]} patched from the other state (activation patching)"

    def unfreezes(self, change: Change) -> bool:
        """Whether the weights change: those of patched queries or keys do."""
        return change.take in (QUERY, KEY)

    def reaches_group(self, change: Change) -> bool:
        """Whether keys or values are patched, which heads may share."""
        return change.take in (KEY, VALUE)

    def on_output(self, change: Change) -> bool:
        """Whether the head output itself is patched."""
        return change.take == HEAD_OUTPUT

    def turn(self, formula: Formula, change: Change) -> Formula:
        """The formula with this patch, which replaces an earlier one of the same step."""
        return replace(formula, by_hand=formula.by_hand.taking(change.take, OTHER))

    def compute(
        self, edits: ByHand, layer: Steps, step: str, heads: slice, rows: slice, make: Callable[[], Scores]
    ) -> Scores:
        """The weights of the other run, if they are patched."""
        return layer["patched_weights"][heads, rows] if step == WEIGHTS and edits.takes(step) else make()

    def output(self, edits: ByHand, z: Tensor, other: Tensor | None) -> Tensor:
        """The head output of the other run, if it is patched."""
        return z if other is None or not edits.takes(HEAD_OUTPUT) else other

    def explain(self, work: StepWork[E_co]) -> E_co | None:
        """The run from which the number comes."""
        row, column, step = work.cell.row, work.cell.column, work.cell.step
        patched = dict(work.formula.by_hand.taken)
        if step == PATCHED_OUTPUT and HEAD_OUTPUT in patched:
            value = float(work.layer["patched_head_output"][work.cell.head][row, column])
            words = f"Patched from {patched[HEAD_OUTPUT]}, before W_O (activation patching)."
            return work.stated(value, words, f"from {patched[HEAD_OUTPUT]}")
        if step not in patched or step == HEAD_OUTPUT:
            return None
        words = f"Patched from {patched[step]}: it is not computed in this run (activation patching)."
        # Patched queries, keys and values are recorded as such: there is nothing to compare them with.
        value = work.number_at("patched_weights", row, column) if step == WEIGHTS else work.value
        return work.stated(value, words, f"from {patched[step]}")

    def python(self, edits: ByHand, step: str, lines: list[str]) -> list[str]:
        """A line that assigns the weights of the other run."""
        return [f"{step} = patched_weights"] if step == WEIGHTS and edits.takes(step) else lines

    def output_python(self, edits: ByHand, z: str) -> str:
        """An expression of the patched output."""
        return z.replace(HEAD_OUTPUT, "patched_head_output") if edits.takes(HEAD_OUTPUT) else z
