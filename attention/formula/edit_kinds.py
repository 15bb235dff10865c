"""Interventions on the heads of a model, one class a kind, one line of the table `KINDS` for each.

They ablate a head (silence it), override its mask or its temperature, remove its scaling, set single cells of its
scores or weights (attention knockout), or replace a step by its values in the other state (activation patching).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from attention.base.errors import ConfigError
from attention.base.knobs import Integer, Real
from attention.base.printed import Arithmetic, Printed, product, sum_of
from attention.formula.formula import OTHER_STATE, Ablation, Formula, HeadEdits, SetCell
from attention.formula.mask import RULES, Mask
from attention.formula.names import HEAD_OUTPUT, KEY, MASKED_SCORES, PATCHED_OUTPUT, QUERY, SCORES, VALUE, WEIGHTS
from attention.formula.override import Override

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.explainer import E_co
    from attention.formula.step import LayerView, StepContext
    from attention.formula.tensor_types import Scores


_NUMBER_PATTERN = r"-?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf)"
Checks = Mapping[str, tuple[Callable[[Any], bool], str]]
"""For each field a function that checks a value, and the expected values in words."""


@dataclass(frozen=True)
class InterventionFields:
    """An intervention and the heads that it applies to: the fields of an `attention.patching.intervention.Intervention`.

    Attributes:
        layer: its index in `trace.layers`; None: all layers.
        head: the query head; None: all heads of the layer.
        ablate: "zero": Z becomes 0 (zero ablation); "mean": Z becomes its mean over positions (mean ablation).
        strength: of the ablation, from 0 (nothing changes) to 1.
        temperature: divides the scores in addition to the model's divisor; 0 is argmax, infinity uniform.
        scaled: False: scores are not divided by the model's divisor.
        mask: one of `attention.formula.edit_kinds.MASKS` instead of the model's; "first": every query attends to the first token alone.
        window: of the window masks: the largest distance of a visible key.
        prefix: of the prefix mask: how many first keys every query sees.
        hidden: of the custom mask: its cells, as `attention.formula.mask_tensor.encode` writes them.
        cells: single cells of scores or weights that are set.
        patch: "query", "key", "value", "weights" or "head_output", or one of `SITES`, patched from the other state (activation patching).
        site: what is ablated or patched instead of heads, one of `SITES`: the output of the layer's MLP ("mlp_output"), or the residual
            stream after the layer ("resid_post"). Empty: heads.
        positions: the positions at which a head's output or a site is ablated or patched; empty: all.
        hide: the first and the last of some keys that no query outside of them sees, on top of the model's mask (attention knockout).
    """

    layer: int | None = None
    head: int | None = None
    ablate: str = ""
    strength: float = 1.0
    temperature: float | None = None
    scaled: bool | None = None
    mask: str = ""
    window: int = 2
    prefix: int = 1
    hidden: str = ""
    cells: tuple[SetCell, ...] = ()
    patch: str = ""
    site: str = ""
    positions: tuple[int, ...] = ()
    hide: tuple[int, int] | None = None


SITES = {"mlp_output": "mlp", "resid_post": "resid"}
"""What can be changed in a layer besides its heads, with its name in links: the output of the MLP, and the residual stream after the layer."""


class LayerSize(NamedTuple):
    """The name of a layer and its numbers of heads, queries and keys."""

    name: str
    n_heads: int
    n_queries: int
    n_keys: int


class InterventionKind:
    """One kind of intervention.

    A kind that changes the formula (temperature, mask) defines only `edit_formula`: numbers, explanation and program follow from the formula.
    A kind that changes the numbers stores its state in `HeadEdits`, and defines `compute`, `explain` and `python` for maps, or
    `output`, `explain` and `output_python` for head outputs.

    Attributes:
        name: in plain words, for a menu.
        term: the term of the field.
        fields: its fields of an `Intervention`; the first is set if the intervention is of this kind.
        pattern: regular expression of its code in links.
        examples: codes that cover all its options.
        checks: the checks of its fields.
    """

    name = ""
    term = ""
    fields: tuple[str, ...] = ()
    pattern = ""
    examples: tuple[str, ...] = ()
    checks: ClassVar[Checks] = {}

    def parse(self, match: re.Match[str]) -> dict[str, Any]:
        """The fields from a match of the pattern; raises ValueError if they are not valid."""
        raise NotImplementedError(f"{self.name} has no read: define how its code is parsed.")

    def format(self, change: InterventionFields) -> str:
        """The code in links."""
        raise NotImplementedError(f"{self.name} has no write: define its code.")

    def words(self, change: InterventionFields) -> str:
        """The effect in plain words, with the term of the field in brackets."""
        raise NotImplementedError(f"{self.name} has no words: describe its effect.")

    def edit_formula(self, formula: Formula, change: InterventionFields) -> Formula:
        """The formula of a head with the intervention."""
        raise NotImplementedError(f"{self.name} has no turn: define how it changes the formula of a head.")

    def changes_weights(self, change: InterventionFields) -> bool:
        """Whether it changes the weights, which are then not frozen in a later layer."""
        return False

    def affects_kv_group(self, change: InterventionFields) -> bool:
        """Whether it affects all heads that share keys and values."""
        return False

    def only_output(self, change: InterventionFields) -> bool:
        """Whether it changes only head outputs, so that the layer needs no formula."""
        return False

    def check(self, change: InterventionFields, layer: LayerSize) -> None:
        """Raise ConfigError if the layer does not have the changed cells."""

    def compute(
        self, edits: HeadEdits, layer: LayerView, step: str, heads: slice, rows: slice, make: Callable[[], Scores]
    ) -> Scores:
        """A block of a map with the intervention; `make` computes the block without it."""
        return make()

    def output(self, edits: HeadEdits, z: Tensor, other: Tensor | None) -> Tensor:
        """The patched output [query_pos d_v] of a head; `other` is its output in another run."""
        return z

    def explain(self, work: StepContext[E_co]) -> E_co | None:
        """The explanation of a number that the intervention changed; None for other numbers."""
        return None

    def python(self, edits: HeadEdits, step: str, lines: list[str]) -> list[str]:
        """Lines that compute a map with the intervention; `lines` compute it without."""
        return lines

    def output_python(self, edits: HeadEdits, z: str) -> str:
        """An expression of plain torch for the patched output, from the expression `z` of the output."""
        return z


def _format_number(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def check_index(noun: str, index: int | None, size: int) -> None:
    """Raise ConfigError if the index is not below the size; `noun` is the plural for the message."""
    if index is not None and index >= size:
        raise ConfigError(f"{noun} count from 0 to {size - 1}; got {index}: choose one of these.")


ABLATIONS = ("zero", "mean")


class _Ablation(InterventionKind):
    """Ablation of the head output: Z′ = (1 − strength) Z + strength · its mean, or 0."""

    name = "Ablate (silence)"
    term = "zero or mean ablation"
    fields = ("ablate", "strength")
    pattern = rf"(zero|mean)({_NUMBER_PATTERN})?"
    examples = ("zero", "mean", "zero0.25", "mean0.5")
    checks: ClassVar[Checks] = {
        "ablate": (lambda value: value in ("", *ABLATIONS), "zero or mean, or empty"),
        "strength": (Real(0, 1).accepts, "a number from 0 (nothing changes) to 1"),
    }

    def parse(self, match: re.Match[str]) -> dict[str, Any]:
        return {"ablate": match[1], "strength": float(match[2] or 1)}

    def format(self, change: InterventionFields) -> str:
        return change.ablate + ("" if change.strength == 1 else _format_number(change.strength))

    def words(self, change: InterventionFields) -> str:
        much = "" if change.strength == 1 else f" by {change.strength * 100:g} %"
        of = "" if change.site else " of Z; W_O's bias stays"
        if change.ablate == "zero":
            return f"{'set to 0' if change.site else 'silenced'}{much} (zero ablation{of})"
        what = "" if change.site else "output "
        return f"{what}replaced{much} by its mean over positions (mean ablation{of})"

    def only_output(self, change: InterventionFields) -> bool:
        return True

    def edit_formula(self, formula: Formula, change: InterventionFields) -> Formula:
        new = Ablation(change.ablate, change.strength, change.positions)
        earlier = (
            formula.head_edits.ablations if change.positions else ()
        )  # one of all positions replaces those before it
        return replace(formula, head_edits=replace(formula.head_edits, ablations=(*earlier, new)))

    def output(self, edits: HeadEdits, z: Tensor, other: Tensor | None) -> Tensor:
        for kind, strength, positions in edits.ablations:
            ablated = (1 - strength) * z
            if kind == "mean":
                ablated = ablated + strength * z.mean(dim=-2, keepdim=True)
            z = at_positions(z, ablated, positions)
        return z

    def explain(self, work: StepContext[E_co]) -> E_co | None:
        row, column, edits = work.cell.row, work.cell.column, work.formula.head_edits
        acting = [i for i, (*_, positions) in enumerate(edits.ablations) if not positions or row in positions]
        if work.cell.step != PATCHED_OUTPUT or not acting:
            return None
        other = work.layer["patched_head_output"][work.cell.head] if edits.is_patched(HEAD_OUTPUT) else None
        before = replace(edits, ablations=edits.ablations[: acting[-1]])
        z, (kind, strength, _) = (
            patched_output(before, work.layer.matrix(HEAD_OUTPUT, work.cell.head), other),
            edits.ablations[acting[-1]],
        )
        factors = [(1 - strength, float(z[row, column]))]
        words = "The head is ablated: the remaining part of its output"
        if kind == "mean":
            factors += [(strength, float(z[:, column].double().mean()))]
            words = "The head's output is replaced by its mean over positions: the remaining output plus the mean"

        def line(digits: int) -> Printed:
            return sum_of([product(*pair, digits) for pair in factors])

        values, came_from = [a * b for a, b in factors], (work.cell_of(HEAD_OUTPUT, row, column),)
        return work.from_arithmetic(Arithmetic("", [line], [line], f"{words}; W_O's bias stays.", values), came_from)

    def output_python(self, edits: HeadEdits, z: str) -> str:
        for kind, strength, positions in edits.ablations:
            factor = z if re.fullmatch(r"\w+\[\d+\]", z) else f"({z})"
            ablated = f"{1 - strength!r} * {factor}"
            if kind == "mean":
                ablated += f" + {strength!r} * {factor}.mean(dim=0)"
            z = _python_at_positions(z, ablated, positions)
        return z


MASKS = ("none", *RULES, "custom")
_MASK_SIZES = {kind: rule.size for kind, rule in RULES.items() if rule.size} | {"custom": "hidden"}


class _MaskOverride(InterventionKind):
    """Another mask instead of the model's; padding stays hidden."""

    name = "Override the mask"
    term = "attention mask"
    fields = ("mask", "window", "prefix", "hidden")
    pattern = r"(nomask|causal-patch-window|patch-window|causal-window|causal|window|prefix|first|custom)([\w.-]*)"
    examples = ("nomask", "causal", "window1", "causal-window1", "prefix2", "first", "patch-window1")
    checks: ClassVar[Checks] = {
        "mask": (lambda value: value in ("", *MASKS), f"one of {', '.join(MASKS)}, or empty"),
        **dict.fromkeys(("window", "prefix"), (Integer(0, 10**6).accepts, "a whole number from 0 on")),
        "hidden": (lambda value: isinstance(value, str), "a text that encodes a custom mask"),
    }

    def parse(self, match: re.Match[str]) -> dict[str, Any]:
        kind, size = match[1].replace("-", " ").replace("nomask", "none"), match[2]
        name = _MASK_SIZES.get(kind)
        if (name is None) == bool(size):
            raise ValueError(size)
        return {"mask": kind} | ({name: size if name == "hidden" else int(size)} if name else {})

    def format(self, change: InterventionFields) -> str:
        return f"{'nomask' if change.mask == 'none' else change.mask.replace(' ', '-')}{self._size(change)}"

    def words(self, change: InterventionFields) -> str:
        if change.mask in ("first", "none"):
            return "every query attends to the first token alone" if change.mask == "first" else "no mask"
        if RULES[change.mask].of_patches if change.mask in RULES else None:
            causal = "causal, and " if "causal" in change.mask else ""
            return f"another mask: {causal}patches see patches at most {change.window} rows and columns away"
        return f"another mask, {change.mask}{'' if change.mask == 'custom' else f' {self._size(change)}'}".rstrip()

    @staticmethod
    def _size(change: InterventionFields) -> Any:
        return getattr(change, _MASK_SIZES[change.mask]) if change.mask in _MASK_SIZES else ""

    def changes_weights(self, change: InterventionFields) -> bool:
        return True

    def check(self, change: InterventionFields, layer: LayerSize) -> None:
        _ = Mask("custom", cells=change.hidden).build(1, 1)  # raises ConfigError if it cannot be decoded

    def edit_formula(self, formula: Formula, change: InterventionFields) -> Formula:
        field = _MASK_SIZES.get(change.mask, "").replace("hidden", "cells")
        size = {field: self._size(change)} if field else {}
        real = None if formula.mask is None else formula.mask.real
        return replace(formula, mask=Mask(change.mask, real=real, **size))


