"""The contract of every registry entry: each check yields one sentence for each missing piece, and nothing for a complete entry.

A number, its explanation, the copied program and the picture are compared on layers that the entry itself declares; so a new entry
needs no list here. `test_contract.py` runs the checks over all registries, and over entries with one piece missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from conftest import ROOT
from margins import approx
from torch import Tensor

from attention import Cell, ConfigError, Explanation, Layer, Trace, TypedText, explain
from attention.base.knobs import Choice, Knob, to_text
from attention.base.tokens import Patch
from attention.explanation import glossary
from attention.explanation.derived import DerivedMap
from attention.formula import functions, names
from attention.formula.config import KNOBS, MASKS
from attention.formula.edit_kinds import InterventionKind
from attention.formula.formula import Formula, from_json, to_json
from attention.formula.inline import defined
from attention.formula.mask import Mask
from attention.formula.normalizers import Normalizer
from attention.formula.scores import BIASES, BUCKETS, dot
from attention.formula.steps import AXES, DECLARED, Step
from attention.patching.forward import apply
from attention.patching.intervention import format_codes, parse_codes
from attention.pictures.heatmap import heatmap_json
from attention.pictures.view import STEP
from attention.program.formula_lines import formula_lines

NEAR = 2e-5  # relative to the sizes of the summands
FIGURE = ROOT / "attention" / "pictures" / "figure"
TOKENS = ("the", "cat", "saw", "the", "moon")
PATCH_TOKENS = ("[CLS]", *(Patch(0, 0, column, (0, 0, 1, 1)) for column in range(4)))
"""As many, for the masks that need patches."""


# -- a small layer with every tensor known ---------------------------------------------------------


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sample_layer(base: Formula, heads: int = 2, kv_heads: int = 2) -> Layer:
    """A layer that records every tensor that a formula may need: queries, keys, values, W_O, sinks, a table, another run."""
    n = len(TOKENS)
    recorded = {
        names.QUERY: rand(heads, n, 4),
        names.KEY: rand(kv_heads, n, 4, seed=1),
        names.VALUE: rand(kv_heads, n, 4, seed=2),
        "w_o": rand(heads, 4, 6, seed=3),
        "w_s": rand(heads, 4, seed=4),
        "sinks": rand(heads, seed=5),
        "patched_weights": torch.softmax(rand(heads, n, n, seed=7), dim=-1),
        "patched_head_output": rand(heads, n, 4, seed=8),
    }
    if base.bias == "given":
        recorded["bias"] = rand(heads, n, n, seed=9)
    if base.bias == "relative":
        recorded["bias_table"] = rand(BUCKETS, heads, seed=6)
    masks = [formula.mask for formula in (base, *(edited for _, edited in base.heads))]
    tokens = PATCH_TOKENS if any(mask is not None and mask.needs_patches for mask in masks) else TOKENS
    return Layer("contract", tokens, tokens, recorded, base)


def run_program(layer: Layer) -> dict[str, Any]:
    """The variables of the layer's program, run on the recorded tensors."""
    seed = layer.formula.dropping.seed if layer.formula else 0
    lines = [*defined(dot), *formula_lines(layer, "key_tokens")]
    space: dict[str, Any] = {**layer.recorded, "tokens": list(layer.tokens), "key_tokens": list(layer.key_tokens)}
    space |= {"torch": torch, "math": math, "np": np, "generator": lambda *name: functions.generator(seed, *name)}
    exec(compile("\n".join(lines), "<contract>", "exec"), space)
    return space


