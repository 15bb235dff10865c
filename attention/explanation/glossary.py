"""The glossary as tables and as a search, derived from `STEPS`, `PARAMETERS` and `AXES`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from attention.formula.steps import AXES, PARAMETERS, STEPS, Axis, OtherNames, Parameter, Step
from attention.trace.layer import Layer

if TYPE_CHECKING:
    import pandas as pd

_Entry = Step | Parameter | Axis
_NOTEBOOK = "notebook "
KINDS = {"signed": "signed: lies around 0", "probability": "probability: 0 … 1, rows sum to 1"}


def search(query: str) -> tuple[Step | Parameter, ...]:
    """The steps and parameters that match a name, a library's name or a word of a formula; all steps for an empty query.

    Steps come before parameters. A part of a name matches, and case is ignored; a single letter must be the
    complete name.
    """
    pattern = query.strip().casefold()
    if not pattern:
        return STEPS
    entries: tuple[Step | Parameter, ...] = (*STEPS, *PARAMETERS)
    return tuple(entry for entry in entries if any(_means(pattern, name) for name in _names_of(entry)))


def library_names(entry: Step | Parameter) -> OtherNames:
    """The names of a step or parameter in the libraries."""
    return tuple((library, name) for library, name in entry.elsewhere if not library.startswith(_NOTEBOOK))


def notebook_names(entry: Step | Parameter) -> OtherNames:
    """The names of a step or parameter in the five notebooks, by the number of the notebook."""
    return tuple(
        (notebook.removeprefix(_NOTEBOOK), name) for notebook, name in entry.elsewhere if notebook.startswith(_NOTEBOOK)
    )


def shape_text(entry: Step | Parameter, layer: Layer) -> str:
    """The axes of a step or parameter with their sizes in this layer: "head 4 · query_pos 9 · d_k 16"."""
    present = layer.has(entry.name)  # its rows may have another width than the sizes tell: W_O
    sizes = layer.shape(entry.name) if present else [layer.sizes.get(axis, "?") for axis in entry.axes]
    return " · ".join(f"{axis} {size}" for axis, size in zip(entry.axes, sizes, strict=True))


def frame(layer: Layer) -> pd.DataFrame:
    """Every step and parameter in a row: symbol, shape in this layer, formula, kind, and its names elsewhere."""
    entries: list[tuple[Step | Parameter, str, str]] = [(step, step.formula, KINDS[step.kind]) for step in STEPS]
    entries += [(parameter, parameter.meaning, "parameter") for parameter in PARAMETERS]
    among: tuple[_Entry, ...] = (*STEPS, *PARAMETERS)
    return _table(
        (entry, among, {**_symbol_and_axes(entry, layer), "how it is made": formula, "kind": kind})
        for entry, formula, kind in entries
    )


def parameters(layer: Layer) -> pd.DataFrame:
    """The parameters of a layer: the mask and the projections."""
    return _table(
        (entry, PARAMETERS, {**_symbol_and_axes(entry, layer), "what for": entry.meaning}) for entry in PARAMETERS
    )


def axes(layer: Layer) -> pd.DataFrame:
    """Every axis: its size in this layer, its meaning, and its names elsewhere."""
    sizes = ((axis, str(layer.sizes.get(axis.name, "–"))) for axis in AXES)
    return _table((axis, AXES, {"size": size, "what runs along it": axis.meaning}) for axis, size in sizes)


def _symbol_and_axes(entry: Step | Parameter, layer: Layer) -> dict[str, str]:
    return {"symbol": entry.symbol, "axes": shape_text(entry, layer)}


def _table(rows: Iterable[tuple[_Entry, Iterable[_Entry], dict[str, str]]]) -> pd.DataFrame:
    """A row for each entry: its name, its details, and its names elsewhere, in the columns that the entries `among` need."""
    import pandas as pd  # every page imports the glossary, but few show its tables

    return pd.DataFrame([{"name": entry.name, **details, **_columns(entry, among)} for entry, among, details in rows])


def _columns(entry: _Entry, among: Iterable[_Entry]) -> dict[str, str]:
    """One column for each library or notebook that names any entry of the table, libraries first."""
    places = dict.fromkeys(place for other in among for place, _ in other.elsewhere)
    known = dict(entry.elsewhere)
    return {
        place: known.get(place, "") for place in sorted(places, key=lambda name: (name.startswith(_NOTEBOOK), name))
    }


def _names_of(entry: Step | Parameter) -> list[str]:
    names = [part for _, name in entry.elsewhere for part in name.split(", ")]
    words = entry.formula.split() if isinstance(entry, Step) else ()
    return [name.casefold() for name in (entry.name, entry.symbol, *names, *(word for word in words if len(word) > 1))]


def _means(pattern: str, name: str) -> bool:
    return pattern == name if len(pattern) == 1 else pattern in name
