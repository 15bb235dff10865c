"""Steps that a layer has not recorded, made when they are looked at: of all heads or one, of all queries or some."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attention.formula.biases import BIASES
from attention.formula.facts import Facts, Survey
from attention.formula.formula import Formula
from attention.formula.functions import mix_values, scale_scores
from attention.formula.names import KEY, QUERY, SCORES, VALUE
from attention.formula.scores import ROWS
from attention.formula.steps import find_step
from attention.formula.steps.maps import ALL, formula_of, known, maps_of, of_queries

if TYPE_CHECKING:
    from attention.formula.axes import Scores
    from attention.formula.steps.step import Steps


def made(layer: Steps, name: str, head: int | None) -> Tensor:
    """A step, or what a formula makes of no other step, of one head [row column] or of all."""
    formula = formula_of(layer)
    if name == "mask":
        assert formula.mask is not None
        return formula.mask.build(layer.sizes["query_pos"], layer.sizes["key_pos"])
    if name == "bias":
        whole = BIASES[formula.bias].bias(layer, ALL if head is None else slice(head, head + 1), ALL)
        return whole if head is None else whole[0]
    return find_step(name).compute(layer, head)


def survey(layer: Steps) -> Survey:
    """The facts of all maps of all heads, and their outputs: every head some queries at a time, and nothing kept of them."""
    maps, value = maps_of(layer), layer[VALUE]
    facts: dict[str, Facts] = {}
    outputs = []
    for head in range(layer.n_heads):
        heads, rows = slice(head, head + 1), []
        for at in range(0, layer.sizes["query_pos"], ROWS):
            last = None
            for step in maps:
                last = step.block(layer, last, heads, slice(at, at + ROWS))
                found = Facts.of(step, last)
                facts[step.name] = facts[step.name].and_(found) if step.name in facts else found
            rows.append(mix_values(known(last), of_queries(layer, value, heads))[0])
        outputs.append(torch.cat(rows))
    return Survey(facts, torch.stack(outputs))


def part(layer: Steps, names: tuple[str, ...], heads: slice, rows: slice) -> tuple[Scores, ...]:
    """Maps of some heads and some queries, made from the start, and nothing kept of them."""
    found = {name: layer.recorded[name][heads, rows] for name in names if name in layer.recorded}
    last = None
    for step in maps_of(layer):
        if len(found) == len(names):
            break
        last = step.block(layer, last, heads, rows)
        if step.name in names:
            found[step.name] = last
    return tuple(found[name] for name in names)


def overflows(layer: Steps, formula: Formula) -> bool:
    """Whether scores that are finite become infinite when they are divided."""
    divisor, temperature = formula.divisor or 1.0, formula.temperature
    if temperature == 0 or divisor * temperature >= 1:
        return False  # a division by so much shrinks, and nobody needs to look
    if layer.whole or not layer.has(QUERY):
        scores = layer[SCORES]
    else:  # no score is larger than the lengths of its query and its key, multiplied
        scores = (layer[QUERY].norm(dim=-1).amax() * layer[KEY].norm(dim=-1).amax()).flatten()
    finite = bool(torch.isfinite(scores).all())
    return finite and not bool(torch.isfinite(scale_scores(scores, divisor, temperature)).all())
