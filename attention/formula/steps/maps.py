"""Steps that are a query × key map: each is made from the map before it, some heads and some queries at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.formula import names, patching
from attention.formula.steps.axis import MAP_AXES
from attention.formula.steps.step import Step, Steps

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.axes import Scores
    from attention.formula.formula import Formula

ALL = slice(None)


@dataclass(frozen=True, repr=False)
class Map(Step):
    """A map [head query_pos key_pos]; `make` makes it of the map before it."""

    def available(self, layer: Steps) -> bool:
        """Where there are scores."""
        return layer.has(names.SCORES)

    def make(self, layer: Steps, before: Scores | None, heads: slice, rows: slice) -> Scores:
        """This map of some heads and some queries, from the same block of the map before it; the first has none."""
        raise NotImplementedError(f"{self.name} has no make: say how it is computed.")

    def changed(self, layer: Steps, before: Scores | None, heads: slice, rows: slice) -> Scores:
        """The same with what was changed of it by hand."""
        hand = formula_of(layer).by_hand
        return patching.computed(hand, layer, self.name, heads, rows, lambda: self.make(layer, before, heads, rows))

    def block(self, layer: Steps, before: Scores | None, heads: slice, rows: slice) -> Scores:
        """The same where the layer has it recorded, and where some heads have another formula."""
        if self.name in layer.recorded:
            return layer.recorded[self.name][heads, rows]
        whole = self.changed(layer, before, heads, rows)
        there = range(*heads.indices(layer.n_heads))
        others = [head for head, _ in formula_of(layer).heads if head in there]
        whole = whole.clone() if others else whole  # it may be the step before, or recorded
        for head in others:
            at = slice(there.index(head), there.index(head) + 1)
            own = None if before is None else before[at]
            whole[at] = self.block(layer.of(head), own, slice(head, head + 1), rows)
        return whole

    def compute(self, layer: Steps, head: int | None) -> Tensor:
        """All heads or one, from the map before it as it is kept."""
        heads = ALL if head is None else slice(head, head + 1)
        before, maps = None, maps_of(layer)
        if at := maps.index(self):
            name = maps[at - 1].name
            before = layer[name] if head is None else layer.matrix(name, head)[None]
        whole = self.block(layer, before, heads, ALL)
        return whole if head is None else whole[0]


def maps_of(layer: Steps) -> list[Map]:
    """The maps of a layer in their order, each made from the one before it; the last mixes the values."""
    return [step for step in layer.steps if isinstance(step, Map)]


def formula_of(layer: Steps) -> Formula:
    """The formula of a layer that has one."""
    assert layer.formula is not None  # the layer has looked
    return layer.formula


def of_queries(layer: Steps, tensor: Tensor, heads: slice) -> Tensor:
    """Keys or values [kv_head …] as the `heads` of the queries see them: of several heads that share one, each the same."""
    import torch

    group = layer.n_heads // len(tensor)
    return tensor[heads] if group == 1 else tensor[torch.arange(layer.n_heads)[heads] // group]


def known(before: Scores | None) -> Scores:
    """The map before one that is not the first."""
    assert before is not None
    return before


__all__ = ["ALL", "MAP_AXES", "Map", "formula_of", "known", "maps_of", "of_queries"]
