"""A page without a server as bytes: a state of the demo (`pack_state`) or a trace (`pack_trace`), with the numbers that the page needs.

Every array is stored once; of a figure over a picture, what stays the same is packed once. Python writes the lines of the cells that the page cannot explain.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from attention.base.errors import AttentionError
from attention.base.knobs import Choice, Integer
from attention.base.tokens import Patch, any_patch, place_label, shows_several_pictures
from attention.explanation import tables
from attention.explanation.explanation import explain
from attention.export.states import LIMITS, State
from attention.formula import override
from attention.formula.config import TEMPERATURE
from attention.formula.mask import KNOB_RULES
from attention.formula.names import HEAD_OUTPUT, KEY, MASKED_SCORES, OUTPUT, QUERY, SCALED_SCORES, SCORES, WEIGHTS, Cell
from attention.formula.override import SOURCE_MASK
from attention.formula.steps import HEAD_AXES, MAP_AXES, STEPS, Factor, Step, declared, find_step, is_step
from attention.formula.steps_before_scores import Product
from attention.pictures import scales
from attention.pictures.downsample import MAX_SIDE
from attention.pictures.heatmap import chosen_position, heatmap_json
from attention.pictures.layout import HEIGHT, axis_noun, position_name
from attention.pictures.live_inputs import live_inputs
from attention.pictures.marks import CHOSEN_COLOR, Spec
from attention.pictures.message import Surroundings, pack
from attention.pictures.message_contract import Control, Live
from attention.pictures.steps_view import factor_map, factor_maps, step_strip
from attention.pictures.view import FACTORS, HEAD, LAYER, OVERVIEW, clamp_cell, describe_control, overview_steps
from attention.sources import Source
from attention.sources.layer_knobs import inline_knobs
from attention.sources.registry import has_formula, source_kinds, source_of
from attention.trace.layer import Layer
from attention.trace.trace import Trace
from attention.vision.over_picture import TokenGrid, layout_images, over_picture_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_BYTES = 1_000_000
"""The default limit of the arrays of one output; layers and heads beyond it are left out, and the output says which."""
_HEADS = "heads"
"""The view with the weights of several heads side by side."""
_OWN = "{own}"  # stands in a packed text for the name of the chosen query or key
_EXPLAINED = (SCALED_SCORES, MASKED_SCORES, WEIGHTS, OUTPUT)
"""The steps whose lines the page computes itself (page/explain.js), apart from products; the lines of all others are packed."""
_MASKS = ("none", *KNOB_RULES)

_FIGURE_BYTES = 1_000  # the labels and titles of a map
_MAX_STEP_BYTES = 250_000  # a step without heads, such as the input of a wide model
_MAX_PARAMETER_BYTES = 250_000  # all matrices that a step is projected with
_MAX_COMPUTED_TOKENS = 32  # above this, the page computes maps from Q and K instead of receiving them
_MAX_LINES = 3_000  # cells whose lines Python writes, in all layers together
_PAGE_NORMALIZERS = ("softmax", "sparsemax")  # whose arithmetic page/explain.js writes
_KNOBS = ("mask", "window", "prefix", "temperature")
_EMPTY_FIGURE: Spec = {"data": [{"type": "scatter"}], "layout": {"meta": {"step": "", "panels": [], "alt": ""}}}


def pack_state(state: State) -> bytes:
    """A state with all its views.

    Raises:
        AttentionError: the link is invalid, or offers a control that the page cannot follow.
    """
    return _StatePacker(state).packed()


def pack_trace(trace: Trace, cell: Cell | None = None, view: str = OVERVIEW, max_bytes: int = MAX_BYTES) -> bytes:
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
    over_pictures = _PictureFigures(trace)
    n_lines = 0
    for index in chosen:
        heads = _fitting_heads(trace.layers[index], cell.head, max_bytes)
        packers[index] = _LayerPacker(trace, index, heads, chosen, pool, _MAX_LINES - n_lines, over_pictures)
        n_lines += packers[index].n_lines
    first = packers[cell.layer]
    step = cell.step if cell.step in first.names else next(iter(reversed(first.names)))
    initial = {"view": view if step in first.overview or view != OVERVIEW else FACTORS, "step": step}
    initial |= dict(zip(("head", "q", "k"), map(str, (cell.head, cell.row, cell.column)), strict=True))
    layers = {str(index): packer.header(cell) for index, packer in sorted(packers.items())}
    return pool.pack({
        "layers": layers, "grids": over_pictures.grids,
        "layer": str(cell.layer), "initial": initial, "about": _describe_trace(trace),
        "left_out": _left_out(trace, packers), "outline": CHOSEN_COLOR,
    })  # fmt: skip


def source_and_trace(state: State) -> tuple[Source, Trace]:
    """The source of a state and its trace.

    Raises:
        AttentionError: the state's link is invalid.
    """
    source, notes = source_of(state.link, LIMITS)
    if notes:
        raise AttentionError(f"The link of “{state.title}” must be valid; got: {' '.join(notes)}")
    return source, source.trace()


def as_script(name: str, content: bytes) -> bytes:
    """A state as a script that passes it to the page, compressed and base64-encoded: a page opened from a file may not fetch anything."""
    compressor = zlib.compressobj(9, wbits=31)  # gzip without a time stamp
    text = b64encode(compressor.compress(content) + compressor.flush()).decode()
    return f"attentionDemo({json.dumps(name)}, {json.dumps(text)});\n".encode()


class _StatePacker:
    def __init__(self, state: State) -> None:
        self.state, self.pool = state, ArrayPool()
        _, self.trace = source_and_trace(state)
        self.layer: Layer = self.trace.layers[state.layer]
        self.heads = state.heads or tuple(range(self.layer.n_heads))
        self.steps = tuple(step for step in self.layer.steps if step.name not in state.skip)
        self.names = tuple(step.name for step in self.steps)
        self.overview = overview_steps(self.names)
        self.live = {head: live_inputs(self.layer, head) for head in self.heads}
        products = [step for step in self.steps if _is_plain_product(self.layer, step)]
        self.factors = {step.name: [name for _, name in self.layer.factors(step)] for step in products}
        self.explained = tuple(name for name in self.names if name in (*_EXPLAINED, *self.factors))
        self.over_pictures = _PictureFigures(self.trace)
        self._check()

    def _check(self) -> None:
        live_message = self.live[self.heads[0]]
        computable = live_message["computable"] if live_message else ()
        computed_by_page = [name for name in computable if name in self.explained]
        later = [name for name in self.names[self.names.index(SCORES) + 1 :] if name not in computed_by_page]
        if self.state.knobs and later:
            raise AttentionError(
                f"The page must compute every step after the scores of “{self.state.title}”, which has controls; "
                f"it cannot compute {', '.join(later)}: skip these steps, or offer no controls."
            )

    def packed(self) -> bytes:
        state, layer = self.state, self.layer
        views: dict[str, Any] = {}
        overview, heads = self.overview if len(self.overview) > 1 else (), (WEIGHTS,) * (state.view == _HEADS)
        for view, names in ((FACTORS, self.names), (OVERVIEW, overview), (_HEADS, heads)):
            views |= {f"{view} {name} {head}": self._view(name, head, view) for name in names for head in self.heads}
        over_pictures = self.names if self.over_pictures.grids else ()  # the page writes their numbers into the picture
        factors = (name for names in self.factors.values() for name in names)
        needed = dict.fromkeys([*self.explained, *factors, *over_pictures])
        numbers = {name: self.pool.matrices(layer, name, self.heads) for name in needed}
        if OUTPUT in self.explained and layer.w_o is not None:
            numbers["w_o"] = [self.pool.add(layer.w_o.flatten(0, 1).numpy())]
        source = state.link.get("source", "typed text")
        header = {
            "views": views, "grids": self.over_pictures.grids,
            "steps": {step.name: _describe_sides(layer, step) for step in self.steps},
            "lines": {
                step.name: _cell_lines(self.trace, state.layer, step, self.heads)
                for step in self.steps
                if step.name not in self.explained
            },
            "numbers": numbers, "factors": self.factors, "formula": _describe_formula(layer),
            "heads": list(self.heads), "d_k": layer.sizes.get("d_k", 0), "before": _before_mask(layer) if MASKED_SCORES in self.names else "",
            # What fixes the formula, in a word; empty if the controls do.
            "source_label": source_kinds()[source].label if has_formula(source) else "", "link": dict(state.link), "about": _describe_trace(self.trace), "outline": CHOSEN_COLOR,
            "initial": {
                "view": state.view, "step": state.step, "layer": str(state.layer), "head": str(state.head),
                "q": str(state.q), "k": str(state.k),
            },
        }  # fmt: skip
        return self.pool.pack(header)

    def _view(self, name: str, head: int, view: str) -> dict[str, Any]:
        cell, layer = Cell(self.state.layer, name, head, 0, 0), self.layer
        if view == FACTORS:
            figures = factor_maps(self.trace, cell)
            marked = [*(_marked(factor) for factor, _ in layer.factors(find_step(name))), (0, 1)]
        else:
            drawn = [(step, head) for step in self.overview]
            if view == _HEADS:
                drawn = [(WEIGHTS, packed_head) for packed_head in self.heads]
            figures = [heatmap_json(self.trace, step, cell.layer, map_head, cell) for step, map_head in drawn]
            marked = [chosen_position(find_step(step), Cell(0, name, 0, 0, 1)) for step, _ in drawn]
            if view == _HEADS:
                _name_heads(figures, self.heads)
        if view != _HEADS and (over := self.over_pictures.figure(name, cell.layer, head)) is not None:
            figures, marked = [over, *figures], [(None, None), *marked]
        for figure in figures:
            figure["layout"]["shapes"] = []
        strip = [tab for tab in step_strip(layer, name, view, self.overview) if tab["name"] in (OVERVIEW, *self.names)]
        around = Surroundings(live=self.live[head], controls=self._controls(head, view), strip=strip)
        return {"message": self.pool.header(pack(figures, around)), "marked": marked}

    def _controls(self, head: int, view: str) -> list[Control]:
        state, layer = self.state, self.layer
        known = {knob.key: knob for knob in inline_knobs(source_kinds()[state.link.get("source", "typed text")])}
        offered = [(known[key], known[key].on_pages(LIMITS)) for key in state.knobs]
        offered = [(knob, Choice(_MASKS) if knob.key == "mask" else allowed) for knob, allowed in offered]
        values = {
            knob.key: knob.read(state.link[knob.key], allowed, knob.default)[0]
            if knob.key in state.link
            else knob.default
            for knob, allowed in offered
        }
        if len(self.heads) > 1 and view != _HEADS:
            offered.append((HEAD, Choice(self.heads)))
            values["head"] = head
        return [describe_control(knob, allowed, values[knob.key], layer) for knob, allowed in offered]


def _name_heads(figures: list[Spec], heads: tuple[int, ...]) -> None:
    for figure, head in zip(figures, heads, strict=True):
        figure["layout"]["title"]["text"] += f" of head {head}"
        figure["layout"]["uirevision"] += f" {head}"
        figure["data"][0]["of_head"] = head


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
        over_pictures: _PictureFigures,
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
            elif name != "mask" and (
                4 * math.prod(self.layer.shape(name)) > _MAX_PARAMETER_BYTES or len(self.heads) < self.layer.n_heads
            ):
                return []
        return factors

    def _is_explained(self, step: Step) -> bool:
        """Whether page/explain.js writes the arithmetic of a step."""
        layer, formula = self.layer, self.layer.formula
        if self.live is None or formula is None or not TEMPERATURE.accepts(layer.temperature):
            return self.factors[step.name] != [] and _is_plain_product(layer, step) and formula is not None
        if step.name == WEIGHTS:
            return formula.normalizer in _PAGE_NORMALIZERS
        if step.name == OUTPUT:
            return bool(self.factors[step.name]) and not layer.has("b_o") and HEAD_OUTPUT in self.names
        if step.name in (SCALED_SCORES, MASKED_SCORES):
            return True
        return bool(self.factors[step.name]) and _is_plain_product(layer, step)

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
            marked = [_marked(factor) for factor, _ in self.factors[name]]
            views[f"{FACTORS} {name}"] = self._view(
                FACTORS,
                name,
                [*marked, (0, 1)],
                [figures.factors(name, head) for head in self.heads],
                figures.over_picture(name),
            )
        for name in self.overview if len(self.overview) > 1 else ():
            maps = [[figures.map(step, head) for step in self.overview] for head in self.heads]
            sides = [chosen_position(find_step(step), Cell(0, name, 0, 0, 1)) for step in self.overview]
            views[f"{OVERVIEW} {name}"] = self._view(OVERVIEW, name, sides, maps, figures.over_picture(name))
        message = self.pool.header(
            pack(
                [_EMPTY_FIGURE, _EMPTY_FIGURE, *figures.specs], Surroundings(live=self.live, controls=self._controls())
            )
        )
        needed = dict.fromkeys([*self.names, *(name for factors in self.factors.values() for _, name in factors)])
        numbers = {
            name: self.pool.matrices(layer, name, self.heads)
            for name in needed
            if name != "mask" and not self._is_computed_only(name)
        }
        if OUTPUT in self.explained and layer.w_o is not None:
            numbers["w_o"] = [self.pool.add(layer.w_o.flatten(0, 1).numpy())]
        return {
            "views": views,
            "figures": [self._without_numbers(figure) for figure in message["figures"][2:]],
            "labels": message["names"], "live": message["live"], "controls": message["controls"],
            "steps": {name: _describe_sides(layer, find_step(name)) for name in self.names},
            "lines": {name: _cell_lines(self.trace, self.index, find_step(name), self.heads) for name in self.line_names},
            "numbers": numbers, "explained": list(self.explained), "computable": list(self.computable),
            "factors": {name: [factor for _, factor in factors] for name, factors in self.factors.items()},
            "formula": _describe_formula(layer),
            "heads": list(self.heads), "d_k": layer.sizes.get("d_k", 0), "before": _before_mask(layer),
            "source_label": "trace" if self.knobs else "", "link": {}, "outline": CHOSEN_COLOR,
            "initial": {
                "view": OVERVIEW if len(self.overview) > 1 else FACTORS, "step": self.overview[-1] if WEIGHTS not in self.names else WEIGHTS,
                "layer": str(self.index), "head": str(cell.head if cell.head in self.heads else self.heads[0]), "q": "0", "k": "0",
            },
        }  # fmt: skip

    def _view(
        self, view: str, name: str, marked: list[Any], figures: list[list[int]], over_picture: list[int]
    ) -> dict[str, Any]:
        """A view: its maps for each head, with the picture before them if there is one."""
        figures, marked = [[*over_picture, *maps] for maps in figures], [*((None, None) for _ in over_picture), *marked]
        tabs = step_strip(self.layer, name, view, self.overview if len(self.overview) > 1 else ())
        strip = [tab for tab in tabs if tab["name"] in (OVERVIEW, *self.names)]
        return {"figures": figures, "marked": marked, "strip": strip}

    def _is_computed_only(self, name: str) -> bool:
        """Whether the page computes a step of a long text itself, instead of receiving its numbers."""
        return self.is_long and name in self.computable and declared(name).axes == MAP_AXES

    def _without_numbers(self, figure: Spec) -> Spec:
        if figure["data"][0].get("live") and self._is_computed_only(figure["layout"]["meta"]["step"]):
            figure["data"][0].pop("z", None)
        return figure

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


def _describe_trace(trace: Trace) -> str:
    """What a page says about a trace beside its maps; empty if there is nothing to say."""
    random = "Random weights: this shows the mechanism, not language." if trace.random else ""
    return " ".join([*filter(None, (random, trace.caption)), *trace.notes])


def _describe_sides(layer: Layer, step: Step) -> dict[str, Any]:
    """What the page needs to write the line of a cell: the size of the step, and the names of its rows and columns."""
    rows, columns = layer.shape(step.name)[-2:]
    row_names = [tables.cell_names(layer, Cell(0, step.name, 0, i, 0))[0] for i in range(rows)]
    column_names = [tables.cell_names(layer, Cell(0, step.name, 0, 0, i))[1] for i in range(columns)]
    sides = [{"axis": names[0][0], "tokens": [token for _, token in names]} for names in (row_names, column_names)]
    return {"rows": rows, "columns": columns, "per_head": step.per_head, "sides": sides}


def _describe_formula(layer: Layer) -> dict[str, Any]:
    normalizer = layer.formula.normalizer if layer.formula else ""
    return {"divisor": layer.divisor, "temperature": layer.temperature, "normalizer": normalizer}


def _before_mask(layer: Layer) -> str:
    """The step that is masked."""
    return next((name for _, name in layer.factors(find_step(MASKED_SCORES)) if is_step(name)), "")


def _marked(factor: Factor) -> tuple[int | None, int | None]:
    sides = {"row": 0, "column": 1, "pair": 2, "": None}
    return sides[factor.row], sides[factor.column]


def _is_plain_product(layer: Layer, step: Step) -> bool:
    """Whether a step is a plain product of a row and a column, which page/explain.js writes, with factors of at most `MAX_SIDE`."""
    names = [name for _, name in layer.factors(step)]
    is_biased = bool(step.bias) and layer.has(step.bias)
    is_plain = isinstance(step, Product) and step.per_head and len(names) == 2 and not is_biased
    is_dot = step.name != SCORES or (layer.formula is not None and layer.formula.score == "dot")
    return (
        is_plain
        and is_dot
        and step.name not in layer.provenance
        and max(max(layer.shape(name)[-2:]) for name in names) <= MAX_SIDE
    )


def _cell_lines(trace: Trace, layer: int, step: Step, heads: Sequence[int]) -> list[Any]:
    """Python's lines of a step: for each head and each cell, row by row, the number, the sign, the arithmetic and the source cells."""
    rows, columns = trace.layer(layer).shape(step.name)[-2:]
    cells = [(row, column) for row in range(rows) for column in range(columns)]
    return [
        [_line(trace, Cell(layer, step.name, head, *row_and_column)) for row_and_column in cells]
        for head in (heads if step.per_head else (0,))
    ]


