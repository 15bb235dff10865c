"""A short Python program that computes the numbers of circuits again, with this package."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from attention.circuits.direct_effects import find_run
from attention.formula.names import Cell
from attention.trace.readout import Readout
from attention.trace.trace import Trace


def python(trace: Trace, cell: Cell, readout: Readout) -> str:
    """The program that prints what the cell adds to the readout, the sum over all parts, and the terms of the cell's score.

    Raises:
        MissingError: the trace has no model.
    """
    source = find_run(trace).source
    words = ("target", "distractor")
    tokens = "".join(f", {word}={token}" for word, (token, _) in zip(words, readout.tokens, strict=False))
    home = (
        type(source).__module__.rpartition(".")[0].removesuffix(".sources")
    )  # a source of a feature is imported from it
    imports = {"attention": ["circuits", *(["Intervention"] if getattr(source, "interventions", ()) else [])]}
    imports.setdefault(home, []).append(type(source).__name__)
    lines = [
        *(f"from {package} import {', '.join(sorted(names))}" for package, names in imports.items()),
        "",
        *_comments(readout),
        f"trace = {construct(source)}.trace()",
        f"writes = circuits.writes(trace, {cell.layer}, {cell.head}{tokens})  # [query_pos key_pos]",
        f"print(writes[{cell.row}, {cell.column}], writes[{cell.row}].sum())  # this cell, and the direct effect of the head there",
        f"print(circuits.logit_parts(trace, {cell.row}{tokens}).sorted_frame())  # every head, MLP, the embedding and the biases",
        f"terms = circuits.score_terms(trace, {cell.layer}, {cell.head}, q={cell.row}, k={cell.column})",
        'print(terms.score, *terms.describe(), terms.frame().head(10), sep="\\n")',
    ]
    return "\n".join(lines) + "\n"


def _comments(readout: Readout) -> list[str]:
    return [f"# {readout.words}: token ids"] if readout.tokens else []


def construct(source: Any) -> str:
    """The call that makes a frozen dataclass, with the fields that differ from their defaults."""
    arguments = []
    for field in fields(source):
        value = getattr(source, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if value != default and field.init:
            text = construct(value) if type(value) is type(source) else repr(value)
            arguments.append(text if default is MISSING else f"{field.name}={text}")
    return f"{type(source).__name__}({', '.join(arguments)})"
