"""Queries and keys rotated by their positions (RoPE)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.core import names
from attention.core.explainer import E_co
from attention.core.inline import defined
from attention.core.positions import BASE, paired_column, rotate
from attention.core.step import LayerView, ProgramWriter, Step, StepContext, called, pairs_of
from attention.printed import format_number, product

if TYPE_CHECKING:
    from torch import Tensor

_EQUATION = r"{0}_{{p,i}} = {1}_{{p,i}} \cos(p\,\theta_i) \mp {1}_{{p,i \pm d_k/2}} \sin(p\,\theta_i)"


@dataclass(frozen=True, repr=False)
class Rotation(Step):
    """Steps Q′ and K′: every pair of columns rotated by an angle that grows with the position."""

    @property
    def rotated_step(self) -> str:
        """The name of the step that is rotated."""
        return self.of[0].names[0]

    @property
    def by_formula(self) -> bool:
        """True."""
        return True

    def available(self, layer: LayerView) -> bool:
        """Whether the layer has the step that is rotated."""
        return self.rotated_step in layer.available

    def compute(self, layer: LayerView, head: int | None) -> Tensor:
        """The rotated step of all heads or of one."""
        assert layer.formula is not None
        result = rotate(layer[self.rotated_step], layer.formula.rotary or BASE)
        return result if head is None else result[head]

    def explain(self, work: StepContext[E_co]) -> E_co:
        """The rotation of two columns of a row."""
        row, column = work.cell.row, work.cell.column
        vector = work.row_of(self.rotated_step, row).double().tolist()
        half, base = len(vector) // 2, work.formula.rotary or BASE
        pair, first = column % half, column < half
        angle = row * base ** (-2 * pair / len(vector))
        other_column = paired_column(column, len(vector))
        factors = [
            (vector[column], math.cos(angle)),
            (vector[other_column], -math.sin(angle) if first else math.sin(angle)),
        ]
        sign = "-" if first else "+"
        symbols = (
            work.element_tex(self.rotated_step, row, column),
            work.element_tex(self.rotated_step, row, other_column),
        )
        formula = rf"{symbols[0]} \cos({row}\,\theta_{{{pair}}}) {sign} {symbols[1]} \sin({row}\,\theta_{{{pair}}})"
        return work.from_sum(
            [a * b for a, b in factors],
            lambda i, digits: product(*factors[i], digits),
            formula,
            f"Columns {pair} and {pair + half} are a pair, rotated by position {row} times θ = {format_number(base ** (-2 * pair / len(vector)))}: "
            f"by {format_number(angle)} radians. Scores then depend on the distance of two positions.",
            lambda i: (work.cell_of(self.rotated_step, row, (column, other_column)[i]),),
        )

    def python(self, writer: ProgramWriter) -> list[str]:
        """A call of the rotation; the first one defines the function."""
        lines = defined(rotate) if self.rotated_step == names.QUERY else []
        return [*lines, f"{self.name} = rotate({self.rotated_step}, {writer.formula.rotary!r})"]


# fmt: off
ROTATED_QUERY = Rotation(
    names.ROTATED_QUERY, "Q′", "Q'", ("head", "query_pos", "d_k"), "Q, rotated by its positions", "signed",
    equation=_EQUATION.format("Q'", "Q"), unknown="The rotated_query as the source recorded it; what made it is not known.",
    when="rotary", knobs=("rotary",), example=(("rotary", BASE),), of=(pairs_of(names.QUERY),),
    elsewhere=called(lens="hook_rot_q", transformers="q_embed"))
ROTATED_KEY = Rotation(
    names.ROTATED_KEY, "K′", "K'", ("kv_head", "key_pos", "d_k"), "K, rotated by its positions", "signed",
    equation=_EQUATION.format("K'", "K"), unknown="The rotated_key as the source recorded it; what made it is not known.",
    when="rotary", knobs=("rotary",), example=(("rotary", BASE),), of=(pairs_of(names.KEY),),
    elsewhere=called(lens="hook_rot_k", transformers="k_embed"))
# fmt: on
