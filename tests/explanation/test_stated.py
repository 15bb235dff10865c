"""Explanations agree with the tensors: every recorded step of every source is altered, one at a time, and no explanation is false."""

from __future__ import annotations

import ast
import io
import math
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import examples_of
from margins import approx
from test_explain import latex_value, plain_value
from tiny_models import TinyModels
from torch import Tensor

from attention import (
    AttentionConfig,
    Cell,
    Explanation,
    File,
    Layer,
    Matrices,
    Model,
    Source,
    Step,
    Trace,
    TypedText,
    explain,
    find_step,
)
from attention.base.printed import Arithmetic, number
from attention.explanation.derived import NORMS
from attention.explanation.explanation import ExplanationBuilder, Term
from attention.explanation.subwords import MergedLayer, merge_tokens
from attention.export.program import python
from attention.files import array_writer
from attention.formula import edit_kinds, mask_tensor
from attention.formula.formula import Formula
from attention.formula.normalizers import NORMALIZERS
from attention.formula.positions import sinusoidal
from attention.metrics.aggregates import AGGREGATES
from attention.models.library import LIBRARY, Settings
from attention.patching.intervention import parse_codes as interventions
from attention.pictures.live_inputs import _HEAD_STEPS, live_inputs
from attention.pictures.steps_view import cell_line

CAT = "the cat sat on the mat"
FACTORS = (3.0, 7.0)
NEAR = 1e-4  # relative to the sizes of the summands, and twice that where both sides are rounded

KNOBS: dict[str, dict[str, Any]] = {
    "default": {},
    "causal, sinusoidal": {"mask": "causal", "positions": "sinusoidal"},
    "learned positions": {"positions": "learned", "temperature": 2.5},
    "rope": {"positions": "rope", "mask": "causal"},
    "alibi": {"positions": "alibi", "mask": "causal"},
    "relative": {"positions": "relative"},
    "cap": {"cap": 2.0, "mask": "window", "window": 1},
    "cap at temperature 0": {"cap": 2.0, "temperature": 0.0},
    "softmax1": {"normalizer": "softmax1"},
    "sigmoid": {"normalizer": "sigmoid", "mask": "causal"},
    "sparsemax": {"normalizer": "sparsemax", "temperature": 0.3},
    "dropout": {"dropout": 0.3, "mask": "causal"},
    "shared keys": {"n_heads": 4, "n_kv_heads": 2},
    "cosine": {"score": "cosine"},
    "additive": {"score": "additive"},
    "not scaled": {"scaled": False, "temperature": 0.35},
    "identity": {"init": "identity", "d_model": 9},
    "temperature 0": {"temperature": 0.0, "mask": "causal"},
    "temperature 0, a bias": {"temperature": 0.0, "positions": "alibi"},
    "temperature 0, sigmoid": {"temperature": 0.0, "normalizer": "sigmoid"},
    "blind rows": {
        "mask": "custom",
        "cells": mask_tensor.encode(torch.tensor([[0, 0, 0], [1, 0, 1], [1, 1, 1]]).bool()),
    },
}
SMALL = ((1.0, 2.0, -0.5), (0.5, -1.0, 3.0), (0.25, 1.5, 2.0))
SOURCES: dict[str, Source] = {
    **{name: TypedText("the cat sat", AttentionConfig(**{"d_model": 8, "n_heads": 2, **knobs})) for name, knobs in KNOBS.items()},
    "two texts": TypedText("the cat sat", AttentionConfig(d_model=8, n_heads=2, mask="causal"), "a dog ran off"),
    "projected": Matrices(x=SMALL, w_q=SMALL, w_k=SMALL, w_v=SMALL, w_o=SMALL, b_q=((1, 2, 3),), b_o=((3, 2, 1),)),
    "the input itself": Matrices(x=SMALL),
    "biased, dropped": Matrices(
        query=SMALL, key=SMALL, value=SMALL, divisor=3.0,
        bias=((0, -math.inf, 1), (1, 0, 0), (-math.inf,) * 3), dropout_mask=((1, 0, 2), (2, 2, 0), (1, 1, 1)),
    ),
    "scores": Matrices(scores=SMALL, value=SMALL, config=AttentionConfig(mask="causal")),
    **examples_of("tutorials"),
    **examples_of("training"),
}  # fmt: skip
MODELS = {
    "GPT-2": "", "Llama": "", "Gemma 2": "", "gpt-oss": "", "OPT": "", "T5": "", "BART": "", "Bloom": "",
    "GPT-2, changed": "0.1.t0.5;0.1.unscaled;0.2.first;0.3.s2,1=2;0.3.w3,0=0.75r;0.0.mean0.5;1.2.zero;1.1.w2,1=0.25",
    "T5, changed": "0.1.takeA;0.2.takeZ;0.3.takeV;1.*.zero0.5",
}  # fmt: skip


