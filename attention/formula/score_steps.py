"""The steps that are maps of scores: raw, scaled, capped (softcap), biased, masked.

A map [head query_pos key_pos] is computed from the previous map, for some heads and queries at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from attention.base.printed import Arithmetic, Printed, format_number, number, quotient
from attention.formula import edit_kinds, names
from attention.formula.explainer import E_co
from attention.formula.functions import (
    add_bias,
    cap_scores,
    cap_signs,
    divide_scores,
    hide_scores,
    mask_scores,
    scale_scores,
)
from attention.formula.inline import inlined
from attention.formula.mask import Mask
from attention.formula.names import MAP_AXES
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
    recorded,
    rows_of,
)
from attention.formula.steps_before_scores import Product, added

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.formula import Formula
    from attention.formula.tensor_types import Scores


ALL = slice(None)


@dataclass(frozen=True, repr=False)
class MapStep(Step):
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


def maps_of(layer: LayerView) -> list[MapStep]:
    """The maps of a layer in order, each computed from the previous one; the last multiplies the values."""
    return [step for step in layer.steps if isinstance(step, MapStep)]


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
class _RawScores(Product, MapStep):
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
class _ScaledScores(MapStep):
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
            lines += [
                "temperature = math.inf" if math.isinf(layer.temperature) else f"temperature = {layer.temperature!r}"
            ]
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
class _CappedScores(MapStep):
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
class _BiasedScores(MapStep):
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
class _MaskedScores(MapStep):
    """Step M: the scores as they enter the normalizer."""

    def compute_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        return mask_scores(require_previous(previous), layer["mask"][rows] if layer.hides_keys else None)

    def explain(self, work: StepContext[E_co]) -> E_co:
        row, column = work.cell.row, work.cell.column
        factors = (name for _, name in work.layer.factors(self))
        previous = next((name for name in factors if isinstance(work.find_declared(name), Step)), "")
        if not previous:
            return work.as_recorded("The masked score as the source recorded it; what made it is not known.")
        hider = hider_of(work, column)
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


def hider_of(work: StepContext[E_co], key: int) -> str:
    """What hides a key from the query: "mask", or "bias" for a bias of −∞; empty if neither does."""
    if hides(work, key):
        return "mask"
    return "bias" if work.layer.has("bias") and work.number_at("bias", work.cell.row, key) == -math.inf else ""


def hides(work: StepContext[E_co], key: int) -> bool:
    """Whether the mask hides a key from the query."""
    return work.layer.has("mask") and not bool(work.layer["mask"][work.cell.row, key])
