"""The weights: the masked scores after the normalizer, such as the softmax."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from attention.core import names
from attention.core.axes import MAP_AXES
from attention.core.biases import BIASES
from attention.core.cell import Cell
from attention.core.explainer import E_co
from attention.core.normalizers import NORMALIZERS
from attention.core.normalizers.normalizer import Row
from attention.core.step import LayerView, ProgramWriter, StepContext, called, cells_of, recorded
from attention.core.steps.maps import MapStep, formula_of, maps_of, require_previous
from attention.core.steps.masked import MASKED_SCORES, hider_of
from attention.printed import Arithmetic, Printed, format_number, number, quotient

if TYPE_CHECKING:
    from attention.core.formula import Formula
    from attention.core.tensor_types import Scores


@dataclass(frozen=True, repr=False)
class NormalizedWeights(MapStep):
    """Step A: the weights; the normalizer is an entry of `attention.core.normalizers.NORMALIZERS`."""

    def formula_in(self, formula: Formula) -> str:
        """The formula of the normalizer, or the other run of patched weights."""
        if formula.head_edits.is_patched(self.name):
            return f"A of {dict(formula.head_edits.patches)[self.name]}"
        return NORMALIZERS[formula.normalizer].formula if formula.normalizer else self.formula

    def compute_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        """The weights of the formula's normalizer; at temperature 0 its limit."""
        import torch

        formula, scores = formula_of(layer), require_previous(previous)
        normalizer = NORMALIZERS[formula.normalizer]
        if normalizer.parameter:
            normalizer = normalizer.bind(layer[normalizer.parameter][heads])
        if layer.temperature != 0 or formula.cap:  # capped scores stay finite at temperature 0
            return normalizer.weights(scores)
        if not formula.bias:
            return normalizer.limit(scores, torch.zeros_like(scores))
        # The scores decide, and the bias only among the largest, so compute the scores without it.
        unbiased, maps = None, maps_of(layer)
        for step in maps[: [step.name for step in maps].index(names.BIASED_SCORES)]:
            unbiased = step.resolve_block(layer, unbiased, heads, rows)
        bias = BIASES[formula.bias].bias(layer, heads, rows)
        unbiased = require_previous(unbiased).masked_fill(
            bias == -math.inf, -math.inf
        )  # keys that the bias hides stay hidden
        return normalizer.limit(MASKED_SCORES.patched_block(layer, unbiased, heads, rows), bias)

    def explain(self, work: StepContext[E_co]) -> E_co:
        """The weight that the normalizer gives this key."""
        row, column, formula = work.cell.row, work.cell.column, work.formula
        if not work.layer.has(names.MASKED_SCORES):
            return work.as_recorded()
        masked = work.row_of(names.MASKED_SCORES, row).double().tolist()
        parameter = NORMALIZERS[formula.normalizer].parameter
        sink = float(work.layer[parameter][work.cell.head]) if parameter else 0.0
        scores = Row(masked, column, work.indices_tex(row, column), work.indices_tex(row, "j"), sink)
        came_from = (work.cell_of(names.MASKED_SCORES, row, column),)
        if not scores.visible:
            hiders = {hider_of(work, key) for key in range(len(masked))}
            hides = " or the ".join(sorted(hiders, reverse=True)) if all(hiders) else ""
            hiding = f"The {hides} hides every key from query {row}" if hides else f"Every score of query {row} is −∞"
            words = f"{hiding}: no key is visible, so the weight is 0."
            return work.from_claim(
                0.0, words, f"the {hides} hides every key" if hides else "every score is −∞", came_from
            )
        hider = hider_of(work, column)
        hiding, reason = "", ""
        if column not in scores.visible:
            hiding, reason = "Its score is −∞, so its weight is 0. ", "its score is −∞"
            if hider:
                reason = f"hidden by the {hider}"
                hiding = f"The {hider} hides key {column} from query {row}: its score is −∞, so its weight is 0. "
        if work.layer.temperature == 0 and not formula.cap:
            return self._explain_limit(work, scores, hiding, reason, came_from)
        arithmetic = NORMALIZERS[formula.normalizer].arithmetic(scores)
        words = hiding + arithmetic.words
        return work.from_arithmetic(replace(arithmetic, words=words, reason=reason or arithmetic.reason), came_from)

    def _explain_limit(
        self, work: StepContext[E_co], row: Row, hiding: str, reason: str, came_from: tuple[Cell, ...]
    ) -> E_co:
        """The arithmetic of a weight at temperature 0."""
        formula, highest, cell = work.formula, max(row.scores), work.cell
        if not NORMALIZERS[formula.normalizer].argmax or formula.bias:
            words = f"{hiding}Temperature 0 is the limit of ever smaller temperatures: only the order and the sign of the scores matter."
            head, rows = slice(cell.head, cell.head + 1), slice(cell.row, cell.row + 1)
            (limit,) = work.layer.without(self.name).blocks(self.name, heads=head, rows=rows)
            return work.from_claim(float(limit[0, 0, cell.column]), words, "the limit of temperature 0", came_from)
        winners = [j for j in row.visible if row.scores[j] == highest]
        wins, n_winners = float(row.column in winners), float(len(winners))

        def line(digits: int) -> Printed:
            return quotient(number(wins, digits), Printed(f"{len(winners)}", f"{len(winners)}", Decimal(len(winners))))

        words = f"{hiding}Temperature 0 is argmax: the largest score, {format_number(highest)}, gets all the weight"
        words += f", shared by {len(winners)} keys." if len(winners) > 1 else "."
        reason = "" if wins else reason or "not the largest score"
        return work.from_arithmetic(
            Arithmetic("", [line], [line], words, [wins, n_winners], "quotient", reason=reason), came_from
        )

    def python(self, writer: ProgramWriter) -> list[str]:
        """Lines of the normalizer, or of its limit at temperature 0; a query that sees no key has only zeros."""
        layer, formula = writer.layer, writer.formula
        lines = list(NORMALIZERS[formula.normalizer].python(names.MASKED_SCORES))
        if layer.temperature == 0 and not formula.cap:
            lines = _limit(writer)
        if formula.bias == "given" and bool((layer[names.MASKED_SCORES] == -math.inf).all(dim=-1).any()):
            lines += ["blind = (masked_scores == -math.inf).all(dim=-1, keepdim=True)"]
            lines += ["weights = weights.masked_fill(blind, 0)  # a query that sees no key has zero weights"]
        elif layer.has("mask") and not bool(layer["mask"].any(dim=-1).all()):
            lines += ["weights = weights.masked_fill(~mask, 0)  # a query that sees no key has zero weights"]
        return lines


