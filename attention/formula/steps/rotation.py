"""Queries and keys that are turned by their positions (RoPE)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.formula import names
from attention.formula.inline import defined
from attention.formula.positions import BASE, partner, rotated
from attention.formula.steps.step import Step, Steps, StepWork, Writer, called, pairs_of
from attention.formula.work import E_co
from attention.printed import product, shown

if TYPE_CHECKING:
    from torch import Tensor

_EQUATION = r"{0}_{{p,i}} = {1}_{{p,i}} \cos(p\,\theta_i) \mp {1}_{{p,i \pm d_k/2}} \sin(p\,\theta_i)"


@dataclass(frozen=True, repr=False)
class Rotation(Step):
    """A step of which every pair of columns is turned by an angle that grows with the position."""

    @property
    def before(self) -> str:
        """The step that is turned."""
        return self.of[0].names[0]

    @property
    def by_formula(self) -> bool:
        """It is."""
        return True

    def available(self, layer: Steps) -> bool:
        """Where there is the step that is turned."""
        return self.before in layer.holds

    def compute(self, layer: Steps, head: int | None) -> Tensor:
        """All heads or one."""
        assert layer.formula is not None
        whole = rotated(layer[self.before], layer.formula.rotary or BASE)
        return whole if head is None else whole[head]

    def explain(self, work: StepWork[E_co]) -> E_co:
        """Two columns of a row, turned by an angle."""
        row, column = work.cell.row, work.cell.column
        vector = work.row_of(self.before, row).double().tolist()
        half, base = len(vector) // 2, work.formula.rotary or BASE
        pair, first = column % half, column < half
        angle = row * base ** (-2 * pair / len(vector))
        other = partner(column, len(vector))
        factors = [(vector[column], math.cos(angle)), (vector[other], -math.sin(angle) if first else math.sin(angle))]
        sign = "-" if first else "+"
        symbols = work.symbol(self.before, row, column), work.symbol(self.before, row, other)
        formula = rf"{symbols[0]} \cos({row}\,\theta_{{{pair}}}) {sign} {symbols[1]} \sin({row}\,\theta_{{{pair}}})"
        return work.summed(
            [a * b for a, b in factors],
            lambda i, digits: product(*factors[i], digits),
            formula,
            f"Columns {pair} and {pair + half} are a pair, turned by position {row} times θ = {shown(base ** (-2 * pair / len(vector)))}: "
            f"by {shown(angle)} radians. A score then depends on how far two positions are apart.",
            lambda i: (work.cell_of(self.before, row, (column, other)[i]),),
        )

    def python(self, writer: Writer) -> list[str]:
        """The function that turns rows, before the first step that it turns, and its call."""
        lines = defined(rotated) if self.before == names.QUERY else []
        return [*lines, f"{self.name} = rotated({self.before}, {writer.formula.rotary!r})"]


# fmt: off
ROTATED_QUERY = Rotation(
    names.ROTATED_QUERY, "Q′", "Q'", ("head", "query_pos", "d_k"), "Q, turned by its positions", "signed",
    equation=_EQUATION.format("Q'", "Q"), unknown="The rotated_query as the source recorded it; what made it is not known.",
    when="rotary", knobs=("rotary",), example=(("rotary", BASE),), of=(pairs_of(names.QUERY),),
    elsewhere=called(lens="hook_rot_q", transformers="q_embed"))
ROTATED_KEY = Rotation(
    names.ROTATED_KEY, "K′", "K'", ("kv_head", "key_pos", "d_k"), "K, turned by its positions", "signed",
    equation=_EQUATION.format("K'", "K"), unknown="The rotated_key as the source recorded it; what made it is not known.",
    when="rotary", knobs=("rotary",), example=(("rotary", BASE),), of=(pairs_of(names.KEY),),
    elsewhere=called(lens="hook_rot_k", transformers="k_embed"))
# fmt: on
