"""What was done by hand to heads inside their model, as a value: cells that are set, what was taken from elsewhere, what was silenced.

What that does to the numbers, `attention.formula.patching` says, kind by kind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from attention.formula.names import HEAD_OUTPUT

OTHER = "the other state"
UNCHANGED = "the unchanged model"


class SetCell(NamedTuple):
    """One cell that is set by hand.

    Attributes:
        step: "scores": as they enter the softmax; "weights": after it.
        query: its row, `key` its column.
        value: what it becomes.
        rescaled: of a weight, whether the rest of its row is rescaled so that the row sums to what it did.
    """

    step: str
    query: int
    key: int
    value: float
    rescaled: bool = False


@dataclass(frozen=True)
class ByHand:
    """What was done to a head beside turning its formula; by default nothing.

    Attributes:
        cells: of scores, as they enter the softmax, or of weights, that are set.
        taken: the steps that come from elsewhere, each with where from, such as ("value", "the other state").
        silence: "zero" or "mean", by `strength`; empty: it is not silenced.
    """

    cells: tuple[SetCell, ...] = ()
    taken: tuple[tuple[str, str], ...] = ()
    silence: str = ""
    strength: float = 1.0

    @property
    def keeps(self) -> bool:
        """Whether what goes on of the head's output is another than it made."""
        return bool(self.silence) or self.takes(HEAD_OUTPUT)

    @property
    def formula(self) -> str:
        """How what goes on is made of the head's output, plain text."""
        z = f"Z of {dict(self.taken)[HEAD_OUTPUT]}" if self.takes(HEAD_OUTPUT) else "Z"
        if not self.silence:
            return z
        rest = "" if self.strength == 1 else f"{1 - self.strength:.4g} {z}"
        if self.silence == "zero":
            return rest or "0, the head is silenced"
        return " + ".join(
            one for one in (rest, f"{'' if self.strength == 1 else f'{self.strength:.4g} · '}mean of {z}") if one
        )

    def takes(self, step: str) -> bool:
        """Whether a step comes from elsewhere."""
        return step in dict(self.taken)

    def taking(self, step: str, whose: str) -> ByHand:
        """With a step from elsewhere."""
        return replace(self, taken=tuple({**dict(self.taken), step: whose}.items()))