class _TemperatureOverride(InterventionKind):
    """Scores are divided by a temperature in addition to the model's divisor."""

    name = "Override the temperature"
    term = "softmax temperature"
    fields = ("temperature",)
    pattern = rf"t({_NUMBER_PATTERN})"
    examples = ("t0.5", "t0", "tinf")
    checks: ClassVar[Checks] = {
        "temperature": (Real(0, optional=True).accepts, "a number from 0 (argmax) to infinity (uniform), or None")
    }

    def parse(self, match: re.Match[str]) -> dict[str, Any]:
        return {"temperature": float(match[1])}

    def format(self, change: InterventionFields) -> str:
        return f"t{_format_number(change.temperature or 0)}"

    def words(self, change: InterventionFields) -> str:
        return f"temperature {change.temperature:g}"

    def changes_weights(self, change: InterventionFields) -> bool:
        return True

    def edit_formula(self, formula: Formula, change: InterventionFields) -> Formula:
        return replace(formula, **formula.overridden_fields(Override(temperature=change.temperature or 0.0)))


class _NoScaling(InterventionKind):
    """Scores are not divided by the model's divisor."""

    name = "Remove the scaling"
    term = "without 1/√d_k"
    fields = ("scaled",)
    pattern = "unscaled"
    examples = ("unscaled",)
    checks: ClassVar[Checks] = {
        "scaled": (lambda value: value is None or isinstance(value, bool), "False, or None for the model's own")
    }

    def parse(self, match: re.Match[str]) -> dict[str, Any]:
        return {"scaled": False}

    def format(self, change: InterventionFields) -> str:
        return "unscaled"

    def words(self, change: InterventionFields) -> str:
        return "scores not divided (no scaling)"

    def changes_weights(self, change: InterventionFields) -> bool:
        return True

    def edit_formula(self, formula: Formula, change: InterventionFields) -> Formula:
        return replace(formula, divisor=None if formula.divisor is None else 1.0)


