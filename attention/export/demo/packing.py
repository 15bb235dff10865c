"""A state of the demo as bytes: a figure message for each view, the numbers of all steps, and the line of every cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attention.analysis import tables
from attention.analysis.explain.explain import explain
from attention.core.cell import Cell
from attention.core.config import SOURCES_WITH_FORMULA
from attention.core.layer import Layer
from attention.core.mask_rules import KNOB_RULES
from attention.core.names import MASKED_SCORES, OUTPUT, SCALED_SCORES, SCORES, WEIGHTS
from attention.core.steps import HEAD_AXES, Step, declared, find_step, is_step
from attention.core.steps.products import Product
from attention.core.trace import Trace
from attention.errors import AttentionError
from attention.export.demo.picture_packing import PictureFigures
from attention.export.demo.pool import ArrayPool
from attention.export.demo.states import LIMITS, State
from attention.params.ranges import Choice
from attention.pictures.controls import describe_control
from attention.pictures.downsample import MAX_SIDE
from attention.pictures.factors import factor_maps
from attention.pictures.heatmap import chosen_position, heatmap_json
from attention.pictures.layout import CHOSEN_COLOR, Spec
from attention.pictures.live_inputs import live_inputs
from attention.pictures.message import Surroundings, pack
from attention.pictures.message_contract import Control
from attention.pictures.strip import step_strip
from attention.pictures.view import HEAD, VIEWS, overview_steps
from attention.sources import Source
from attention.sources.kinds import SOURCE_KINDS
from attention.sources.layer_knobs import inline_knobs
from attention.sources.link import page_range, source_of

_EXPLAINED = (SCALED_SCORES, MASKED_SCORES, WEIGHTS, OUTPUT)
"""The steps whose lines the page computes itself (page/explain.js), apart from products; the lines of all others are packed."""
_MASKS = ("none", *KNOB_RULES)
HEADS = "heads"
"""The view with the weights of several heads side by side."""


def source_and_trace(state: State) -> tuple[Source, Trace]:
    """The source of a state and its trace.

    Raises:
        AttentionError: the state's link is invalid.
    """
    source, notes = source_of(state.link, LIMITS)
    if notes:
        raise AttentionError(f"The link of “{state.title}” must be valid; got: {' '.join(notes)}")
    return source, source.trace()


def pack_state(state: State) -> bytes:
    """A state with all its views.

    Raises:
        AttentionError: the link is invalid, or offers a control that the page cannot follow.
    """
    return _Packing(state).packed()


class _Packing:
    def __init__(self, state: State) -> None:
        self.state, self.pool = state, ArrayPool()
        _, self.trace = source_and_trace(state)
        self.layer: Layer = self.trace.layers[state.layer]
        self.heads = state.heads or tuple(range(self.layer.n_heads))
        self.steps = tuple(step for step in self.layer.steps if step.name not in state.skip)
        self.names = tuple(step.name for step in self.steps)
        self.overview = overview_steps(self.names)
        self.live = {head: live_inputs(self.layer, head) for head in self.heads}
        self.factors = {step.name: self._factors(step) for step in self.steps if is_plain_product(self.layer, step)}
        self.explained = tuple(name for name in self.names if name in (*_EXPLAINED, *self.factors))
        self.over_pictures = PictureFigures(self.trace)
        self._check()

    def _check(self) -> None:
        live_message = self.live[self.heads[0]]
        computed_by_page = [
            name for name in (live_message["computable"] if live_message else ()) if name in self.explained
        ]
        later = [name for name in self.names[self.names.index(SCORES) + 1 :] if name not in computed_by_page]
        if self.state.knobs and later:
            raise AttentionError(
                f"The page must compute every step after the scores of “{self.state.title}”, which has controls; "
                f"it cannot compute {', '.join(later)}: skip these steps, or offer no controls."
            )

    def packed(self) -> bytes:
        state, layer = self.state, self.layer
        views = {
            f"factors {name} {head}": self._view(name, head, VIEWS[1]) for name in self.names for head in self.heads
        }
        if len(self.overview) > 1:
            views |= {
                f"overview {name} {head}": self._view(name, head, VIEWS[0])
                for name in self.overview
                for head in self.heads
            }
        if state.view == HEADS:
            views |= {f"heads weights {head}": self._view(WEIGHTS, head, HEADS) for head in self.heads}
        over_pictures = self.names if self.over_pictures.grids else ()  # the page writes their numbers into the picture
        needed = dict.fromkeys(
            [*self.explained, *(name for names in self.factors.values() for name in names), *over_pictures]
        )
        numbers = {name: self._numbers(name) for name in needed}
        if OUTPUT in self.explained and layer.w_o is not None:
            numbers["w_o"] = [self.pool.add(layer.w_o.flatten(0, 1).numpy())]
        formula = {
            "divisor": layer.divisor,
            "temperature": layer.temperature,
            "normalizer": layer.formula.normalizer if layer.formula else "",
        }
        before = (
            [name for _, name in layer.factors(find_step(MASKED_SCORES)) if is_step(name)]
            if MASKED_SCORES in self.names
            else []
        )
        header = {
            "views": views, "grids": self.over_pictures.grids,
            "steps": {step.name: describe_sides(layer, step) for step in self.steps},
            "lines": {
                step.name: cell_lines(self.trace, state.layer, step, self.heads)
                for step in self.steps
                if step.name not in self.explained
            },
            "numbers": numbers, "factors": self.factors, "formula": formula,
            "heads": list(self.heads), "d_k": layer.sizes.get("d_k", 0), "before": (before or [""])[0],
            "source_label": _source_label(state), "link": dict(state.link), "about": describe_trace(self.trace), "outline": CHOSEN_COLOR,
            "initial": {
                "view": state.view, "step": state.step, "layer": str(state.layer), "head": str(state.head),
                "q": str(state.q), "k": str(state.k),
            },
        }  # fmt: skip
        return self.pool.pack(header)

    def _factors(self, step: Step) -> list[str]:
        return [name for _, name in self.layer.factors(step)]

    def _numbers(self, name: str) -> list[dict[str, Any]]:
        """The matrices of a step or parameter for all packed heads; hidden scores are nan, as in maps."""
        heads = self.heads if declared(name).axes[0] in HEAD_AXES else (0,)
        matrices = [self.layer.matrix(name, head).numpy() for head in heads]
        return [
            self.pool.add(np.where(np.isfinite(matrix), matrix, np.nan).astype(matrix.dtype)) for matrix in matrices
        ]

    def _view(self, name: str, head: int, view: str) -> dict[str, Any]:
        """A view as a message without its line, and for each of its figures the axes of the marked cell."""
        cell, layer = Cell(self.state.layer, name, head, 0, 0), self.layer
        if view == VIEWS[1]:
            figures = factor_maps(self.trace, cell)
            sides = {"row": 0, "column": 1, "pair": 2, "": None}
            marked = [(sides[factor.row], sides[factor.column]) for factor, _ in layer.factors(find_step(name))]
            marked.append((0, 1))
        else:
            drawn = (
                [(WEIGHTS, packed_head) for packed_head in self.heads]
                if view == HEADS
                else [(step, head) for step in self.overview]
            )
            figures = [heatmap_json(self.trace, step, cell.layer, map_head, cell) for step, map_head in drawn]
            marked = [chosen_position(find_step(step), Cell(0, name, 0, 0, 1)) for step, _ in drawn]
            if view == HEADS:
                _name_heads(figures, self.heads)
        if view != HEADS and (over := self.over_pictures.figure(name, cell.layer, head)) is not None:
            figures, marked = [over, *figures], [(None, None), *marked]
        for figure in figures:
            figure["layout"]["shapes"] = []
        strip = [
            tab for tab in step_strip(layer, name, view, self.overview) if tab["name"] in ("overview", *self.names)
        ]
        around = Surroundings(live=self.live[head], controls=self._controls(head, view), strip=strip)
        return {"message": self.pool.header(pack(figures, around)), "marked": marked}

    def _controls(self, head: int, view: str) -> list[Control]:
        """The available controls: the settings that the page follows, and the packed heads."""
        state, layer = self.state, self.layer
        known = {knob.key: knob for knob in inline_knobs(state.link.get("source", "typed text"))}
        offered = [(known[key], page_range(known[key], LIMITS)) for key in state.knobs]
        offered = [(knob, Choice(_MASKS) if knob.key == "mask" else allowed) for knob, allowed in offered]
        values = {
            knob.key: knob.read(state.link[knob.key], allowed, knob.default)[0]
            if knob.key in state.link
            else knob.default
            for knob, allowed in offered
        }
        if len(self.heads) > 1 and view != HEADS:
            offered.append((HEAD, Choice(self.heads)))
            values["head"] = head
        return [describe_control(knob, allowed, values[knob.key], layer) for knob, allowed in offered]


def _name_heads(figures: list[Spec], heads: tuple[int, ...]) -> None:
    """Adds the head to the titles of maps of the same step."""
    for figure, head in zip(figures, heads, strict=True):
        figure["layout"]["title"]["text"] += f" of head {head}"
        figure["layout"]["uirevision"] += f" {head}"
        figure["data"][0]["of_head"] = head


def _source_label(state: State) -> str:
    """What fixes the formula, in a word; empty if the controls do."""
    source = state.link.get("source", "typed text")
    return SOURCE_KINDS[source].label if source in SOURCES_WITH_FORMULA else ""


def describe_trace(trace: Trace) -> str:
    """What a page says about a trace beside its maps; empty if there is nothing to say."""
    sentences = ["Random weights: this shows the mechanism, not language."] if trace.random else []
    return " ".join([*sentences, *([trace.caption] if trace.caption else []), *trace.notes])


def describe_sides(layer: Layer, step: Step) -> dict[str, Any]:
    """What the page needs to write the line of a cell: the size of the step, and the names of its rows and columns."""
    rows, columns = layer.shape(step.name)[-2:]
    row_names = [tables.cell_names(layer, Cell(0, step.name, 0, i, 0))[0] for i in range(rows)]
    column_names = [tables.cell_names(layer, Cell(0, step.name, 0, 0, i))[1] for i in range(columns)]
    sides = [{"axis": names[0][0], "tokens": [token for _, token in names]} for names in (row_names, column_names)]
    return {"rows": rows, "columns": columns, "per_head": step.per_head, "sides": sides}


def is_plain_product(layer: Layer, step: Step) -> bool:
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


def cell_lines(trace: Trace, layer: int, step: Step, heads: Sequence[int]) -> list[Any]:
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
