"""What an explanation states is what the tensors make: every recorded step of every source is altered, one at a time, and nothing false is stated."""

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
from test_explain import read, worked_out
from tiny_models import TinyModels
from torch import Tensor

from attention import (
    NOTEBOOKS,
    AttentionConfig,
    Cell,
    Explanation,
    File,
    Layer,
    Matrices,
    Model,
    Notebook,
    Source,
    Step,
    Trace,
    Trained,
    TypedText,
    explain,
    find_step,
)
from attention.export import arrays
from attention.export.program import python
from attention.formula import masks, patching
from attention.formula.formula import Formula
from attention.formula.intervention import read as interventions
from attention.formula.merging import MergedLayer, merged
from attention.formula.positions import sinusoidal
from attention.formula.scores import SCORES
from attention.formula.shares import SHARES
from attention.models.library import LIBRARY, Settings
from attention.numbers import changes
from attention.numbers.aggregates import AGGREGATES
from attention.numbers.arithmetic import Term
from attention.numbers.compare import compare
from attention.numbers.norms import NORMS
from attention.numbers.working import Working
from attention.pictures.line import cell_line
from attention.pictures.live import HEAD_STEPS, live
from attention.printed import Arithmetic, number

CAT = "the cat sat on the mat"
FACTORS = (3.0, 7.0)
NEAR = 1e-4  # of the sizes that are added, and twice that where both sides are rounded

KNOBS: dict[str, dict[str, Any]] = {
    "default": {},
    "causal, sinusoidal": {"mask": "causal", "positions": "sinusoidal"},
    "learned positions": {"positions": "learned", "temperature": 2.5},
    "rope": {"positions": "rope", "mask": "causal"},
    "alibi": {"positions": "alibi", "mask": "causal"},
    "relative": {"positions": "relative"},
    "cap": {"cap": 2.0, "mask": "window", "window": 1},
    "cap at temperature 0": {"cap": 2.0, "temperature": 0.0},
    "softmax1": {"share": "softmax1"},
    "sigmoid": {"share": "sigmoid", "mask": "causal"},
    "sparsemax": {"share": "sparsemax", "temperature": 0.3},
    "dropout": {"dropout": 0.3, "mask": "causal"},
    "shared keys": {"n_heads": 4, "n_kv_heads": 2},
    "cosine": {"score": "cosine"},
    "additive": {"score": "additive"},
    "not scaled": {"scaled": False, "temperature": 0.35},
    "identity": {"init": "identity", "d_model": 9},
    "temperature 0": {"temperature": 0.0, "mask": "causal"},
    "temperature 0, a bias": {"temperature": 0.0, "positions": "alibi"},
    "temperature 0, sigmoid": {"temperature": 0.0, "share": "sigmoid"},
    "blind rows": {"mask": "custom", "cells": masks.encode(torch.tensor([[0, 0, 0], [1, 0, 1], [1, 1, 1]]).bool())},
}
SMALL = ((1.0, 2.0, -0.5), (0.5, -1.0, 3.0), (0.25, 1.5, 2.0))
SOURCES: dict[str, Source] = {
    **{name: TypedText("the cat sat", AttentionConfig(**{"d_model": 8, "n_heads": 2, **knobs})) for name, knobs in KNOBS.items()},
    "two texts": TypedText("the cat sat", AttentionConfig(d_model=8, n_heads=2, mask="causal"), "a dog ran off"),
    "projected": Matrices(x=SMALL, w_q=SMALL, w_k=SMALL, w_v=SMALL, w_o=SMALL, b_q=((1, 2, 3),), b_o=((3, 2, 1),)),
    "the input itself": Matrices(x=SMALL),
    "biased, dropped": Matrices(
        query=SMALL, key=SMALL, value=SMALL, divisor=3.0,
        bias=((0, -math.inf, 1), (1, 0, 0), (-math.inf,) * 3), drop=((1, 0, 2), (2, 2, 0), (1, 1, 1)),
    ),
    "scores": Matrices(scores=SMALL, value=SMALL, config=AttentionConfig(mask="causal")),
    **{name: Notebook(name) for name in NOTEBOOKS},
    **{f"trained {task}": Trained(task, steps=4) for task in ("reverse", "induction", "dates", "lookup")},
    "trained, changed": Trained("induction", steps=4, interventions=interventions("0.0.mean0.5;1.0.w2,1=0.25r")),
}  # fmt: skip
MODELS = {
    "GPT-2": "", "Llama": "", "Gemma 2": "", "gpt-oss": "", "OPT": "", "T5": "", "BART": "", "Bloom": "",
    "GPT-2, changed": "0.1.t0.5;0.1.unscaled;0.2.first;0.3.s2,1=2;0.3.w3,0=0.75r;0.0.mean0.5;1.2.zero;1.1.w2,1=0.25",
    "T5, changed": "0.1.takeA;0.2.takeZ;0.3.takeV;1.*.zero0.5",
}  # fmt: skip


