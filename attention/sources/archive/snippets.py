"""How the Python of a file begins: it loads the file with the library that wrote it, and takes one layer out of it."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from attention.formula.names import INPUT, MEMORY
from attention.formula.steps import declared
from attention.sources import Snippet, literals
from attention.sources.archive import Archive

if TYPE_CHECKING:
    from attention.formula.layer import Layer
    from attention.sources.archive.layers import Place, Stored

_CALLED = {INPUT: "x", MEMORY: "x2"}
_PROJECTIONS = ("w_q", "w_k", "w_v", "b_q", "b_k", "b_v")  # what they make is in the file too
_OPENED = {
    ".npz": "file = np.load({name})",
    ".npy": "file = np.load({name})",
    ".safetensors": "file = safetensors.torch.load_file({name})",
    ".json": 'file = json.loads(pathlib.Path({name}).read_text("utf-8"))',
}
_TAKEN = {
    ".npz": 'torch.from_numpy(file[{key}].astype("{kind}"))',
    ".npy": 'torch.from_numpy(file.astype("{kind}"))',
    ".safetensors": "file[{key}].to(torch.{kind})",
    ".json": "torch.tensor(file[{key}], dtype=torch.{kind})",
}


def file(name: str, archive: Archive, stored: Stored, layer: Layer) -> Snippet:
    """The beginning for one layer of a file."""
    ending = PurePath(name).suffix.lower()
    lines = [_OPENED[ending].format(name=literals.text(name)) + "  # beside this program"]
    for step, place in stored.places.items():
        written = step == "mask" and layer.formula is not None  # the formula's lines have it
        if step in layer.recorded and not written and step not in _PROJECTIONS:
            taken = _taken(ending, archive, place, step)
            lines += [f"{_CALLED.get(step, step)} = {taken}  # [{' '.join(declared(step).axes)}]"]
    about = f"the file {literals.text(PurePath(name).name)}" + (f", {literals.text(layer.name)}" if layer.name else "")
    return Snippet(about, tuple(lines), _PROJECTIONS)


def _taken(ending: str, archive: Archive, place: Place, step: str) -> str:
    """What takes a step out of the file, as `Place.of` does."""
    kind = archive.arrays[place.entry].kind.read_as
    if kind == "bool" and step != "mask":
        kind = "float64"
    found = _TAKEN[ending].format(key=literals.text(place.entry), kind=kind)
    if ending == ".json" and not place.entry:
        found = found.replace('file[""]', "file")
    if place.layer is not None:
        found += f"[{place.layer}]"
    if place.head is not None:
        found += f"[{place.head} : {place.head + 1}]"
    if place.lifted:
        found += "[None]"
    return f"{found} != 0" if step == "mask" else found