# -- independent computation of every step --------------------------------------------


def row_of(layer: Layer, name: str, cell: Cell, at: int) -> Tensor:
    return layer.matrix(name, cell.head)[at].double()


def factors_of(layer: Layer, step: str) -> list[str]:
    return [name for _, name in layer.factors(next(entry for entry in layer.steps if entry.name == step))]


def previous_number(layer: Layer, cell: Cell) -> float:
    """The number of the step's only factor in the same cell."""
    factor = factors_of(layer, cell.step)[0]
    return float(layer.matrix(factor, cell.head)[cell.row, cell.column])


def formula_of(layer: Layer, cell: Cell) -> Formula:
    assert layer.formula is not None
    return layer.formula.for_head(cell.head)


def product_of(layer: Layer, cell: Cell) -> float:
    if len(factors_of(layer, cell.step)) == 1:  # no projection
        return previous_number(layer, cell)
    left, right = factors_of(layer, cell.step)[:2]
    if cell.step == "output":
        z, w_o = layer[left][:, cell.row].double(), layer[right][:, :, cell.column].double()
        return float((z * w_o).sum()) + (float(layer["b_o"][cell.column]) if layer.has("b_o") else 0.0)
    left_row, right_matrix = row_of(layer, left, cell, cell.row), layer.matrix(right, cell.head).double()
    if cell.step == "scores":
        kind, key = formula_of(layer, cell).score, right_matrix[cell.column]
        if kind == "cosine":
            lengths = float(left_row.norm() * key.norm())
            return float(left_row @ key) / lengths if lengths else 0.0
        return (
            float(layer["w_s"][cell.head].double() @ (left_row + key).tanh())
            if kind == "additive"
            else float(left_row @ key)
        )
    bias = f"b_{cell.step[0]}"
    added = float(row_of(layer, bias, cell, cell.column)) if cell.step != "head_output" and layer.has(bias) else 0.0
    return float(left_row @ right_matrix[:, cell.column]) + added


def rotated_of(layer: Layer, cell: Cell) -> float:
    row = row_of(layer, cell.step.removeprefix("rotated_"), cell, cell.row)
    half = len(row) // 2
    angle = cell.row * (formula_of(layer, cell).rotary or 0) ** (-2 * (cell.column % half) / len(row))
    pair = complex(float(row[cell.column % half]), float(row[cell.column % half + half]))
    rotated_pair = pair * complex(math.cos(angle), math.sin(angle))
    return rotated_pair.real if cell.column < half else rotated_pair.imag


def scaled_of(layer: Layer, cell: Cell) -> float:
    formula = formula_of(layer, cell)
    return previous_number(layer, cell) / ((formula.divisor or 1.0) * (layer.for_head(cell.head).temperature or 1.0))


def capped_of(layer: Layer, cell: Cell) -> float:
    score, cap = previous_number(layer, cell), formula_of(layer, cell).cap or 1.0
    return cap * (
        math.copysign(bool(score), score) if layer.for_head(cell.head).temperature == 0 else math.tanh(score / cap)
    )


def sum_of(layer: Layer, cell: Cell) -> float:
    return sum(float(layer.matrix(name, cell.head)[cell.row, cell.column]) for name in factors_of(layer, cell.step))


def masked_of(layer: Layer, cell: Cell) -> float:
    hidden = layer.has("mask") and not bool(layer["mask"][cell.row, cell.column])
    return -math.inf if hidden else previous_number(layer, cell)


