"""A trace as bytes for a page without a server: the maps of its layers and heads, their numbers, and Python's lines."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from attention.core import override
from attention.core.cell import Cell
from attention.core.config import TEMPERATURE
from attention.core.layer import Layer
from attention.core.mask_rules import KNOB_RULES
from attention.core.names import HEAD_OUTPUT, MASKED_SCORES, OUTPUT, SCALED_SCORES, WEIGHTS
from attention.core.override import SOURCE_MASK
from attention.core.steps import HEAD_AXES, MAP_AXES, STEPS, Step, declared, find_step, is_step
from attention.core.trace import Trace
from attention.export.demo.packing import cell_lines, describe_sides, describe_trace, is_plain_product
from attention.export.demo.picture_packing import PictureFigures
from attention.export.demo.pool import ArrayPool
from attention.params.ranges import Choice, Integer
from attention.pictures.controls import describe_control
from attention.pictures.factors import factor_map
from attention.pictures.heatmap import chosen_position, heatmap_json
from attention.pictures.layout import CHOSEN_COLOR, Spec
from attention.pictures.live_inputs import live_inputs
from attention.pictures.message import Surroundings, pack
from attention.pictures.message_contract import Control, Live
from attention.pictures.strip import step_strip
from attention.pictures.view import HEAD, LAYER, VIEWS, clamp_cell, overview_steps

MAX_BYTES = 1_000_000
"""The default limit of the arrays of one output; layers and heads beyond it are left out, and the output says which."""

_FIGURE_BYTES = 1_000  # the labels and titles of a map
_MAX_STEP_BYTES = 250_000  # a step without heads, such as the input of a wide model
_MAX_PARAMETER_BYTES = 250_000  # all matrices that a step is projected with
_MAX_COMPUTED_TOKENS = 32  # above this, the page computes maps from Q and K instead of receiving them
_MAX_LINES = 3_000  # cells whose lines Python writes, in all layers together
_PAGE_NORMALIZERS = ("softmax", "sparsemax")  # whose arithmetic page/explain.js writes
_KNOBS = ("mask", "window", "prefix", "temperature")
_EMPTY_FIGURE: Spec = {"data": [{"type": "scatter"}], "layout": {"meta": {"step": "", "panels": [], "alt": ""}}}


def pack_trace(trace: Trace, cell: Cell | None = None, view: str = VIEWS[0], max_bytes: int = MAX_BYTES) -> bytes:
    """A trace as the page reads it: layers beginning with that of the `cell`, as far as `max_bytes` allow.

    Raises:
        MissingError: the trace has no such layer, step or head.
    """
    pool, cell = ArrayPool(), cell or Cell(trace.attention_layers[0], WEIGHTS, 0, 0, 0)
    names = [step.name for step in trace.layer(cell.layer).steps]
    if cell.step == WEIGHTS and WEIGHTS not in names:
        cell = Cell(cell.layer, names[-1], cell.head, cell.row, cell.column)
    trace.layer(cell.layer).matrix(cell.step, cell.head)  # raises MissingError
    cell = clamp_cell(cell, trace.layer(cell.layer))
    chosen = _fitting_layers(trace, cell.layer, max_bytes)
    packers: dict[int, _LayerPacker] = {}
    over_pictures = PictureFigures(trace)
    n_lines = 0
    for index in chosen:
        heads = _fitting_heads(trace.layers[index], cell.head, max_bytes)
        packers[index] = _LayerPacker(trace, index, heads, chosen, pool, _MAX_LINES - n_lines, over_pictures)
        n_lines += packers[index].n_lines
    first = packers[cell.layer]
    step = cell.step if cell.step in first.names else next(iter(reversed(first.names)))
    initial = {"view": view if step in first.overview or view != VIEWS[0] else VIEWS[1], "step": step}
    initial |= dict(zip(("head", "q", "k"), map(str, (cell.head, cell.row, cell.column)), strict=True))
    layers = {str(index): packer.header(cell) for index, packer in sorted(packers.items())}
    return pool.pack({
        "layers": layers, "grids": over_pictures.grids,
        "layer": str(cell.layer), "initial": initial, "about": describe_trace(trace),
        "left_out": _left_out(trace, packers), "outline": CHOSEN_COLOR,
    })  # fmt: skip


def _fitting_layers(trace: Trace, first: int, max_bytes: int) -> list[int]:
    """The layer `first` and, as far as `max_bytes` allow, the layers nearest to it, in order."""
    chosen, size = [first], _layer_bytes(trace.layers[first])
    for index in sorted(trace.attention_layers, key=lambda index: abs(index - first))[1:]:
        size += _layer_bytes(trace.layers[index])
        if size > max_bytes:
            break
        chosen.append(index)
    return sorted(chosen)


def _fitting_heads(layer: Layer, first: int, max_bytes: int) -> tuple[int, ...]:
    """The heads that fit into `max_bytes`, the nearest to `first` if these are not all."""
    count = max(1, int(layer.n_heads * max_bytes / max(1, _layer_bytes(layer))))
    return tuple(sorted(sorted(range(layer.n_heads), key=lambda head: abs(head - first))[:count]))


def _layer_bytes(layer: Layer) -> int:
    """The approximate bytes of a layer's numbers and figures for all heads."""
    is_long = max(layer.sizes["query_pos"], layer.sizes["key_pos"]) > _MAX_COMPUTED_TOKENS
    steps = [step for step in layer.steps if step.per_head and not (is_long and step.axes == MAP_AXES)]
    figures = layer.n_heads * len(layer.steps) * _FIGURE_BYTES
    return figures + sum(4 * math.prod(layer.shape(step.name)) for step in steps)


