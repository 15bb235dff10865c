"""What every entry of a registry owes: each check gives a sentence for whatever was forgotten, and nothing where all is there.

A number, its explanation, the copied program and the picture are compared on layers that the entry itself names; so a new entry
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
from torch import Tensor

from attention import Cell, ConfigError, Explanation, Layer, Trace, TypedText, explain
from attention.export.formula import formula
from attention.formula import names, seeds
from attention.formula import written as file_formula
from attention.formula.biases import BIASES, BUCKETS
from attention.formula.changing import changed
from attention.formula.config import KNOBS
from attention.formula.formula import Formula
from attention.formula.inline import defined
from attention.formula.intervention import read, write
from attention.formula.knobs import Knob
from attention.formula.mask import Mask
from attention.formula.patching import Kind
from attention.formula.ranges import Choice, in_url
from attention.formula.scores import dot
from attention.formula.shares import Share
from attention.formula.steps import AXES, DECLARED, Step
from attention.numbers import glossary
from attention.numbers.readings import Reading
from attention.pictures.heatmap import heatmap_json
from attention.pictures.view import STEP

NEAR = 2e-5  # of the sizes that are added
FIGURE = ROOT / "attention" / "pictures" / "figure"
TOKENS = ("the", "cat", "saw", "the", "moon")


# -- a small layer of which all is known ---------------------------------------------------------


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layer_of(own: Formula, heads: int = 2, kv_heads: int = 2) -> Layer:
    """A layer with whatever a formula may need recorded: queries, keys, values, W_O, sinks, a table, another run."""
    n = len(TOKENS)
    recorded = {
        names.QUERY: rand(heads, n, 4),
        names.KEY: rand(kv_heads, n, 4, seed=1),
        names.VALUE: rand(kv_heads, n, 4, seed=2),
        "w_o": rand(heads, 4, 6, seed=3),
        "w_s": rand(heads, 4, seed=4),
        "sinks": rand(heads, seed=5),
        "taken_weights": torch.softmax(rand(heads, n, n, seed=7), dim=-1),
        "taken_output": rand(heads, n, 4, seed=8),
    }
    if own.bias == "given":
        recorded["bias"] = rand(heads, n, n, seed=9)
    if own.bias == "relative":
        recorded["bias_table"] = rand(BUCKETS, heads, seed=6)
    return Layer("contract", TOKENS, TOKENS, recorded, own)


def ran(layer: Layer) -> dict[str, Any]:
    """The variables of the layer's program, run on what is recorded."""
    seed = layer.formula.dropping.seed if layer.formula else 0
    lines = [*defined(dot), *formula(layer, "key_tokens")]
    space: dict[str, Any] = {**layer.recorded, "tokens": list(layer.tokens), "key_tokens": list(layer.key_tokens)}
    space |= {"torch": torch, "math": math, "np": np, "generator": lambda *name: seeds.generator(seed, *name)}
    exec(compile("\n".join(lines), "<contract>", "exec"), space)
    return space


