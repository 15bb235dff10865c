"""A trace as bytes for a page without a server, with the numbers that it needs: what fits into a notebook's output (`pack_trace`), or what a state of the demo declares (`pack_state`).

Every array and every figure is stored once; the player (page/player.js) composes the views. Python writes the lines of the cells that the page cannot explain.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.base.errors import AttentionError
from attention.base.knobs import Choice, Integer, Knob, Range
from attention.base.tokens import Patch, any_patch, place_label, shows_several_pictures
from attention.explanation import tables
from attention.explanation.explanation import explain
from attention.export.states import LIMITS, State
from attention.formula import override
from attention.formula.config import TEMPERATURE
from attention.formula.mask import KNOB_RULES
from attention.formula.names import KEY, MASKED_SCORES, OUTPUT, QUERY, SCALED_SCORES, SCORES, WEIGHTS, Cell
from attention.formula.override import SOURCE_MASK
from attention.formula.steps import HEAD_AXES, MAP_AXES, STEPS, Factor, Step, declared, find_step, is_step
from attention.formula.steps_before_scores import Product
from attention.pictures import scales
from attention.pictures.heatmap import chosen_position, heatmap_json
from attention.pictures.layout import HEIGHT, axis_noun, position_name
from attention.pictures.live_inputs import live_inputs
from attention.pictures.marks import CHOSEN_COLOR, Spec
from attention.pictures.message import Surroundings, pack
from attention.pictures.message_contract import Control, Live
from attention.pictures.over_picture import BOX, MapLine, TokenGrid, layout_images, over_picture_json
from attention.pictures.steps_view import factor_map, factor_spans, step_strip
from attention.pictures.view import FACTORS, HEAD, LAYER, OVERVIEW, clamp_cell, describe_control, overview_steps
from attention.sources import Source
from attention.sources.layer_knobs import inline_knobs
from attention.sources.registry import has_formula, source_kinds, source_of
from attention.trace.large_map import MAX_SIDE
from attention.trace.layer import Layer
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_BYTES = 105_000
"""The default limit of the numbers of one output, which then takes about as many bytes of a notebook; what is beyond it is left out, and the output says what."""
_HEADS = "heads"
"""The view with the weights of several heads side by side."""
_OWN = "{own}"  # stands in a packed text for the name of the chosen query or key

_FIGURE_BYTES = 100  # the labels and titles of a map, compressed
_MAX_STEP_BYTES = 250_000  # a step without heads, such as the input of a wide model
_MAX_PARAMETER_BYTES = 250_000  # all matrices that a step is projected with
_MAX_COMPUTED_TOKENS = 32  # above this, the page computes maps from Q and K instead of receiving them
_MAX_LINES = 3_000  # cells of a notebook's output whose lines Python writes, in all layers together
_EXPLAINED = (
    SCALED_SCORES,
    MASKED_SCORES,
    WEIGHTS,
    OUTPUT,
)  # the steps whose lines page/explain.js writes, apart from plain products
_PAGE_NORMALIZERS = ("softmax", "sparsemax")  # whose arithmetic page/explain.js writes
_MASKS = ("none", *KNOB_RULES)
_Offer = tuple[Knob, Range, Any]
"""A knob that the page follows, its range and its value."""
# Before the others in a message, so that no map is sent as the difference of the first two: views put together other maps.
_EMPTY_FIGURE: Spec = {"data": [{"type": "scatter"}], "layout": {"meta": {"step": "", "panels": [{}], "alt": ""}}}


def pack_state(state: State) -> bytes:
    """A state with all its views.

    Raises:
        AttentionError: the link is invalid, or offers a control that the page cannot follow.
    """
    _, trace = source_and_trace(state)
    heads = state.heads or tuple(range(trace.layers[state.layer].n_heads))
    cell = Cell(state.layer, state.step, state.head, state.q, state.k)
    return _Packer(trace, {state.layer: heads}, state).packed(cell, state.view)


def pack_trace(trace: Trace, cell: Cell | None = None, view: str = OVERVIEW, max_bytes: int = MAX_BYTES) -> bytes:
    """A trace with all its views: layers beginning with that of the `cell`, as far as `max_bytes` allow.

    Raises:
        MissingError: the trace has no such layer, step or head.
    """
    cell = cell or Cell(trace.attention_layers[0], WEIGHTS, 0, 0, 0)
    names = [step.name for step in trace.layer(cell.layer).steps]
    if cell.step == WEIGHTS and WEIGHTS not in names:
        cell = Cell(cell.layer, names[-1], cell.head, cell.row, cell.column)
    trace.layer(cell.layer).matrix(cell.step, cell.head)  # raises MissingError
    cell = clamp_cell(cell, trace.layer(cell.layer))
    layers = _fitting_layers(trace, cell.layer, max_bytes)
    heads = {index: _fitting_heads(trace.layers[index], cell.head, max_bytes) for index in layers}
    left = max_bytes - sum(_layer_bytes(trace.layers[index], len(some)) for index, some in heads.items())
    return _Packer(trace, heads, room=left).packed(cell, view)


def source_and_trace(state: State) -> tuple[Source, Trace]:
    """The source of a state and its trace.

    Raises:
        AttentionError: the state's link is invalid.
    """
    source, notes = source_of(state.link, LIMITS)
    if notes:
        raise AttentionError(f"The link of “{state.title}” must be valid; got: {' '.join(notes)}")
    return source, source.trace()


def compress(content: bytes) -> bytes:
    """The content compressed with gzip, as browsers read it, without a time stamp."""
    compressor = zlib.compressobj(9, wbits=31)
    return compressor.compress(content) + compressor.flush()


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


def _layer_bytes(layer: Layer, n_heads: int | None = None) -> int:
    """The approximate bytes of the numbers and figures of some heads of a layer, by default of all."""
    n_heads = n_heads or layer.n_heads
    is_long = max(layer.sizes["query_pos"], layer.sizes["key_pos"]) > _MAX_COMPUTED_TOKENS
    steps = [step for step in layer.steps if step.per_head and not (is_long and step.axes == MAP_AXES)]
    of_head = sum(4 * math.prod(layer.shape(step.name)[-2:]) for step in steps)
    return n_heads * (len(layer.steps) * _FIGURE_BYTES + of_head)


class _Packer:
    """Layers of a trace with some of their heads, and what they share."""

    def __init__(
        self, trace: Trace, heads: Mapping[int, tuple[int, ...]], state: State | None = None, room: float = math.inf
    ) -> None:
        self.trace, self.heads, self.state = trace, heads, state
        self._room = room  # bytes for what belongs to no head: inputs, outputs and parameters
        self.pool, self.over_pictures = ArrayPool(), _PictureFigures(trace)
        self.lines_left = math.inf if state else _MAX_LINES
        self.layers = {index: _LayerPacker(self, index) for index in heads}

    def takes(self, nbytes: float, most: int) -> bool:
        """Whether there is room for this, which is then taken."""
        if nbytes > min(most, self._room):
            return False
        self._room -= nbytes
        return True

    def packed(self, cell: Cell, view: str) -> bytes:
        layers = {str(index): layer.header(cell, view) for index, layer in sorted(self.layers.items())}
        return self.pool.pack({
            "layers": layers, "layer": str(cell.layer), "grids": self.over_pictures.grids, "outline": CHOSEN_COLOR,
            "link": dict(self.state.link) if self.state else {}, "about": _describe_trace(self.trace),
            "left_out": "" if self.state else self._left_out(),
        })  # fmt: skip

    def _left_out(self) -> str:
        """A sentence about what is not part of the output; empty if nothing is missing."""
        trace, layers = self.trace, self.layers
        parts = []
        if len(layers) < len(trace.attention_layers):
            shown = f"layer {min(layers)}" if len(layers) == 1 else f"layers {min(layers)} to {max(layers)}"
            parts.append(f"This output has {shown} of {len(trace.layers)}: show(trace, layer=…) shows others.")
        if short := [packer for packer in layers.values() if packer.is_cut]:
            heads = short[0].heads
            parts.append(
                f"It has heads {heads[0]} to {heads[-1]} of {short[0].layer.n_heads}: show(trace, head=…) shows others."
            )
        missing = {
            step.symbol: None
            for packer in layers.values()
            for step in packer.layer.steps
            if step.name not in packer.names
        }
        if missing:
            parts.append(f"Not in this output: {', '.join(missing)}.")
        return " ".join(parts)


class _LayerPacker:
    """One layer: which steps are shown, who explains them, and their figures by view, step and head."""

    def __init__(self, whole: _Packer, index: int) -> None:
        self.whole, self.trace, self.state, self.index = whole, whole.trace, whole.state, index
        self.layer = layer = whole.trace.layers[index]
        self.heads = whole.heads[index]
        self.is_cut = whole.state is None and len(self.heads) < layer.n_heads  # for want of room
        self.is_long = max(layer.sizes["query_pos"], layer.sizes["key_pos"]) > _MAX_COMPUTED_TOKENS
        self.live = self._live_inputs()
        self.computable = tuple(self.live["computable"]) if self.live else ()
        self.knobs = _knobs_of_link(self.state) if self.state else self._knobs_of_layer()
        self.names = tuple(step.name for step in layer.steps if self._is_shown(step))
        if self.state and (
            stale := [step.name for step in layer.steps if self._is_stale(step) and step.name not in self.state.skip]
        ):
            raise AttentionError(
                f"The page must compute every step after the scores of “{self.state.title}”, which has controls; "
                f"it cannot compute {', '.join(stale)}: skip these steps, or offer no controls."
            )
        overview = overview_steps(self.names)
        self.overview = overview if len(overview) > 1 else ()
        self.factors = {name: self._factors(find_step(name)) for name in self.names}
        self.explained = tuple(name for name in self.names if self._is_explained(find_step(name)))
        self.line_names = self._steps_with_lines()

    def _live_inputs(self) -> Live | None:
        """What the page computes steps from, for all packed heads."""
        if len(self.heads) == self.layer.n_heads:
            combined = live_inputs(self.layer, self.heads[0], max_bytes=10**9)
            if combined is None or len(combined["heads"]) == len(self.heads):
                return combined if combined is None else self._without_large_output(combined)
        parts = [live_inputs(self.layer, head, max_bytes=0) for head in self.heads]
        if parts[0] is None:
            return None
        heads = {name: matrices for part in parts if part for name, matrices in part["heads"].items()}
        return {**parts[0], "heads": heads}

    def _without_large_output(self, live: Live) -> Live:
        """The same without W_O if it is large: the page then does not compute the output."""
        if live["w_o"] is None or self.whole.takes(live["w_o"].nbytes, _MAX_PARAMETER_BYTES):
            return live
        return {**live, "w_o": None, "computable": [name for name in live["computable"] if name != OUTPUT]}

    def _knobs_of_layer(self) -> list[_Offer]:
        """The knobs after the scores that the page follows by itself; none if it cannot compute the weights."""
        layer = self.layer
        if self.live is None or WEIGHTS not in self.computable:
            return []
        size = Integer(0, max(1, layer.sizes["key_pos"]))
        ranges = {"mask": Choice((SOURCE_MASK, *_MASKS)), "window": size, "prefix": size, "temperature": TEMPERATURE}
        if not TEMPERATURE.accepts(layer.temperature):
            del ranges["temperature"]
        knobs = [knob for knob in override.KNOBS if knob.name in ranges and knob.name in layer.overridable_knobs]
        values = {"temperature": layer.temperature}
        return [(knob, ranges[knob.name], values.get(knob.name, knob.default)) for knob in knobs]

    def _is_shown(self, step: Step) -> bool:
        rows, columns = self.layer.shape(step.name)[-2:]
        if self.state and step.name in self.state.skip:
            return False
        if self._is_stale(step) or (step.name == OUTPUT and len(self.heads) < self.layer.n_heads):
            return False
        return step.per_head or self.whole.takes(4 * rows * columns, _MAX_STEP_BYTES)

    def _is_stale(self, step: Step) -> bool:
        """Whether the page offers knobs that change a step, but cannot compute it."""
        depends_on_knobs = STEPS.index(step) >= STEPS.index(find_step(SCALED_SCORES))
        return bool(self.knobs) and depends_on_knobs and step.name not in self.computable

    def _factors(self, step: Step) -> list[tuple[Factor, str]]:
        """The factors drawn beside a step: none of them if one is too large, or not shown."""
        factors = self.layer.factors(step)
        for _, name in factors:
            if is_step(name):
                if name not in self.names:
                    return []
            elif name != "mask" and (self.is_cut or not self._takes_parameter(name)):
                return []
        return factors

    def _takes_parameter(self, name: str) -> bool:
        """Whether there is room for a parameter of the packed heads; W_O may be there already, for the page to compute with."""
        if name == "w_o" and self.live and self.live["w_o"] is not None:
            return True
        share = len(self.heads) / self.layer.n_heads if declared(name).axes[0] in HEAD_AXES else 1
        return self.whole.takes(4 * math.prod(self.layer.shape(name)) * share, _MAX_PARAMETER_BYTES)

    def _is_explained(self, step: Step) -> bool:
        """Whether page/explain.js writes the arithmetic of a step."""
        layer, formula = self.layer, self.layer.formula
        if formula is None:
            return False
        if step.name not in _EXPLAINED:
            return bool(self.factors[step.name]) and _is_plain_product(layer, step)
        recorded = [other.name for other in layer.steps if other.axes == MAP_AXES and other.name in layer.available]
        if recorded or formula.is_edited or not formula.divisor or not TEMPERATURE.accepts(layer.temperature):
            return False
        if step.name == WEIGHTS:
            return formula.normalizer in _PAGE_NORMALIZERS
        if step.name == OUTPUT:  # the page does not add b_O
            return bool(self.factors[OUTPUT]) and OUTPUT not in layer.available and not layer.has("b_o")
        return True

    def _steps_with_lines(self) -> list[str]:
        """The other steps whose lines Python writes, as far as the output has room for them."""
        names = []
        for name in self.names:
            rows, columns = self.layer.shape(name)[-2:]
            count = rows * columns * (len(self.heads) if find_step(name).per_head else 1)
            if name not in self.explained and count <= self.whole.lines_left:
                names.append(name)
                self.whole.lines_left -= count
        return names

    def header(self, cell: Cell, view: str) -> dict[str, Any]:
        layer = self.layer
        figures = _Figures(self)
        views = {f"{FACTORS} {name}": self._factors_view(name, figures) for name in self.names}
        maps = [[figures.map(step, head) for step in self.overview] for head in self.heads]
        for name in self.overview:
            sides = [chosen_position(find_step(step), Cell(0, name, 0, 0, 1)) for step in self.overview]
            views[f"{OVERVIEW} {name}"] = self._view(OVERVIEW, name, sides, maps, figures.over_picture(name))
        if view == _HEADS:
            every_head = [[figures.of_head(WEIGHTS, head) for head in self.heads]] * len(self.heads)
            views[f"{_HEADS} {WEIGHTS}"] = self._view(_HEADS, WEIGHTS, [(0, 1)] * len(self.heads), every_head)
        surroundings = Surroundings(live=self.live, controls=self._controls())
        packed = pack([_EMPTY_FIGURE, _EMPTY_FIGURE, *figures.specs], surroundings)
        message = self.whole.pool.header(packed, self._without_numbers)
        numbers = {name: self.whole.pool.matrices(layer, name, self.heads) for name in self._needed_numbers()}
        if OUTPUT in self.explained and layer.w_o is not None:
            numbers["w_o"] = [self.whole.pool.add(layer.w_o.flatten(0, 1).numpy())]
        step = next(name for name in (cell.step, WEIGHTS, *reversed(self.names)) if name in self.names)
        return {
            "views": views,
            "figures": message["figures"][2:],
            "labels": message["names"], "live": message["live"], "controls": message["controls"],
            "steps": {name: _describe_sides(layer, find_step(name)) for name in self.names},
            "lines": {name: _cell_lines(self.trace, self.index, find_step(name), self.heads) for name in self.line_names},
            "numbers": numbers, "explained": list(self.explained), "computable": list(self.computable),
            "factors": {name: [factor for _, factor in factors] for name, factors in self.factors.items()},
            "formula": _describe_formula(layer),
            "heads": list(self.heads), "d_k": layer.sizes.get("d_k", 0), "before": _before_mask(layer),
            "source_label": _source_label(self.state) if self.state else "trace" if self.knobs else "",
            "initial": {
                "view": view if view != OVERVIEW or step in self.overview else FACTORS, "step": step, "layer": str(self.index),
                "head": str(cell.head if cell.head in self.heads else self.heads[0]), "q": str(cell.row), "k": str(cell.column),
            },
        }  # fmt: skip

    def _factors_view(self, name: str, figures: _Figures) -> dict[str, Any]:
        marked = [*(_marked(factor) for factor, _ in self.factors[name]), (0, 1)]
        maps = [figures.factors(name, head) for head in self.heads]
        view = self._view(FACTORS, name, marked, maps, over := figures.over_picture(name))
        spans = factor_spans(self.layer, find_step(name)).items()
        limits = {factor: scales.scale_range(find_step(factor), span, "fixed")[1] for factor, span in spans if span}
        view["limits"] = [*(None for _ in over), *(limits.get(factor) for _, factor in self.factors[name])]
        return view

    def _view(
        self, view: str, name: str, marked: list[Any], figures: list[list[int]], over_picture: Sequence[int] = ()
    ) -> dict[str, Any]:
        """A view: its maps for each head, with the picture before them if there is one."""
        figures, marked = [[*over_picture, *maps] for maps in figures], [*((None, None) for _ in over_picture), *marked]
        tabs = step_strip(self.layer, name, view, self.overview)
        strip = [tab for tab in tabs if tab["name"] in (OVERVIEW, *self.names)]
        return {"figures": figures, "marked": marked, "strip": strip}

    def _needed_numbers(self) -> list[str]:
        """The steps and parameters whose numbers the page reads, apart from those that figures draw: where Python writes the lines, it reads none."""
        over_picture = self.names if self.whole.over_pictures.grids else ()
        read = [name for name in self.names if name not in self.line_names]
        factors = [name for step in self.explained for _, name in self.factors[step] if name not in ("mask", "w_o")]
        return [name for name in dict.fromkeys([*read, *factors, *over_picture]) if not self._is_computed_only(name)]

    def _is_computed_only(self, name: str) -> bool:
        """Whether the page computes a step of a long text itself, instead of receiving its numbers."""
        return self.is_long and name in self.computable and declared(name).axes == MAP_AXES

    def _without_numbers(self, figure: Spec) -> None:
        if figure["data"][0].get("live") and self._is_computed_only(figure["layout"]["meta"]["step"]):
            figure["data"][0].pop("z", None)

    def _controls(self) -> list[Control]:
        """The row above the maps, in the order of the Lab."""
        offers = [*self.knobs]
        if len(layers := sorted(self.whole.heads)) > 1:
            names = tuple(self.trace.layers[i].name.removeprefix("layer ") or str(i) for i in layers)
            offers.append((LAYER, Choice(tuple(layers), names), self.index))
        if len(self.heads) > 1:
            offers.append((HEAD, Choice(self.heads), self.heads[0]))
        return [describe_control(*offer, self.layer) for offer in sorted(offers, key=lambda offer: offer[0].order)]


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

    def of_head(self, name: str, head: int) -> int:
        """The index of a map that stands beside the same map of other heads, and names its own."""

        def build() -> Spec:
            spec = heatmap_json(self.packer.trace, name, self.packer.index, head)
            spec["layout"]["title"]["text"] += f" of head {head}"
            spec["layout"]["uirevision"] += f" {head}"
            spec["data"][0]["of_head"] = head
            return spec

        return self._index(("of head", name, head), build)

    def over_picture(self, name: str) -> list[int]:
        """The index of the figure of a step over a picture, which is the same for all heads; empty without a picture."""
        packer = self.packer
        spec = packer.whole.over_pictures.figure(name, packer.index, packer.heads[0])
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
                build = partial(factor_map, packer.trace, factor, factor_name, cell)
                indices.append(self._index(("factor", f"{name} {factor_name}", head), build))
        return [*indices, self.map(name, head, "= " if factors else "")]

    def _index(self, key: tuple[str, str, int], build: Callable[[], Spec]) -> int:
        if key not in self._known:
            spec = build()
            spec["layout"]["shapes"] = []
            self._known[key] = len(self.specs)
            self.specs.append(spec)
        return self._known[key]


def _knobs_of_link(state: State) -> list[_Offer]:
    """The knobs that a state offers, with the values of its link."""
    source = source_kinds()[state.link.get("source", "typed text")]
    known, offers = {knob.key: knob for knob in inline_knobs(source)}, list[_Offer]()
    for key in state.knobs:
        knob, within = known[key], Choice(_MASKS) if key == "mask" else known[key].on_pages(LIMITS)
        value = knob.read(state.link[key], within, knob.default)[0] if key in state.link else knob.default
        offers.append((knob, within, value))
    return offers


def _source_label(state: State) -> str:
    """What fixes the formula of a state, in a word; empty if its controls do."""
    source = state.link.get("source", "typed text")
    return source_kinds()[source].label if has_formula(source) else ""


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

    def header(self, message: bytes, prepare: Callable[[Spec], None] = lambda _: None) -> Any:
        """The header of a packed message, with the arrays of its figures, once these are prepared, moved into this pool."""
        (size,) = struct.unpack_from("<I", message)

        def move_array(value: dict[str, Any]) -> Any:
            if not isinstance(array := value.get("array"), dict):
                return value
            dtype, shape, start = array["dtype"], tuple(array["shape"]), 4 + size + array["at"]
            raw = message[start : start + int(np.prod(shape)) * np.dtype(dtype).itemsize]
            return self._store(dtype, shape, raw)

        header = json.loads(message[4 : 4 + size])
        for figure in header["figures"]:
            prepare(figure)
        return json.loads(json.dumps(header), object_hook=move_array)

    def _store(self, dtype: str, shape: tuple[int, ...], raw: bytes) -> dict[str, Any]:
        key = (dtype, shape, raw)
        if key not in self._known:
            self._known[key] = len(self.raw)
            self.raw += raw + b"\0" * (-len(raw) % 8)
        return {"array": {"dtype": dtype, "at": self._known[key], "shape": list(shape)}}

    def pack(self, header: Any) -> bytes:
        """A header and the arrays, as `unpackTrace` of page/packed.js reads them: like `message.pack`, but the first bytes of every four first, then the second ones, ….

        Signs and exponents of neighbours are alike and the rest of a number is noise, so that they are compressed better apart.
        """
        text = json.dumps(header, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-(4 + len(text)) % 8)
        return struct.pack("<I", len(text)) + text + np.frombuffer(self.raw, np.uint8).reshape(-1, 4).T.tobytes()


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
        spec = over_picture_json(MapLine.of(self._without_pixels, step, layer, head, **fixed), scales.FITTED)
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
        boxes = [shape for shape in layout["shapes"] if shape.get("name") == BOX]
        layout["shapes"] = [shape for shape in layout["shapes"] if shape not in boxes]
        grid = self._grid(drawn_layer.labels_of(axis) or (), layout)
        meta["packed"] = {"grid": grid, "noun": axis_noun(own_axis), "head": head} | (
            {"box_shape": boxes[0]} if boxes else {}
        )
        del heat["z"], heat["text"]
        spec["data"] = [heat, *(trace for trace in others if trace["type"] != "heatmap")]
        layout["height"] = HEIGHT  # level with the maps beside it
        return spec

    def _grid(self, tokens: tuple[str, ...], layout: dict[str, Any]) -> int:
        """The index of what the figures of these tokens share, which is taken out of the layout of a figure."""
        positions, annotations = layout["meta"]["grid"].pop("positions"), layout.pop("annotations", [])
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
