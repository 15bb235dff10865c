"""Edits of a head inside a model: cells that are set, steps that are patched from another run, ablation.

`attention.formula.patching` computes their effect, kind by kind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from attention.formula.names import HEAD_OUTPUT

OTHER = "the other state"
UNCHANGED = "the unchanged model"


class SetCell(NamedTuple):
    """One cell that the user sets.

    Attributes:
        step: "scores" (the input of the softmax) or "weights" (its output).
        query: the row; `key` is the column.
        value: the new value.
        rescaled: for weights, whether the other weights of the row are rescaled so that the row keeps its sum.
    """

    step: str
    query: int
    key: int
    value: float
    rescaled: bool = False


@dataclass(frozen=True)
class ByHand:
    """Edits of a head that are not knobs of its formula; by default none.

    Attributes:
        cells: cells of scores (the input of the softmax) or weights that are set.
        taken: patched steps, each with the run that they come from, such as ("value", "the other state").
        silence: "zero" or "mean" ablation; empty: the head is not ablated.
        strength: of the ablation, from 0 (no effect) to 1.
    """

    cells: tuple[SetCell, ...] = ()
    taken: tuple[tuple[str, str], ...] = ()
    silence: str = ""
    strength: float = 1.0

    @property
    def keeps(self) -> bool:
        """Whether the head's output is replaced before W_O."""
        return bool(self.silence) or self.takes(HEAD_OUTPUT)

    @property
    def formula(self) -> str:
        """The formula of the patched output, as plain text."""
        z = f"Z of {dict(self.taken)[HEAD_OUTPUT]}" if self.takes(HEAD_OUTPUT) else "Z"
        if not self.silence:
            return z
        rest = "" if self.strength == 1 else f"{1 - self.strength:.4g} {z}"
        if self.silence == "zero":
            return rest or "0, the head is silenced"
        return " + ".join(
            term for term in (rest, f"{'' if self.strength == 1 else f'{self.strength:.4g} · '}mean of {z}") if term
        )

    def takes(self, step: str) -> bool:
        """Whether a step is patched from another run."""
        return step in dict(self.taken)

    def taking(self, step: str, run: str) -> ByHand:
        """These edits, with a step patched from another run."""
        return replace(self, taken=tuple({**dict(self.taken), step: run}.items()))
