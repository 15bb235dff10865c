"""The steps of a layer that it has not recorded, made when they are looked at: all heads or one, all queries or some."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from attention.formula import positions
from attention.formula.biases import BIASES
from attention.formula.facts import Facts, Survey
from attention.formula.formula import Formula
from attention.formula.functions import cap_scores, mask_scores, mix_values, project_output, scale_scores
from attention.formula.scores import ROWS, SCORES
from attention.formula.shares import SHARES
from attention.formula.steps import MAP_AXES, Step, find_step
from attention.formula.tensors import Tensors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attention.formula.axes import Scores

_ALL = slice(None)


class Steps(Tensors, Protocol):
    """A layer as this module sees it: what is recorded, and the formula that makes the rest."""

    @property
    def recorded(self) -> Mapping[str, Tensor]:
        """Tensors by the name of their step or parameter."""

    @property
    def formula(self) -> Formula | None:
        """What makes the steps that are not recorded."""

    @property
    def whole(self) -> bool:
        """Whether the query × key matrices are made for all heads at once."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that there are, in the order of the formula."""

    @property
    def temperature(self) -> float:
        """The formula's temperature, 0 where a quotient overflows."""

    @property
    def hides(self) -> bool:
        """Whether the mask hides anything."""

    def has(self, name: str, /) -> bool:
        """Whether there is a step or parameter."""

    def matrix(self, name: str, head: int = 0, /) -> Tensor:
        """One head's matrix of a step or parameter."""

    def of(self, head: int, /) -> Steps:
        """The same as one head has it."""


def made(layer: Steps, name: str, head: int | None) -> Tensor:
    """A step that the layer has not recorded, of one head [row column] or of all."""
    formula, heads = _formula(layer), _ALL if head is None else slice(head, head + 1)
    if name == "mask":
        assert formula.mask is not None
        return formula.mask.build(layer.sizes["query_pos"], layer.sizes["key_pos"])
    if name == "output":
        z = layer["kept_output" if layer.has("kept_output") else "head_output"]
        return project_output(z, layer["w_o"], layer.recorded.get("b_o"))
    if name == "kept_output":
        z, taken = layer["head_output"], layer.recorded.get("taken_output")
        kept = (formula.of(i).by_hand.kept(one, None if taken is None else taken[i]) for i, one in enumerate(z))
        return torch.stack(list(kept))
    if name == "head_output":
        return mix_values(layer[_maps(layer)[-1].name], _of_queries(layer, layer["value"], _ALL))
    if name.startswith("rotated_"):
        whole = positions.rotated(layer[name.removeprefix("rotated_")], formula.rotary or positions.BASE)
    elif name == "bias":
        whole = BIASES[formula.bias].bias(layer, heads, _ALL)
    else:
        step, maps = find_step(name), _maps(layer)
        at = maps.index(step)
        before = None
        if at:
            before = layer[maps[at - 1].name] if head is None else layer.matrix(maps[at - 1].name, head)[None]
        whole = _block(layer, step, before, heads, _ALL)
    return whole if head is None else whole[0]


def survey(layer: Steps) -> Survey:
    """The facts of all maps of all heads, and their outputs: every head some queries at a time, and nothing kept of them."""
    maps, value = _maps(layer), layer["value"]
    facts: dict[str, Facts] = {}
    outputs = []
    for head in range(layer.n_heads):
        heads, rows = slice(head, head + 1), []
        for at in range(0, layer.sizes["query_pos"], ROWS):
            known = None
            for step in maps:
                known = _block(layer, step, known, heads, slice(at, at + ROWS))
                found = Facts.of(step, known)
                facts[step.name] = facts[step.name].and_(found) if step.name in facts else found
            assert known is not None
            rows.append(mix_values(known, _of_queries(layer, value, heads))[0])
        outputs.append(torch.cat(rows))
    return Survey(facts, torch.stack(outputs))


def part(layer: Steps, names: tuple[str, ...], heads: slice, rows: slice) -> tuple[Scores, ...]:
    """Maps of some heads and some queries, made from the start, and nothing kept of them."""
    found = {name: layer.recorded[name][heads, rows] for name in names if name in layer.recorded}
    known = None
    for step in _maps(layer):
        if len(found) == len(names):
            break
        known = _block(layer, step, known, heads, rows)
        if step.name in names:
            found[step.name] = known
    return tuple(found[name] for name in names)


