"""What was done by hand to heads inside their model, as a value: cells that are set, what was taken from elsewhere, what was silenced."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attention.formula.intervention import Intervention, SetCell

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.axes import Scores

OTHER = "the other state"
UNCHANGED = "the unchanged model"


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
        return bool(self.silence) or self.takes("head_output")

    @property
    def shares(self) -> bool:
        """Whether its weights are others than its formula makes of its scores."""
        return bool(self.cells) or self.takes("weights")

    @property
    def formula(self) -> str:
        """How what goes on is made of the head's output, plain text."""
        z = f"Z of {dict(self.taken)['head_output']}" if self.takes("head_output") else "Z"
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

    def with_(self, one: Intervention) -> ByHand:
        """With one more change; of two that contradict each other the later holds."""
        found = replace(self, cells=(*self.cells, *one.cells))
        if one.take:
            found = found.taking(one.take, OTHER)
        return replace(found, silence=one.silence, strength=one.strength) if one.silence else found

    def taking(self, step: str, whose: str) -> ByHand:
        """With a step from elsewhere."""
        return replace(self, taken=tuple({**dict(self.taken), step: whose}.items()))

    def kept(self, head_output: Tensor, taken: Tensor | None) -> Tensor:
        """What goes on of a head's output [query_pos d_v]: Z′ = (1 − strength) Z + strength · mean of Z, or of 0."""
        z = head_output if taken is None or not self.takes("head_output") else taken
        if not self.silence:
            return z
        rest = (1 - self.strength) * z
        return rest + self.strength * z.mean(dim=-2, keepdim=True) if self.silence == "mean" else rest

    def set(self, step: str, made: Scores, rows: slice) -> Scores:
        """Scores or weights of this head [… query_pos key_pos], from row `rows.start` on, with the cells that are set."""
        first = rows.start or 0
        there = {cell.query for cell in self.cells if cell.step == step and 0 <= cell.query - first < made.shape[-2]}
        if not there:
            return made
        made = made.clone()
        for query in there:
            row, cells = made[..., query - first, :], [c for c in self.cells if (c.step, c.query) == (step, query)]
            total, others = row.sum(dim=-1, keepdim=True), row.clone()
            for cell in cells:
                others[..., cell.key] = 0
            if step == "weights" and any(cell.rescaled for cell in cells):
                left = (total - sum({cell.key: cell.value for cell in cells}.values())).clamp_min(0)
                row.mul_(left / others.sum(dim=-1, keepdim=True).clamp_min(1e-30))
            for cell in cells:
                row[..., cell.key] = cell.value
        return made
