"""A row or column over the picture for a page without a server: what stays the same is packed once, and the page adds the numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attention.core.names import KEY, QUERY
from attention.core.steps import find_step
from attention.core.trace import Trace
from attention.pictures.layout import CHOSEN_COLOR, HEIGHT, Spec, axis_noun, position_name
from attention.pictures.over_picture import FITTED, layout_images, over_picture_json
from attention.pictures.token_grid import TokenGrid
from attention.tokens import Patch, any_patch, place_label, shows_several_pictures

OWN = "{own}"
"""Stands in a packed text for the name of the chosen query or key."""


class PictureFigures:
    """The figures over a picture of a trace; those with the same tokens share their places, edges, words and pixels.

    Attributes:
        grids: what they share, as `picture_redraw.js` reads it: positions, shapes, annotations and images.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.grids: list[dict[str, Any]] = []
        self._without_pixels = replace(trace, pictures=())
        self._known: dict[tuple[Any, ...], int] = {}

    def figure(self, step: str, layer: int, head: int) -> Spec | None:
        """A row of a step over the picture, or a column where only its rows are patches, without numbers; None without patches."""
        declaration, drawn_layer = find_step(step), self.trace.layer(layer)
        axes = (declaration.column_axis, declaration.row_axis)
        patches = [axis for axis in axes if any_patch(drawn_layer.labels_of(axis))]
        if not patches:
            return None
        axis = patches[0]
        own_axis = axes[1] if axis == axes[0] else axes[0]
        fixed: dict[str, Any] = {QUERY if axis == axes[0] else KEY: 0}
        spec = over_picture_json(self._without_pixels, step, layer, head, colors=FITTED, **fixed)
        layout, (heat, *others) = spec["layout"], spec["data"]
        meta, subtitle = layout["meta"], layout["title"]["subtitle"]
        name = position_name(own_axis, 0, drawn_layer.labels_of(own_axis))
        for texts, key in (
            (heat, "hovertemplate"),
            (meta["hidden_trace"], "hovertemplate"),
            (meta, "alt"),
            (subtitle, "text"),
        ):
            texts[key] = texts[key].replace(name, OWN, 1)
        grid = self._grid(drawn_layer.labels_of(axis) or (), layout)
        meta["packed"] = {"grid": grid, "noun": axis_noun(own_axis), "head": head}
        del heat["z"], heat["text"]
        spec["data"] = [heat, *(trace for trace in others if trace["type"] != "heatmap")]
        layout["height"] = HEIGHT  # level with the maps beside it
        return spec

    def _grid(self, tokens: tuple[str, ...], layout: dict[str, Any]) -> int:
        """The index of what the figures of these tokens share, which is taken out of the layout of a figure."""
        positions, annotations = layout["meta"]["grid"].pop("positions"), layout.pop("annotations")
        edges = [shape for shape in layout.pop("shapes") if shape["line"].get("color") != CHOSEN_COLOR]
        key = tuple((token, token.picture, token.box) if isinstance(token, Patch) else token for token in tokens)
        if key not in self._known:
            grid = TokenGrid.of(tokens)
            assert grid is not None  # one of them is a patch
            several = shows_several_pictures(tokens)
            self._known[key] = len(self.grids)
            self.grids.append({
                "positions": positions.tolist(), "shapes": edges, "annotations": annotations,
                "images": layout_images(grid, self.trace, exact=False), "tokens": [place_label(token, several) for token in tokens],
            })  # fmt: skip
        return self._known[key]