def _limit(writer: ProgramWriter) -> list[str]:
    """Lines of the limit at temperature 0, where a bias decides among the highest scores."""
    formula, normalizer = writer.formula, NORMALIZERS[writer.formula.normalizer]
    if normalizer.argmax and not formula.bias:
        return [
            "# temperature 0: the largest score gets all the weight, ties share it",
            "largest = (masked_scores == masked_scores.amax(dim=-1, keepdim=True)).to(masked_scores.dtype)",
            "weights = largest / largest.sum(dim=-1, keepdim=True)",
        ]
    lines = ["# temperature 0: the scores decide, and a bias only among the largest"]
    if not formula.bias:
        return [*lines, *normalizer.limit_python(names.MASKED_SCORES, "torch.zeros_like(masked_scores)")]
    unbiased = names.SCALED_SCORES if writer.layer.has(names.SCALED_SCORES) else names.SCORES
    lines += [f"unbiased = {unbiased}.masked_fill(masked_scores == -math.inf, -math.inf)"]
    return [*lines, *normalizer.limit_python("unbiased", "bias")]


WEIGHTS = NormalizedWeights(
    names.WEIGHTS, "A", "A", MAP_AXES, "softmax of M over key_pos", "probability",
    equation=r"A_{ij} = \frac{e^{M_{ij}}}{\sum_{l} e^{M_{il}}}", unknown=recorded(names.WEIGHTS),
    when="normalizer", knobs=("normalizer",), of=(cells_of(names.MASKED_SCORES),), masked=True, in_page="head",
    elsewhere=called(
        lens="hook_pattern", transformers="attn_weights", jax="probs", torch="attn_output_weights", bertviz="attention",
        n1="W, W2", n2="weights", n3="weights", n4="attn_probs", n5="attention_percents"),
)  # fmt: skip
