"""The steps after the scores: weights, dropout, the heads' outputs, also ablated or patched, and the output."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from attention.base.printed import Arithmetic, Printed, format_number, number, quotient
from attention.formula import edit_kinds, names
from attention.formula.dropout import Dropout
from attention.formula.explainer import E_co
from attention.formula.formula import HeadEdits
from attention.formula.functions import join_heads, mix_values, project_output
from attention.formula.inline import inlined
from attention.formula.names import MAP_AXES, Cell
from attention.formula.normalizers import NORMALIZERS, Row
from attention.formula.score_steps import (
    ALL,
    MASKED_SCORES,
    MapStep,
    formula_of,
    hider_of,
    hides,
    maps_of,
    repeat_kv,
    require_previous,
)
from attention.formula.scores import BIASES, by_blocks
from attention.formula.step import (
    Factor,
    LayerView,
    ProgramWriter,
    Step,
    StepContext,
    called,
    cells_of,
    columns_of,
    recorded,
    rows_of,
)
from attention.formula.steps_before_scores import Product

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.formula import Formula
    from attention.formula.tensor_types import Scores


@dataclass(frozen=True, repr=False)
class _NormalizedWeights(MapStep):
    """Step A: the weights; the normalizer is an entry of `attention.formula.normalizers.NORMALIZERS`."""

    def formula_in(self, formula: Formula) -> str:
        if formula.head_edits.is_patched(self.name):
            return f"A of {dict(formula.head_edits.patches)[self.name]}"
        return NORMALIZERS[formula.normalizer].formula if formula.normalizer else self.formula

    def compute_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        import torch

        formula, scores = formula_of(layer), require_previous(previous)
        normalizer = NORMALIZERS[formula.normalizer]
        if normalizer.parameter:
            normalizer = normalizer.bind(layer[normalizer.parameter][heads])
        if layer.temperature != 0 or formula.cap:  # capped scores stay finite at temperature 0
            return by_blocks(normalizer.weights, scores)
        if not formula.bias:
            return by_blocks(normalizer.limit, scores, torch.zeros_like(scores))
        # The scores decide, and the bias only among the largest, so compute the scores without it.
        unbiased, maps = None, maps_of(layer)
        for step in maps[: [step.name for step in maps].index(names.BIASED_SCORES)]:
            unbiased = step.resolve_block(layer, unbiased, heads, rows)
        bias = BIASES[formula.bias].bias(layer, heads, rows)
        unbiased = require_previous(unbiased).masked_fill(
            bias == -math.inf, -math.inf
        )  # keys that the bias hides stay hidden
        return by_blocks(normalizer.limit, MASKED_SCORES.patched_block(layer, unbiased, heads, rows), bias)

    def explain(self, work: StepContext[E_co]) -> E_co:
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


WEIGHTS = _NormalizedWeights(
    names.WEIGHTS, "A", "A", MAP_AXES, "softmax of M over key_pos", "probability",
    equation=r"A_{ij} = \frac{e^{M_{ij}}}{\sum_{l} e^{M_{il}}}", unknown=recorded(names.WEIGHTS),
    when="normalizer", knobs=("normalizer",), of=(cells_of(names.MASKED_SCORES),), masked=True, in_page="head",
    elsewhere=called(
        lens="hook_pattern", transformers="attn_weights, attentions, attention_probs, attn_probs", jax="probs", timm="attn", torch="attn_output_weights", bertviz="attention",
        n1="W, W2", n2="weights", n3="weights", n4="attn_probs", n5="attention_percents"),
)  # fmt: skip


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


@dataclass(frozen=True, repr=False)
class _DroppedWeights(MapStep):
    """Step D: the weights after the dropout of the formula's `attention.formula.dropout.Dropout`."""

    def formula_in(self, formula: Formula) -> str:
        return formula.dropping.formula

    def compute_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        return formula_of(layer).dropping.weights(layer, require_previous(previous), heads, rows)

    def explain(self, work: StepContext[E_co]) -> E_co:
        row, column, dropping = work.cell.row, work.cell.column, work.formula.dropping
        weight, symbol = work.number_at(names.WEIGHTS, row, column), work.element_tex(names.WEIGHTS, row, column)
        ones = work.row_of(names.WEIGHTS, row).new_ones(1, 1, work.layer.sizes["key_pos"])
        head, rows = slice(work.cell.head, work.cell.head + 1), slice(row, row + 1)
        multiplier = float(dropping.weights(work.layer, ones, head, rows)[0, 0, column])
        arithmetic = dropping.arithmetic(symbol, weight, row, column, hides(work, column), multiplier)
        return work.from_arithmetic(arithmetic, (work.cell_of(names.WEIGHTS, row, column),))

    def python(self, writer: ProgramWriter) -> list[str]:
        return writer.formula.dropping.python(writer.previous)


DROPPED_WEIGHTS = _DroppedWeights(
    names.DROPPED_WEIGHTS, "D", "D", MAP_AXES, "A, a share of it dropped, the rest divided by 1 − dropout", "probability",
    equation=r"D_{ij} = \begin{cases} 0 & \text{dropped} \\ A_{ij} / (1 - \text{dropout}) & \text{kept} \end{cases}",
    unknown=recorded(names.DROPPED_WEIGHTS), when="dropping", knobs=("dropping",), example=(("dropping", Dropout(0.3)),), of=(cells_of(names.WEIGHTS),),
    masked=True,
    elsewhere=called(transformers="attn_weights", torch="attn_output_weights", n4="dropout(attn_probs)"),
)  # fmt: skip


_AXES = ("head", "query_pos", "d_v")