def weight_of(layer: Layer, cell: Cell) -> float:
    """The weight by the normalizer of the recorded masked scores, or its limit at temperature 0."""
    formula, head_layer = formula_of(layer, cell), layer.for_head(cell.head)
    normalizer = NORMALIZERS[formula.normalizer]
    if normalizer.parameter:
        normalizer = normalizer.bind(layer[normalizer.parameter][cell.head : cell.head + 1].double())
    scores = row_of(layer, "masked_scores", cell, cell.row)
    if head_layer.temperature == 0 and not formula.cap:
        bias = row_of(layer, "bias", cell, cell.row) if formula.bias else torch.zeros_like(scores)
        unmasked = row_of(layer, "scaled_scores", cell, cell.row).masked_fill(scores == -math.inf, -math.inf)
        return float(normalizer.limit(unmasked[None, None], bias[None, None])[0, 0, cell.column])
    return float(normalizer.weights(scores[None, None])[0, 0, cell.column])


def dropped_of(layer: Layer, cell: Cell) -> float:
    weights = layer["weights"].double()
    return float(formula_of(layer, cell).dropping.weights(layer, weights, slice(None), slice(None))[cell.head, cell.row, cell.column])  # fmt: skip


def kept_of(layer: Layer, cell: Cell) -> float:
    patched = None if layer.patched_head_output is None else layer["patched_head_output"][cell.head].double()
    z = edit_kinds.patched_output(
        formula_of(layer, cell).head_edits, layer.matrix("head_output", cell.head).double(), patched
    )
    return float(z[cell.row, cell.column])


def wave_of(layer: Layer, cell: Cell) -> float:
    return float(sinusoidal(cell.row + 1, layer["position"].shape[1])[cell.row, cell.column])


BY_DEFINITION: dict[str, Callable[[Layer, Cell], float]] = {
    "position": wave_of, "input": sum_of, "query": product_of, "key": product_of, "value": product_of,
    "rotated_query": rotated_of, "rotated_key": rotated_of, "scores": product_of, "scaled_scores": scaled_of,
    "capped_scores": capped_of, "biased_scores": sum_of, "masked_scores": masked_of, "weights": weight_of,
    "dropped_weights": dropped_of, "head_output": product_of, "patched_output": kept_of, "output": product_of,
}  # fmt: skip
"""Every step computed from its factors by its formula, in double precision and one cell at a time."""


# -- checks of an explanation -----------------------------------------------------------------


def near(actual: float, expected: float, size: float = 0.0) -> bool:
    tolerance = 2 * NEAR * (size + abs(actual) + abs(expected)) + 1e-30
    return actual == approx(expected, within=tolerance, why="printed numbers have four digits")


def set_by_hand(layer: Layer, cell: Cell) -> bool:
    """Whether this number, or another in its row, was set by an intervention."""
    if layer.formula is None:
        return False
    edits, kind = formula_of(layer, cell).head_edits, cell.step.removeprefix("masked_")
    return any((edit.step, edit.query) == (kind, cell.row) for edit in edits.cells)


def hides(layer: Layer, cell: Cell) -> bool:
    return layer.has("mask") and not bool(layer["mask"][cell.row, cell.column])