# -- what somebody makes of the tensors by themselves --------------------------------------------


def row_of(layer: Layer, name: str, cell: Cell, at: int) -> Tensor:
    return layer.matrix(name, cell.head)[at].double()


def factors_of(layer: Layer, step: str) -> list[str]:
    return [name for _, name in layer.factors(next(one for one in layer.steps if one.name == step))]


def of_one(layer: Layer, cell: Cell) -> float:
    """The number of the one step before."""
    before = factors_of(layer, cell.step)[0]
    return float(layer.matrix(before, cell.head)[cell.row, cell.column])


def formula_of(layer: Layer, cell: Cell) -> Formula:
    assert layer.formula is not None
    return layer.formula.of(cell.head)


def product_of(layer: Layer, cell: Cell) -> float:
    if len(factors_of(layer, cell.step)) == 1:  # no projection
        return of_one(layer, cell)
    left, right = factors_of(layer, cell.step)[:2]
    if cell.step == "output":
        z, w_o = layer[left][:, cell.row].double(), layer[right][:, :, cell.column].double()
        return float((z * w_o).sum()) + (float(layer["b_o"][cell.column]) if layer.has("b_o") else 0.0)
    one, other = row_of(layer, left, cell, cell.row), layer.matrix(right, cell.head).double()
    if cell.step == "scores":
        kind, key = SCORES[formula_of(layer, cell).score], other[cell.column]
        if kind.how == "cosine":
            lengths = float(one.norm() * key.norm())
            return float(one @ key) / lengths if lengths else 0.0
        return (
            float(layer["w_s"][cell.head].double() @ (one + key).tanh()) if kind.how == "additive" else float(one @ key)
        )
    bias = f"b_{cell.step[0]}"
    plus = float(row_of(layer, bias, cell, cell.column)) if cell.step != "head_output" and layer.has(bias) else 0.0
    return float(one @ other[:, cell.column]) + plus


def rotated_of(layer: Layer, cell: Cell) -> float:
    row = row_of(layer, cell.step.removeprefix("rotated_"), cell, cell.row)
    half = len(row) // 2
    angle = cell.row * (formula_of(layer, cell).rotary or 0) ** (-2 * (cell.column % half) / len(row))
    one = complex(float(row[cell.column % half]), float(row[cell.column % half + half]))
    turned = one * complex(math.cos(angle), math.sin(angle))
    return turned.real if cell.column < half else turned.imag


def scaled_of(layer: Layer, cell: Cell) -> float:
    formula = formula_of(layer, cell)
    return of_one(layer, cell) / ((formula.divisor or 1.0) * (layer.of(cell.head).temperature or 1.0))


def capped_of(layer: Layer, cell: Cell) -> float:
    score, cap = of_one(layer, cell), formula_of(layer, cell).cap or 1.0
    return cap * (math.copysign(bool(score), score) if layer.of(cell.head).temperature == 0 else math.tanh(score / cap))


def sum_of(layer: Layer, cell: Cell) -> float:
    return sum(float(layer.matrix(name, cell.head)[cell.row, cell.column]) for name in factors_of(layer, cell.step))


def masked_of(layer: Layer, cell: Cell) -> float:
    hidden = layer.has("mask") and not bool(layer["mask"][cell.row, cell.column])
    return -math.inf if hidden else of_one(layer, cell)


