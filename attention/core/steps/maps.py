"""Steps that are a query × key map: each is computed from the previous map, for some heads and queries at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.core import edit_kinds, names
from attention.core.axes import MAP_AXES
from attention.core.step import LayerView, Step

if TYPE_CHECKING:
    from torch import Tensor

    from attention.core.formula import Formula
    from attention.core.tensor_types import Scores

ALL = slice(None)


@dataclass(frozen=True, repr=False)
class MapStep(Step):
    """A map [head query_pos key_pos]; `compute_block` computes it from the previous map."""

    def available(self, layer: LayerView) -> bool:
        """Whether the layer has scores."""
        return layer.has(names.SCORES)

    def compute_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        """This map for some heads and queries, from the same block of the previous map; None for the first map."""
        raise NotImplementedError(f"{self.name} has no compute_block: define how it is computed.")

    def patched_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        """The block of `compute_block` with the interventions on this step."""
        edits = formula_of(layer).head_edits
        return edit_kinds.patched_block(
            edits, layer, self.name, heads, rows, lambda: self.compute_block(layer, previous, heads, rows)
        )

    def resolve_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        """The block of this map: recorded, or computed with the formula of each head."""
        if self.name in layer.recorded:
            return layer.recorded[self.name][heads, rows]
        block = self.patched_block(layer, previous, heads, rows)
        selected = range(*heads.indices(layer.n_heads))
        patched_heads = [head for head, _ in formula_of(layer).heads if head in selected]
        block = block.clone() if patched_heads else block  # it may be the previous step, or recorded
        for head in patched_heads:
            i = slice(selected.index(head), selected.index(head) + 1)
            previous_of_head = None if previous is None else previous[i]
            block[i] = self.resolve_block(layer.for_head(head), previous_of_head, slice(head, head + 1), rows)
        return block

    def compute(self, layer: LayerView, head: int | None) -> Tensor:
        """The map of all heads or of one, from the previous map as it is cached."""
        heads = ALL if head is None else slice(head, head + 1)
        previous, maps = None, maps_of(layer)
        if index := maps.index(self):
            name = maps[index - 1].name
            previous = layer[name] if head is None else layer.matrix(name, head)[None]
        block = self.resolve_block(layer, previous, heads, ALL)
        return block if head is None else block[0]


def maps_of(layer: LayerView) -> list[MapStep]:
    """The maps of a layer in order, each computed from the previous one; the last multiplies the values."""
    return [step for step in layer.steps if isinstance(step, MapStep)]


def formula_of(layer: LayerView) -> Formula:
    """The formula of a layer that has one."""
    assert layer.formula is not None  # checked by the layer
    return layer.formula


def repeat_kv(layer: LayerView, tensor: Tensor, heads: slice) -> Tensor:
    """Keys or values [kv_head …] repeated for these query heads, [head …] (repeat_kv)."""
    import torch

    group = layer.n_heads // len(tensor)
    return tensor[heads] if group == 1 else tensor[torch.arange(layer.n_heads)[heads] // group]


def require_previous(previous: Scores | None) -> Scores:
    """The previous map of a map that is not the first."""
    assert previous is not None
    return previous


__all__ = ["ALL", "MAP_AXES", "MapStep", "formula_of", "maps_of", "repeat_kv", "require_previous"]