def check_words(layer: Layer, explanation: Explanation) -> None:
    """Asserts every sentence that gives a reason for a number."""
    cell, words, head_layer = (
        explanation.cell,
        f"{explanation.words} {explanation.short}",
        layer.for_head(explanation.cell.head),
    )
    if "The mask hides key" in words or "hidden by the mask" in words:
        assert hides(layer, cell), explanation
        assert explanation.value == (-math.inf if cell.step == "masked_scores" else 0), explanation
    if "The mask lets" in words or "stays as it is" in words or "stays −∞" in words:
        factor = "weights" if cell.step == "dropped_weights" else factors_of(layer, cell.step)[0]
        assert explanation.value == float(layer.matrix(factor, cell.head)[cell.row, cell.column]), explanation
        assert not hides(layer, cell) or explanation.value == 0, explanation
    if "bias hides" in words or "by the bias" in words:
        row = row_of(layer, "bias", cell, cell.row)
        assert bool((row == -math.inf).all() if "every key" in words else row[cell.column] == -math.inf), explanation
    if "mask hides every key" in words:
        assert not bool(layer["mask"][cell.row].any()), explanation
    if "set by hand" in explanation.short:
        values = [
            edit.value
            for edit in formula_of(layer, cell).head_edits.cells
            if (edit.query, edit.key) == (cell.row, cell.column)
        ]
        assert any(near(explanation.value, value) for value in values), explanation
    if "Patched from" in words and cell.step in ("weights", "patched_output"):
        patched = layer["patched_weights" if cell.step == "weights" else "patched_head_output"]
        assert explanation.value == float(patched[cell.head, cell.row, cell.column]), explanation
    if "W_O is not known" in words:
        assert not layer.has("w_o"), explanation
    if "there is no query and key" in words:
        assert not (layer.has("query") and layer.has("key")), explanation
    if "its projection is not known" in words:
        assert not layer.has(f"w_{cell.step[0]}"), explanation
    if "enters W_O unchanged" in words or "itself" in explanation.short or " alone" in explanation.short:
        (source,) = explanation.came_from or (None,)
        assert source is None or explanation.value == float(
            layer.matrix(source.step, source.head)[source.row, source.column]
        )
    if "not divided" in words:
        assert head_layer.divisor == 1, explanation


def check(trace: Trace, explanation: Explanation) -> bool:
    """Asserts that an explanation is not false; returns whether it states more than the number."""
    layer, value, cell = trace.layers[explanation.cell.layer], explanation.value, explanation.cell
    size = sum(abs(term.value) for term in explanation.terms) if explanation.operation == "sum" else 0.0
    assert near(explanation.result, value, size), explanation
    sides = [re.search(r"&(=|\\approx) (.*)$", line, re.DOTALL)[2].strip() for line in explanation.lines]
    for tex in sides:
        if not re.search(r"[A-Z]['_^{]|\\sum|X_2|\\text\{|\\max|\\bar|\\tau", tex):
            said = float(latex_value(tex))
            assert near(said, value, size) or said == approx(value, digits=3), (tex, explanation)
    if explanation.short:
        said = float(plain_value(explanation.short))
        assert near(said, value, size) or said == approx(value, digits=3), explanation
    for origin in explanation.came_from:
        _ = layer.matrix(origin.step, origin.head)[origin.row, origin.column]
    check_words(layer, explanation)
    states = len(sides) > 1 or bool(explanation.short) or bool(explanation.came_from)
    if (
        states
        and explanation.cell.step in BY_DEFINITION
        and not isinstance(layer, MergedLayer)
        and not set_by_hand(layer, cell)
    ):
        edits = None if layer.formula is None else formula_of(layer, cell).head_edits
        if edits is None or not edits.is_patched(cell.step):
            assert near(BY_DEFINITION[cell.step](layer, cell), value, size), (
                BY_DEFINITION[cell.step](layer, cell),
                explanation,
            )
            check_terms(layer, explanation)
    return states


def check_terms(layer: Layer, explanation: Explanation) -> None:
    """Asserts that the summands of a product are products of the numbers of its row and column."""
    cell = explanation.cell
    if (
        cell.step not in ("query", "key", "value", "scores", "head_output")
        or len(explanation.terms) < 2
        or explanation.operation != "sum"
    ):
        return
    if cell.step == "scores" and formula_of(layer, cell).score != "dot":
        return
    left, right = factors_of(layer, cell.step)[:2]
    left_row, right_matrix = row_of(layer, left, cell, cell.row), layer.matrix(right, cell.head).double()
    products = (
        left_row * (right_matrix[cell.column] if cell.step == "scores" else right_matrix[:, cell.column])
    ).tolist()
    shown_terms = [term for term in explanation.terms if r"\text{ more}" not in term.tex and r"\cdot" in term.tex]
    assert all(any(term.value == approx(each, scale=1) for each in products) for term in shown_terms), explanation