def weight_of(layer: Layer, cell: Cell) -> float:
    """By the way to share out itself, of the masked scores as they stand; the limit of temperature 0 beside it."""
    formula, one = formula_of(layer, cell), layer.of(cell.head)
    share = SHARES[formula.share]
    if share.parameter:
        share = share.knowing(layer[share.parameter][cell.head : cell.head + 1].double())
    scores = row_of(layer, "masked_scores", cell, cell.row)
    if one.temperature == 0 and not formula.cap:
        bias = row_of(layer, "bias", cell, cell.row) if formula.bias else torch.zeros_like(scores)
        before = row_of(layer, "scaled_scores", cell, cell.row).masked_fill(scores == -math.inf, -math.inf)
        return float(share.limit(before[None, None], bias[None, None])[0, 0, cell.column])
    return float(share.weights(scores[None, None])[0, 0, cell.column])


def dropped_of(layer: Layer, cell: Cell) -> float:
    weights = layer["weights"].double()
    return float(formula_of(layer, cell).dropping.weights(layer, weights, slice(None), slice(None))[cell.head, cell.row, cell.column])  # fmt: skip


def kept_of(layer: Layer, cell: Cell) -> float:
    taken = None if layer.taken_output is None else layer["taken_output"][cell.head].double()
    z = patching.patched_output(formula_of(layer, cell).by_hand, layer.matrix("head_output", cell.head).double(), taken)
    return float(z[cell.row, cell.column])


def wave_of(layer: Layer, cell: Cell) -> float:
    return float(sinusoidal(cell.row + 1, layer["position"].shape[1])[cell.row, cell.column])


MADE: dict[str, Callable[[Layer, Cell], float]] = {
    "position": wave_of, "input": sum_of, "query": product_of, "key": product_of, "value": product_of,
    "rotated_query": rotated_of, "rotated_key": rotated_of, "scores": product_of, "scaled_scores": scaled_of,
    "capped_scores": capped_of, "biased_scores": sum_of, "masked_scores": masked_of, "weights": weight_of,
    "dropped_weights": dropped_of, "head_output": product_of, "kept_output": kept_of, "output": product_of,
}  # fmt: skip
"""Every step as its formula makes it of the tensors before it, in double precision and one cell at a time."""


# -- what an explanation may state -----------------------------------------------------------------


def near(one: float, other: float, size: float = 0.0) -> bool:
    return one == other or abs(one - other) <= 2 * NEAR * (size + abs(one) + abs(other)) + 1e-30


def set_by_hand(layer: Layer, cell: Cell) -> bool:
    """Whether a hand has put this number, or another of its row, in its place."""
    if layer.formula is None:
        return False
    hand, kind = formula_of(layer, cell).by_hand, cell.step.removeprefix("masked_")
    return any((one.step, one.query) == (kind, cell.row) for one in hand.cells)


def hides(layer: Layer, cell: Cell) -> bool:
    return layer.has("mask") and not bool(layer["mask"][cell.row, cell.column])


def check_words(layer: Layer, found: Explanation) -> None:
    """Every sentence that says why a number is as it is, by whether it is so."""
    cell, words, said = found.cell, f"{found.words} {found.short}", layer.of(found.cell.head)
    if "The mask hides key" in words or "hidden by the mask" in words:
        assert hides(layer, cell), found
        assert found.value == (-math.inf if cell.step == "masked_scores" else 0), found
    if "The mask lets" in words or "stays as it is" in words or "stays −∞" in words:
        before = "weights" if cell.step == "dropped_weights" else factors_of(layer, cell.step)[0]
        assert found.value == float(layer.matrix(before, cell.head)[cell.row, cell.column]), found
        assert not hides(layer, cell) or found.value == 0, found
    if "bias hides" in words or "bias has hidden" in words or "by the bias" in words:
        row = row_of(layer, "bias", cell, cell.row)
        assert bool((row == -math.inf).all() if "every key" in words else row[cell.column] == -math.inf), found
    if "mask hides every key" in words:
        assert not bool(layer["mask"][cell.row].any()), found
    if "set by hand" in found.short:
        values = [
            one.value
            for one in formula_of(layer, cell).by_hand.cells
            if (one.query, one.key) == (cell.row, cell.column)
        ]
        assert any(near(found.value, value) for value in values), found
    if "Taken from" in words and cell.step in ("weights", "kept_output"):
        taken = layer["taken_weights" if cell.step == "weights" else "taken_output"]
        assert found.value == float(taken[cell.head, cell.row, cell.column]), found
    if "W_O is not known" in words:
        assert not layer.has("w_o"), found
    if "no query and key made it" in words:
        assert not (layer.has("query") and layer.has("key")), found
    if "its projection is not known" in words:
        assert not layer.has(f"w_{cell.step[0]}"), found
    if "goes on as it is" in words or "itself" in found.short or " alone" in found.short:
        (source,) = found.came_from or (None,)
        assert source is None or found.value == float(layer.matrix(source.step, source.head)[source.row, source.column])
    if "not divided" in words:
        assert said.divisor == 1, found