def overflows(layer: Steps, formula: Formula) -> bool:
    """Whether scores that are finite become infinite when they are divided."""
    divisor, temperature = formula.divisor or 1.0, formula.temperature
    if temperature == 0 or divisor * temperature >= 1:
        return False  # a division by so much shrinks, and nobody needs to look
    if layer.whole or not layer.has("query"):
        scores = layer["scores"]
    else:  # no score is larger than the lengths of its query and its key, multiplied
        scores = (layer["query"].norm(dim=-1).amax() * layer["key"].norm(dim=-1).amax()).flatten()
    finite = bool(torch.isfinite(scores).all())
    return finite and not bool(torch.isfinite(scale_scores(scores, divisor, temperature)).all())


def _formula(layer: Steps) -> Formula:
    assert layer.formula is not None  # the layer has looked
    return layer.formula


def _maps(layer: Steps) -> list[Step]:
    """The maps of a layer in their order, each made from the one before it; the last mixes the values."""
    return [step for step in layer.steps if step.axes == MAP_AXES]


def _of_queries(layer: Steps, tensor: Tensor, heads: slice) -> Tensor:
    """Keys or values [kv_head …] as the `heads` of the queries see them: of several heads that share one, each the same."""
    group = layer.n_heads // len(tensor)
    return tensor[heads] if group == 1 else tensor[torch.arange(layer.n_heads)[heads] // group]


def _block(layer: Steps, step: Step, before: Scores | None, heads: slice, rows: slice) -> Scores:
    """One map of some heads and some queries, from the same block of the map before it."""
    if step.name in layer.recorded:
        return layer.recorded[step.name][heads, rows]
    whole = _scores(layer, heads, rows) if before is None else _MADE[step.name](layer, before, heads, rows)
    there = range(*heads.indices(layer.n_heads))
    others = [head for head, _ in _formula(layer).heads if head in there]
    whole = whole.clone() if others else whole  # it may be the step before, or recorded
    for head in others:
        at = slice(there.index(head), there.index(head) + 1)
        whole[at] = _block(layer.of(head), step, None if before is None else before[at], slice(head, head + 1), rows)
    return whole


def _scores(layer: Steps, heads: slice, rows: slice) -> Scores:
    names = ("rotated_query", "rotated_key") if _formula(layer).rotary else ("query", "key")
    query, key = (layer[name] for name in names)
    score = SCORES[_formula(layer).score]
    own = layer[score.parameter][heads] if score.parameter else None
    return score.scores(query[heads, rows], _of_queries(layer, key, heads), own)


def _scaled_scores(layer: Steps, before: Scores, heads: slice, rows: slice) -> Scores:
    return scale_scores(before, _formula(layer).divisor or 1.0, layer.temperature)


def _capped_scores(layer: Steps, before: Scores, heads: slice, rows: slice) -> Scores:
    return cap_scores(before, _formula(layer).cap or 1.0, layer.temperature)


def _biased_scores(layer: Steps, before: Scores, heads: slice, rows: slice) -> Scores:
    return before + BIASES[_formula(layer).bias].bias(layer, heads, rows)


def _masked_scores(layer: Steps, before: Scores, heads: slice, rows: slice) -> Scores:
    masked = mask_scores(before, layer["mask"][rows] if layer.hides else None)
    return _formula(layer).by_hand.set("scores", masked, rows)


def _weights(layer: Steps, before: Scores, heads: slice, rows: slice) -> Scores:
    hand = _formula(layer).by_hand
    if hand.takes("weights"):
        return hand.set("weights", layer["taken_weights"][heads, rows], rows)
    return hand.set("weights", _shared_out(layer, before, heads, rows), rows)


def _shared_out(layer: Steps, before: Scores, heads: slice, rows: slice) -> Scores:
    formula = _formula(layer)
    share = SHARES[formula.share]
    if share.parameter:
        share = share.knowing(layer[share.parameter][heads])
    if layer.temperature != 0 or formula.cap:  # capped scores have a limit of their own
        return share.weights(before)
    if not formula.bias:
        return share.limit(before, torch.zeros_like(before))
    # The scores decide, and a bias only among the largest: so it is taken out again.
    known = None
    for step in _maps(layer)[: [step.name for step in _maps(layer)].index("biased_scores")]:
        known = _block(layer, step, known, heads, rows)
    assert known is not None
    bias = BIASES[formula.bias].bias(layer, heads, rows)
    known = known.masked_fill(bias == -math.inf, -math.inf)  # what a bias hides stays hidden
    return share.limit(_masked_scores(layer, known, heads, rows), bias)


def _dropped_weights(layer: Steps, before: Scores, heads: slice, rows: slice) -> Scores:
    return _formula(layer).dropping.weights(layer, before, heads, rows)


_MADE: dict[str, Callable[[Steps, Scores, slice, slice], Scores]] = {
    f.__name__.removeprefix("_"): f
    for f in (_scaled_scores, _capped_scores, _biased_scores, _masked_scores, _weights, _dropped_weights)
}
