"""Build a map: its colours, hidden cells, hover texts and alternative text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.base.printed import format_number
from attention.formula.names import Cell
from attention.formula.steps import MAP_AXES, Step, find_step
from attention.pictures import scales
from attention.pictures.layout import axis_title, map_layout, short_axis_name
from attention.pictures.look import TYPE
from attention.pictures.marks import Mark, Panel, Spec, cells, draw, ground
from attention.pictures.message_contract import Meta
from attention.trace.large_map import RowsOnDemand
from attention.trace.layer import Layer
from attention.trace.stats import StepStats, finite_range
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

_MAX_LAYER_NAME = 14  # characters of a layer's name beside its index
MAX_SIDE_WITH_NUMBERS = 24  # rows or columns; above this, numbers in cells are unreadable


@dataclass(frozen=True)
class Drawn:
    """What a map shows: the numbers of a step of one layer, in one panel or in one for each head.

    Attributes:
        colors: one of `scales.COLORS`.
        tensor: the numbers, where `step` is no step of the layer, such as a parameter.
        span: the range of the colours, if it exceeds that of the numbers.
    """

    trace: Trace
    step: Step
    layer: int
    panels: Sequence[Panel]
    colors: str = "fixed"
    tensor: Tensor | None = None
    span: tuple[float, float] | None = None

    @classmethod
    def of_head(
        cls, trace: Trace, step: str, layer: int, head: int, colors: str, span: tuple[float, float] | None = None
    ) -> Drawn:
        """The matrix of one head.

        Raises:
            MissingError: the trace has no such layer, step or head.
        """
        panel = Panel(head, 0, 0, *head_map(trace.layer(layer), step, head).shape)
        return cls(trace, find_step(step), layer, [panel], colors, span=span)

    @property
    def of_layer(self) -> Layer:
        """The layer; of one panel, as its head has it."""
        layer = self.trace.layer(self.layer)
        return layer if self.is_many else layer.for_head(self.panels[0].head)

    @property
    def is_many(self) -> bool:
        """Whether there are panels of several heads."""
        return len(self.panels) > 1

    @property
    def stats(self) -> StepStats:
        """What is known about the numbers that the colours cover."""
        if self.tensor is not None:
            return StepStats(*finite_range(self.tensor) or ())
        return scales.drawn_stats(
            self.trace.layer(self.layer), self.step.name, None if self.is_many else self.panels[0].head
        )

    @property
    def hover(self) -> str:
        """The text under the pointer, up to the number."""
        step, head = self.step, "%{customdata}" if self.is_many else self.panels[0].head
        name = f"{step.name} L{self.layer}{f' H{head}' if step.per_head else ''}"
        return f"{name}<br>{short_axis_name(step.row_axis)} %{{y}}<br>{short_axis_name(step.column_axis)} %{{x}}<br>"

    def words(self, n_blind: int) -> tuple[str, ...]:
        """The formula, where the numbers are of, their shape, and further facts."""
        layer, block = self.trace.layer(self.layer), self.panels[0].block
        shape = layer.shape(self.step.name) if self.tensor is None else self.tensor.shape
        where = f"{layer_label(layer, self.layer)}{_heads(layer, self.step, self.panels)}"
        facts = [f"each cell the largest of {block} × {block}"] * (block > 1) + ["model changed"] * bool(
            self.trace.changes
        )
        facts += describe_blind_queries(n_blind)
        return self.of_layer.formula_of(self.step), where, " × ".join(map(str, shape[-2:])), *facts

    def alt(self, n_blind: int, colors: str) -> str:
        """The alternative text, with what is said about the colours."""
        (formula, where, shape, *_), step = self.words(n_blind), self.step
        layer = self.trace.layer(self.layer)
        stats = (
            layer.stats(step.name, None if self.is_many or layer.keeps_maps else self.panels[0].head)
            if self.tensor is None
            else StepStats()
        )
        span = stats.finite_range if self.tensor is None else finite_range(self.tensor)
        parts = [axis_title(step.row_axis) + " by " + axis_title(step.column_axis), describe_range(span)]
        parts += describe_blind_queries(n_blind, "row sees", "rows see")
        if self.tensor is None and step.kind == "probability" and not n_blind:
            sum_to_1 = 0.999 < (stats.min_row_sum or 0) <= (stats.max_row_sum or 0) < 1.001 and not stats.zero_rows
            parts += ["every row sums to 1"] * sum_to_1
        parts += [colors] * bool(colors)
        return f"Heatmap of {step.name} ({step.symbol} = {formula}), {where}, {shape}: {', '.join(parts)}."


def build_map(
    drawn: Drawn,
    matrix: NDArray[Any] | RowsOnDemand,
    hidden: NDArray[np.bool_] | RowsOnDemand | None,
    *marks: Mark,
    numbers: bool = False,
) -> Spec:
    """Returns a map of `matrix` [row column] with titles, colours, hover texts and alternative text, and further `marks` on it.

    `hidden` cells have a neutral background; `numbers` are written into the cells of a small map.
    """
    step, panels, colors = drawn.step, drawn.panels, drawn.colors
    layer, stats = drawn.trace.layer(drawn.layer), drawn.stats
    low, high = scales.scale_range(step, drawn.span or stats.drawn_range(layer.hides_keys), colors)
    largest = max(-stats.low, stats.high) if stats.low is not None and stats.high is not None else 0.0
    color_keys, extra_marks = scales.color_keys(step, low, high, colors, drawn.is_many)
    if step.kind == "signed" and largest > high:
        color_keys["meta"] = {"colors": "cut"}  # the page keeps this end while a knob changes
    heads: dict[str, Any] = {}  # the head of each cell; with one panel it is in the hover text
    if drawn.is_many:
        heads["customdata"] = head_of_cell = np.zeros(matrix.shape, dtype=np.uint16)
        for panel in panels:
            head_of_cell[panel.area] = panel.head
    n_blind = 0 if hidden is None else drawn.of_layer.n_blind_queries
    is_hiding = drawn.of_layer.hides_keys if isinstance(hidden, RowsOnDemand) else hidden is not None and hidden.any()
    file_heads = "-heads" if drawn.is_many else f"-H{panels[0].head}" if step.per_head else ""
    meta: Meta = {
        "alt": drawn.alt(n_blind, scales.describe_colors(step, low, high, colors)),
        "step": step.name,
        "layer": drawn.layer,
        "panels": [asdict(panel) | {"layer": drawn.layer} for panel in panels],
        "axes": [short_axis_name(step.row_axis), short_axis_name(step.column_axis)],
        "file": [step.name, f"L{drawn.layer}{file_heads}"],
    }
    if step.axes == MAP_AXES:
        meta["hidden_trace"] = hidden_ground(step, drawn.hover)
    heading, facts = f"<b>{step.symbol}</b>  {step.name}", [*drawn.words(n_blind)]
    return draw(
        map_layout(layer, (step.row_axis, step.column_axis), heading, facts, meta, matrix.shape),
        cells(matrix, f"{drawn.hover}<b>%{{z:.9g}}</b>", color_keys, **heads, **(numbers_in_cells(matrix.shape) if numbers else {})),
        None if hidden is None or not is_hiding else hidden_ground(step, drawn.hover, hidden, **heads),
        *extra_marks, *marks, *scales.scale_note(step, high, colors, drawn.is_many, largest),
    )  # fmt: skip


def numbers_in_cells(shape: tuple[int, ...]) -> dict[str, Any]:
    """Returns the keys that write numbers into cells, if a map of this shape is small enough."""
    if max(shape) > MAX_SIDE_WITH_NUMBERS:
        return {}
    return {"texttemplate": "%{z:.2f}", "textfont": {"size": TYPE["axis"]}}


def hidden_ground(step: Step, hover: str, hidden: NDArray[np.bool_] | RowsOnDemand | None = None, **more: Any) -> Mark:
    """Returns the ground of hidden cells, whose text under the pointer ends with the number that a step has there; without `hidden`, the page fills in which."""
    number = "0" if step.kind == "probability" else "−∞"
    return ground(hidden, f"{hover}<b>{number}</b>, hidden by the mask", **more)


def head_map(layer: Layer, step: str, head: int) -> NDArray[Any] | RowsOnDemand:
    """Returns the matrix of a step of one head; of a map that is not kept, its rows on demand."""
    if layer.keeps_maps or step in layer.available or find_step(step).axes != MAP_AXES:
        return layer.matrix(step, head).numpy()
    dtype = layer.row(head, 0, step).numpy().dtype
    return RowsOnDemand(
        (layer.sizes["query_pos"], layer.sizes["key_pos"]),
        dtype,
        lambda rows: layer.blocks(step, heads=slice(head, head + 1), rows=rows)[0][0].numpy(),
        lambda: layer.block_maxima(head, step),
    )


def hidden_map(trace: Trace, step: Step, layer: int, head: int) -> NDArray[np.bool_] | RowsOnDemand | None:
    """Returns `hidden_cells` of one head; beside a map that is not kept, its rows on demand."""
    drawn_layer = trace.layer(layer)
    if drawn_layer.keeps_maps or not step.masked:
        return hidden_cells(trace, step, layer, head)
    sizes = len(drawn_layer.tokens), len(drawn_layer.key_tokens)
    return RowsOnDemand(sizes, np.dtype(bool), lambda rows: ~drawn_layer.visible_cells(head, rows).numpy())


def hidden_cells(trace: Trace, step: Step, layer: int, head: int | None = None) -> NDArray[np.bool_] | None:
    """Returns which cells [query_pos key_pos] the mask of a head hides (without `head`, of all heads); None for steps without a mask."""
    if not step.masked:
        return None
    drawn_layer = trace.layer(layer)
    same_formula = drawn_layer.formula is None or not drawn_layer.formula.heads
    heads = [head or 0] if same_formula or head is not None else range(drawn_layer.n_heads)
    masks = [drawn_layer.for_head(index).mask for index in heads]
    hidden_by_head = [np.logical_not(mask.numpy()) for mask in masks if mask is not None]
    if not masks or len(hidden_by_head) < len(masks):
        return None
    hidden: NDArray[np.bool_] = np.logical_and.reduce(hidden_by_head)
    return hidden


def why_hidden(trace: Trace, cell: Cell) -> str:
    """Returns what hides the key of a cell from its query, in words; empty if the query sees it, or the step has no mask."""
    layer, row = trace.layer(cell.layer).for_head(cell.head), slice(cell.row, cell.row + 1)
    if not find_step(cell.step).masked or bool(layer.mask_rows(row)[0, cell.column]):
        return ""
    formula = layer.formula
    return formula.mask.why_hidden(cell.row, cell.column) if formula and formula.mask else "the mask"


def describe_range(span: tuple[float, float] | None) -> str:
    """Returns the range of a map's numbers in words."""
    return f"numbers from {format_number(span[0])} to {format_number(span[1])}" if span else "every number hidden"


def describe_blind_queries(count: int, singular: str = "query sees", plural: str = "queries see") -> list[str]:
    """Returns a list with a note about queries that see no key; empty if there are none."""
    return [f"{count} {singular if count == 1 else plural} no key"] * bool(count)


def layer_label(layer: Layer, number: int) -> str:
    """Returns the label of a layer on a map: "L3", "L7 cross 1"."""
    is_plain = layer.name in ("", f"layer {number}")
    return f"L{number}" if is_plain else f"L{number} {escape(layer.name[:_MAX_LAYER_NAME])}"


def _heads(layer: Layer, step: Step, panels: Sequence[Panel]) -> str:
    """Returns the heads of a map in words; for shared keys and values, also the query heads that share them."""
    if not step.per_head:
        return ""
    if len(panels) > 1:
        return f", {len(panels)} heads"
    head, group = panels[0].head, layer.n_heads // layer.sizes.get(step.axes[0], layer.n_heads)
    if group == 1:
        return f" H{head}"
    first = head // group * group
    return f" key head {head // group}, shared by H{first} to H{first + group - 1}"