def check(trace: Trace, found: Explanation) -> bool:
    """Nothing false; and whether more than the number itself is stated."""
    layer, value, cell = trace.layers[found.cell.layer], found.value, found.cell
    size = sum(abs(term.value) for term in found.terms) if found.operation == "sum" else 0.0
    assert near(found.result, value, size), found
    sides = [re.search(r"&(=|\\approx) (.*)$", line, re.DOTALL)[2].strip() for line in found.lines]  # type: ignore[index]
    for tex in sides:
        if not re.search(r"[A-Z]['_^{]|\\sum|X_2|\\text\{|\\max|\\bar|\\tau", tex):
            assert near(float(worked_out(tex)), value, size) or abs(float(worked_out(tex)) - value) <= 1e-3 * abs(
                value
            ), (tex, found)
    if found.short:
        assert near(float(read(found.short)), value, size) or abs(float(read(found.short)) - value) <= 1e-3 * abs(
            value
        ), found
    for one in found.came_from:
        _ = layer.matrix(one.step, one.head)[one.row, one.column]
    check_words(layer, found)
    states = len(sides) > 1 or bool(found.short) or bool(found.came_from)
    if states and found.cell.step in MADE and not isinstance(layer, MergedLayer) and not set_by_hand(layer, cell):
        hand = None if layer.formula is None else formula_of(layer, cell).by_hand
        if hand is None or not hand.takes(cell.step):
            assert near(MADE[cell.step](layer, cell), value, size), (MADE[cell.step](layer, cell), found)
            check_terms(layer, found)
    return states


def check_terms(layer: Layer, found: Explanation) -> None:
    """The summands of a product are products of numbers of the row and the column that it names."""
    cell = found.cell
    if (
        cell.step not in ("query", "key", "value", "scores", "head_output")
        or len(found.terms) < 2
        or found.operation != "sum"
    ):
        return
    if cell.step == "scores" and SCORES[formula_of(layer, cell).score].how != "product":
        return
    left, right = factors_of(layer, cell.step)[:2]
    one, other = row_of(layer, left, cell, cell.row), layer.matrix(right, cell.head).double()
    products = (one * (other[cell.column] if cell.step == "scores" else other[:, cell.column])).tolist()
    shown = [term for term in found.terms if r"\text{ more}" not in term.tex and r"\cdot" in term.tex]
    assert all(any(math.isclose(term.value, each, rel_tol=1e-9) for each in products) for term in shown), found


def some_cells(layer: Layer, step: str, head: int, most: int = 3) -> list[tuple[int, int]]:
    """The largest number, a hidden or the smallest one, and some others."""
    matrix = layer.matrix(step, head)
    rows, columns = matrix.shape
    flat = matrix.double().flatten()
    first = {int(flat.abs().nan_to_num(posinf=0).argmax()), int(flat.argmin())}
    drawn = random.Random(f"{step} {head}").sample(range(rows * columns), min(most, rows * columns))
    return [divmod(at, columns) for at in [*first, *drawn][:most]]


def heads_of(layer: Layer, step: Step) -> set[int]:
    """The last head, and those with a formula of their own."""
    changed = () if layer.formula is None else (head for head, _ in layer.formula.heads)
    return {layer.n_heads - 1, *changed} if step.per_head else {0}