def _left_out(trace: Trace, packers: dict[int, _LayerPacker]) -> str:
    """A sentence about what is not part of the output; empty if nothing is missing."""
    parts = []
    if len(packers) < len(trace.attention_layers):
        layers = f"layer {min(packers)}" if len(packers) == 1 else f"layers {min(packers)} to {max(packers)}"
        parts.append(f"This output has {layers} of {len(trace.layers)}: show(trace, layer=…) shows others.")
    if short := [packer for packer in packers.values() if len(packer.heads) < packer.layer.n_heads]:
        heads = short[0].heads
        parts.append(
            f"It has heads {heads[0]} to {heads[-1]} of {short[0].layer.n_heads}: show(trace, head=…) shows others."
        )
    missing = {
        step.symbol: None for packer in packers.values() for step in packer.layer.steps if step.name not in packer.names
    }
    if missing:
        parts.append(f"Not in this output: {', '.join(missing)}.")
    return " ".join(parts)


def _without_large_output(live: Live) -> Live:
    """The same without W_O if it is large: the page then does not compute the output."""
    if live["w_o"] is None or live["w_o"].nbytes <= _MAX_PARAMETER_BYTES:
        return live
    return {**live, "w_o": None, "computable": [name for name in live["computable"] if name != OUTPUT]}