def some_cells(layer: Layer, step: str, head: int, count: int = 3) -> list[tuple[int, int]]:
    """The cells of the largest number, of a hidden or the smallest number, and of some others."""
    matrix = layer.matrix(step, head)
    rows, columns = matrix.shape
    flat = matrix.double().flatten()
    first = {int(flat.abs().nan_to_num(posinf=0).argmax()), int(flat.argmin())}
    drawn = random.Random(f"{step} {head}").sample(range(rows * columns), min(count, rows * columns))
    return [divmod(at, columns) for at in [*first, *drawn][:count]]


def heads_of(layer: Layer, step: Step) -> set[int]:
    """The last head, and the heads with their own formula."""
    changed = () if layer.formula is None else (head for head, _ in layer.formula.heads)
    return {layer.n_heads - 1, *changed} if step.per_head else {0}


def cells_of(layer: Layer, step: str, head: int, count: int) -> list[tuple[int, int]]:
    """Some cells, and the cells set by interventions."""
    edits = () if layer.formula is None else layer.formula.for_head(head).head_edits.cells
    edited = [(edit.query, edit.key) for edit in edits if edit.step == step.removeprefix("masked_")]
    return list(dict.fromkeys([*edited, *some_cells(layer, step, head, count)]))


def check_all(trace: Trace, at: int, steps: list[str] | None = None, count: int = 3) -> int:
    """Checks every step of a layer; returns how many explanations state more than the number."""
    layer, stated = trace.layers[at], 0
    for step in (step for step in layer.steps if steps is None or step.name in steps):
        for head in heads_of(layer, step):
            for q, k in cells_of(layer, step.name, head, count):
                stated += check(trace, explain(trace, step.name, at, head, q, k))
    return stated


# -- alterations ---------------------------------------------------------------------------------


def altered(layer: Layer) -> Iterator[tuple[str, Layer]]:
    """Copies of the layer, each with one step or parameter multiplied, or with the mask inverted."""
    names = [*(step.name for step in layer.steps), *(name for name in layer.recorded if name not in {step.name for step in layer.steps})]  # fmt: skip
    for i, name in enumerate(names):
        tensor = layer[name]
        changed = ~tensor if tensor.dtype == torch.bool else tensor * FACTORS[i % 2]
        if not torch.equal(changed, tensor):
            yield name, layer.with_tensors(**{name: changed})


def users(layer: Layer, name: str) -> list[str]:
    """The step itself and the steps that depend on it."""
    readers = [step.name for step in layer.steps if name in [factor for _, factor in layer.factors(step)]]
    implicit = {"sinks": ["weights"], "w_s": ["scores"], "dropout_mask": ["dropped_weights"], "mask": ["masked_scores", "weights"],
              "bias": ["biased_scores", "masked_scores", "weights"], "bias_table": ["biased_scores"],
              "patched_weights": ["weights"], "patched_head_output": ["patched_output"]}.get(name, [name[2:] and {"q": "query", "k": "key", "v": "value", "o": "output"}.get(name[2:], "")])  # fmt: skip
    return [related for related in dict.fromkeys([name, *readers, *implicit]) if related and layer.has(related)]


def check_altered(trace: Trace, count: int = 3) -> None:
    for at, layer in enumerate(trace.layers):
        check_all(trace, at)
        for name, other in altered(layer):
            changed = Trace(
                trace.tokens,
                tuple(other if i == at else layer for i, layer in enumerate(trace.layers)),
                trace.key_tokens,
            )
            steps = [user for user in users(other, name) if user in {step.name for step in other.steps}]
            check_all(changed, at, steps, count)


@cache
def traced(name: str) -> Trace:
    return SOURCES[name].trace()


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", SOURCES)
def test_altered_step_is_never_explained_falsely(name: str) -> None:
    check_altered(traced(name))


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", MODELS)
def test_altered_step_of_a_model_is_never_explained_falsely(tiny: TinyModels, name: str) -> None:
    LIBRARY.hold(Settings(tiny.folder))
    try:
        family = name.partition(",")[0]
        tiny(family)
        plain = Model(family, CAT, "a quiet harbor" if family in ("T5", "BART") else "")
        other = plain if "take" in MODELS[name] else None
        source = replace(plain, interventions=interventions(MODELS[name]), other=other)
        check_altered(source.trace(), 2)
    finally:
        LIBRARY.hold(Settings())