def cells_of(layer: Layer, step: str, head: int, most: int) -> list[tuple[int, int]]:
    """Some cells, and those that a hand has set."""
    hand = () if layer.formula is None else layer.formula.of(head).by_hand.cells
    there = [(one.query, one.key) for one in hand if one.step == step.removeprefix("masked_")]
    return list(dict.fromkeys([*there, *some_cells(layer, step, head, most)]))


def check_all(trace: Trace, at: int, steps: list[str] | None = None, most: int = 3) -> int:
    """Every step of a layer; how many of the explanations state more than the number."""
    layer, stated = trace.layers[at], 0
    for step in (one for one in layer.steps if steps is None or one.name in steps):
        for head in heads_of(layer, step):
            for q, k in cells_of(layer, step.name, head, most):
                stated += check(trace, explain(trace, step.name, at, head, q, k))
    return stated


# -- what is altered ---------------------------------------------------------------------------------


def altered(layer: Layer) -> Iterator[tuple[str, Layer]]:
    """The layer with one step or parameter of those that it has multiplied, the mask with its cells turned over."""
    names = [*(step.name for step in layer.steps), *(name for name in layer.recorded if name not in {one.name for one in layer.steps})]  # fmt: skip
    for i, name in enumerate(names):
        tensor = layer[name]
        other = ~tensor if tensor.dtype == torch.bool else tensor * FACTORS[i % 2]
        if not torch.equal(other, tensor):
            yield name, layer.recording(**{name: other})


def users(layer: Layer, name: str) -> list[str]:
    """The steps that read this one, and itself."""
    readers = [step.name for step in layer.steps if name in [one for _, one in layer.factors(step)]]
    beside = {"sinks": ["weights"], "w_s": ["scores"], "drop": ["dropped_weights"], "mask": ["masked_scores", "weights"],
              "bias": ["biased_scores", "masked_scores", "weights"], "bias_table": ["biased_scores"],
              "taken_weights": ["weights"], "taken_output": ["kept_output"]}.get(name, [name[2:] and {"q": "query", "k": "key", "v": "value", "o": "output"}.get(name[2:], "")])  # fmt: skip
    return [one for one in dict.fromkeys([name, *readers, *beside]) if one and layer.has(one)]


def check_altered(trace: Trace, most: int = 3) -> None:
    for at, layer in enumerate(trace.layers):
        check_all(trace, at)
        for name, other in altered(layer):
            changed = Trace(
                trace.tokens, tuple(other if i == at else one for i, one in enumerate(trace.layers)), trace.key_tokens
            )
            steps = [one for one in users(other, name) if one in {step.name for step in other.steps}]
            check_all(changed, at, steps, most)


@cache
def traced(name: str) -> Trace:
    return SOURCES[name].trace()


@pytest.mark.parametrize("name", SOURCES)
def test_no_step_that_is_altered_is_explained_falsely(name: str) -> None:
    check_altered(traced(name))


@pytest.mark.parametrize("name", MODELS)
def test_no_step_of_a_model_that_is_altered_is_explained_falsely(tiny: TinyModels, name: str) -> None:
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
    """The trace as a real file has it, with other numbers under some names."""
    found = dict(np.load(io.BytesIO(arrays.npz(trace)))) | others
    np.savez(place, **found)
    return File.open(place).trace()


@pytest.mark.parametrize("name", ["default", "causal, sinusoidal", "rope", "cap", "two texts", "shared keys", "projected", "biased, dropped", "n4"])  # fmt: skip
@pytest.mark.parametrize("size", [3.0, 1.002])
def test_no_array_that_is_altered_in_a_file_is_explained_falsely(name: str, size: float, tmp_path: Path) -> None:
    """A factor that is near to 1 is taken for rounding, and the formula stays: the guard alone is left."""
    trace = Notebook(NOTEBOOKS[3]).trace() if name == "n4" else traced(name)
    found = dict(np.load(io.BytesIO(arrays.npz(trace))))
    for key, array in found.items():
        if re.match(r"L\d", key) and array.ndim > 1 and array.dtype != bool:
            with np.errstate(invalid="ignore"):
                opened = saved(trace, tmp_path / "altered.npz", **{key: array * array.dtype.type(size)})
            check_all(opened, 0, most=2)
            check_live(opened.layers[0], key.removeprefix("L0."))


