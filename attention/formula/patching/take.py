"""A step of a head that is taken from the other state."""

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
"""What may be taken from the other state, and its letter in links."""
_WORDS = {
    QUERY: "queries",
    KEY: "keys",
    VALUE: "values",
    WEIGHTS: "weights",
    HEAD_OUTPUT: "output, before W_O,",
}
_CHECKS: Checks = {"take": (lambda one: one in ("", *TAKES), f"one of {', '.join(TAKES)}, or empty")}


@dataclass(frozen=True)
class Take(Kind):
    """Activation patching. Queries, keys and values are recorded as they were taken; weights and outputs are kept beside."""

    name: str = "Take from the other state"
    term: str = "activation patching"
    fields: tuple[str, ...] = ("take",)
    pattern: str = f"take([{''.join(TAKES.values())}])"
    examples: tuple[str, ...] = tuple(f"take{letter}" for letter in TAKES.values())
    checks: Checks = field(default_factory=lambda: _CHECKS, compare=False)

    def read(self, found: re.Match[str]) -> dict[str, Any]:
        """The step."""
        return {"take": next(name for name, letter in TAKES.items() if letter == found[1])}

    def write(self, one: Change) -> str:
        """TakeQ."""
        return f"take{TAKES[one.take]}"

    def words(self, one: Change) -> str:
        """What is taken."""
        return f"its {_WORDS[one.take]} taken from the other state (activation patching)"

    def unfreezes(self, one: Change) -> bool:
        """Other queries or keys make other weights."""
        return one.take in (QUERY, KEY)

    def reaches_group(self, one: Change) -> bool:
        """Keys and values are those of all heads that share them."""
        return one.take in (KEY, VALUE)

    def on_output(self, one: Change) -> bool:
        """Where the output itself is taken."""
        return one.take == HEAD_OUTPUT

    def turn(self, formula: Formula, one: Change) -> Formula:
        """From the other state; of two that take the same step the later holds."""
        return replace(formula, by_hand=formula.by_hand.taking(one.take, OTHER))

    def compute(
        self, hand: ByHand, layer: Steps, step: str, heads: slice, rows: slice, make: Callable[[], Scores]
    ) -> Scores:
        """The weights of the other run."""
        return layer["patched_weights"][heads, rows] if step == WEIGHTS and hand.takes(step) else make()

    def output(self, hand: ByHand, z: Tensor, taken: Tensor | None) -> Tensor:
        """The output of the other run."""
        return z if taken is None or not hand.takes(HEAD_OUTPUT) else taken

    def explain(self, work: StepWork[E_co]) -> E_co | None:
        """Where it was taken from."""
        row, column, step = work.cell.row, work.cell.column, work.cell.step
        taken = dict(work.formula.by_hand.taken)
        if step == PATCHED_OUTPUT and HEAD_OUTPUT in taken:
            there = float(work.layer["patched_head_output"][work.cell.head][row, column])
            words = f"Taken from {taken[HEAD_OUTPUT]}, before W_O (activation patching)."
            return work.stated(there, words, f"from {taken[HEAD_OUTPUT]}")
        if step not in taken or step == HEAD_OUTPUT:
            return None
        words = f"Taken from {taken[step]}: nothing of this run made it (activation patching)."
        # Queries, keys and values are recorded as they were taken: there is nothing to compare them with.
        there = work.number_at("patched_weights", row, column) if step == WEIGHTS else work.value
        return work.stated(there, words, f"from {taken[step]}")

    def python(self, hand: ByHand, step: str, lines: list[str]) -> list[str]:
        """The same."""
        return [f"{step} = patched_weights"] if step == WEIGHTS and hand.takes(step) else lines

    def output_python(self, hand: ByHand, z: str) -> str:
        """The same."""
        return z.replace(HEAD_OUTPUT, "patched_head_output") if hand.takes(HEAD_OUTPUT) else z
