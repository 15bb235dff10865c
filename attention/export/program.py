"""A trace as code: about twenty lines of plain torch that compute every step again, without us.

    from attention import TypedText, code
    print(code.python(TypedText("the cat sat on the mat")))

How the numbers come about is the source's own (`Source.snippet`); from Q, K and V on the lines are
the same for all, and only what this trace needs is written. Whatever a person typed stands in it as
an ASCII literal, so that nothing of it is ever run. The variables are named after the steps and the
parameters, but for `x` (`input`) and `x2` (`memory`).
"""

from __future__ import annotations

import json
import math
import symtable
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attention.errors import MissingError
from attention.export.formula import formula, projections
from attention.formula.inline import defined
from attention.formula.names import HEAD_OUTPUT, INPUT, MEMORY, OUTPUT, PATCHED_OUTPUT, SCORES, WEIGHTS
from attention.formula.scores import dot
from attention.formula.steps import find_step
from attention.formula.what_if import WhatIf
from attention.sources import literals
from attention.tokens import labels

if TYPE_CHECKING:
    from attention.formula.cell import Cell
    from attention.formula.layer import Layer
    from attention.formula.trace import Trace
    from attention.sources import Snippet, Source

_IMPORTS = {
    "base64": "import base64",
    "hashlib": "import hashlib",
    "math": "import math",
    "zlib": "import zlib",
    "json": "import json",
    "pathlib": "import pathlib",
    "np": "import numpy as np",
    "go": "import plotly.graph_objects as go",
    "safetensors": "import safetensors.torch",
    "torch": "import torch",
}
_CALLED = {INPUT: "x", MEMORY: "x2"}


def python(source: Source, trace: Trace | None = None, cell: Cell | None = None) -> str:
    """A Python program, ASCII only, that computes every step of the source's trace again in plain torch.

    Give the `trace` where there is one already: it must be the source's own. With a `cell` it is about the layer of that,
    and ends by printing its number beside the one it should be. Matrices of more than
    2,000 numbers are read from the exported `attention.npz`, under names such as `L0.w_q`.
    """
    whence, _, steps = _steps(source, trace or source.trace(), cell)
    head = f"Attention from {whence}, made by Attention Lab."
    said = textwrap.wrap(head, 98, replace_whitespace=False, break_long_words=False, break_on_hyphens=False)
    return "".join(f"# {line}\n" for line in said) + steps


def ipynb(source: Source, trace: Trace | None = None, cell: Cell | None = None) -> str:
    """The same as the JSON of a Jupyter notebook: what it is, the steps, and a heatmap of the weights."""
    whence, layer, steps = _steps(source, trace or source.trace(), cell)
    about = (
        f"# Attention, step by step\n\nFrom {whence}, made by Attention Lab. The first cell computes every step "
        "in plain torch; the second draws one head with Plotly. Run them from top to bottom."
    )
    cells = [_cell("markdown", 0, about), _cell("code", 1, steps), _cell("code", 2, _drawing(layer))]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def _cell(kind: str, number: int, text: str) -> dict[str, object]:
    shared = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.rstrip("\n").splitlines(True)}
    return shared | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def _steps(source: Source, trace: Trace, cell: Cell | None) -> tuple[str, Layer, str]:
    """Where the numbers come from, the layer as it is said, and the program: imports, tokens, what the source begins with, the formula, and the number to compare."""
    index = 0 if cell is None else cell.layer
    # A source of one layer need not count them.
    snippet = source.snippet(trace, index) if index else source.snippet(trace)
    layer, inside = trace.layer(index).inner.without(*snippet.without), _inside(trace, snippet)
    lines = literals.texts("tokens", layer.tokens)
    keys = "tokens"
    if layer.key_tokens != layer.tokens or layer.has(MEMORY):
        keys = "key_tokens"
        lines += literals.texts(keys, layer.key_tokens)
    lines += [*defined(dot), *inside] if inside else []
    lines += [*snippet.lines, *projections(layer), *formula(layer, keys)]
    return snippet.about, layer, _program(lines + ([] if cell is None else _comparison(layer, cell)))