def at_positions(current: Tensor, new: Tensor, positions: Sequence[int]) -> Tensor:
    """`new` [… pos d]; with `positions`, `current` with the rows of `new` there."""
    if not positions:
        return new
    result = current.clone()
    result[..., list(positions), :] = new[..., list(positions), :]
    return result


def _python_at_positions(current: str, new: str, positions: Sequence[int]) -> str:
    """The same as an expression of plain torch."""
    if not positions:
        return new
    return f"torch.where(torch.isin(torch.arange(len({current})), torch.tensor({list(positions)}))[:, None], {new}, {current})"


PATCH_CODES = {QUERY: "Q", KEY: "K", VALUE: "V", WEIGHTS: "A", HEAD_OUTPUT: "Z"}
"""The steps that can be patched from the other state, with their letters in links."""
_PATCH_WORDS = {QUERY: "queries", KEY: "keys", VALUE: "values", WEIGHTS: "weights", HEAD_OUTPUT: "output, before W_O,"}


class _ActivationPatch(InterventionKind):
    """Activation patching. Patched queries, keys and values are recorded as such; patched weights and outputs as parameters."""

    name = "Patch from the other state"
    term = "activation patching"
    fields = ("patch",)
    pattern = f"take([{''.join(PATCH_CODES.values())}]?)"  # of a site without a letter
    examples = tuple(f"take{letter}" for letter in PATCH_CODES.values())
    checks: ClassVar[Checks] = {
        "patch": (
            lambda value: value in ("", *PATCH_CODES, *SITES),
            f"one of {', '.join((*PATCH_CODES, *SITES))}, or empty",
        )
    }

    def parse(self, match: re.Match[str]) -> dict[str, Any]:
        return {"patch": next((name for name, letter in PATCH_CODES.items() if letter == match[1]), "")}

    def format(self, change: InterventionFields) -> str:
        return f"take{PATCH_CODES.get(change.patch, '')}"

    def words(self, change: InterventionFields) -> str:
        what = "" if change.site else f"its {_PATCH_WORDS[change.patch]} "
        return f"{what}patched from the other state (activation patching)"

    def changes_weights(self, change: InterventionFields) -> bool:
        return change.patch in (QUERY, KEY)

    def affects_kv_group(self, change: InterventionFields) -> bool:
        return change.patch in (KEY, VALUE)

    def only_output(self, change: InterventionFields) -> bool:
        return change.patch == HEAD_OUTPUT

    def edit_formula(self, formula: Formula, change: InterventionFields) -> Formula:
        edits = formula.head_edits.with_patch(change.patch, OTHER_STATE)
        if change.patch == HEAD_OUTPUT:
            earlier, new = formula.head_edits.patched_positions, change.positions
            if formula.head_edits.is_patched(HEAD_OUTPUT):
                new = tuple(sorted({*earlier, *new})) if earlier and new else ()
            edits = replace(edits, patched_positions=new)
        return replace(formula, head_edits=edits)

    def compute(
        self, edits: HeadEdits, layer: LayerView, step: str, heads: slice, rows: slice, make: Callable[[], Scores]
    ) -> Scores:
        return layer["patched_weights"][heads, rows] if step == WEIGHTS and edits.is_patched(step) else make()

    def output(self, edits: HeadEdits, z: Tensor, other: Tensor | None) -> Tensor:
        is_patched = other is not None and edits.is_patched(HEAD_OUTPUT)
        return at_positions(z, other, edits.patched_positions) if is_patched and other is not None else z

    def explain(self, work: StepContext[E_co]) -> E_co | None:
        row, column, step = work.cell.row, work.cell.column, work.cell.step
        patched = dict(work.formula.head_edits.patches)
        positions = work.formula.head_edits.patched_positions
        if step == PATCHED_OUTPUT and HEAD_OUTPUT in patched and (not positions or row in positions):
            value = float(work.layer["patched_head_output"][work.cell.head][row, column])
            words = f"Patched from {patched[HEAD_OUTPUT]}, before W_O (activation patching)."
            return work.from_claim(value, words, f"from {patched[HEAD_OUTPUT]}")
        if step not in patched or step == HEAD_OUTPUT:
            return None
        words = f"Patched from {patched[step]}: it is not computed in this run (activation patching)."
        # Patched queries, keys and values are recorded as such: there is nothing to compare them with.
        value = work.number_at("patched_weights", row, column) if step == WEIGHTS else work.value
        return work.from_claim(value, words, f"from {patched[step]}")

    def python(self, edits: HeadEdits, step: str, lines: list[str]) -> list[str]:
        return [f"{step} = patched_weights"] if step == WEIGHTS and edits.is_patched(step) else lines

    def output_python(self, edits: HeadEdits, z: str) -> str:
        if not edits.is_patched(HEAD_OUTPUT):
            return z
        return _python_at_positions(z, z.replace(HEAD_OUTPUT, "patched_head_output"), edits.patched_positions)