def some(rows: int, columns: int) -> set[tuple[int, int]]:
    return {(0, 0), (rows - 1, 0), (0, columns - 1), (rows // 2, columns // 2), (rows - 1, columns - 1)}


def states(found: Explanation) -> bool:
    """Whether more than the number itself is stated."""
    return len(found.lines) > 1 or bool(found.short) or bool(found.came_from)


def far(found: Explanation) -> bool:
    """Whether the terms do not make the number."""
    size = sum(abs(term.value) for term in found.terms) if found.operation == "sum" else abs(found.value)
    return abs(found.result - found.value) > NEAR * (size + abs(found.value)) + 1e-9


def differ(one: Tensor, other: Tensor) -> bool:
    return one.shape != other.shape or not torch.allclose(
        one.double(), other.double(), rtol=1e-6, atol=1e-6, equal_nan=True
    )


def of_layer(layer: Layer, only: Iterable[str] = ()) -> Iterator[str]:
    """Value = explanation = program = picture, of every step that the formula makes; of `only` some where they are named."""
    steps = [one for one in layer.steps if one.name not in layer.holds and (not only or one.name in only)]
    try:
        made = ran(layer)
    except Exception as error:
        yield f"program: {type(error).__name__}: {error}"
        made = {}
    trace = Trace(layer.tokens, (layer,))
    heads = {0, layer.n_heads - 1, *(head for head, _ in (layer.formula or Formula()).heads)}
    for step in steps:
        if made and (step.name not in made or differ(made[step.name], layer[step.name])):
            yield f"program: it makes another {step.name}, or none"
        rows, columns = layer.shape(step.name)[-2:]
        for head in heads if step.per_head else (0,):
            for row, column in some(rows, columns):
                try:
                    found = explain(trace, step.name, 0, head, row, column)
                except Exception as error:
                    yield f"explanation: {step.name}: {type(error).__name__}: {error}"
                    break
                if not states(found):
                    yield f"explanation: {step.name}[{head}, {row}, {column}] is {found.words}"
                elif math.isfinite(found.value) and far(found):
                    yield f"explanation: {step.name}[{head}, {row}, {column}] makes {found.result}, not {found.value}"
            painted = torch.tensor(heatmap_json(trace, step.name, 0, head)["data"][0]["z"])
            own = layer.matrix(step.name, head)
            if differ(painted, own.masked_fill(~own.isfinite(), math.nan)):
                yield f"picture: {step.name} of head {head} is painted as another matrix"


# -- what every entry says of itself ----------------------------------------------------------------


def words(name: str, /, **said: str) -> Iterator[str]:
    """A sentence each."""
    for what, text in said.items():
        if not text.strip():
            yield f"{what}: {name} has none"


def link(knob: Knob, value: Any) -> Iterator[str]:
    """The value comes back from a link as it went in."""
    found, refused = knob.read(in_url(value), knob.range, knob.default)
    if refused or found != value:
        yield f"link: {knob.key}={in_url(value)} is read as {found!r}"


def knob_of(name: str) -> Knob:
    return next(one for one in KNOBS if one.name == name)


def in_script(file: str, table: str) -> set[str]:
    """The names in a table of a script of the page."""
    text = (FIGURE / file).read_text()
    block = text[text.index(f"export const {table} = ") :]
    block = block[: re.search(r"^[}\]];", block, re.MULTILINE).start()]  # type: ignore[union-attr]
    if table == "CHAIN":
        return set(re.findall(r'^    name: "(\w+)"', block, re.MULTILINE))
    return set(re.findall(r"^  (\w+)[,:(]", block, re.MULTILINE))


def page(name: str, declared: bool, scripts: set[str]) -> Iterator[str]:
    """An entry says that the page has it where the page's scripts do."""
    if declared != (name in scripts):
        yield f"page: {name} says in_page = {declared}, the scripts of the figure say {name in scripts}"


# -- the registries ---------------------------------------------------------------------------------


def of_step(step: Step) -> Iterator[str]:
    """A step has a name, an attribute of `Layer`, a row in the glossary, a place in links; and all that is said of its cells is so."""
    if getattr(names, step.name.upper(), None) != step.name:
        yield f"name: attention.formula.names has no {step.name.upper()}"
    if step.name not in dir(Layer):
        yield f"attribute: Layer has no {step.name}"
    if step.name not in set(glossary.frame(Layer())["name"]) or step not in glossary.matching(step.name):
        yield f"glossary: it has no row for {step.name}"
    if " = " not in step.equation:
        yield f"equation: {step.name} has none"
    yield from words(step.name, symbol=step.symbol, formula=step.formula, unknown=step.unknown)
    if unknown := {*step.axes} - {one.name for one in AXES}:
        yield f"axes: nobody says what {unknown} are"
    for name in (name for factor in step.of for name in factor.names if name not in DECLARED):
        yield f"factors: {step.name} is made of {name}, which is no step and no parameter"
    yield from link(STEP, step.name)
    scripts = in_script("kernel.js", "CHAIN") | in_script("steps.js", "STEPS") | {names.SCORES}
    yield from page(step.name, bool(step.in_page), scripts)
    if step.by_formula or step.name == names.OUTPUT:
        own = Formula(**{**BUSY, **dict(step.example)})
        layer = layer_of(own)
        plain = replace(own, by_hand=Formula().by_hand)  # what was done inside a model is in its numbers
        try:
            if file_formula.read(file_formula.written(plain)) != plain:
                yield f"file: the formula of {step.name} comes back from a file as another"
        except ConfigError as error:
            yield f"file: {error}"
        if not layer.has(step.name):
            yield f"example: a formula with {step.example} has no {step.name}"
        else:
            yield from of_layer(layer)
            yield from of_layer(layer_of(own, heads=4), (step.name,))
    elif not any(one.trace().layers[0].has(step.name) for one in TYPED):
        yield f"source: no typed text has {step.name}"


BUSY: dict[str, Any] = {"divisor": 2.0, "temperature": 0.7, "mask": Mask("causal")}
TYPED = (TypedText("a b", text2="c"), TypedText("a b", replace(TypedText("a").config, positions="sinusoidal")))


def of_normalizer(name: str, one: Share) -> Iterator[str]:
    """It says what it changes and where it comes from; warm and cold, masked and with a bias, all agree."""
    if one.name != name:
        yield f"name: {name} calls itself {one.name}"
    yield from words(name, words=one.words, paper=one.paper, formula=one.formula)
    if not one.parameter:
        yield from link(knob_of("share"), name)
    elif one.parameter not in DECLARED:
        yield f"parameter: {one.parameter} is declared nowhere"
    yield from page(name, one.in_page, in_script("kernel.js", "NORMALIZERS"))
    for own in ({}, {"temperature": 0.0}, {"temperature": 0.0, "bias": "alibi"}, {"cap": 1.0}):
        yield from of_layer(layer_of(Formula(**{**BUSY, "share": name, **own})), (names.WEIGHTS,))


def of_score(name: str, one: Any) -> Iterator[str]:
    """The same of a way to compare."""
    if one.name != name:
        yield f"name: {name} calls itself {one.name}"
    yield from words(name, words=one.words, paper=one.paper, formula=one.formula, scaled=one.scaled, told=one.told)
    yield from link(knob_of("score"), name)
    yield from page(name, one.in_page, in_script("kernel.js", "SCORES"))
    for own, kv_heads in (({}, 2), ({"rotary": 10_000.0}, 1)):
        layer = layer_of(Formula(**{**BUSY, "score": name, **own}), kv_heads=kv_heads)
        yield from of_layer(layer, (names.SCORES, names.SCALED_SCORES))


def of_bias(name: str, one: Any) -> Iterator[str]:
    """The same of a bias."""
    yield from words(name, words=one.words)
    yield from of_layer(layer_of(Formula(**BUSY, bias=name)), (names.BIASED_SCORES, names.WEIGHTS))


def of_source(source: Any, only: Iterable[str] = ()) -> Iterator[str]:
    """Its trace, layer by layer; and its whole program, run by itself."""
    from test_code import CALLED, run

    from attention.export.program import python

    trace = source.trace()
    for layer in trace.layers[:2]:
        yield from of_layer(layer, only)
    made = run(python(source, trace))
    layer = trace.layers[0].inner.without(*source.snippet(trace).without)
    for step, tensor in layer:
        ours = made.get(CALLED.get(step.name, step.name))
        if ours is None or differ(ours, tensor):
            yield f"program: the source's makes another {step.name}, or none"


def of_positions(name: str, one: Any) -> Iterator[str]:
    """The same of positions, from a typed text on."""
    if one.name != name:
        yield f"name: {name} calls itself {one.name}"
    yield from words(name, words=one.words, **({} if name == "none" else {"paper": one.paper}))
    yield from link(knob_of("positions"), name)
    config = replace(TypedText("a").config, d_model=8, n_heads=2, positions=name)
    yield from of_source(TypedText("the cat saw the moon", config))
    trace = TypedText("the cat", config).trace()
    for step in (one for one in trace.layers[0].steps if one.name == names.INPUT):
        if not states(explain(trace, step.name, q=1, k=1)):
            yield f"explanation: {step.name} of {name} states nothing"


def of_mask(kind: str) -> Iterator[str]:
    """The same of a mask: its rule in the program hides what `build` hides."""
    if kind != "first":  # which a head inside a model may have, and no knob
        yield from link(knob_of("mask"), kind)
    real = (True, True, True, True, False)
    for own in (Mask(kind, 1, 2), Mask(kind, 1, 2, real=real)):
        layer = layer_of(Formula(**{**BUSY, "mask": own}))
        yield from of_layer(layer, (names.MASKED_SCORES, names.WEIGHTS))
        if layer.hides and differ(ran(layer)["mask"].double(), layer["mask"].double()):
            yield f"program: its rule for {kind} hides other keys"


def of_intervention(kind: Kind) -> Iterator[str]:
    """Each of its examples comes back from a link, is put into words, and is in every number, explanation and program."""
    yield from words(kind.name, name=kind.name, term=kind.term)
    if not kind.examples:
        yield f"examples: {kind.name} has none"
    if missing := set(kind.fields) - set(kind.checks):
        yield f"checks: nobody says what {missing} may be"
    for short in kind.examples:
        try:
            (one,) = those = read(f"0.1.{short}")
            if write(those) != f"0.1.{short}" or one.kinds != (kind,):
                yield f"link: 0.1.{short} comes back as {write(those)}"
            yield from words(short, words=one.words, brief=one.brief)
            for bias in ("", *BIASES):
                own = Formula(**{**BUSY, "mask": Mask("prefix", prefix=3), "bias": bias})
                before, after = layer_of(own), layer_of(changed(own, 2, 2, those))
                if after.formula == before.formula:
                    yield f"turn: {short} changes nothing of the formula"
                yield from (f"{short}: {told}" for told in of_layer(after))
        except Exception as error:
            yield f"{short}: {type(error).__name__}: {error}"


def of_reading(one: Reading, trace: Trace) -> Iterator[str]:
    """A map that is read off: words, a formula, and an explanation of every cell."""
    yield from words(one.name, words=one.words, formula=one.step.formula)
    matrix = one.matrix(trace, 1, 0)
    for row, column in some(*matrix.shape):
        found = one.explain(trace, Cell(1, names.WEIGHTS, 0, row, column))
        if not states(found) or far(found) or found.value != float(matrix[row, column]) + 0.0:
            yield f"explanation: {one.name}[{row}, {column}] makes {found.result}, not {float(matrix[row, column])}"


def variants() -> dict[str, dict[str, Any]]:
    """The knobs of a typed text for every entry of its registries, a few beside, and one with much at once."""
    found = {
        f"{knob.name} {value}": {knob.name: value}
        for knob in KNOBS
        if knob.name in ("positions", "score", "share") and isinstance(knob.range, Choice)
        for value in knob.range.options
        if value != knob.default
    }
    several = {
        "positions": "alibi",
        "n_kv_heads": 2,
        "score": "cosine",
        "cap": 0.5,
        "share": "softmax1",
        "dropout": 0.3,
    }
    return found | {
        "grouped": {"n_kv_heads": 2},
        "one key head": {"n_kv_heads": 1, "positions": "rope"},
        "capped": {"cap": 1.5},
        "all at once": several,
    }