def sample_cells(rows: int, columns: int) -> set[tuple[int, int]]:
    return {(0, 0), (rows - 1, 0), (0, columns - 1), (rows // 2, columns // 2), (rows - 1, columns - 1)}


def has_arithmetic(explanation: Explanation) -> bool:
    """Whether an explanation states more than the number itself."""
    return len(explanation.lines) > 1 or bool(explanation.short) or bool(explanation.came_from)


def contradicts(explanation: Explanation) -> bool:
    """Whether the terms of an explanation do not give its number."""
    size = (
        sum(abs(term.value) for term in explanation.terms) if explanation.operation == "sum" else abs(explanation.value)
    )
    least = 1e-6  # a weight that is too small for float32 is 0
    return explanation.result != approx(explanation.value, scale=size + abs(explanation.value) + least, terms=1024)


def tensors_differ(actual: Tensor, other: Tensor) -> bool:
    return actual.shape != other.shape or actual.double() != approx(other.double(), nan=True)


def check_layer(layer: Layer, only: Iterable[str] = ()) -> Iterator[str]:
    """Value = explanation = program = picture, for every step that the formula computes, or for those in `only`."""
    steps = [step for step in layer.steps if step.name not in layer.available and (not only or step.name in only)]
    try:
        variables = run_program(layer)
    except Exception as error:  # each is one more fault that the test reports
        yield f"program: {type(error).__name__}: {error}"
        variables = {}
    trace = Trace(layer.tokens, (layer,))
    heads = {0, layer.n_heads - 1, *(head for head, _ in (layer.formula or Formula()).heads)}
    for step in steps:
        if variables and (step.name not in variables or tensors_differ(variables[step.name], layer[step.name])):
            yield f"program: it computes another {step.name}, or none"
        rows, columns = layer.shape(step.name)[-2:]
        for head in heads if step.per_head else (0,):
            for row, column in sample_cells(rows, columns):
                try:
                    explanation = explain(trace, step.name, 0, head, row, column)
                except Exception as error:  # each is one more fault that the test reports
                    yield f"explanation: {step.name}: {type(error).__name__}: {error}"
                    break
                if not has_arithmetic(explanation):
                    yield f"explanation: {step.name}[{head}, {row}, {column}] is {explanation.words}"
                elif math.isfinite(explanation.value) and contradicts(explanation):
                    yield f"explanation: {step.name}[{head}, {row}, {column}] gives {explanation.result}, not {explanation.value}"
            painted = torch.tensor(heatmap_json(trace, step.name, 0, head)["data"][0]["z"])
            matrix = layer.matrix(step.name, head)
            if tensors_differ(painted, matrix.masked_fill(~matrix.isfinite(), math.nan)):
                yield f"picture: {step.name} of head {head} is painted as another matrix"


# -- the declarations of every entry ----------------------------------------------------------------


def missing_words(name: str, /, **texts: str) -> Iterator[str]:
    """A sentence for each empty text."""
    for field, text in texts.items():
        if not text.strip():
            yield f"{field}: {name} has none"


def check_link(knob: Knob, value: Any) -> Iterator[str]:
    """A sentence where a value does not survive a link."""
    parsed, refused = knob.read(to_text(value), knob.range, knob.default)
    if refused or parsed != value:
        yield f"link: {knob.key}={to_text(value)} is read as {parsed!r}"


def knob_of(name: str) -> Knob:
    return next(knob for knob in KNOBS if knob.name == name)


def in_script(file: str, table: str) -> set[str]:
    """The names in a table of a script of the page."""
    text = (FIGURE / file).read_text()
    block = text[text.index(f"export const {table} = ") :]
    block = block[: re.search(r"^[}\]];", block, re.MULTILINE).start()]
    if table == "CHAIN":
        return set(re.findall(r'^    name: "(\w+)"', block, re.MULTILINE))
    return set(re.findall(r"^  (\w+)[,:(]", block, re.MULTILINE))


def check_in_page(name: str, declared: bool, scripts: set[str]) -> Iterator[str]:
    """A sentence where `in_page` of an entry disagrees with the page's scripts."""
    if declared != (name in scripts):
        yield f"page: {name} says in_page = {declared}, the scripts of the figure say {name in scripts}"


# -- the registries ---------------------------------------------------------------------------------


def check_step(step: Step) -> Iterator[str]:
    """A step has a name, an attribute of `Layer`, a row in the glossary and a place in links, and its explanations are right."""
    if getattr(names, step.name.upper(), None) != step.name:
        yield f"name: attention.formula.names has no {step.name.upper()}"
    if step.name not in dir(Layer):
        yield f"attribute: Layer has no {step.name}"
    if step.name not in set(glossary.frame(Layer())["name"]) or step not in glossary.search(step.name):
        yield f"glossary: it has no row for {step.name}"
    if " = " not in step.equation:
        yield f"equation: {step.name} has none"
    yield from missing_words(step.name, symbol=step.symbol, formula=step.formula, unknown=step.unknown)
    if unknown := {*step.axes} - {axis.name for axis in AXES}:
        yield f"axes: {unknown} are not declared"
    for name in (name for factor in step.of for name in factor.names if name not in DECLARED):
        yield f"factors: {step.name} is made of {name}, which is no step and no parameter"
    yield from check_link(STEP, step.name)
    scripts = in_script("kernel.js", "CHAIN") | in_script("live_steps.js", "STEPS") | {names.SCORES}
    yield from check_in_page(step.name, bool(step.in_page), scripts)
    if step.by_formula or step.name == names.OUTPUT:
        example = Formula(**{**BUSY, **dict(step.example)})
        layer = sample_layer(example)
        plain = replace(example, head_edits=Formula().head_edits)  # head edits are already in the recorded numbers
        try:
            if from_json(to_json(plain)) != plain:
                yield f"file: the formula of {step.name} comes back from a file as another"
        except ConfigError as error:
            yield f"file: {error}"
        if not layer.has(step.name):
            yield f"example: a formula with {step.example} has no {step.name}"
        else:
            yield from check_layer(layer)
            yield from check_layer(sample_layer(example, heads=4), (step.name,))
    elif not any(source.trace().layers[0].has(step.name) for source in TYPED):
        yield f"source: no typed text has {step.name}"


BUSY: dict[str, Any] = {"divisor": 2.0, "temperature": 0.7, "mask": Mask("causal")}
TYPED = (TypedText("a b", text2="c"), TypedText("a b", replace(TypedText("a").config, positions="sinusoidal")))


def check_normalizer(name: str, normalizer: Normalizer) -> Iterator[str]:
    """A normalizer has words, paper and formula; its numbers agree at every temperature, masked and with a bias."""
    if normalizer.name != name:
        yield f"name: {name} calls itself {normalizer.name}"
    yield from missing_words(name, words=normalizer.words, paper=normalizer.paper, formula=normalizer.formula)
    if not normalizer.parameter:
        yield from check_link(knob_of("normalizer"), name)
    elif normalizer.parameter not in DECLARED:
        yield f"parameter: {normalizer.parameter} is declared nowhere"
    yield from check_in_page(name, normalizer.in_page, in_script("kernel.js", "NORMALIZERS"))
    for knobs in ({}, {"temperature": 0.0}, {"temperature": 0.0, "bias": "alibi"}, {"cap": 1.0}):
        yield from check_layer(sample_layer(Formula(**{**BUSY, "normalizer": name, **knobs})), (names.WEIGHTS,))


def check_score(name: str, score: Any) -> Iterator[str]:
    """A score has words, paper and formula, and its numbers agree."""
    if score.name != name:
        yield f"name: {name} calls itself {score.name}"
    yield from missing_words(
        name,
        words=score.words,
        paper=score.paper,
        formula=score.formula,
        scaled=score.scaled,
        cell_words=score.cell_words,
    )
    yield from check_link(knob_of("score"), name)
    yield from check_in_page(name, score.in_page, in_script("kernel.js", "SCORES"))
    for knobs, kv_heads in (({}, 2), ({"rotary": 10_000.0}, 1)):
        layer = sample_layer(Formula(**{**BUSY, "score": name, **knobs}), kv_heads=kv_heads)
        yield from check_layer(layer, (names.SCORES, names.SCALED_SCORES))


def check_bias(name: str, bias: Any) -> Iterator[str]:
    """A bias has words, and its numbers agree."""
    yield from missing_words(name, words=bias.words)
    yield from check_layer(sample_layer(Formula(**BUSY, bias=name)), (names.BIASED_SCORES, names.WEIGHTS))


def check_source(source: Any, only: Iterable[str] = ()) -> Iterator[str]:
    """The layers of a source's trace agree, and so does its complete program, run alone."""
    from test_code import CALLED, run

    from attention.export.program import python

    trace = source.trace()
    for layer in trace.layers[:2]:
        yield from check_layer(layer, only)
    variables = run(python(source, trace))
    layer = trace.layers[0].wrapped.without(*source.snippet(trace).omitted)
    for step, tensor in layer:
        actual = variables.get(CALLED.get(step.name, step.name))
        if actual is None or tensors_differ(actual, tensor):
            yield f"program: the source's program computes another {step.name}, or none"


def check_positions(name: str, positions: Any) -> Iterator[str]:
    """Positions have words and paper, and their numbers agree, beginning with a typed text."""
    if positions.name != name:
        yield f"name: {name} calls itself {positions.name}"
    yield from missing_words(name, words=positions.words, **({} if name == "none" else {"paper": positions.paper}))
    yield from check_link(knob_of("positions"), name)
    config = replace(TypedText("a").config, d_model=8, n_heads=2, positions=name)
    yield from check_source(TypedText("the cat saw the moon", config))
    trace = TypedText("the cat", config).trace()
    for step in (step for step in trace.layers[0].steps if step.name == names.INPUT):
        if not has_arithmetic(explain(trace, step.name, q=1, k=1)):
            yield f"explanation: {step.name} of {name} states nothing"


def check_mask(kind: str) -> Iterator[str]:
    """The numbers of a mask agree: its rule in the program hides the same keys as `build`."""
    if kind in MASKS:  # others are masks of heads inside models, without a knob
        yield from check_link(knob_of("mask"), kind)
    real = (True, True, True, True, False)
    for mask in (Mask(kind, 1, 2), Mask(kind, 1, 2, real=real)):
        layer = sample_layer(Formula(**{**BUSY, "mask": mask}))
        yield from check_layer(layer, (names.MASKED_SCORES, names.WEIGHTS))
        if layer.hides_keys and tensors_differ(run_program(layer)["mask"].double(), layer["mask"].double()):
            yield f"program: its rule for {kind} hides other keys"


def check_intervention(kind: InterventionKind) -> Iterator[str]:
    """Each example of a kind survives a link, has words, and changes every number, explanation and program."""
    yield from missing_words(kind.name, name=kind.name, term=kind.term)
    if not kind.examples:
        yield f"examples: {kind.name} has none"
    if missing := set(kind.fields) - set(kind.checks):
        yield f"checks: {missing} have no range"
    for short in kind.examples:
        try:
            (intervention,) = interventions = parse_codes(f"0.1.{short}")
            if format_codes(interventions) != f"0.1.{short}" or intervention.kinds != (kind,):
                yield f"link: 0.1.{short} comes back as {format_codes(interventions)}"
            yield from missing_words(short, words=intervention.words, brief=intervention.summary)
            for bias in ("", *BIASES):
                base = Formula(**{**BUSY, "mask": Mask("prefix", prefix=3), "bias": bias})
                before, after = sample_layer(base), sample_layer(apply(base, 2, 2, interventions))
                if after.formula == before.formula:
                    yield f"effect: {short} does not change the formula"
                yield from (f"{short}: {fault}" for fault in check_layer(after))
        except Exception as error:  # each is one more fault that the test reports
            yield f"{short}: {type(error).__name__}: {error}"


def check_derived_map(derived: DerivedMap, trace: Trace) -> Iterator[str]:
    """A derived map has words, a formula, and an explanation of every cell."""
    yield from missing_words(derived.name, words=derived.words, formula=derived.step.formula)
    matrix = derived.matrix(trace, 1, 0)
    for row, column in sample_cells(*matrix.shape):
        explanation = derived.explain(trace, Cell(1, names.WEIGHTS, 0, row, column))
        if (
            not has_arithmetic(explanation)
            or contradicts(explanation)
            or explanation.value != float(matrix[row, column]) + 0.0
        ):
            yield f"explanation: {derived.name}[{row}, {column}] gives {explanation.result}, not {float(matrix[row, column])}"


def variants() -> dict[str, dict[str, Any]]:
    """The knobs of a typed text for every registry entry, for a few other variants, and for many at once."""
    singles = {
        f"{knob.name} {value}": {knob.name: value}
        for knob in KNOBS
        if knob.name in ("positions", "score", "normalizer") and isinstance(knob.range, Choice)
        for value in knob.range.options
        if value != knob.default
    }
    several = {
        "positions": "alibi",
        "n_kv_heads": 2,
        "score": "cosine",
        "cap": 0.5,
        "normalizer": "softmax1",
        "dropout": 0.3,
    }
    return singles | {
        "grouped": {"n_kv_heads": 2},
        "one key head": {"n_kv_heads": 1, "positions": "rope"},
        "capped": {"cap": 1.5},
        "all at once": several,
    }