def saved(trace: Trace, place: Path, **others: np.ndarray) -> Trace:
    """The trace read from a real file, with other numbers under some names."""
    contents = dict(np.load(io.BytesIO(array_writer.npz(trace)))) | others
    np.savez(place, **contents)
    return File.open(place).trace()


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["default", "causal, sinusoidal", "rope", "cap", "two texts", "shared keys", "projected", "biased, dropped", *[*examples_of("tutorials")][3:4]])  # fmt: skip
@pytest.mark.parametrize("size", [3.0, 1.002])
def test_altered_array_of_a_file_is_never_explained_falsely(name: str, size: float, tmp_path: Path) -> None:
    """A factor near 1 counts as rounding, so the formula stays, and only the guard of explanations is left."""
    trace = traced(name)
    contents = dict(np.load(io.BytesIO(array_writer.npz(trace))))
    for key, array in contents.items():
        if re.match(r"L\d", key) and array.ndim > 1 and array.dtype != bool:
            with np.errstate(invalid="ignore"):
                opened = saved(trace, tmp_path / "altered.npz", **{key: array * array.dtype.type(size)})
            check_all(opened, 0, count=2)
            check_live(opened.layers[0], key.removeprefix("L0."))


def check_live(layer: Layer, name: str) -> None:
    """Asserts that the page computes no recorded step, and no step that depends on one."""
    message = live_inputs(layer, 0)
    if message is not None:
        assert not layer.available.keys() & {*_HEAD_STEPS, *message["computable"]}, name
        assert "output" not in message["computable"] or "head_output" not in layer.available, name


def test_every_explanation_of_unaltered_sources_states_its_arithmetic() -> None:
    """Otherwise a guard that rejects everything would pass these tests."""
    for name in (
        "default",
        "causal, sinusoidal",
        "rope",
        "relative",
        "cap",
        "sigmoid",
        "dropout",
        "projected",
        "biased, dropped",
    ):
        layer = traced(name).layers[0]
        for step in layer.steps:
            if step.of and step.name in BY_DEFINITION and len(layer.factors(step)) == len(step.of):
                assert check_all(traced(name), 0, [step.name]) > 0, (name, step.name)


# -- examples from issues -----------------------------------------------------------


def test_input_of_seven_embeddings_is_not_called_the_embedding(tmp_path: Path) -> None:
    """The first example of the issue: E is 0.427 where X is 2.988."""
    layer = traced("default").layers[0]
    contents = {f"L0.{name}": layer[name].numpy().copy() for name in ("embedding", "query", "key", "value")}
    contents["L0.embedding"][2, 3] = 0.0
    np.savez(tmp_path / "seven.npz", **contents, **{"L0.input": 7 * contents["L0.embedding"]})
    trace = File.open(tmp_path / "seven.npz").trace()
    explanation = explain(trace, "input", q=1, k=2)
    assert explanation.result == explanation.value == approx(7 * float(layer["embedding"][1, 2]))
    assert (explanation.short, explanation.came_from, len(explanation.lines)) == ("", (), 1)
    assert "not the sum" in explanation.words
    assert explain(trace, "input", q=2, k=3).words == explanation.words, "7 · 0 = 0 is a coincidence"
    assert "as recorded" in trace.layers[0].formula_of(find_step("input"))


def test_masked_score_of_three_scores_is_not_called_unchanged() -> None:
    """The second example of the issue."""
    layer = traced("default").layers[0]
    altered_layer = layer.with_tensors(masked_scores=3 * layer["scaled_scores"])
    explanation = explain(Trace(layer.tokens, (altered_layer,)), "masked_scores", q=1, k=2)
    assert explanation.words == "The masked_scores as the source recorded it; what made it is not known."
    assert explanation.result == explanation.value
    assert explanation.came_from == ()
    line = cell_line(Trace(layer.tokens, (altered_layer,)), explanation.cell)
    assert (line["shown"], line["short"], line["from"]) == (explanation.displayed_value, "", []), (
        "the line on the page states nothing either"
    )