_PLACE = Integer(0, 10**6)
_SETTABLE = {MASKED_SCORES: (SCORES, "before the softmax"), WEIGHTS: (WEIGHTS, "after the softmax")}
"""For each map with editable cells: the step of a `SetCell`, and the place in words."""


def _are_cells(value: object) -> bool:
    cells = value if isinstance(value, tuple | list) else (None,)
    return all(isinstance(cell, tuple | list) and 4 <= len(cell) <= 5 and _is_cell(*cell) for cell in cells)


def _is_cell(step: object, query: object, key: object, value: object, rescaled: object = False) -> bool:
    allowed = Real(0, 1) if step == WEIGHTS else Real(-1e30, 1e30)
    fits = _PLACE.accepts(query) and _PLACE.accepts(key) and allowed.accepts(value) and isinstance(rescaled, bool)
    return step in (SCORES, WEIGHTS) and fits


class _CellEdits(InterventionKind):
    """Sets a score before the normalizer, or a weight after it."""

    name = "Set a cell"
    term = "attention knockout"
    fields = ("cells",)
    pattern = rf"([sw])(\d{{1,6}}),(\d{{1,6}})=({_NUMBER_PATTERN})(r?)"
    examples = ("s2,1=2", "s1,0=-3", "w3,0=0.75r", "w2,1=0.25")
    checks: ClassVar[Checks] = {
        "cells": (_are_cells, "cells such as (step, query, key, value), of scores or weights, a weight from 0 to 1")
    }

    def parse(self, match: re.Match[str]) -> dict[str, Any]:
        step = SCORES if match[1] == "s" else WEIGHTS
        return {"cells": (SetCell(step, int(match[2]), int(match[3]), float(match[4]), bool(match[5])),)}

    def format(self, change: InterventionFields) -> str:
        (cell,) = change.cells
        return f"{cell.step[0]}{cell.query},{cell.key}={_format_number(cell.value)}{'r' * cell.rescaled}"

    def words(self, change: InterventionFields) -> str:
        (cell,) = change.cells
        cell_words = f"of query {cell.query} for key {cell.key} set to {cell.value:g}"
        if cell.step == SCORES:
            return f"the score {cell_words}, before the softmax"
        rest = "the rest of its row is" if cell.rescaled else "its row is not"
        return f"the weight {cell_words}, after the softmax; {rest} rescaled"

    def check(self, change: InterventionFields, layer: LayerSize) -> None:
        for cell in change.cells:
            check_index(f"queries of {layer.name}", cell.query, layer.n_queries)
            check_index(f"keys of {layer.name}", cell.key, layer.n_keys)

    def edit_formula(self, formula: Formula, change: InterventionFields) -> Formula:
        return replace(
            formula, head_edits=replace(formula.head_edits, cells=(*formula.head_edits.cells, *change.cells))
        )

    def compute(
        self, edits: HeadEdits, layer: LayerView, step: str, heads: slice, rows: slice, make: Callable[[], Scores]
    ) -> Scores:
        block, first = make(), rows.start or 0
        edited = [cell for cell in _cells_of(edits, step) if 0 <= cell.query - first < block.shape[-2]]
        if not edited:
            return block
        block = block.clone()
        for query in {cell.query for cell in edited}:
            row, cells = block[..., query - first, :], [cell for cell in edited if cell.query == query]
            row_sum, others = row.sum(dim=-1, keepdim=True), row.clone()
            for cell in cells:
                others[..., cell.key] = 0
            if step == WEIGHTS and any(cell.rescaled for cell in cells):
                remaining = (row_sum - sum({cell.key: cell.value for cell in cells}.values())).clamp_min(0)
                row.mul_(remaining / others.sum(dim=-1, keepdim=True).clamp_min(1e-30))
            for cell in cells:
                row[..., cell.key] = cell.value
        return block

    def explain(self, work: StepContext[E_co]) -> E_co | None:
        cells = [cell for cell in _cells_of(work.formula.head_edits, work.cell.step) if cell.query == work.cell.row]
        values = {cell.key: cell.value for cell in cells}
        if work.cell.column in values:
            return work.from_claim(
                values[work.cell.column], f"Set by hand, {_SETTABLE[work.cell.step][1]}.", "set by hand"
            )
        if work.cell.step == WEIGHTS and any(cell.rescaled for cell in cells):
            return _explain_rescaled(work, values)
        return None

    def python(self, edits: HeadEdits, step: str, lines: list[str]) -> list[str]:
        edited = _cells_of(edits, step)
        lines = [*lines, f"{step} = {step}.clone()"] if edited else lines
        for query in dict.fromkeys(cell.query for cell in edited):
            values = {cell.key: cell.value for cell in edited if cell.query == query}
            if step == WEIGHTS and any(cell.rescaled for cell in edited if cell.query == query):
                lines += [
                    f"rest = {step}[:, {query}].clone()  # the rest of this row is rescaled",
                    f"rest[:, {list(values)}] = 0",
                    f"left = ({step}[:, {query}].sum(-1, keepdim=True) - {sum(values.values())!r}).clamp_min(0)",
                    f"{step}[:, {query}] *= left / rest.sum(-1, keepdim=True).clamp_min(1e-30)",
                ]
            lines += [f"{step}[:, {query}, {key}] = {value!r}  # set by hand" for key, value in values.items()]
        return lines