def check_live(layer: Layer, name: str) -> None:
    """The page makes no step by itself that was recorded, nor one that is made of it."""
    sent = live(layer, 0)
    if sent is not None:
        assert not layer.holds.keys() & {*HEAD_STEPS, *sent["computable"]}, name
        assert "output" not in sent["computable"] or "head_output" not in layer.holds, name


def test_every_explanation_of_the_sources_as_they_are_states_its_arithmetic() -> None:
    """Or a guard that lets nothing through would pass these tests."""
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
            if step.of and step.name in MADE and len(layer.factors(step)) == len(step.of):
                assert check_all(traced(name), 0, [step.name]) > 0, (name, step.name)


# -- the examples that were found by hand -----------------------------------------------------------


def test_an_input_that_is_seven_embeddings_is_not_called_the_embedding(tmp_path: Path) -> None:
    """The first example of the issue: E is 0.427 where X is 2.988."""
    layer = traced("default").layers[0]
    found = {f"L0.{name}": layer[name].numpy().copy() for name in ("embedding", "query", "key", "value")}
    found["L0.embedding"][2, 3] = 0.0
    np.savez(tmp_path / "seven.npz", **found, **{"L0.input": 7 * found["L0.embedding"]})
    trace = File.open(tmp_path / "seven.npz").trace()
    told = explain(trace, "input", q=1, k=2)
    assert told.result == told.value == pytest.approx(7 * float(layer["embedding"][1, 2]))
    assert (told.short, told.came_from, len(told.lines)) == ("", (), 1)
    assert "not the sum" in told.words
    assert explain(trace, "input", q=2, k=3).words == told.words, "7 · 0 = 0 is a coincidence"
    assert "as recorded" in trace.layers[0].formula_of(find_step("input"))


def test_a_masked_score_that_is_three_scores_does_not_stay_as_it_is() -> None:
    """The second example of the issue."""
    layer = traced("default").layers[0]
    other = layer.recording(masked_scores=3 * layer["scaled_scores"])
    told = explain(Trace(layer.tokens, (other,)), "masked_scores", q=1, k=2)
    assert told.words == "The masked_scores as the source recorded it; what made it is not known."
    assert told.result == told.value
    assert told.came_from == ()
    line = cell_line(Trace(layer.tokens, (other,)), told.cell)
    assert (line["shown"], line["short"], line["from"]) == (told.shown, "", []), "nor in the page's own line"


def test_a_score_of_minus_infinity_that_no_mask_hides_is_not_blamed_on_the_mask() -> None:
    layer = traced("causal, sinusoidal").layers[0]
    scores = layer["masked_scores"].clone()
    scores[:, 2, 0] = -math.inf
    scores[:, 1] = -math.inf
    scores[:, 0, 2] = 1.0  # which the mask hides
    trace = Trace(layer.tokens, (layer.recording(masked_scores=scores),))
    for q, k in ((2, 0), (1, 0), (0, 2)):
        assert "as the source recorded it" in explain(trace, "masked_scores", q=q, k=k).words
    assert explain(trace, "weights", q=2, k=0).short == "0: its score is −∞"
    assert explain(trace, "weights", q=1, k=0).short == "0: every score is −∞"
    assert explain(traced("causal, sinusoidal"), "weights", q=0, k=2).short == "0: hidden by the mask"


def test_a_weight_of_zero_that_dropout_has_left_is_not_called_dropped() -> None:
    layer = traced("dropout").layers[0]
    q, k = (layer["dropped_weights"][0] > 0).nonzero()[-1].tolist()
    assert explain(traced("dropout"), "dropped_weights", q=q, k=k).short.endswith(" / (1 − 0.3)")
    trace = Trace(layer.tokens, (layer.recording(dropped_weights=torch.zeros_like(layer["weights"])),))
    told = explain(trace, "dropped_weights", q=q, k=k)
    assert (told.value, told.short, told.came_from) == (0, "", ())
    dropped = ((layer["dropped_weights"][0] == 0) & (layer["weights"][0] > 0)).nonzero()
    assert [explain(trace, "dropped_weights", q=q, k=k).short for q, k in dropped.tolist()] == ["0: dropped"] * len(
        dropped
    )