@dataclass(frozen=True, repr=False)
class _HeadOutput(Product):
    """Step Z: for each head and query, the values weighted by the weights."""

    @property
    def by_formula(self) -> bool:
        return True

    def available(self, layer: LayerView) -> bool:
        return names.VALUE in layer.available and layer.has(names.SCORES)

    def compute(self, layer: LayerView, head: int | None) -> Tensor:
        z = mix_values(layer[maps_of(layer)[-1].name], repeat_kv(layer, layer[names.VALUE], ALL))
        return z if head is None else z[head]

    def describe(self, work: StepContext[E_co], left: str) -> str:
        share = "score" if left == names.SCORES else "weight"
        words = self.words.format(row=work.cell.row, share=share)
        return f"{words} There is no softmax." if left == names.SCORES else words

    def python(self, writer: ProgramWriter) -> list[str]:
        value = writer.repeated_for_groups(names.VALUE)
        (line,) = inlined(
            mix_values,
            self.name,
            weights=writer.previous,
            value=value,
            times=writer.product_function() or "torch.matmul",
        )
        return [f"{line}  # [head query_pos d_v]"]


@dataclass(frozen=True, repr=False)
class _PatchedOutput(Step):
    """Step Z′: the heads' outputs after ablation and patching, as they enter W_O."""

    @property
    def by_formula(self) -> bool:
        return True

    def formula_in(self, formula: Formula) -> str:
        return self.formula if formula.heads else formula.head_edits.output_formula

    def available(self, layer: LayerView) -> bool:
        return layer.has(names.HEAD_OUTPUT)

    def compute(self, layer: LayerView, head: int | None) -> Tensor:
        import torch

        formula = formula_of(layer)
        outputs, other = layer[names.HEAD_OUTPUT], layer.recorded.get("patched_head_output")
        patched = [
            edit_kinds.patched_output(formula.for_head(i).head_edits, z, None if other is None else other[i])
            for i, z in enumerate(outputs)
        ]
        return torch.stack(patched) if head is None else patched[head]

    def explain(self, work: StepContext[E_co]) -> E_co:
        words = "No intervention on this head: its output enters W_O unchanged."
        return work.from_copy(names.HEAD_OUTPUT, work.cell.row, work.cell.column, words, "unchanged, no intervention")

    def python(self, writer: ProgramWriter) -> list[str]:
        lines = [f"{self.name} = {names.HEAD_OUTPUT}.clone()  # [head query_pos d_v]"]
        for head in range(writer.layer.n_heads):
            edits, z = writer.formula.for_head(head).head_edits, f"{names.HEAD_OUTPUT}[{head}]"
            lines += [f"{self.name}[{head}] = {edit_kinds.output_python(edits, z)}"] if edits.patches_output else []
        return lines


@dataclass(frozen=True, repr=False)
class _Output(Product):
    """Step O: the heads side by side, times W_O."""

    def available(self, layer: LayerView) -> bool:
        return "w_o" in layer.available and layer.has(names.HEAD_OUTPUT)

    def compute(self, layer: LayerView, head: int | None) -> Tensor:
        z = layer[names.PATCHED_OUTPUT if layer.has(names.PATCHED_OUTPUT) else names.HEAD_OUTPUT]
        return project_output(z, layer["w_o"], layer["b_o"] if layer.has("b_o") else None)

    def describe(self, work: StepContext[E_co], left: str) -> str:
        return self.words.format(row=work.cell.row, column=work.cell.column)

    def python(self, writer: ProgramWriter) -> list[str]:
        z = names.PATCHED_OUTPUT if writer.layer.has(names.PATCHED_OUTPUT) else names.HEAD_OUTPUT
        (line,) = inlined(
            join_heads, self.name, head_output=z, w_o="w_o", times=writer.product_function() or "torch.matmul"
        )
        return ["# [query_pos d_model], the heads side by side", f"{line}{' + b_o' if writer.layer.has('b_o') else ''}"]


# fmt: off
HEAD_OUTPUT = _HeadOutput(
    names.HEAD_OUTPUT, "Z", "Z", _AXES, "A V", "signed", equation="Z = A V",
    words="The values of all keys, each times its {share} for query {row}, added up.", unknown=recorded(names.HEAD_OUTPUT),
    of=(rows_of(names.DROPPED_WEIGHTS, names.WEIGHTS, names.SCORES), columns_of(names.VALUE)), in_page="whole",
    elsewhere=called(
        lens="hook_z", transformers="attn_output", jax="encoded", n1="Y, Y2", n2="out", n3="attention", n4="A",
        n5="res, attension_scores"))
PATCHED_OUTPUT = _PatchedOutput(
    names.PATCHED_OUTPUT, "Z′", "Z'", _AXES, "Z after ablation and patching", "signed",
    equation=r"Z' = (1 - \text{strength})\, Z + \text{strength} \cdot \text{its mean, or } 0",
    unknown=recorded(names.PATCHED_OUTPUT), when="patches_output", example=(("head_edits", HeadEdits(ablation="mean", strength=0.5)),), of=(cells_of(names.HEAD_OUTPUT),))
OUTPUT = _Output(
    names.OUTPUT, "O", "O", ("query_pos", "d_model"), "concat(Z) W_O", "signed", equation=r"O = \text{concat}(Z)\, W_O",
    words="The heads' outputs for query {row}, side by side, times column {column} of W_O.",
    unknown="The output as the source recorded it; its W_O is not known.", bias="b_o", in_page="whole",
    of=(
        Factor((names.PATCHED_OUTPUT, names.HEAD_OUTPUT), row="row", concatenated=True),
        Factor(("w_o",), column="column", concatenated=True)),
    elsewhere=called(lens="hook_attn_out", transformers="attn_output", torch="attn_output", n4="output"))
# fmt: on