def _cells_of(edits: HeadEdits, step: str) -> list[SetCell]:
    return [cell for cell in edits.cells if step in _SETTABLE and cell.step == _SETTABLE[step][0]]


def _explain_rescaled(work: StepContext[E_co], values: dict[int, float]) -> E_co:
    """The explanation of a rescaled weight: the weight before the edit, times the factor of the rest of its row."""
    row, column, edits = work.cell.row, work.cell.column, work.formula.head_edits
    score_cells = tuple(cell for cell in edits.cells if cell.step != WEIGHTS)
    before = work.layer.with_formula(replace(work.formula, head_edits=replace(edits, cells=score_cells)))
    head = slice(work.cell.head, work.cell.head + 1)
    weights = before.blocks(WEIGHTS, heads=head, rows=slice(row, row + 1))[0][0, 0].double()
    other_sum = sum(float(weight) for key, weight in enumerate(weights) if key not in values)
    factors = float(weights[column]), max(0.0, float(weights.sum()) - sum(values.values())) / max(other_sum, 1e-30)

    def line(digits: int) -> Printed:
        return sum_of([product(*factors, digits)])

    words = "Another weight of this row was set by hand: the computed weight, times the factor that rescales the rest of the row."
    came_from = (work.cell_of(MASKED_SCORES, row, column),)
    return work.from_arithmetic(Arithmetic("", [line], [line], words, [factors[0] * factors[1]]), came_from)