def _inside(trace: Trace, snippet: Snippet) -> list[str]:
    """A function for each layer that is changed while the model runs, where nobody turns what is only looked at."""
    layers = ((at, trace.layer(at).inner.turned(WhatIf())) for at in snippet.inside)
    return [line for at, layer in layers for line in _function(layer, f"layer_{at}")]


def _function(layer: Layer, name: str) -> list[str]:
    """A function of that name that makes what goes on of all heads' outputs, [head query_pos d_v], of its query, key and value."""
    lines = formula(layer.without("w_o", "b_o", OUTPUT), "key_tokens")
    return [
        "",
        f"def {name}(query, key, value, bias, sinks, patched_weights, patched_head_output):  # what goes on of its heads' outputs",
        "    tokens, key_tokens = range(query.shape[1]), range(key.shape[1])",
        *(f"    {line}" if line else "" for line in lines),
        f"    return {PATCHED_OUTPUT if layer.has(PATCHED_OUTPUT) else HEAD_OUTPUT}",
        "",
    ]


def _comparison(layer: Layer, cell: Cell) -> list[str]:
    """Lines that print one number of a step, and what it is in the trace; none where the trace does not have it."""
    step = find_step(cell.step)
    try:
        expected = float(layer.matrix(cell.step, cell.head)[cell.row, cell.column])
    except MissingError:  # a source without this step, or a long text of which another head is kept
        return []
    at = [("head", cell.head)] * step.per_head + [(step.row_axis, cell.row), (step.column_axis, cell.column)]
    said = ", ".join([step.name, *(f"{axis.removesuffix('_pos')} {i}" for axis, i in at)])
    number = f"{_CALLED.get(step.name, step.name)}[{', '.join(str(i) for _, i in at)}]"
    literal = repr(expected) if math.isfinite(expected) else f'float("{expected}")'
    return ["", "# the chosen cell", f'print("{said}:", float({number}), "expected", {literal})']


def _drawing(layer: Layer) -> str:
    """The program of the second cell: one head's weights, or its scores where it has no weights."""
    name, colours = (WEIGHTS, 'zmin=0, zmax=1, colorscale="Viridis"')
    if not layer.has(WEIGHTS):
        name, colours = SCORES, 'zmid=0, colorscale="RdBu"'
    lines, names = ["head = 0"], list[str]()
    for tokens, variable in ((layer.tokens, "tokens"), (layer.key_tokens, "key_tokens")):
        if variable == "key_tokens" and layer.key_tokens == layer.tokens:
            names += names
        elif labels(tokens) == tokens:
            names += [variable]
        else:  # what Plotly would read as HTML, or nobody would see
            lines += literals.texts(variable.replace("tokens", "labels"), labels(tokens))
            names += [variable.replace("tokens", "labels")]
    rows, columns = names
    lines += [
        f"figure = go.Figure(go.Heatmap(z={name}[head].tolist(), {colours}))",
        f'figure.update_layout(title=f"{name}, head {{head}}")',
        f'figure.update_xaxes(title="key (attends to)", tickvals=list(range(len({columns}))), ticktext={columns})',
        f'figure.update_yaxes(title="query (attends from)", tickvals=list(range(len({rows}))), ticktext={rows})',
        'figure.update_yaxes(autorange="reversed")  # the first query on top',
        "figure",
    ]
    return _program(lines)


def _program(lines: list[str]) -> str:
    """The lines with the imports that they need, and a blank line around every function."""
    body = "\n".join(lines)
    used = set(_names(symtable.symtable(body, "program", "exec")))
    imports = [line for name, line in _IMPORTS.items() if name in used]
    # What a source needs beside these; what is from the future comes first of all.
    imports += [line for line in lines if line.startswith("from ")]
    imports.sort(key=lambda line: not line.startswith("from __future__"))
    return "\n".join([*imports, "", *(line for line in lines if not line.startswith("from "))]) + "\n"


def _names(scope: symtable.SymbolTable) -> Iterator[str]:
    """All names in a scope and in those within; unlike ast.parse, two threads of Python 3.11.7 may ask at once (gh-106905)."""
    yield from scope.get_identifiers()
    for inner in scope.get_children():
        yield from _names(inner)