def _line(trace: Trace, cell: Cell) -> list[Any]:
    explanation = explain(trace, cell.step, cell.layer, cell.head, cell.row, cell.column)
    came_from = [[origin.step, origin.head, origin.row, origin.column] for origin in explanation.came_from]
    return [explanation.displayed_value, explanation.sign, explanation.short, came_from]


class ArrayPool:
    """The arrays of a state, each stored once, however many messages refer to it."""

    def __init__(self) -> None:
        self.raw = bytearray()
        self._known: dict[tuple[str, tuple[int, ...], bytes], int] = {}

    def add(self, array: NDArray[Any]) -> dict[str, Any]:
        """Stores an array and returns its reference, in the form used by messages."""
        array = np.ascontiguousarray(array)
        return self._store(array.dtype.str.lstrip("<|"), array.shape, array.tobytes())

    def matrices(self, layer: Layer, name: str, heads: tuple[int, ...]) -> list[dict[str, Any]]:
        """Stores the matrices of a step or parameter for some heads; hidden scores are nan, as in maps."""
        own_heads = heads if declared(name).axes[0] in HEAD_AXES else (0,)
        matrices = [layer.matrix(name, head).numpy() for head in own_heads]
        return [self.add(np.where(np.isfinite(matrix), matrix, np.nan).astype(matrix.dtype)) for matrix in matrices]

    def header(self, message: bytes) -> Any:
        """The header of a packed message, with its arrays moved into this pool."""
        (size,) = struct.unpack_from("<I", message)

        def move_array(value: dict[str, Any]) -> Any:
            if not isinstance(array := value.get("array"), dict):
                return value
            dtype, shape, start = array["dtype"], tuple(array["shape"]), 4 + size + array["at"]
            raw = message[start : start + int(np.prod(shape)) * np.dtype(dtype).itemsize]
            return self._store(dtype, shape, raw)

        return json.loads(message[4 : 4 + size], object_hook=move_array)

    def _store(self, dtype: str, shape: tuple[int, ...], raw: bytes) -> dict[str, Any]:
        key = (dtype, shape, raw)
        if key not in self._known:
            self._known[key] = len(self.raw)
            self.raw += raw + b"\0" * (-len(raw) % 8)
        return {"array": {"dtype": dtype, "at": self._known[key], "shape": list(shape)}}

    def pack(self, header: Any) -> bytes:
        """A header and the arrays, in the layout of `message.pack`."""
        text = json.dumps(header, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-(4 + len(text)) % 8)
        return struct.pack("<I", len(text)) + text + bytes(self.raw)


class _PictureFigures:
    """The figures over a picture of a trace; those with the same tokens share their places, edges, words and pixels: the `grids`, as `picture_redraw.js` reads them."""

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
        spec = over_picture_json(self._without_pixels, step, layer, head, colors=scales.FITTED, **fixed)
        layout, (heat, *others) = spec["layout"], spec["data"]
        meta, subtitle = layout["meta"], layout["title"]["subtitle"]
        name = position_name(own_axis, 0, drawn_layer.labels_of(own_axis))
        for texts, key in (
            (heat, "hovertemplate"),
            (meta["hidden_trace"], "hovertemplate"),
            (meta, "alt"),
            (subtitle, "text"),
        ):
            texts[key] = texts[key].replace(name, _OWN, 1)
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