class _LayerPacker:
    """One layer: which steps are shown, who explains them, and their figures by view, step and head."""

    def __init__(
        self,
        trace: Trace,
        index: int,
        heads: tuple[int, ...],
        layers: list[int],
        pool: ArrayPool,
        max_lines: int,
        over_pictures: PictureFigures,
    ) -> None:
        self.trace, self.index, self.heads, self.layers, self.pool = trace, index, heads, layers, pool
        self.over_pictures = over_pictures
        self.layer = layer = trace.layers[index]
        self.is_long = max(layer.sizes["query_pos"], layer.sizes["key_pos"]) > _MAX_COMPUTED_TOKENS
        self.live = self._live_inputs()
        self.computable = tuple(self.live["computable"]) if self.live else ()
        self.knobs = self._knobs()
        self.names = tuple(step.name for step in layer.steps if self._is_shown(step))
        self.overview = overview_steps(self.names)
        self.factors = {name: self._factors(find_step(name)) for name in self.names}
        self.explained = tuple(name for name in self.names if self._is_explained(find_step(name)))
        self.line_names, self.n_lines = self._steps_with_lines(max_lines)

    def _live_inputs(self) -> Live | None:
        """What the page computes steps from, for all packed heads."""
        if len(self.heads) == self.layer.n_heads:
            combined = live_inputs(self.layer, self.heads[0], max_bytes=10**9)
            if combined is None or len(combined["heads"]) == len(self.heads):
                return combined if combined is None else _without_large_output(combined)
        parts = [live_inputs(self.layer, head, max_bytes=0) for head in self.heads]
        if parts[0] is None:
            return None
        heads = {name: matrices for part in parts if part for name, matrices in part["heads"].items()}
        return {**parts[0], "heads": heads}

    def _knobs(self) -> tuple[str, ...]:
        """The knobs that the page follows by itself; none if it cannot compute the weights."""
        if self.live is None or WEIGHTS not in self.computable:
            return ()
        able = self.layer.overridable_knobs
        knobs = [name for name in _KNOBS if name in able]
        return tuple(name for name in knobs if name != "temperature" or TEMPERATURE.accepts(self.layer.temperature))

    def _is_shown(self, step: Step) -> bool:
        rows, columns = self.layer.shape(step.name)[-2:]
        if not step.per_head and 4 * rows * columns > _MAX_STEP_BYTES:
            return False
        if step.name == OUTPUT and len(self.heads) < self.layer.n_heads:
            return False
        depends_on_knobs = STEPS.index(step) >= STEPS.index(find_step(SCALED_SCORES))
        return not (self.knobs and depends_on_knobs and step.name not in self.computable)

    def _factors(self, step: Step) -> list[tuple[Any, str]]:
        """The factors drawn beside a step: none of them if one is too large, or not shown."""
        factors = self.layer.factors(step)
        for _, name in factors:
            if is_step(name):
                if name not in self.names:
                    return []
            elif (name != "mask" and 4 * math.prod(self.layer.shape(name)) > _MAX_PARAMETER_BYTES) or (
                len(self.heads) < self.layer.n_heads and not is_step(name) and name != "mask"
            ):
                return []
        return factors

    def _is_explained(self, step: Step) -> bool:
        """Whether page/explain.js writes the arithmetic of a step."""
        layer, formula = self.layer, self.layer.formula
        if self.live is None or formula is None or not TEMPERATURE.accepts(layer.temperature):
            return self.factors[step.name] != [] and is_plain_product(layer, step) and formula is not None
        if step.name == WEIGHTS:
            return formula.normalizer in _PAGE_NORMALIZERS
        if step.name == OUTPUT:
            return bool(self.factors[step.name]) and not layer.has("b_o") and HEAD_OUTPUT in self.names
        if step.name in (SCALED_SCORES, MASKED_SCORES):
            return True
        return bool(self.factors[step.name]) and is_plain_product(layer, step)

    def _steps_with_lines(self, max_lines: int) -> tuple[tuple[str, ...], int]:
        """The other steps whose lines Python writes, as far as `max_lines` allow."""
        names, total = [], 0
        for name in self.names:
            rows, columns = self.layer.shape(name)[-2:]
            count = rows * columns * (len(self.heads) if find_step(name).per_head else 1)
            if name not in self.explained and total + count <= max_lines:
                names.append(name)
                total += count
        return tuple(names), total

    def header(self, cell: Cell) -> dict[str, Any]:
        layer = self.layer
        figures = _Figures(self)
        views: dict[str, Any] = {}
        for name in self.names:
            marked = [self._marked(factor) for factor, _ in self.factors[name]]
            views[f"{VIEWS[1]} {name}"] = self._view(
                VIEWS[1],
                name,
                [*marked, (0, 1)],
                [figures.factors(name, head) for head in self.heads],
                figures.over_picture(name),
            )
        for name in self.overview if len(self.overview) > 1 else ():
            maps = [[figures.map(step, head) for step in self.overview] for head in self.heads]
            sides = [chosen_position(find_step(step), Cell(0, name, 0, 0, 1)) for step in self.overview]
            views[f"{VIEWS[0]} {name}"] = self._view(VIEWS[0], name, sides, maps, figures.over_picture(name))
        message = self.pool.header(
            pack(
                [_EMPTY_FIGURE, _EMPTY_FIGURE, *figures.specs], Surroundings(live=self.live, controls=self._controls())
            )
        )
        needed = dict.fromkeys([*self.names, *(name for factors in self.factors.values() for _, name in factors)])
        numbers = {name: self._numbers(name) for name in needed if name != "mask" and not self._is_computed_only(name)}
        before = [name for _, name in layer.factors(find_step(MASKED_SCORES)) if is_step(name)]
        if OUTPUT in self.explained and layer.w_o is not None:
            numbers["w_o"] = [self.pool.add(layer.w_o.flatten(0, 1).numpy())]
        return {
            "views": views,
            "figures": [self._without_numbers(figure) for figure in message["figures"][2:]],
            "labels": message["names"], "live": message["live"], "controls": message["controls"],
            "steps": {name: describe_sides(layer, find_step(name)) for name in self.names},
            "lines": {name: cell_lines(self.trace, self.index, find_step(name), self.heads) for name in self.line_names},
            "numbers": numbers, "explained": list(self.explained), "computable": list(self.computable),
            "factors": {name: [factor for _, factor in factors] for name, factors in self.factors.items()},
            "formula": {"divisor": layer.divisor, "temperature": layer.temperature, "normalizer": layer.formula.normalizer if layer.formula else ""},
            "heads": list(self.heads), "d_k": layer.sizes.get("d_k", 0), "before": (before or [""])[0],
            "source_label": "trace" if self.knobs else "", "link": {}, "outline": CHOSEN_COLOR,
            "initial": {
                "view": VIEWS[0] if len(self.overview) > 1 else VIEWS[1], "step": self.overview[-1] if WEIGHTS not in self.names else WEIGHTS,
                "layer": str(self.index), "head": str(cell.head if cell.head in self.heads else self.heads[0]), "q": "0", "k": "0",
            },
        }  # fmt: skip

    def _view(
        self, view: str, name: str, marked: list[Any], figures: list[list[int]], over_picture: list[int]
    ) -> dict[str, Any]:
        """A view: its maps for each head, with the picture before them if there is one."""
        figures, marked = [[*over_picture, *maps] for maps in figures], [*((None, None) for _ in over_picture), *marked]
        tabs = step_strip(self.layer, name, view, self.overview if len(self.overview) > 1 else ())
        strip = [tab for tab in tabs if tab["name"] in ("overview", *self.names)]
        return {"figures": figures, "marked": marked, "strip": strip}

    @staticmethod
    def _marked(factor: Any) -> tuple[int | None, int | None]:
        sides = {"row": 0, "column": 1, "pair": 2, "": None}
        return sides[factor.row], sides[factor.column]

    def _is_computed_only(self, name: str) -> bool:
        """Whether the page computes a step of a long text itself, instead of receiving its numbers."""
        return self.is_long and name in self.computable and declared(name).axes == MAP_AXES

    def _without_numbers(self, figure: Spec) -> Spec:
        if figure["data"][0].get("live") and self._is_computed_only(figure["layout"]["meta"]["step"]):
            figure["data"][0].pop("z", None)
        return figure

    def _numbers(self, name: str) -> list[dict[str, Any]]:
        """The matrices of a step or parameter for the packed heads; hidden scores are nan, as in maps."""
        heads = self.heads if declared(name).axes[0] in HEAD_AXES else (0,)
        matrices = [self.layer.matrix(name, head).numpy() for head in heads]
        return [
            self.pool.add(np.where(np.isfinite(matrix), matrix, np.nan).astype(matrix.dtype)) for matrix in matrices
        ]

    def _controls(self) -> list[Control]:
        offered: list[tuple[Any, Any, Any]] = []
        if len(self.layers) > 1:
            names = tuple(self.trace.layers[i].name.removeprefix("layer ") or str(i) for i in self.layers)
            offered.append((LAYER, Choice(tuple(self.layers), names), self.index))
        if len(self.heads) > 1:
            offered.append((HEAD, Choice(self.heads), self.heads[0]))
        declarations = {knob.name: knob for knob in override.KNOBS}
        for name in self.knobs:
            knob = declarations[name]
            if name == "mask":
                offered.append((knob, Choice((SOURCE_MASK, "none", *KNOB_RULES)), knob.default))
            elif name == "temperature":
                offered.append((knob, TEMPERATURE, self.layer.temperature))
            else:
                offered.append((knob, Integer(0, max(1, self.layer.sizes["key_pos"])), knob.default))
        return [describe_control(knob, within, value, self.layer) for knob, within, value in offered]