def test_rows_that_give_all_to_hidden_tokens_have_nothing_to_divide() -> None:
    weights = torch.tensor([[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.25, 0.25]]])
    seen = merged(Layer("", ("[CLS]", "a", "b"), recorded={"weights": weights}), ["[CLS]"], False, "renormalise")
    told = explain(Trace(seen.tokens, (seen,)), "weights", q=0, k=1)
    assert (told.value, told.result, told.short) == (0, 0, "0: no token that is shown gets anything")
    assert explain(Trace(seen.tokens, (seen,)), "weights", q=1, k=1).result == 0.5


# -- what is read off, and what is different ----------------------------------------------------------


@pytest.mark.parametrize("name", ["causal, sinusoidal", "softmax1", "two texts", "biased, dropped"])
def test_what_is_read_off_altered_numbers_is_not_explained_falsely(name: str) -> None:
    for step, layer in [("", traced(name).layers[0]), *altered(traced(name).layers[0])]:
        trace = Trace(layer.tokens, (layer, layer), layer.key_tokens)
        cells = [Cell(1, "weights", 1 % layer.n_heads, 1, 1), Cell(1, "weights", 0, 2, 0)]
        for reading in (*AGGREGATES, *[NORMS] * (layer.has("w_o") and layer.has("value"))):
            if reading.name == "rollout" and layer.key_tokens != layer.tokens:
                continue
            matrices = {cell: reading.matrix(trace, cell.layer, cell.head) for cell in cells}
            for cell, matrix in matrices.items():
                told = reading.explain(trace, cell)
                assert told.value == float(matrix[cell.row, cell.column]), (step, reading.name)
                assert near(told.result, told.value), (step, told)
                assert near(float(read(told.short)), told.value), (step, told)
                assert len(told.lines) > 1, (step, told)
                merged_ = merged(layer, [layer.tokens[0]], False, "hide") if layer.tokens == layer.key_tokens else layer
                check_all(Trace(merged_.tokens, (merged_,), merged_.key_tokens), 0, ["weights"])


@pytest.mark.parametrize("name", ["default", "causal, sinusoidal", "dropout"])
def test_a_difference_is_what_its_line_states(name: str) -> None:
    a = traced(name)
    for step, layer in altered(a.layers[0]):
        b = Trace(a.tokens, (layer,), a.key_tokens)
        for one in (
            one
            for one in (step, "weights", "masked_scores", "output")
            if layer.has(one) and one in {s.name for s in layer.steps}
        ):
            found = compare(a, b, one)
            for q, k in some_cells(a.layers[0], one, 0):
                told = changes.told(found, Cell(0, one, 0, q, k))
                ours, theirs = (float(trace.layers[0].matrix(one)[q, k]) for trace in (a, b))
                if told is not None:
                    assert [term.value for term in told.terms] == [theirs, -ours]
                    assert near(float(read(told.short)), told.value, abs(ours) + abs(theirs)), told
                    assert near(told.result, told.value, abs(ours) + abs(theirs)), told


def test_a_difference_of_few_digits_is_told_as_its_type_rounds_it() -> None:
    a, b = (
        Layer("", ("a", "b"), recorded={"scores": torch.tensor([[[1.0, 0.3], [2.0, 7.0]]]).mul(by).bfloat16()})
        for by in (1, 1.07)
    )
    found = compare(Trace(("a", "b"), (a,)), Trace(("a", "b"), (b,)), "scores")
    told = changes.told(found, Cell(0, "scores", 0, 1, 1))
    assert told is not None
    assert told.result == pytest.approx(told.value, rel=0.02)


# -- no way around it -----------------------------------------------------------------------------------


