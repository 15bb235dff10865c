"""How the source "notebook" is read: its knob, and the source that it describes."""

from __future__ import annotations

from attention.params.knob import Knob
from attention.params.ranges import Choice
from attention.sources.kinds.source_kind import SourceKind
from attention.sources.layer_knobs import read_override
from attention.sources.notebooks import NOTEBOOKS, Notebook
from attention.sources.reader import ParameterReader

NAME = "notebook"
# fmt: off
NOTEBOOK = Knob(
    "notebook", "self-attention-class", Choice(NOTEBOOKS, tuple(Notebook(name).title for name in NOTEBOOKS)),
    "Notebook", "One of five “attention from scratch” notebooks, reproduced to the last digit.", (NAME,))
# fmt: on


def read(reader: ParameterReader) -> Notebook:
    """One sequence of the notebook, with overrides of its formula."""
    name = reader.knob(NOTEBOOK)
    return Notebook(name, reader.sequence(Notebook(name).sequences), read_override(reader, NAME))


KIND = SourceKind(NAME, read)