class _Figures:
    """The figures of a layer without outlines, each built once; views refer to them by index."""

    def __init__(self, packer: _LayerPacker) -> None:
        self.packer, self.specs = packer, list[Spec]()
        self._known: dict[tuple[str, str, int], int] = {}

    def map(self, name: str, head: int, prefix: str = "") -> int:
        """The index of the map of a step; `prefix` precedes its title."""
        packer, step = self.packer, find_step(name)

        def build() -> Spec:
            spec = heatmap_json(packer.trace, name, packer.index, head)
            if prefix:
                spec["layout"]["title"]["text"] = f"{prefix}{spec['layout']['title']['text']}"
            return spec

        return self._index(("map", f"{prefix}{name}", head if step.per_head else 0), build)

    def over_picture(self, name: str) -> list[int]:
        """The index of the figure of a step over a picture, which is the same for all heads; empty without a picture."""
        packer = self.packer
        spec = packer.over_pictures.figure(name, packer.index, packer.heads[0])
        if spec is None:
            return []
        return [self._index(("over picture", name, 0), lambda: spec)]

    def factors(self, name: str, head: int) -> list[int]:
        """The indices of the factors of a step and of the step itself."""
        packer, factors = self.packer, self.packer.factors[name]
        cell = Cell(packer.index, name, head, 0, 0)
        indices = []
        for factor, factor_name in factors:
            if is_step(factor_name) and not factor.concatenated:
                indices.append(self.map(factor_name, head))
            else:
                key = ("factor", f"{name} {factor_name}", head)
                indices.append(self._index(key, lambda f=factor, n=factor_name: factor_map(packer.trace, f, n, cell)))
        return [*indices, self.map(name, head, "= " if factors else "")]

    def _index(self, key: tuple[str, str, int], build: Any) -> int:
        if key not in self._known:
            spec = cast(Spec, build())
            spec["layout"]["shapes"] = []
            self._known[key] = len(self.specs)
            self.specs.append(spec)
        return self._known[key]
