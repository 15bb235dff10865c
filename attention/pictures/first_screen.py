"""The first screen: a text, its formula term by term, one large map between Q and Kᵀ, and the numbers of one pair, for the page's script.

`first_screen` gathers the numbers of one head; figure/screen.js draws them, at rest and as a film, with one function of the time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.base.tokens import Generated, PairToken, Patch, label
from attention.explanation.explanation import explain
from attention.formula.names import HEAD_OUTPUT, KEY, QUERY, SCORES, VALUE, WEIGHTS, Cell
from attention.formula.steps import MAP_AXES, Step, find_step
from attention.pictures import scales
from attention.pictures.drawing import head_map, hidden_cells, why_hidden
from attention.pictures.message_contract import Screen, Sentence, Term
from attention.trace.large_map import RowsOnDemand, maxima_of, pool_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attention.explanation.explanation import Explanation
    from attention.trace.layer import Layer
    from attention.trace.trace import Trace

_FEW = 40
"""Up to so many tokens a map and its vectors are sent whole; more are sent as blocks, and as the row of the chosen query."""
_BLOCKS = 40  # rows or columns of a map of many tokens
_STRIP = 64  # numbers of a vector that its strip shows
_LONGEST_WORD, _LONGEST_PATCH = 24, 12  # characters


@dataclass(frozen=True)
class About:
    """What the page says about the numbers.

    Attributes:
        where: the model and the layer, such as "SmolLM2 · layer 24"; or "random weights".
        why: a sentence about the pair on which a source opens; empty for any other pair.
        sentence: what typing into the sentence changes; None where nothing can be typed.
    """

    where: str
    why: str = ""
    sentence: Sentence | None = None


def _term_steps(layer: Layer) -> dict[str, str]:
    """Which step of a layer each term of the formula shows: match, scale, hide, share and collect, as far as the layer has them."""
    maps = [step.name for step in layer.steps if step.axes == MAP_AXES]
    before = maps[: maps.index(WEIGHTS)] if WEIGHTS in maps else maps
    between = [name for name in before if name not in (SCORES, "masked_scores")]
    terms = {
        "match": SCORES if SCORES in before else "",
        "scale": between[-1] if between else "",
        "hide": "masked_scores" if "masked_scores" in before else "",
        "share": WEIGHTS if WEIGHTS in maps else "",
        "collect": HEAD_OUTPUT if layer.has(HEAD_OUTPUT) else "",
    }
    return {term: step for term, step in terms.items() if step}


def first_screen(
    trace: Trace,
    cell: Cell,
    pair: tuple[int, int],
    about: About,
    show: float | None = None,
    computable: Sequence[str] = (),
) -> Screen:
    """The numbers of one head for the page's script.

    Args:
        trace: the trace.
        cell: the chosen cell, of any step.
        pair: the positions of the chosen query and key, which a cell of the keys or the values does not say.
        about: what the page says about the numbers.
        show: the moment of the film, from 0 to 5; None for the chosen step at rest.
        computable: the steps that the page computes itself, see `live_inputs`: of many tokens, it is sent none of their matrices.

    Raises:
        MissingError: the trace has no such layer or head.
    """
    layer, head = trace.layer(cell.layer), cell.head
    steps = _term_steps(layer)
    query, key = (min(at, len(tokens) - 1) for at, tokens in zip(pair, (layer.tokens, layer.key_tokens), strict=True))
    few = max(len(layer.tokens), len(layer.key_tokens)) <= _FEW
    hidden = hidden_cells(trace, find_step(WEIGHTS), cell.layer, head) if few and layer.has(WEIGHTS) else None
    chosen = {term: Cell(cell.layer, step, head, query, key) for term, step in steps.items()}
    column = cell.column if cell.step == HEAD_OUTPUT else 0
    if "collect" in chosen:
        output = layer.matrix(HEAD_OUTPUT, head)[query]
        column = column if cell.step == HEAD_OUTPUT else int(output.abs().argmax())
        chosen["collect"] = replace(chosen["collect"], column=column)
    formula = layer.for_head(head).formula
    spans = trace.spans if layer.tokens == trace.tokens == layer.key_tokens else ()
    screen: Screen = {
        "queries": _words(layer.tokens),
        "keys": [] if layer.key_tokens == layer.tokens else _words(layer.key_tokens),
        "where": about.where,
        "why": about.why,
        "random": trace.random,
        "sentence": about.sentence,
        "layer": cell.layer,
        "head": head,
        "q": query,
        "k": key,
        "column": column,
        "step": cell.step,
        "show": show,
        "terms": [_term(trace, layer, term, chosen[term], few, chosen[term].step in computable) for term in steps],
        "vectors": _vectors(layer, head, query, key, few),
        "hidden": np.asarray(hidden, np.uint8) if hidden is not None and np.any(hidden) else None,
        "hides": why_hidden(trace, Cell(cell.layer, WEIGHTS, head, query, key)) if layer.has(WEIGHTS) else "",
        "score": formula.score if formula else "",
        "normalizer": formula.normalizer if formula else "",
        "divisor": float(layer.divisor),
        "temperature": float(layer.temperature),
        "mask": formula.mask.kind if formula and formula.mask else "",
    }
    if spans:
        screen["spans"] = [[span.name, span.first, span.last] for span in spans]
    return screen


def _words(tokens: Sequence[str]) -> list[str]:
    """The tokens as words of a sentence: without the mark of the blank before them, where there is more."""
    shown = [
        label(token, _LONGEST_PATCH if isinstance(token, Patch) else _LONGEST_WORD, escape=False) for token in tokens
    ]
    marked = [isinstance(token, Generated | PairToken | Patch) for token in tokens]
    return [text if mark or not text.strip("·") else text.strip("·") for text, mark in zip(shown, marked, strict=True)]


def _term(trace: Trace, layer: Layer, name: str, cell: Cell, few: bool, is_computable: bool) -> Term:
    declaration = find_step(cell.step)
    explanation = explain(trace, cell.step, cell.layer, cell.head, cell.row, cell.column)
    if is_computable and not few:
        term = _said(name, cell, explanation)
        term["block"] = _block(declaration, layer.shape(cell.step)[-2:])
        return term
    matrix = head_map(layer, cell.step, cell.head)
    _, high = scales.scale_range(declaration, scales.drawn_span(layer, cell.step, cell.head), "fixed")
    return make_term(name, cell, matrix, float(high), explanation, few)


def make_term(
    name: str,
    cell: Cell,
    matrix: NDArray[Any] | RowsOnDemand,
    limit: float,
    explanation: Explanation | None,
    few: bool,
) -> Term:
    """A term of the formula: a matrix of its step, whole if the tokens are `few`, and what is said of its number at a cell; nothing if there is no explanation."""
    term = _said(name, cell, explanation) | {"limit": limit}
    if few:
        term["z"] = _finite(np.asarray(matrix))
        return term
    whole = slice(None), slice(None)
    down, across = term["block"] = _block(find_step(cell.step), matrix.shape)
    maxima = maxima_of(matrix, whole, down, across)
    term["z"], term["offsets"] = _finite(maxima.numbers), maxima.offsets
    term["row"] = _finite(matrix[slice(cell.row, cell.row + 1), whole[1]][0])
    return term


def _finite(numbers: NDArray[Any]) -> NDArray[Any]:
    """The numbers, NaN where they are not finite."""
    return np.where(np.isfinite(numbers), numbers, np.nan).astype(numbers.dtype)


def _said(name: str, cell: Cell, explanation: Explanation | None) -> Term:
    """A term without its matrix."""
    return {
        "name": name,
        "step": cell.step,
        "shown": explanation.displayed_value if explanation else "",
        "short": explanation.short if explanation else "",
        "sign": explanation.sign if explanation else "",
    }


def _block(step: Step, shape: tuple[int, ...]) -> list[int]:
    """The rows and columns of a matrix of this shape that are one block of its map; an output has all its numbers."""
    rows, columns = shape
    return [-(-rows // _BLOCKS), -(-columns // _BLOCKS) if step.column_axis == "key_pos" else 1]


def _vectors(layer: Layer, head: int, query: int, key: int, few: bool) -> dict[str, Any]:
    """The vectors of all tokens that the scores and the output are computed from; of many tokens a strip of blocks, and those that one row needs."""
    needed = {QUERY: [query], KEY: [key], VALUE: [key]}
    if layer.has(WEIGHTS):
        needed[VALUE] += layer.top(head, query, 4).keys.tolist()
    used = {name: used_vector(layer, name) for name in needed}
    return {
        name: make_strip(layer.matrix(step, head).numpy(), None if few else needed[name])
        for name, step in used.items()
        if layer.has(step)
    }


def used_vector(layer: Layer, name: str) -> str:
    """The step that the scores and the output use as query, key or value."""
    return f"rotated_{name}" if name != VALUE and layer.has(f"rotated_{name}") else name


def make_strip(matrix: NDArray[Any], positions: Sequence[int] | None) -> dict[str, Any]:
    """Vectors beside a map: all rows; or blocks of them, and the rows at some positions."""
    if positions is None:
        return {"rows": matrix}
    kept = sorted(set(positions))
    strip = pool_blocks(matrix, -(-len(matrix) // _BLOCKS), -(-matrix.shape[1] // _STRIP))
    return {"strip": strip, "at": kept, "rows": matrix[kept]}
