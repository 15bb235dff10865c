"""A trace as a program: about twenty lines of plain torch that recompute every step without this package.

    from attention import TypedText, code
    print(code.python(TypedText("the cat sat on the mat")))

The source writes how its numbers are obtained (`Source.snippet`); the lines from Q, K and V on are the same for all
sources, and only those that this trace needs are written. Everything that a user typed is written as an ASCII
literal, so that none of it is ever executed. The variables have the names of the steps and parameters, except for `x`
(`input`) and `x2` (`memory`).
"""

from __future__ import annotations

import json
import math
import symtable
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attention.base.errors import MissingError
from attention.base.tokens import Patch, labels
from attention.formula.inline import defined
from attention.formula.names import HEAD_OUTPUT, MEMORY, OUTPUT, PATCHED_OUTPUT, SCORES, WEIGHTS
from attention.formula.override import Override
from attention.formula.scores import dot
from attention.formula.steps import find_step
from attention.pictures import scales
from attention.program import literals
from attention.program.formula_lines import formula_lines, projection_lines

if TYPE_CHECKING:
    from attention.formula.names import Cell
    from attention.program.literals import Snippet
    from attention.sources import Source
    from attention.trace.layer import Layer
    from attention.trace.trace import Trace

_IMPORTS = {
    "base64": "import base64",
    "hashlib": "import hashlib",
    "io": "import io",
    "math": "import math",
    "zlib": "import zlib",
    "json": "import json",
    "pathlib": "import pathlib",
    "sys": "import sys",
    "np": "import numpy as np",
    "go": "import plotly.graph_objects as go",
    "safetensors": "import safetensors.torch",
    "torch": "import torch",
}


def python(source: Source, trace: Trace | None = None, cell: Cell | None = None) -> str:
    """A Python program, ASCII only, that recomputes every step of the source's trace in plain torch.

    Pass the `trace` if it exists already; it must belong to the source. With a `cell`, the program covers the layer of the cell
    and ends by printing the cell's number beside the expected one. Matrices of more than
    2,000 numbers are read from the exported `attention.npz`, under names such as `L0.w_q`.
    """
    origin, _, steps = _steps(source, trace or source.trace(), cell)
    head = f"Attention from {origin}, made by Attention Lab."
    comment = textwrap.wrap(head, 98, replace_whitespace=False, break_long_words=False, break_on_hyphens=False)
    return "".join(f"# {line}\n" for line in comment) + steps


def ipynb(source: Source, trace: Trace | None = None, cell: Cell | None = None) -> str:
    """The program as a Jupyter notebook in JSON: a description, the steps, a heatmap of the weights, and of a picture the row of a query at its patches."""
    origin, layer, steps = _steps(source, trace or source.trace(), cell)
    description = (
        f"# Attention, step by step\n\nFrom {origin}, made by Attention Lab. The first cell computes every step "
        "in plain torch; the second draws one head with Plotly. Run them from top to bottom."
    )
    programs = filter(None, [steps, _drawing(layer), _patches_drawing(layer)])
    cells = [_cell("markdown", 0, description), *(_cell("code", i, text) for i, text in enumerate(programs, 1))]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def _cell(kind: str, number: int, text: str) -> dict[str, object]:
    base = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.rstrip("\n").splitlines(True)}
    return base | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def _steps(source: Source, trace: Trace, cell: Cell | None) -> tuple[str, Layer, str]:
    """The origin of the numbers, the layer as written, and the program: imports, tokens, the source's lines, the formula, the comparison."""
    index = 0 if cell is None else cell.layer
    # Sources with a single layer do not take an index.
    snippet = source.snippet(trace, index) if index else source.snippet(trace)
    layer, functions = trace.layer(index).wrapped.without(*snippet.omitted), _functions(trace, snippet)
    lines = literals.assign_texts("tokens", layer.tokens)
    keys = "tokens"
    if layer.key_tokens != layer.tokens or layer.has(MEMORY):
        keys = "key_tokens"
        lines += literals.assign_texts(keys, layer.key_tokens)
    lines += [*defined(dot), *functions] if functions else []
    lines += [*snippet.lines, *projection_lines(layer), *formula_lines(layer, keys)]
    return snippet.about, layer, _program(lines + ([] if cell is None else _comparison(layer, cell)))


def _functions(trace: Trace, snippet: Snippet) -> list[str]:
    """A function for each layer that is changed during the forward pass: the patched outputs of all heads, [head query_pos d_v], from query, key and value."""
    lines = list[str]()
    for index in snippet.patched_layers:
        layer = trace.layer(index).wrapped.with_config(Override())  # overrides affect the view only
        body = formula_lines(layer.without("w_o", "b_o", OUTPUT), "key_tokens")
        lines += [
            "",
            f"def layer_{index}(query, key, value, bias, sinks, patched_weights, patched_head_output):  # the heads' outputs, as passed on",
            "    tokens, key_tokens = range(query.shape[1]), range(key.shape[1])",
            *(f"    {line}" if line else "" for line in body),
            f"    return {PATCHED_OUTPUT if layer.has(PATCHED_OUTPUT) else HEAD_OUTPUT}",
            "",
        ]
    return lines