def test_an_explanation_whose_terms_do_not_make_its_value_cannot_be_constructed() -> None:
    told = explain(traced("default"), "scores", q=1, k=2)
    with pytest.raises(ValueError, match="state it as recorded"):
        replace(told, value=3 * told.value)
    with pytest.raises(ValueError, match="state it as recorded"):
        Explanation(told.step, told.cell, 1.0, "quotient", (Term("1", 1.0), Term("0", 0.0)), (), "")


def work(name: str, step: str, q: int, k: int) -> Working:
    layer = traced(name).layers[0]
    value = float(layer.matrix(step)[q, k])
    return Working(layer, find_step(step), Cell(0, step, 0, q, k), value)


FALSE: dict[str, Callable[[Working], Explanation]] = {
    "a claim": lambda work: work.stated(work.value * 1.01, "It is so.", "so"),
    "a hidden key": lambda work: work.stated(-math.inf, "The mask hides it.", "hidden by the mask"),
    "a zero": lambda work: work.made(Arithmetic.zero("It is dropped.", "dropped")),
    "a copy": lambda work: work.copied("scores", work.cell.row, work.cell.column, "The same.", "stays"),
    "values": lambda work: work.made(Arithmetic("x", [number], [number], "It is 2 and 3.", [2.0, 3.0])),
    "a line": lambda work: work.made(
        Arithmetic("x", [lambda digits: number(3 * work.value, digits)], [lambda digits: number(work.value, digits)], "It.", [work.value])
    ),
    "a short line": lambda work: work.made(
        Arithmetic("x", [lambda digits: number(work.value, digits)], [lambda digits: number(3 * work.value, digits)], "It.", [work.value])
    ),
    "a reason": lambda work: work.made(
        Arithmetic("x", [lambda digits: number(work.value, digits)], [lambda digits: number(work.value, digits)], "It.", [work.value], reason="hidden")
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", FALSE)
def test_a_new_kind_that_states_something_false_states_nothing(kind: str) -> None:
    one = work("default", "scaled_scores", 1, 2)
    told = FALSE[kind](one)
    assert (told.short, told.came_from, len(told.lines), told.result) == ("", (), 1, one.value)
    assert "hides" not in told.words
    assert "It" not in told.words.split()


def test_explanations_are_made_in_one_place_and_altered_in_none() -> None:
    """Outside `Working._explained` only the difference of two states makes one, and nobody replaces what is stated."""
    stated = {field.name for field in fields(Explanation)} - {"step", "words", "near"}
    made = []
    for path in sorted((Path(__file__).parents[1] / "attention").rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            for call in (one for one in ast.walk(function) if isinstance(one, ast.Call)):
                name = getattr(call.func, "id", getattr(call.func, "attr", ""))
                if name == "Explanation":
                    made.append((path.name, function.name))
                if name == "replace" and "numbers" in path.parts:
                    assert not {one.arg for one in call.keywords} & (stated - {"cell", "cells"}), (
                        path,
                        ast.unparse(call),
                    )
    assert made == [("changes.py", "told"), ("working.py", "_explained")]


# -- the copied Python ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["causal, sinusoidal", "projected", "shared keys"])
@pytest.mark.parametrize("size", [3.0, 1.002])
def test_the_copied_python_of_an_altered_file_gives_the_numbers_of_the_file(
    name: str, size: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is recorded is loaded, and not made again by a formula that does not make it."""
    monkeypatch.chdir(tmp_path)
    trace = traced(name)
    for step in ("input", "query", "scores", "masked_scores", "weights", "head_output", "output", "w_o"):
        key = f"L0.{step}"
        array = dict(np.load(io.BytesIO(arrays.npz(trace))))[key]
        opened = saved(trace, tmp_path / "altered.npz", **{key: array * array.dtype.type(size)})
        program, variables = python(File.open(tmp_path / "altered.npz"), opened), dict[str, Any]()
        exec(compile(program, "<program>", "exec"), variables)
        variables["file"].close()
        for one in opened.layers[0].steps:
            there = variables.get({"input": "x", "memory": "x2"}.get(one.name, one.name))
            if there is not None:
                torch.testing.assert_close(
                    there, opened.layers[0][one.name], rtol=2e-5, atol=2e-5, msg=f"{step}: {one.name}"
                )