def test_unmasked_score_of_minus_infinity_does_not_blame_the_mask() -> None:
    layer = traced("causal, sinusoidal").layers[0]
    scores = layer["masked_scores"].clone()
    scores[:, 2, 0] = -math.inf
    scores[:, 1] = -math.inf
    scores[:, 0, 2] = 1.0  # hidden by the mask
    trace = Trace(layer.tokens, (layer.with_tensors(masked_scores=scores),))
    for q, k in ((2, 0), (1, 0), (0, 2)):
        assert "as the source recorded it" in explain(trace, "masked_scores", q=q, k=k).words
    assert explain(trace, "weights", q=2, k=0).short == "0: its score is −∞"
    assert explain(trace, "weights", q=1, k=0).short == "0: every score is −∞"
    assert explain(traced("causal, sinusoidal"), "weights", q=0, k=2).short == "0: hidden by the mask"


def test_zero_weight_that_dropout_kept_is_not_called_dropped() -> None:
    layer = traced("dropout").layers[0]
    q, k = (layer["dropped_weights"][0] > 0).nonzero()[-1].tolist()
    assert explain(traced("dropout"), "dropped_weights", q=q, k=k).short.endswith(" / (1 − 0.3)")
    trace = Trace(layer.tokens, (layer.with_tensors(dropped_weights=torch.zeros_like(layer["weights"])),))
    explanation = explain(trace, "dropped_weights", q=q, k=k)
    assert (explanation.value, explanation.short, explanation.came_from) == (0, "", ())
    dropped = ((layer["dropped_weights"][0] == 0) & (layer["weights"][0] > 0)).nonzero()
    assert [explain(trace, "dropped_weights", q=q, k=k).short for q, k in dropped.tolist()] == ["0: dropped"] * len(
        dropped
    )


def test_rows_with_all_weight_on_hidden_tokens_divide_nothing() -> None:
    weights = torch.tensor([[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.25, 0.25]]])
    view = merge_tokens(Layer("", ("[CLS]", "a", "b"), recorded={"weights": weights}), ["[CLS]"], False, "renormalise")
    explanation = explain(Trace(view.tokens, (view,)), "weights", q=0, k=1)
    assert (explanation.value, explanation.result, explanation.short) == (
        0,
        0,
        "0: no visible token gets any weight",
    )
    assert explain(Trace(view.tokens, (view,)), "weights", q=1, k=1).result == 0.5


# -- derived maps and differences ----------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["causal, sinusoidal", "softmax1", "two texts", "biased, dropped"])
def test_maps_derived_from_altered_numbers_are_never_explained_falsely(name: str) -> None:
    for step, layer in [("", traced(name).layers[0]), *altered(traced(name).layers[0])]:
        trace = Trace(layer.tokens, (layer, layer), layer.key_tokens)
        cells = [Cell(1, "weights", 1 % layer.n_heads, 1, 1), Cell(1, "weights", 0, 2, 0)]
        for reading in (*AGGREGATES, *[NORMS] * (layer.has("w_o") and layer.has("value"))):
            if reading.name == "rollout" and layer.key_tokens != layer.tokens:
                continue
            matrices = {cell: reading.matrix(trace, cell.layer, cell.head) for cell in cells}
            for cell, matrix in matrices.items():
                explanation = reading.explain(trace, cell)
                assert explanation.value == float(matrix[cell.row, cell.column]), (step, reading.name)
                assert near(explanation.result, explanation.value), (step, explanation)
                assert near(float(plain_value(explanation.short)), explanation.value), (step, explanation)
                assert len(explanation.lines) > 1, (step, explanation)
                merged_ = (
                    merge_tokens(layer, [layer.tokens[0]], False, "hide") if layer.tokens == layer.key_tokens else layer
                )
                check_all(Trace(merged_.tokens, (merged_,), merged_.key_tokens), 0, ["weights"])


# -- the guard cannot be bypassed -----------------------------------------------------------------------------------


def test_explanation_with_contradictory_terms_cannot_be_constructed() -> None:
    explanation = explain(traced("default"), "scores", q=1, k=2)
    with pytest.raises(ValueError, match="state it as recorded"):
        replace(explanation, value=3 * explanation.value)
    with pytest.raises(ValueError, match="state it as recorded"):
        Explanation(explanation.step, explanation.cell, 1.0, "quotient", (Term("1", 1.0), Term("0", 0.0)), (), "")


