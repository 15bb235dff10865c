"""The beginning of the copied program for a file: it loads the file with the library of its format and reads one layer."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from attention.files.archives import TORCH_ENDINGS, Archive
from attention.formula.steps import declared
from attention.program import literals, random_weights
from attention.program.literals import Snippet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attention.files.plan import Place, StoredLayer
    from attention.trace.layer import Layer

_PROJECTIONS = ("w_q", "w_k", "w_v", "b_q", "b_k", "b_v")  # the file has their results
_OPEN = {
    ".npz": "file = np.load({name})",
    ".npy": "file = np.load({name})",
    ".safetensors": "file = safetensors.torch.load_file({name})",
    ".json": 'file = json.loads(pathlib.Path({name}).read_text("utf-8"))',
    ".jsonl": 'file = [json.loads(line) for line in pathlib.Path({name}).read_text("utf-8").splitlines() if line.strip()]',
    **dict.fromkeys(TORCH_ENDINGS, 'file = torch.load({name}, map_location="cpu", weights_only={safe})'),
}
_READ = {
    ".npz": 'torch.from_numpy({array}.astype("{kind}"))',
    ".npy": 'torch.from_numpy({array}.astype("{kind}"))',
    ".safetensors": "{array}.to(torch.{kind})",
    ".json": "torch.tensor({array}, dtype=torch.{kind})",
    ".jsonl": "torch.tensor({array}, dtype=torch.{kind})",
    **dict.fromkeys(TORCH_ENDINGS, "torch.as_tensor({array}).detach().to(torch.{kind})"),
}


def file(
    name: str, archive: Archive, stored: StoredLayer, layer: Layer, masks: Sequence[tuple[Place, str]] = ()
) -> Snippet:
    """The beginning for one layer of a file; each mask comes with what computes its cells, or the bias that it is, from the stored array {0}."""
    if archive.is_table:  # a text, which no library reads as we do
        return random_weights.recorded(layer, tuple(stored.places), f"the file {literals.text(PurePath(name).name)}")
    ending = PurePath(name).suffix.lower()
    opened = _OPEN[".jsonl" if archive.is_lines else ending].format(name=literals.text(name), safe=not archive.classes)
    # The person who runs the program decides whether the code of these classes runs.
    classes = ", ".join(ascii(each[:80]) for each in archive.classes[:3])
    unpickled = f"; it runs the code of {classes}" if classes else ""
    lines = [f"{opened}  # in the folder of this program{unpickled}"]
    for step, place in stored.places.items():
        computed_later = step == "mask" and layer.formula is not None  # the lines of the formula compute it
        if step in layer.recorded and not computed_later and step not in _PROJECTIONS:
            expression = _read_expression(ending, archive, place, step)
            lines += [f"{literals.VARIABLES.get(step, step)} = {expression}  # [{' '.join(declared(step).axes)}]"]
    biases = [python.format(_read_expression(ending, archive, place, "")) for place, python in masks]
    if "mask" in layer.recorded:
        lines += [f"mask = {' & '.join(f'({bias} == 0)' for bias in biases)}  # as it is read"] * (
            layer.formula is None and bool(biases)
        )
    elif biases:
        lines += [f"bias = {' + '.join(['bias'] * ('bias' in stored.places) + biases)}  # the mask, as it is read"]
    about = f"the file {literals.text(PurePath(name).name)}" + (f", {literals.text(layer.name)}" if layer.name else "")
    return Snippet(about, tuple(lines), _PROJECTIONS)


def _read_expression(ending: str, archive: Archive, place: Place, step: str) -> str:
    """The expression that reads a step from the file, as `Place.select` does."""
    arrays = dict[str, str]()
    for key, _ in place.parts:
        entry = archive.arrays[key]
        kind = "float64" if entry.kind.dtype == "bool" and step != "mask" else entry.kind.dtype
        stored = entry.python or ("file" if ending == ".npy" else f"file[{literals.text(key)}]")
        arrays[key] = _READ[ending].replace("{kind}", kind).replace("{array}", stored)
    expression = place.python(arrays)
    return f"{expression} != 0" if step == "mask" else expression
