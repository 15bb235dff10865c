"""Which line of each head is drawn over a picture: the row of one query, or the column of one key."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.analysis.token_kinds import CLS, kind_of
from attention.core import cache
from attention.core.layer import Layer
from attention.core.names import KEY, QUERY
from attention.core.steps import Step, find_step
from attention.core.trace import Trace
from attention.errors import MissingError, check_index
from attention.pictures.all_layers import CELLS_PER_SECOND
from attention.pictures.layout import position_name
from attention.pictures.mosaic import head_matrices, is_streamed
from attention.tokens import Patch, any_patch

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Lines:
    """What is drawn of each head: a line of its map along an axis whose tokens are patches.

    Attributes:
        reads: `QUERY` for the row of a query, `KEY` for the column of a key.
        at: the position of that query or key.
        tokens: the tokens along the line.
        name: the query or key in words.
    """

    reads: str
    at: int
    tokens: tuple[str, ...]
    name: str

    def of(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """The line of a map [row column]."""
        return matrix[self.at] if self.reads == QUERY else matrix[:, self.at]


def default_query(tokens: Sequence[str]) -> int:
    """Returns the query whose rows are drawn unless another is chosen: [CLS] if there is one, otherwise the last word, otherwise the first patch."""
    names = [position for position, token in enumerate(tokens) if not isinstance(token, Patch)]
    return next((at for at in names if kind_of(tokens[at]) == CLS), names[-1] if names else 0)


def reads_query(trace: Trace, step: str, layer: int, column: bool = False) -> bool | None:
    """Returns whether heads can be drawn by the row of a query (the keys are patches), and not by the column of a key; None if neither axis has patches.

    Args:
        trace: the trace.
        step: the step.
        layer: the layer.
        column: whether the column is preferred where both axes have patches.
    """
    declaration, drawn = find_step(step), trace.layer(layer)
    axes = (declaration.column_axis, declaration.row_axis)[:: -1 if column else 1]
    for axis in axes if trace.pictures else ():
        if any_patch(drawn.labels_of(axis)):
            return axis == declaration.column_axis
    return None


def chosen_lines(layer: Layer, step: Step, number: int, query: int | None, key: int | None) -> Lines:
    """Returns which line of each head is drawn: the row of `query` or the column of `key`, by default the row of `default_query`.

    Raises:
        MissingError: there is no such query or key, both are given, or the tokens along the line are no patches.
    """
    if query is not None and key is not None:
        raise MissingError("Heads show the row of one query or the column of one key; got both: give query= or key=.")
    reads = QUERY if key is None else KEY
    own_axis, axis = (step.row_axis, step.column_axis)[:: 1 if key is None else -1]
    tokens = layer.labels_of(axis) or ()
    if not any_patch(tokens):
        raise MissingError(
            f"The tokens along {axis} of {step.name} in layer {number} are no patches of a picture: choose a layer and a step whose tokens are."
        )
    own_tokens = layer.labels_of(own_axis)
    at = key if key is not None else query if query is not None else default_query(own_tokens or ())
    check_index("queries" if key is None else "keys", at, layer.sizes[own_axis])
    return Lines(reads, at, tokens, position_name(own_axis, at, own_tokens))


def same_tokens(trace: Trace, step: Step, layer: int) -> list[int]:
    """Returns the layers that have a step with the same axes as it has in `layer`."""

    def axes(index: int) -> tuple[object, ...]:
        each = trace.layers[index]
        return tuple((each.sizes.get(axis), each.labels_of(axis)) for axis in (step.row_axis, step.column_axis))

    return [index for index, each in enumerate(trace.layers) if each.has(step.name) and axes(index) == axes(layer)]


def iterate_lines(layer: Layer, step: Step, lines: Lines) -> Iterator[NDArray[Any]]:
    """Yields the line of each head. Of heads that are computed one by one on access, a row is computed alone; columns, which need all cells, are cached."""
    if lines.reads == KEY and is_streamed(layer, step.name):
        yield from cache.memoize(
            layer.uid, _place_of_columns(step, lines.at), layer.formula, lambda: _columns(layer, step, lines)
        )
        return
    for head in range(layer.n_heads if step.per_head else 1):
        if is_streamed(layer, step.name):
            (rows,) = layer.blocks(step.name, heads=slice(head, head + 1), rows=slice(lines.at, lines.at + 1))
            yield rows[0, 0].numpy()
        else:
            yield lines.of(layer.matrix(step.name, head).numpy())


def estimate_seconds(trace: Trace, step: str, layer: int, key: int | None) -> float:
    """Returns an estimate of the seconds that the lines of the heads of all layers take on one thread: rows and cached columns take almost none."""
    declaration = find_step(step)
    drawn = [trace.layers[index] for index in same_tokens(trace, declaration, layer)] if key is not None else []
    uncached = (
        each
        for each in drawn
        if is_streamed(each, step)
        and cache.CACHE.get((each.uid, _place_of_columns(declaration, key), each.formula)) is None
    )
    return sum(math.prod(each.shape(step)) for each in uncached) / CELLS_PER_SECOND


def _columns(layer: Layer, step: Step, lines: Lines) -> NDArray[Any]:
    """Returns the column of each head, [head row]."""
    # Copies: a column of a matrix would keep the whole matrix in memory.
    return np.stack([lines.of(matrix.numpy()).copy() for matrix in head_matrices(layer, step.name)])


def _place_of_columns(step: Step, key: int | None) -> tuple[object, ...]:
    return "columns", step.name, key