class _HiddenKeys(InterventionKind):
    """Keys that are hidden from all queries outside of their own stretch, such as a document that the rest of a prompt does not see.

    Source: Geva et al. 2023, "Dissecting Recall of Factual Associations in Auto-Regressive Language Models", section 4 (attention knockout).
    """

    name = "Hide keys"
    term = "attention knockout of a span"
    fields = ("hide",)
    pattern = r"hide(\d{1,6})-(\d{1,6})"
    examples = ("hide0-1", "hide1-1")
    checks: ClassVar[Checks] = {
        "hide": (
            lambda value: value is None or _is_stretch(value),
            "the positions of the first and the last key, such as (12, 40), or None",
        )
    }

    def parse(self, match: re.Match[str]) -> dict[str, Any]:
        return {"hide": (int(match[1]), int(match[2]))}

    def format(self, change: InterventionFields) -> str:
        return "hide{}-{}".format(*change.hide or ())

    def words(self, change: InterventionFields) -> str:
        return "keys {} to {} hidden from all other queries (attention knockout)".format(*change.hide or ())

    def changes_weights(self, change: InterventionFields) -> bool:
        return True

    def check(self, change: InterventionFields, layer: LayerSize) -> None:
        check_index(f"keys of {layer.name}", (change.hide or (0, 0))[1], layer.n_keys)

    def edit_formula(self, formula: Formula, change: InterventionFields) -> Formula:
        edits = formula.head_edits
        return replace(formula, head_edits=replace(edits, hidden=(*edits.hidden, *filter(None, (change.hide,)))))

    def compute(
        self, edits: HeadEdits, layer: LayerView, step: str, heads: slice, rows: slice, make: Callable[[], Scores]
    ) -> Scores:
        if step != MASKED_SCORES or not edits.hidden:
            return make()
        block, begin = make().clone(), rows.start or 0
        for first, last in edits.hidden:
            block[..., : max(0, first - begin), first : last + 1] = -math.inf
            block[..., max(0, last + 1 - begin) :, first : last + 1] = -math.inf
        return block

    def explain(self, work: StepContext[E_co]) -> E_co | None:
        row, column = work.cell.row, work.cell.column
        stretches = [span for span in work.formula.head_edits.hidden if span[0] <= column <= span[1]]
        if work.cell.step != MASKED_SCORES or not any(not first <= row <= last for first, last in stretches):
            return None
        words = f"Hidden by an intervention: no query outside of them sees the keys {stretches[0][0]} to {stretches[0][1]}, so the weight will be exactly 0."
        return work.from_claim(-math.inf, words, "hidden by an intervention", (), (r"-\infty \quad \text{(hidden)}",))

    def python(self, edits: HeadEdits, step: str, lines: list[str]) -> list[str]:
        if step != MASKED_SCORES or not edits.hidden:
            return lines
        lines = [*lines, f"{step} = {step}.clone()"]
        for first, last in edits.hidden:
            lines += [
                f"{step}[:, :{first}, {first}:{last + 1}] = -torch.inf  # hidden from all queries outside of them",
                f"{step}[:, {last + 1}:, {first}:{last + 1}] = -torch.inf",
            ]
        return lines


