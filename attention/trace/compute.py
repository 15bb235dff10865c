"""Computes the steps that a layer has not recorded: for one head or all, for some queries or all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attention.formula.formula import Formula
from attention.formula.functions import mix_values, scale_scores
from attention.formula.names import KEY, QUERY, SCORES, VALUE
from attention.formula.score_steps import ALL, formula_of, maps_of, repeat_kv, require_previous
from attention.formula.scores import BIASES, BLOCK_ROWS
from attention.formula.steps import find_step
from attention.trace.stats import LayerStats, StepStats

if TYPE_CHECKING:
    from attention.formula.step import LayerView
    from attention.formula.tensor_types import Scores


def compute_step(layer: LayerView, name: str, head: int | None) -> Tensor:
    """A step, the mask or the bias, for one head [row column] or, with None, for all heads."""
    formula = formula_of(layer)
    if name == "mask":
        assert formula.mask is not None
        places = layer.patch_places if formula.mask.needs_patches else None
        return formula.mask.build(layer.sizes["query_pos"], layer.sizes["key_pos"], places)
    if name == "bias":
        bias = BIASES[formula.bias].bias(layer, ALL if head is None else slice(head, head + 1), ALL)
        return bias if head is None else bias[0]
    return find_step(name).compute(layer, head)


def compute_stats(layer: LayerView) -> LayerStats:
    """Statistics of all maps over all heads, and the head outputs; computed in blocks of queries that are not cached."""
    maps, value = maps_of(layer), layer[VALUE]
    facts: dict[str, StepStats] = {}
    outputs = []
    for head in range(layer.n_heads):
        heads, rows = slice(head, head + 1), []
        for start in range(0, layer.sizes["query_pos"], BLOCK_ROWS):
            block = None
            for step in maps:
                block = step.resolve_block(layer, block, heads, slice(start, start + BLOCK_ROWS))
                block_facts = StepStats.of(step, block)
                facts[step.name] = facts[step.name].merge(block_facts) if step.name in facts else block_facts
            rows.append(mix_values(require_previous(block), repeat_kv(layer, value, heads))[0])
        outputs.append(torch.cat(rows))
    return LayerStats(facts, torch.stack(outputs))


def compute_blocks(layer: LayerView, names: tuple[str, ...], heads: slice, rows: slice) -> tuple[Scores, ...]:
    """Blocks of maps for some heads and queries, each [head query_pos key_pos], computed without the cache."""
    blocks = {name: layer.recorded[name][heads, rows] for name in names if name in layer.recorded}
    block = None
    for step in maps_of(layer):
        if len(blocks) == len(names):
            break
        block = step.resolve_block(layer, block, heads, rows)
        if step.name in names:
            blocks[step.name] = block
    return tuple(blocks[name] for name in names)


def scaling_overflows(layer: LayerView, formula: Formula) -> bool:
    """Whether finite scores become infinite when the formula scales them."""
    divisor, temperature = formula.divisor or 1.0, formula.temperature
    if temperature == 0 or divisor * temperature >= 1:
        return False  # dividing by at least 1 cannot overflow
    if layer.materialize_all_heads or not layer.has(QUERY):
        scores = layer[SCORES]
    else:  # Cauchy-Schwarz: no score is larger than the product of the norms of its query and key
        scores = (layer[QUERY].norm(dim=-1).amax() * layer[KEY].norm(dim=-1).amax()).flatten()
    is_finite = bool(torch.isfinite(scores).all())
    return is_finite and not bool(torch.isfinite(scale_scores(scores, divisor, temperature)).all())
