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
from attention.trace.large_map import MAX_SIDE, BlockMaxima
from attention.trace.stats import HeadSurvey, StepStats

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


def survey(layer: LayerView, head: int) -> HeadSurvey:
    """One pass over the rows of a head, of which no map is kept."""
    maps, value, heads = maps_of(layer), repeat_kv(layer, layer[VALUE], slice(head, head + 1)), slice(head, head + 1)
    n_queries, n_keys = layer.sizes["query_pos"], layer.sizes["key_pos"]
    down, across = -(-n_queries // MAX_SIDE), -(-n_keys // MAX_SIDE)
    n_rows = max(1, BLOCK_ROWS // down) * down  # whole blocks
    facts: dict[str, StepStats] = {}
    maxima: dict[str, list[BlockMaxima]] = {step.name: [] for step in maps}
    outputs = []
    for start in range(0, n_queries, n_rows):
        rows, block = slice(start, start + n_rows), None
        for step in maps:
            block = step.resolve_block(layer, block, heads, rows)
            block_facts = StepStats.of(step, block)
            facts[step.name] = facts[step.name].merge(block_facts) if step.name in facts else block_facts
            if not layer.keeps_maps:
                maxima[step.name].append(BlockMaxima.of(block[0].numpy(), down, across))
        outputs.append(mix_values(require_previous(block), value)[0])
    joined = {name: BlockMaxima.stacked(parts) for name, parts in maxima.items() if parts}
    return HeadSurvey(facts, joined, torch.cat(outputs))


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
    if (layer.materialize_all_heads and layer.keeps_maps) or not layer.has(QUERY):
        scores = layer[SCORES]
    else:  # Cauchy-Schwarz: no score is larger than the product of the norms of its query and key
        scores = (layer[QUERY].norm(dim=-1).amax() * layer[KEY].norm(dim=-1).amax()).flatten()
    is_finite = bool(torch.isfinite(scores).all())
    return is_finite and not bool(torch.isfinite(scale_scores(scores, divisor, temperature)).all())
