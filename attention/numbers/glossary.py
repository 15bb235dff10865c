"""The glossary as tables and as a search, all read off `STEPS`, `PARAMETERS` and `AXES`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from attention.formula.layer import Layer
from attention.formula.steps import AXES, PARAMETERS, STEPS, Axis, Names, Parameter, Step

if TYPE_CHECKING:
    import pandas as pd

Entry = Step | Parameter | Axis
_NOTEBOOK = "notebook "
KINDS = {"signed": "signed: lies around 0", "probability": "probability: 0 … 1, rows sum to 1"}


def matching(asked: str) -> tuple[Step | Parameter, ...]:
    """What `asked` could mean, by ours or anybody's name for it or a word of its formula; every step where nothing is asked.

    Steps first, then parameters. A part of a name is enough, capitals do not matter; but a single letter must be the
    whole name.
    """
    wanted = asked.strip().casefold()
    if not wanted:
        return STEPS
    entries: tuple[Step | Parameter, ...] = (*STEPS, *PARAMETERS)
    return tuple(entry for entry in entries if any(_means(wanted, name) for name in _names_of(entry)))


def libraries(entry: Step | Parameter) -> Names:
    """What the libraries call a step or parameter."""
    return tuple((who, name) for who, name in entry.elsewhere if not who.startswith(_NOTEBOOK))


def notebooks(entry: Step | Parameter) -> Names:
    """What the five notebooks call a step or parameter, by the number of the notebook."""
    return tuple((who.removeprefix(_NOTEBOOK), name) for who, name in entry.elsewhere if who.startswith(_NOTEBOOK))


def shape(entry: Step | Parameter, layer: Layer) -> str:
    """The axes of a step or parameter with their sizes in this layer: "head 4 · query_pos 9 · d_k 16"."""
    has = layer.has(entry.name)  # W_O may give rows another width than the input has
    sizes = layer.shape(entry.name) if has else [layer.sizes.get(axis, "?") for axis in entry.axes]
    return " · ".join(f"{axis} {size}" for axis, size in zip(entry.axes, sizes, strict=True))


def frame(layer: Layer) -> pd.DataFrame:
    """Every step and parameter in a line: symbol, shape in this layer, formula, kind, and who calls it what."""
    entries: list[tuple[Step | Parameter, str, str]] = [(step, step.formula, KINDS[step.kind]) for step in STEPS]
    entries += [(parameter, parameter.meaning, "parameter") for parameter in PARAMETERS]
    among: tuple[Entry, ...] = (*STEPS, *PARAMETERS)
    return _table(
        (one, among, {**_of(one, layer), "how it is made": made, "kind": kind}) for one, made, kind in entries
    )


def parameters(layer: Layer) -> pd.DataFrame:
    """What a layer keeps beside its steps: the mask and the projections."""
    return _table((one, PARAMETERS, {**_of(one, layer), "what for": one.meaning}) for one in PARAMETERS)


def axes(layer: Layer) -> pd.DataFrame:
    """Every axis: its size in this layer, its meaning, and who calls it what."""
    sizes = ((axis, str(layer.sizes.get(axis.name, "–"))) for axis in AXES)
    return _table((axis, AXES, {"size": size, "what runs along it": axis.meaning}) for axis, size in sizes)


def _of(entry: Step | Parameter, layer: Layer) -> dict[str, str]:
    return {"symbol": entry.symbol, "axes": shape(entry, layer)}


def _table(rows: Iterable[tuple[Entry, Iterable[Entry], dict[str, str]]]) -> pd.DataFrame:
    """A line for each entry: its name, what is said of it, and who of all the entries `among` which it stands calls it what."""
    import pandas as pd  # every page knows the glossary, few show its tables

    return pd.DataFrame([{"name": entry.name, **said, **_columns(entry, among)} for entry, among, said in rows])


def _columns(entry: Entry, among: Iterable[Entry]) -> dict[str, str]:
    """One column for everybody who has a name for something in the table, libraries before notebooks."""
    who = dict.fromkeys(who for other in among for who, _ in other.elsewhere)
    known = dict(entry.elsewhere)
    return {one: known.get(one, "") for one in sorted(who, key=lambda one: (one.startswith(_NOTEBOOK), one))}


def _names_of(entry: Step | Parameter) -> list[str]:
    names = [part for _, name in entry.elsewhere for part in name.split(", ")]
    words = entry.formula.split() if isinstance(entry, Step) else ()
    return [name.casefold() for name in (entry.name, entry.symbol, *names, *(word for word in words if len(word) > 1))]


def _means(wanted: str, name: str) -> bool:
    return wanted == name if len(wanted) == 1 else wanted in name