def _is_stretch(value: object) -> bool:
    places = value if isinstance(value, tuple) else ()
    return len(places) == 2 and all(map(_PLACE.accepts, places)) and places[0] <= places[1]


KINDS: tuple[InterventionKind, ...] = (
    _Ablation(),
    _TemperatureOverride(),
    _NoScaling(),
    _MaskOverride(),
    _HiddenKeys(),
    _CellEdits(),
    _ActivationPatch(),
)
"""All kinds of interventions. Numbers are changed in reverse order: a patched output can be ablated."""


def patched_block(
    edits: HeadEdits, layer: LayerView, step: str, heads: slice, rows: slice, make: Callable[[], Scores]
) -> Scores:
    """A block of a map with all interventions; `make` computes the block without them."""
    if edits != HeadEdits():
        for kind in reversed(KINDS):
            make = partial(kind.compute, edits, layer, step, heads, rows, make)
    return make()


def patched_output(edits: HeadEdits, z: Tensor, other: Tensor | None) -> Tensor:
    """The patched output [query_pos d_v] of a head; `other` is its output in another run."""
    for kind in reversed(KINDS):
        z = kind.output(edits, z, other)
    return z


def explain_edit(work: StepContext[E_co]) -> E_co | None:
    """The explanation of a number that an intervention changed; None for other numbers."""
    return next((explanation for kind in KINDS if (explanation := kind.explain(work)) is not None), None)


def python(edits: HeadEdits, step: str, lines: list[str]) -> list[str]:
    """Lines that compute a map with all interventions; `lines` compute it without."""
    for kind in reversed(KINDS):
        lines = kind.python(edits, step, lines)
    return lines


def output_python(edits: HeadEdits, z: str) -> str:
    """An expression of plain torch for the patched output of a head."""
    for kind in reversed(KINDS):
        z = kind.output_python(edits, z)
    return z
