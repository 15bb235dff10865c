"""The steps from the scores on: maps of scores (raw, scaled, capped, biased, masked) and of weights, the heads' outputs, and the output.

A map [head query_pos key_pos] is computed from the previous map, for some heads and queries at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from attention.base.printed import Arithmetic, Printed, format_number, number, quotient
from attention.formula import edit_kinds, names
from attention.formula.dropout import Dropout
from attention.formula.explainer import E_co
from attention.formula.formula import Ablation, Formula, HeadEdits
from attention.formula.functions import (
    add_bias,
    cap_scores,
    cap_signs,
    divide_scores,
    hide_scores,
    join_heads,
    mix_values,
    project_output,
    scale_scores,
)
from attention.formula.inline import inlined
from attention.formula.mask import Mask
from attention.formula.names import MAP_AXES, Cell
from attention.formula.normalizers import NORMALIZERS, Row
from attention.formula.scores import BIASES, by_blocks
from attention.formula.scores import SCORES as SCORE_FUNCTIONS
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
from attention.formula.steps_before_scores import Product, added

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.tensor_types import Scores


ALL = slice(None)
_HEAD_OUTPUT_AXES = ("head", "query_pos", "d_v")


@dataclass(frozen=True, repr=False)
class _MapStep(Step):
    """A map [head query_pos key_pos]; `compute_block` computes it from the previous map."""

    def available(self, layer: LayerView) -> bool:
        """Whether the layer has scores."""
        return layer.has(names.SCORES)

    def compute_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        """This map for some heads and queries, from the same block of the previous map; None for the first map."""
        raise NotImplementedError(f"{self.name} has no compute_block: define how it is computed.")

    def patched_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        """The block of `compute_block` with the interventions on this step."""
        edits = formula_of(layer).head_edits
        return edit_kinds.patched_block(
            edits, layer, self.name, heads, rows, lambda: self.compute_block(layer, previous, heads, rows)
        )

    def resolve_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        """The block of this map: recorded, or computed with the formula of each head."""
        if self.name in layer.recorded:
            return layer.recorded[self.name][heads, rows]
        block = self.patched_block(layer, previous, heads, rows)
        selected = range(*heads.indices(layer.n_heads))
        patched_heads = [head for head, _ in formula_of(layer).heads if head in selected]
        block = block.clone() if patched_heads else block  # it may be the previous step, or recorded
        for head in patched_heads:
            i = slice(selected.index(head), selected.index(head) + 1)
            previous_of_head = None if previous is None else previous[i]
            block[i] = self.resolve_block(layer.for_head(head), previous_of_head, slice(head, head + 1), rows)
        return block

    def compute(self, layer: LayerView, head: int | None) -> Tensor:
        """The map of all heads or of one, from the previous map as it is cached."""
        heads = ALL if head is None else slice(head, head + 1)
        previous, maps = None, maps_of(layer)
        if index := maps.index(self):
            name = maps[index - 1].name
            previous = layer[name] if head is None else layer.matrix(name, head)[None]
        block = self.resolve_block(layer, previous, heads, ALL)
        return block if head is None else block[0]


def maps_of(layer: LayerView) -> list[_MapStep]:
    """The maps of a layer in order, each computed from the previous one; the last multiplies the values."""
    return [step for step in layer.steps if isinstance(step, _MapStep)]


def formula_of(layer: LayerView) -> Formula:
    """The formula of a layer that has one."""
    assert layer.formula is not None  # checked by the layer
    return layer.formula


def repeat_kv(layer: LayerView, tensor: Tensor, heads: slice) -> Tensor:
    """Keys or values [kv_head …] repeated for these query heads, [head …] (repeat_kv)."""
    import torch

    group = layer.n_heads // len(tensor)
    return tensor[heads] if group == 1 else tensor[torch.arange(layer.n_heads)[heads] // group]


def require_previous(previous: Scores | None) -> Scores:
    """The previous map of a map that is not the first."""
    assert previous is not None
    return previous


@dataclass(frozen=True, repr=False)
class _RawScores(Product, _MapStep):
    """Step S: the scores before scaling; the score function is an entry of `attention.formula.scores.SCORES`."""

    def formula_in(self, formula: Formula) -> str:
        return SCORE_FUNCTIONS[formula.score].formula

    def available(self, layer: LayerView) -> bool:
        return names.QUERY in layer.available and names.KEY in layer.available

    def compute_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        formula = formula_of(layer)
        sides = (names.ROTATED_QUERY, names.ROTATED_KEY) if formula.rotary else (names.QUERY, names.KEY)
        query, key = (layer[name] for name in sides)
        score = SCORE_FUNCTIONS[formula.score]
        parameter = layer[score.parameter][heads] if score.parameter else None
        return score.scores(query[heads, rows], repeat_kv(layer, key, heads), parameter)

    def describe(self, work: StepContext[E_co], left: str) -> str:
        return SCORE_FUNCTIONS[work.formula.score].cell_words.format(row=work.cell.row, column=work.cell.column)

    def explain_product(self, work: StepContext[E_co], factors: list[tuple[Factor, str]]) -> E_co:
        explanation = SCORE_FUNCTIONS[work.formula.score].explain(work, factors[0][1], factors[1][1])
        return super().explain_product(work, factors) if explanation is None else explanation

    def python(self, writer: ProgramWriter) -> list[str]:
        query, key = (names.ROTATED_QUERY, names.ROTATED_KEY) if writer.formula.rotary else (names.QUERY, names.KEY)
        return list(
            SCORE_FUNCTIONS[writer.formula.score].python(
                query, writer.repeated_for_groups(key), writer.product_function()
            )
        )


SCORES = _RawScores(
    names.SCORES, "S", "S", MAP_AXES, "Q Kᵀ", "signed", equation=r"S = Q K^{\top}", knobs=("score",),
    unknown="The score as provided: there is no query and key.", in_page="head",
    of=(rows_of(names.ROTATED_QUERY, names.QUERY), Factor((names.ROTATED_KEY, names.KEY), row="column")),
    elsewhere=called(transformers="attn_weights, attention_scores", jax="logits", n1="W", n2="weights", n3="scores", n5="sims"),
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class _ScaledScores(_MapStep):
    """Step S′: the scores over divisor · temperature."""

    def formula_in(self, formula: Formula) -> str:
        custom = formula.divisor == formula.own_divisor and f"S / ({formula.divisor:g} · temperature)"
        return "S / temperature" if formula.divisor == 1 else custom or SCORE_FUNCTIONS[formula.score].scaled

    def compute_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        return scale_scores(require_previous(previous), formula_of(layer).divisor or 1.0, layer.temperature)

    def explain(self, work: StepContext[E_co]) -> E_co:
        row, column = work.cell.row, work.cell.column
        score, divisor = work.number_at(names.SCORES, row, column), work.formula.divisor or 1.0
        temperature, d_k = work.layer.temperature, work.layer.sizes.get("d_k", 0)
        below, texts, reason, printed_temperature = list[str](), list[str](), "", number(temperature, 9)
        if d_k > 1 and math.isclose(divisor, 1 / math.sqrt(d_k)):
            below, texts, words = [rf"(1/\sqrt{{{d_k}}})"], [f"(1/√{d_k})"], "The score times √d_k"
        elif d_k > 1 and math.isclose(divisor, math.sqrt(d_k)):
            below, texts, words = [rf"\sqrt{{{d_k}}}"], [f"√{d_k}"], "The score divided by √d_k"
        elif divisor == 1:
            reason = (
                "d_k is 1, and so is √d_k" if d_k == 1 else "scaling is off" if d_k else "there is no query and key"
            )
            words = f"The score is not divided by √d_k: {reason}"
        else:
            below, texts, words = [number(divisor).tex], [number(divisor).text], "The score divided by its divisor"
        came_from, symbol = (work.cell_of(names.SCORES, row, column),), work.element_tex(names.SCORES, row, column)
        if temperature == 0:
            words += "; the division by temperature 0 is left out, and the weights are its limit."
        elif temperature == 1:
            words += "."
        else:
            words += ", and by the temperature." if texts else "; it is divided by the temperature."
            below, texts = [*below, printed_temperature.tex], [*texts, printed_temperature.text]
        if not texts:
            return work.from_copy(names.SCORES, row, column, words, f"the score itself, {reason}")
        denominator, has_root, denominator_tex = divisor * (temperature or 1.0), "√" in texts[0], r" \cdot ".join(below)

        def line(digits: int) -> Printed:
            return quotient(number(score, digits), number(denominator, digits))

        def short(digits: int) -> Printed:
            numerator, printed_divisor = number(score, digits), number(divisor, digits)
            # A root has no last digit; a temperature may be printed with fewer digits than it has.
            exact = Decimal(divisor) if has_root else printed_divisor.value
            product = " · ".join(texts if has_root or divisor == 1 else [printed_divisor.text, *texts[1:]])
            text = f"{numerator.text} / {f'({product})' if len(texts) > 1 else product}"
            return Printed("", text, numerator.value / (exact * (printed_temperature.value or 1)))

        tex, values = rf"\frac{{{symbol}}}{{{denominator_tex}}}", [score, denominator]
        return work.from_arithmetic(Arithmetic(tex, [line], [short], words, values, "quotient"), came_from)

    def python(self, writer: ProgramWriter) -> list[str]:
        layer, divisor = writer.layer, writer.formula.divisor
        lines, factors = list[str](), list[str]()
        if layer.has(names.QUERY) and divisor == math.sqrt(layer.sizes.get("d_k", 0)):
            factors += ["math.sqrt(query.shape[-1])"]  # root of d_k
        elif divisor != 1:
            factors += [repr(divisor)]
        if layer.temperature not in (0, 1):
            lines += [f"temperature = {'math.inf' if math.isinf(layer.temperature) else repr(layer.temperature)}"]
            factors += ["temperature"]
        if not factors:
            return [f"{self.name} = {writer.previous}  # not scaled"]
        return [*lines, *inlined(divide_scores, self.name, scores=writer.previous, divisor=" * ".join(factors))]


SCALED_SCORES = _ScaledScores(
    names.SCALED_SCORES, "S′", "S'", MAP_AXES, "S / (√d_k · temperature)", "signed",
    equation=r"S' = \frac{S}{\sqrt{d_k} \cdot \text{temperature}}", unknown=recorded(names.SCALED_SCORES),
    when="divisor", knobs=("divisor", "temperature"), example=(("divisor", 3.0), ("temperature", 0.5)), of=(cells_of(names.SCORES),), in_page="head",
    elsewhere=called(transformers="attn_weights, attention_scores", jax="logits", n1="W, W2", n2="weights", n4="scaled_dot_prod", n5="scaled_sims"),
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class _CappedScores(_MapStep):
    """Step C: cap · tanh(S′ / cap)."""

    def compute_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        cap, function = formula_of(layer).cap or 1.0, cap_scores if layer.temperature else cap_signs
        return by_blocks(lambda scores: function(scores, cap), require_previous(previous))

    def explain(self, work: StepContext[E_co]) -> E_co:
        row, column = work.cell.row, work.cell.column
        (_, previous), cap = work.layer.factors(self)[0], work.formula.cap or 1.0
        score = work.number_at(previous, row, column)
        came_from = (work.cell_of(previous, row, column),)
        if work.layer.temperature == 0:
            words = f"At temperature 0 every score that is not 0 becomes the cap, {format_number(cap)}, with its sign."
            return work.from_claim(
                cap * ((score > 0) - (score < 0)), words, "the cap with the sign of the score", came_from
            )

        def line(digits: int) -> Printed:
            bound, inside = number(cap, 9), quotient(number(score, digits), number(cap, 9))
            value = bound.value * Decimal(math.tanh(float(inside.value)))
            tex = rf"{bound.tex} \cdot \tanh\left({inside.tex}\right)"
            return Printed(tex, f"{bound.text}·tanh({inside.text})", value)

        words = f"The score, smoothly bounded between −{format_number(cap)} and {format_number(cap)}; small scores hardly change."
        formula = rf"\text{{cap}} \cdot \tanh({work.element_tex(previous, row, column)} / \text{{cap}})"
        return work.from_arithmetic(
            Arithmetic(formula, [line], [line], words, [cap * math.tanh(score / cap)]), came_from
        )

    def python(self, writer: ProgramWriter) -> list[str]:
        function = cap_scores if writer.layer.temperature else cap_signs
        return inlined(function, self.name, scores=writer.previous, cap=repr(writer.formula.cap))


CAPPED_SCORES = _CappedScores(
    names.CAPPED_SCORES, "C", "C", MAP_AXES, "cap · tanh(S′ / cap)", "signed",
    equation=r"C = \text{cap} \cdot \tanh(S' / \text{cap})", unknown=recorded(names.CAPPED_SCORES),
    when="cap", knobs=("cap",), example=(("cap", 1.5),), of=(cells_of(names.SCALED_SCORES, names.SCORES),), in_page="head",
    elsewhere=called(transformers="attn_weights"),
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class _BiasedScores(_MapStep):
    """The scores plus the bias, which is an entry of `attention.formula.scores.BIASES`."""

    def compute_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        return add_bias(require_previous(previous), BIASES[formula_of(layer).bias].bias(layer, heads, rows))

    def explain(self, work: StepContext[E_co]) -> E_co:
        bias = BIASES.get(work.formula.bias)
        words = f"{self.words} The bias is {bias.words}." if bias else self.words
        return added(self, work, words, {}, frozenset(("bias",)))

    def python(self, writer: ProgramWriter) -> list[str]:
        lines = BIASES[writer.formula.bias].python(writer.layer.n_heads)
        return [*lines, *inlined(add_bias, self.name, scores=writer.previous, bias="bias")]


BIASED_SCORES = _BiasedScores(
    names.BIASED_SCORES, "B", "B", MAP_AXES, "C + bias", "signed", equation=r"B = C + \text{bias}",
    words="The score plus the bias of this pair of positions.", unknown=recorded(names.BIASED_SCORES),
    when="bias", knobs=("bias",), example=(("bias", "alibi"),),
    of=(cells_of(names.CAPPED_SCORES, names.SCALED_SCORES, names.SCORES), cells_of("bias")),
    elsewhere=called(transformers="attn_weights"),
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class _MaskedScores(_MapStep):
    """Step M: the scores as they enter the normalizer."""

    def compute_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        scores = require_previous(previous)
        return hide_scores(scores, layer.mask_rows(rows)) if layer.hides_keys else scores

    def explain(self, work: StepContext[E_co]) -> E_co:
        row, column = work.cell.row, work.cell.column
        factors = (name for _, name in work.layer.factors(self))
        previous = next((name for name in factors if isinstance(work.find_declared(name), Step)), "")
        if not previous:
            return work.as_recorded("The masked score as the source recorded it; what made it is not known.")
        hider = _hider_of(work, column)
        if hider == "mask":
            words = (
                f"The mask hides key {column} from query {row}: its score becomes −∞, so its weight will be exactly 0."
            )
            came_from = (work.cell_of(previous, row, column),)
            return work.from_claim(
                -math.inf, words, "hidden by the mask", came_from, (r"-\infty \quad \text{(hidden)}",)
            )
        words = f"Nothing hides key {column} from query {row}: its score stays as it is."
        if work.value == -math.inf:
            words = f"The score is −∞ already, and stays −∞: key {column} is hidden from query {row}."
            if hider:
                words = f"The bias hides key {column} from query {row} already: its score stays −∞."
        elif work.layer.has("mask"):
            words = f"The mask lets query {row} see key {column}: its score stays as it is."
        reason = "stays as it is, the key is visible" if work.value > -math.inf else "stays as it is"
        return work.from_copy(previous, row, column, words, reason)

    def python(self, writer: ProgramWriter) -> list[str]:
        if not writer.layer.hides_keys:
            return [f"{self.name} = {writer.previous}  # nothing is hidden"]
        return [*_mask(writer), *inlined(hide_scores, self.name, scores=writer.previous, mask="mask")]


MASKED_SCORES = _MaskedScores(
    names.MASKED_SCORES, "M", "M", MAP_AXES, "B, and −∞ where the mask hides a key", "signed",
    equation=r"M_{ij} = \begin{cases} B_{ij} & \text{visible} \\ -\infty & \text{hidden} \end{cases}",
    unknown=recorded(names.MASKED_SCORES), when="normalizer", knobs=("mask",), example=(("mask", Mask("causal")),), masked=True, in_page="head",
    of=(cells_of(names.BIASED_SCORES, names.CAPPED_SCORES, names.SCALED_SCORES, names.SCORES), cells_of("mask")),
    elsewhere=called(lens="hook_attn_scores", transformers="attn_weights", jax="padded_logits", n2="weights", n4="scaled_dot_prod"),
)  # fmt: skip


def _mask(writer: ProgramWriter) -> list[str]:
    """Lines that compute the mask: by its rule, or cell by cell."""
    mask = writer.formula.mask
    rule = mask.python() if mask is not None else ""
    if mask is None or not rule:
        return writer.mask_lines()
    lines = [f"mask = {rule}  # True = may attend"]
    return [*writer.padding_lines(mask.real), *lines] if mask.real is not None else lines


def _hider_of(work: StepContext[E_co], key: int) -> str:
    """What hides a key from the query: "mask", or "bias" for a bias of −∞; empty if neither does."""
    if _hides(work, key):
        return "mask"
    return "bias" if work.layer.has("bias") and work.number_at("bias", work.cell.row, key) == -math.inf else ""


def _hides(work: StepContext[E_co], key: int) -> bool:
    """Whether the mask hides a key from the query."""
    row = work.cell.row
    return work.layer.has("mask") and not bool(work.layer.mask_rows(slice(row, row + 1))[0, key])


@dataclass(frozen=True, repr=False)
class _NormalizedWeights(_MapStep):
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
            hiders = {_hider_of(work, key) for key in range(len(masked))}
            hides = " or the ".join(sorted(hiders, reverse=True)) if all(hiders) else ""
            hiding = f"The {hides} hides every key from query {row}" if hides else f"Every score of query {row} is −∞"
            words = f"{hiding}: no key is visible, so the weight is 0."
            return work.from_claim(
                0.0, words, f"the {hides} hides every key" if hides else "every score is −∞", came_from
            )
        hider = _hider_of(work, column)
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
class _DroppedWeights(_MapStep):
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
        arithmetic = dropping.arithmetic(symbol, weight, row, column, _hides(work, column), multiplier)
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
        words = "No intervention here: the head's output enters W_O unchanged."
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
    names.HEAD_OUTPUT, "Z", "Z", _HEAD_OUTPUT_AXES, "A V", "signed", equation="Z = A V",
    words="The values of all keys, each times its {share} for query {row}, added up.", unknown=recorded(names.HEAD_OUTPUT),
    of=(rows_of(names.DROPPED_WEIGHTS, names.WEIGHTS, names.SCORES), columns_of(names.VALUE)), in_page="whole",
    elsewhere=called(
        lens="hook_z", transformers="attn_output", jax="encoded", n1="Y, Y2", n2="out", n3="attention", n4="A",
        n5="res, attension_scores"))
PATCHED_OUTPUT = _PatchedOutput(
    names.PATCHED_OUTPUT, "Z′", "Z'", _HEAD_OUTPUT_AXES, "Z after ablation and patching", "signed",
    equation=r"Z' = (1 - \text{strength})\, Z + \text{strength} \cdot \text{its mean, or } 0",
    unknown=recorded(names.PATCHED_OUTPUT), when="patches_output", example=(("head_edits", HeadEdits(ablations=(Ablation("mean", 0.5),))),), of=(cells_of(names.HEAD_OUTPUT),))
OUTPUT = _Output(
    names.OUTPUT, "O", "O", ("query_pos", "d_model"), "concat(Z) W_O", "signed", equation=r"O = \text{concat}(Z)\, W_O",
    words="The heads' outputs for query {row}, side by side, times column {column} of W_O.",
    unknown="The output as the source recorded it; its W_O is not known.", bias="b_o", in_page="whole",
    of=(
        Factor((names.PATCHED_OUTPUT, names.HEAD_OUTPUT), row="row", concatenated=True),
        Factor(("w_o",), column="column", concatenated=True)),
    elsewhere=called(lens="hook_attn_out", transformers="attn_output", torch="attn_output", n4="output"))
# fmt: on
