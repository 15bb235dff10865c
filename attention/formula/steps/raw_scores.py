"""The scores: every query compared with every key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.formula import names
from attention.formula.scores import SCORES as WAYS
from attention.formula.steps.axis import MAP_AXES
from attention.formula.steps.maps import Map, formula_of, of_queries
from attention.formula.steps.products import Product
from attention.formula.steps.step import Factor, Steps, StepWork, Writer, called, rows_of
from attention.formula.work import E_co

if TYPE_CHECKING:
    from attention.formula.axes import Scores
    from attention.formula.formula import Formula


@dataclass(frozen=True, repr=False)
class RawScores(Product, Map):
    """Before anything is done to them; how they are made is an entry of `attention.formula.scores.SCORES`."""

    def formula_in(self, formula: Formula) -> str:
        """That of the score."""
        return WAYS[formula.score].formula

    def available(self, layer: Steps) -> bool:
        """Where there are queries and keys."""
        return names.QUERY in layer.holds and names.KEY in layer.holds

    def make(self, layer: Steps, before: Scores | None, heads: slice, rows: slice) -> Scores:
        """As the formula's score compares queries and keys."""
        formula = formula_of(layer)
        sides = (names.ROTATED_QUERY, names.ROTATED_KEY) if formula.rotary else (names.QUERY, names.KEY)
        query, key = (layer[name] for name in sides)
        way = WAYS[formula.score]
        own = layer[way.parameter][heads] if way.parameter else None
        return way.scores(query[heads, rows], of_queries(layer, key, heads), own)

    def words_of(self, work: StepWork[E_co], left: str) -> str:
        """Those of the score."""
        return WAYS[work.formula.score].told.format(row=work.cell.row, column=work.cell.column)

    def multiplied(self, work: StepWork[E_co], factors: list[tuple[Factor, str]]) -> E_co:
        """A row of Q and a row of K, as the score compares them."""
        way = WAYS[work.formula.score]
        if way.how == "product":
            return super().multiplied(work, factors)
        return way.explain(work, factors[0][1], factors[1][1])

    def python(self, writer: Writer) -> list[str]:
        """The lines of the score."""
        query, key = (names.ROTATED_QUERY, names.ROTATED_KEY) if writer.formula.rotary else (names.QUERY, names.KEY)
        return list(WAYS[writer.formula.score].python(query, writer.shared(key), writer.product()))


SCORES = RawScores(
    names.SCORES, "S", "S", MAP_AXES, "Q Kᵀ", "signed", equation=r"S = Q K^{\top}", knobs=("score",),
    unknown="The score as it was given: no query and key made it.", in_page="head",
    of=(rows_of(names.ROTATED_QUERY, names.QUERY), Factor((names.ROTATED_KEY, names.KEY), row="column")),
    elsewhere=called(transformers="attn_weights", jax="logits", n1="W", n2="weights", n3="scores", n5="sims"),
)  # fmt: skip