def _comparison(layer: Layer, cell: Cell) -> list[str]:
    """The lines that print one number of a step and its value in the trace; none if the trace does not have it."""
    step = find_step(cell.step)
    try:
        expected = float(layer.matrix(cell.step, cell.head)[cell.row, cell.column])
    except MissingError:  # the source lacks this step, or a long text is stored for one head only
        return []
    indices = [("head", cell.head)] * step.per_head + [(step.row_axis, cell.row), (step.column_axis, cell.column)]
    name = ", ".join([step.name, *(f"{axis.removesuffix('_pos')} {i}" for axis, i in indices)])
    number = f"{literals.VARIABLES.get(step.name, step.name)}[{', '.join(str(i) for _, i in indices)}]"
    literal = repr(expected) if math.isfinite(expected) else f'float("{expected}")'
    return ["", "# the chosen cell", f'print("{name}:", float({number}), "expected", {literal})']


def _drawing(layer: Layer) -> str:
    """The program of the second cell: the weights of one head, or its scores if there are no weights."""
    name, color_scale = WEIGHTS, f"zmin=0, zmax=1, colorscale={scales.PROBABILITY}"
    if not layer.has(WEIGHTS):
        name, color_scale = SCORES, f"zmid=0, colorscale={scales.SIGNED}"
    lines, names = ["head = 0"], list[str]()
    for tokens, variable in ((layer.tokens, "tokens"), (layer.key_tokens, "key_tokens")):
        if variable == "key_tokens" and layer.key_tokens == layer.tokens:
            names += names
        elif labels(tokens) == tokens:
            names += [variable]
        else:  # Plotly would read these as HTML, or they would be invisible
            lines += literals.assign_texts(variable.replace("tokens", "labels"), labels(tokens))
            names += [variable.replace("tokens", "labels")]
    rows, columns = names
    lines += [
        f"figure = go.Figure(go.Heatmap(z={name}[head].tolist(), {color_scale}))",
        f'figure.update_layout(title=f"{name}, head {{head}}")',
        f'figure.update_xaxes(title="key (attends to)", tickvals=list(range(len({columns}))), ticktext={columns})',
        f'figure.update_yaxes(title="query (attends from)", tickvals=list(range(len({rows}))), ticktext={rows})',
        'figure.update_yaxes(autorange="reversed")  # the first query on top',
        "figure",
    ]
    return _program(lines)


def _patches_drawing(layer: Layer) -> str:
    """The program of the third cell: what a query attends to, at the rows and columns of a picture; empty if the keys have none, or not row by row."""
    patches = [(position, token) for position, token in enumerate(layer.key_tokens) if isinstance(token, Patch)]
    if not patches or not layer.has(WEIGHTS):
        return ""
    (first, _), (last, corner) = patches[0], patches[-1]
    places = [(0, row, column) for row in range(corner.row + 1) for column in range(corner.column + 1)]
    if [(token.picture, token.row, token.column) for _, token in patches] != places or last - first + 1 != len(places):
        return ""
    return _program([
        f"rows, columns, first = {corner.row + 1}, {corner.column + 1}, {first}  # the patches stand row by row, from token {first} on",
        "query = 0",
        "picture = weights[head, query, first : first + rows * columns].reshape(rows, columns)",
        f"figure = go.Figure(go.Heatmap(z=picture.tolist(), zmin=0, colorscale={scales.PROBABILITY}))",
        'figure.update_layout(title=f"what query {query} attends to in the picture, head {head}")',
        'figure.update_yaxes(autorange="reversed", scaleanchor="x")',
        "figure",
    ])  # fmt: skip


def _program(lines: list[str]) -> str:
    body = "\n".join(lines)
    used = set(_names(symtable.symtable(body, "program", "exec")))
    imports = [line for name, line in _IMPORTS.items() if name in used]
    # Imports that a source writes itself; those from __future__ must be first.
    imports += [line for line in lines if line.startswith("from ")]
    imports.sort(key=lambda line: not line.startswith("from __future__"))
    return "\n".join([*imports, "", *(line for line in lines if not line.startswith("from "))]) + "\n"


def _names(scope: symtable.SymbolTable) -> Iterator[str]:
    """All names in a scope and its children. Unlike ast.parse, this is thread-safe in Python 3.11.7 (gh-106905)."""
    yield from scope.get_identifiers()
    for inner in scope.get_children():
        yield from _names(inner)
