"""The beginning of the copied program for a file: it loads the file with the library of its format and reads one layer."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from attention.files.archives import Archive
from attention.formula.names import INPUT, MEMORY
from attention.formula.steps import declared
from attention.program import literals
from attention.program.literals import Snippet

if TYPE_CHECKING:
    from attention.files.stored_layers import Place, StoredLayer
    from attention.trace.layer import Layer

_VARIABLES = {INPUT: "x", MEMORY: "x2"}
_PROJECTIONS = ("w_q", "w_k", "w_v", "b_q", "b_k", "b_v")  # the file has their results
_OPEN = {
    ".npz": "file = np.load({name})",
    ".npy": "file = np.load({name})",
    ".safetensors": "file = safetensors.torch.load_file({name})",
    ".json": 'file = json.loads(pathlib.Path({name}).read_text("utf-8"))',
}
_READ = {
    ".npz": 'torch.from_numpy(file[{key}].astype("{kind}"))',
    ".npy": 'torch.from_numpy(file.astype("{kind}"))',
    ".safetensors": "file[{key}].to(torch.{kind})",
    ".json": "torch.tensor(file[{key}], dtype=torch.{kind})",
}


def file(name: str, archive: Archive, stored: StoredLayer, layer: Layer, mask: str = "") -> Snippet:
    """The beginning for one layer of a file; `mask` computes its mask, or the bias that it is, from the stored array {}."""
    ending = PurePath(name).suffix.lower()
    lines = [_OPEN[ending].format(name=literals.text(name)) + "  # in the folder of this program"]
    for step, place in stored.places.items():
        if step == "mask" and mask and step not in layer.recorded:
            bias = mask.format(_read_expression(ending, archive, place, ""))
            lines += [f"bias = {'bias + ' * ('bias' in stored.places)}{bias}  # the mask, as it is read"]
            continue
        computed_later = step == "mask" and layer.formula is not None  # the lines of the formula compute it
        if step in layer.recorded and not computed_later and step not in _PROJECTIONS:
            expression = _read_expression(ending, archive, place, step)
            lines += [f"{_VARIABLES.get(step, step)} = {expression}  # [{' '.join(declared(step).axes)}]"]
    about = f"the file {literals.text(PurePath(name).name)}" + (f", {literals.text(layer.name)}" if layer.name else "")
    return Snippet(about, tuple(lines), _PROJECTIONS)


def _read_expression(ending: str, archive: Archive, place: Place, step: str) -> str:
    """The expression that reads a step from the file, as `Place.select` does."""
    kind = archive.arrays[place.entry].kind.dtype
    if kind == "bool" and step != "mask":
        kind = "float64"
    expression = _READ[ending].format(key=literals.text(place.entry), kind=kind)
    if ending == ".json" and not place.entry:
        expression = expression.replace('file[""]', "file")
    expression = archive.arrays[place.entry].python.format(expression)
    if place.layer is not None:
        expression += f"[{place.layer}]"
    if place.head is not None:
        expression += f"[{place.head} : {place.head + 1}]"
    if place.lacks_head_axis:
        expression += "[None]"
    return f"{expression} != 0" if step == "mask" else expression