def work(name: str, step: str, q: int, k: int) -> ExplanationBuilder:
    layer = traced(name).layers[0]
    value = float(layer.matrix(step)[q, k])
    return ExplanationBuilder(layer, find_step(step), Cell(0, step, 0, q, k), value)


FALSE: dict[str, Callable[[ExplanationBuilder], Explanation]] = {
    "a claim": lambda work: work.from_claim(work.value * 1.01, "It is so.", "so"),
    "a hidden key": lambda work: work.from_claim(-math.inf, "The mask hides it.", "hidden by the mask"),
    "a zero": lambda work: work.from_arithmetic(Arithmetic.zero("It is dropped.", "dropped")),
    "a copy": lambda work: work.from_copy("scores", work.cell.row, work.cell.column, "The same.", "stays"),
    "values": lambda work: work.from_arithmetic(Arithmetic("x", [number], [number], "It is 2 and 3.", [2.0, 3.0])),
    "a line": lambda work: work.from_arithmetic(
        Arithmetic("x", [lambda digits: number(3 * work.value, digits)], [lambda digits: number(work.value, digits)], "It.", [work.value])
    ),
    "a short line": lambda work: work.from_arithmetic(
        Arithmetic("x", [lambda digits: number(work.value, digits)], [lambda digits: number(3 * work.value, digits)], "It.", [work.value])
    ),
    "a reason": lambda work: work.from_arithmetic(
        Arithmetic("x", [lambda digits: number(work.value, digits)], [lambda digits: number(work.value, digits)], "It.", [work.value], reason="hidden")
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", FALSE)
def test_new_explanation_kind_with_false_arithmetic_states_nothing(kind: str) -> None:
    working = work("default", "scaled_scores", 1, 2)
    explanation = FALSE[kind](working)
    assert (explanation.short, explanation.came_from, len(explanation.lines), explanation.result) == (
        "",
        (),
        1,
        working.value,
    )
    assert "hides" not in explanation.words
    assert "It" not in explanation.words.split()


def test_explanations_are_created_in_one_place_and_never_modified() -> None:
    """Outside `Working._build` only the difference of two states creates an explanation, and no code replaces its fields."""
    stated = {field.name for field in fields(Explanation)} - {"step", "words", "near"}
    calls = []
    for path in sorted((Path(__file__).parents[2] / "attention").rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
                name = getattr(call.func, "id", getattr(call.func, "attr", ""))
                if name == "Explanation":
                    calls.append((path.name, function.name))
                if name == "replace" and "numbers" in path.parts:
                    assert not {keyword.arg for keyword in call.keywords} & (stated - {"cell", "cells"}), (
                        path,
                        ast.unparse(call),
                    )
    assert (
        {("explanation.py", "_build")}
        <= set(calls)
        <= {("explanation.py", "_build"), ("comparison.py", "explain_difference")}
    )


# -- the copied Python ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["causal, sinusoidal", "projected", "shared keys"])
@pytest.mark.parametrize("size", [3.0, 1.002])
def test_copied_python_of_an_altered_file_gives_its_numbers(
    name: str, size: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded tensors are loaded, and not recomputed by a formula that does not give them."""
    monkeypatch.chdir(tmp_path)
    trace = traced(name)
    for step in ("input", "query", "scores", "masked_scores", "weights", "head_output", "output", "w_o"):
        key = f"L0.{step}"
        array = dict(np.load(io.BytesIO(array_writer.npz(trace))))[key]
        opened = saved(trace, tmp_path / "altered.npz", **{key: array * array.dtype.type(size)})
        program, variables = python(File.open(tmp_path / "altered.npz"), opened), dict[str, Any]()
        exec(compile(program, "<program>", "exec"), variables)
        variables["file"].close()
        for recorded_step in opened.layers[0].steps:
            actual = variables.get({"input": "x", "memory": "x2"}.get(recorded_step.name, recorded_step.name))
            if actual is not None:
                assert actual == approx(opened.layers[0][recorded_step.name]), f"{step}: {recorded_step.name}"
