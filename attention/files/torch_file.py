"""A file of torch.save, which is a pickle, as a .safetensors file: read in a child process within limits, never in this one.

Only the person whose machine this is decides to open one: with `attention.File.open`, or in a Lab whose operator allows models of the machine.

torch's unpickler for weights knows tensors and plain values. NumPy's arrays are added to these; every other class, such as the outputs of transformers, is
replaced by a dictionary of ours, so that its fields are read and none of its code runs.

Source: https://docs.pytorch.org/docs/stable/notes/serialization.html
"""

from __future__ import annotations

import json
import pickle
import re
import tempfile
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from attention.base.errors import FileError
from attention.base.jobs import JobError, read_foreign
from attention.base.progress import current_callback
from attention.files.archives import (
    MAX_ARRAYS,
    MAX_TEXT_BYTES,
    TORCH_DTYPES,
    TORCH_KEY,
    Step,
    damaged_error,
    format_shape,
    quote,
)

_SECONDS = 60
_OVERHEAD = 2**28  # bytes of the names, lists and objects of a file, beside its tensors
_KIND = "file as torch.save writes it"
_ZIP = b"PK\x03\x04"
_PICKLE = b"\x80"  # begins a pickle, and so a file of torch before 1.6
_MAX_DEPTH = 16
_MAX_CLASSES = 256
_MAX_VALUES = 2**20
_PARAMETER = re.compile(r"(^|\.)((in_proj_)?(weight|bias)|running_(mean|var)|num_batches_tracked|exp_avg\w*|step)$")
_ONE_SUM = 1e-2  # by which a row of weights in half precision may differ from 1
# NumPy's own classes, by their names before and since NumPy 2. `_codecs.encode`, with which pickles write bytes, is allowed by torch.
_OF_NUMPY: list[Any] = [
    np.ndarray,
    np.dtype,
    *{type(np.dtype(code)) for code in "?bhilqBHILQefdgFDSUO"},
    *((np.zeros(0).__reduce__()[0], f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
    *((np.float64().__reduce__()[0], f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
]


def as_safetensors(file: Path | bytes, name: str, max_bytes: int) -> bytes:
    """The tensors, texts and numbers of a file of torch.save, as a .safetensors file that `attention.files.archives` reads under the old name.

    A layer in a list in a dictionary is called "attentions.0". The file, which may be given by its path, is mapped into memory, so a large one costs only its tensors.

    Raises:
        FileError: it is damaged, takes too much memory or time, holds objects that need their code, or the parameters of a model.
        OSError: there is no such file.
    """
    if isinstance(file, bytes):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "file")
            path.write_bytes(file)
            return as_safetensors(path, name, max_bytes)
    if callback := current_callback():
        callback(f"Opening {quote(name)} in a process of its own …", 0.1)
    try:
        n_bytes = file.stat().st_size + 2 * max_bytes + _OVERHEAD  # the mapped file, its tensors, and the result
        place = str(file.absolute())
        return read_foreign(
            _tensors_of, place, quote(name), max_bytes, n_bytes=n_bytes, seconds=_SECONDS, files=[place]
        )
    except JobError as error:
        raise FileError(
            f"{quote(name)} is not read, since this {error}: save only the attention, for example with torch.save(outputs.attentions, …)."
        ) from None


class _Foreign:
    """Stands for any class that torch does not know: makes a dictionary, and keeps the arguments."""

    def __new__(cls, *args: Any) -> Any:
        made: Any = OrderedDict()
        made._arguments = args
        return made


class _Opaque:
    """Stands for a class whose state is bytes."""

    def __setstate__(self, state: Any) -> None: ...


def _tensors_of(path: str, name: str, max_bytes: int) -> bytes:
    """The tensors of a file of torch.save as a .safetensors file, by names such as "attentions.0"; everything else as metadata. The name is quoted.

    Raises:
        FileError: the file is damaged, holds classes that cannot be read without their code, has no tensor or too many, or holds the parameters of a model.
    """
    report = current_callback() or (lambda text, fraction: None)
    report(f"Reading {name} …", 0.7)  # most of the time is torch's start
    classes: list[str] = []
    try:
        content = _Content(name)
        content.add(_loaded(path, name, classes))
        _check(name, content.tensors, classes, max_bytes)
        report(f"Reading {name} …", 0.9)
        about = {"paths": {key: content.paths[key] for key in content.tensors}, "classes": classes}
        return _safetensors(name, content.tensors, {**content.metadata, TORCH_KEY: about})
    except FileError:
        raise
    except Exception as error:  # a damaged file makes torch raise nearly anything
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            raise MemoryError from None
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        if isinstance(error, pickle.UnpicklingError) and (named or classes):
            raise _classes_error(name, [named[1]] if named else classes) from None
        raise damaged_error(name, _KIND, f"torch cannot read it ({type(error).__name__})") from None


@dataclass
class _Content:
    """The tensors and the other values inside a value, by names such as "attentions.0", and the way to each."""

    name: str
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    paths: dict[str, tuple[Step, ...]] = field(default_factory=dict)
    n_visits: int = 0

    def add(self, value: Any, place: tuple[Step, ...] = ()) -> None:
        self._visit(place)
        if isinstance(value, np.ndarray | np.generic):
            if value.dtype.kind in "fiub":
                value = torch.from_numpy(np.array(value, value.dtype.newbyteorder("="), order="C"))
            else:
                value = value.tolist()
        if isinstance(value, torch.Tensor):
            if value.is_nested:
                self._add_parts(enumerate(value.unbind()), place)
            else:
                self.tensors[self._key(place)] = value
        elif isinstance(value, bytes):
            self.metadata[self._key(place)] = value.decode(errors="replace")
        elif self._is_plain(value, place):
            if (matrix := _matrix(value)) is not None:
                self.tensors[self._key(place)] = matrix
            elif value is not None:
                self.metadata[self._key(place)] = value
        elif isinstance(value, list | tuple | set):
            self._add_parts(enumerate(value), place)
        elif isinstance(value, Mapping):
            keys = ((key if isinstance(key, str | int) else str(key), inner) for key, inner in value.items())
            attributes = dict(vars(value)) if hasattr(value, "__dict__") else {}
            arguments = attributes.pop("_arguments", ())
            # An output of transformers has its fields as attributes and arguments, too.
            parts = keys if value else (([str(key)], inner) for key, inner in attributes.items())
            self._add_parts(parts if value or attributes else enumerate(arguments), place)

    def _add_parts(self, parts: Iterable[tuple[Step, Any]], place: tuple[Step, ...]) -> None:
        for step, inner in parts:
            self.add(inner, (*place, step))

    def _key(self, place: tuple[Step, ...]) -> str:
        key = ".".join(step[0] if isinstance(step, list) else str(step) for step in place)
        while key in self.paths:  # {"a": {"b": x}, "a.b": y}
            key += "_"
        self.paths[key] = place
        return key

    def _is_plain(self, value: Any, place: tuple[Step, ...]) -> bool:
        """Whether JSON has the value: a text, a number, or a list of such."""
        self._visit(place)
        if isinstance(value, list | tuple):
            return bool(value) and all(self._is_plain(inner, (*place, 0)) for inner in value)
        return value is None or type(value) in (str, int, float, bool)

    def _visit(self, place: tuple[Step, ...]) -> None:
        """Counts a value: a pickle of some bytes may hold a list of itself, or a billion times the same one."""
        self.n_visits += 1
        if self.n_visits > _MAX_VALUES or len(place) > _MAX_DEPTH:
            raise FileError(
                f"{self.name} holds more than {_MAX_VALUES:,} values, or lists more than {_MAX_DEPTH} deep: save only the tensors of attention."
            )


def _matrix(value: Any) -> torch.Tensor | None:
    if not isinstance(value, list | tuple) or not isinstance(value[0], list | tuple):
        return None
    with suppress(ValueError, TypeError):  # lists of other lengths, or of no numbers
        array = np.array(value)
        return torch.from_numpy(array) if array.dtype.kind in "fiub" else None
    return None


def _loaded(path: str, name: str, classes: list[str]) -> Any:
    """The content of a file. Adds the names of the classes that torch.load(weights_only=True) refuses: NumPy's, and those that are replaced."""
    warnings.simplefilter("ignore")
    if is_zip := zipfile.is_zipfile(path):
        _check_zip(path, name)
        classes += sorted(get_unsafe_globals_in_checkpoint(path))
        if len(classes) > _MAX_CLASSES:
            raise damaged_error(name, _KIND, f"it names {len(classes):,} classes")
    else:
        with Path(path).open("rb") as file:
            first = file.read(4)
        if first[:1] != _PICKLE:
            why = f"it begins with {first!r}" if first else "it is empty"
            raise damaged_error(name, _KIND, "its end is missing" if first == _ZIP else why)
    with safe_globals(_OF_NUMPY):
        foreign = get_unsafe_globals_in_checkpoint(path) if is_zip else []
    stand_ins: list[Any] = [(_Opaque if each.startswith("tokenizers.") else _Foreign, each) for each in foreign]
    with safe_globals([*_OF_NUMPY, *stand_ins]):
        return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)


def _check_zip(path: str, name: str) -> None:
    """Raises FileError unless a zip archive is one of torch.save."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    files = {entry.filename.partition("/")[2] for entry in entries}
    if "constants.pkl" in files:
        raise FileError(
            f"{name} is a TorchScript model, a program with its parameters, and not attention: run it, and record its attention with attention.record(model, …)."
        )
    if "data.pkl" not in files:
        raise damaged_error(name, _KIND, "it is a zip archive without data.pkl")
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise FileError(
            f"{name} was compressed after torch.save, and torch would read its compressed bytes as numbers: save it again, with torch.save(torch.load(path), path)."
        )


def _check(name: str, tensors: Mapping[str, torch.Tensor], classes: list[str], max_bytes: int) -> None:
    """Raises FileError unless there are tensors, which are not too many, and not the parameters of a model."""
    if not tensors and classes:
        raise _classes_error(name, classes)
    if not tensors:
        raise FileError(
            f"{name} has no tensor: save the attention of your model, such as torch.save(outputs.attentions, …)."
        )
    named = [key for key in tensors if _PARAMETER.search(key)]
    if 2 * len(named) > len(tensors) and not any(map(_is_attention, tensors.values())):
        raise FileError(
            f"{name} holds the parameters of a model ({len(tensors):,} tensors such as {named[0][:60]}), not attention: load them into the model, and record its "
            "attention with attention.record(model, …), or open the folder of the model as the source “model”."
        )
    if len(tensors) > MAX_ARRAYS:
        raise FileError(
            f"{name} has {len(tensors):,} tensors; at most {MAX_ARRAYS:,} are read: save only those of attention."
        )
    if (total := sum(prod(tensor.shape) * tensor.element_size() for tensor in tensors.values())) > max_bytes:
        largest = max((tuple(tensor.shape) for tensor in tensors.values()), key=prod)
        raise FileError(
            f"{name} has {total / 2**20:,.0f} MB of tensors, the largest {format_shape(largest)}; at most {max_bytes / 2**20:,.0f} MB are read: save only those of "
            "attention, or fewer layers, heads or tokens."
        )


def _is_attention(tensor: torch.Tensor) -> bool:
    """Whether the first rows of a tensor are weights, which sum to 1."""
    if tensor.dim() < 2 or not tensor.is_floating_point() or tensor.layout != torch.strided or not tensor.numel():
        return False
    rows = tensor.reshape(-1, tensor.shape[-1])[:64].double()
    return bool((rows >= 0).all() and ((rows.sum(-1) - 1).abs() < _ONE_SUM).all() and tensor.shape[-1] > 1)


def _safetensors(name: str, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, Any]) -> bytes:
    """A .safetensors file of the tensors, each in memory of its own, as the format wants."""
    dense, stored = dict[str, torch.Tensor](), set[int]()
    for key, tensor in tensors.items():
        copy = tensor.detach().to_dense().contiguous()
        if str(copy.dtype).removeprefix("torch.") not in TORCH_DTYPES:
            copy = copy.to(torch.complex64 if copy.is_complex() else torch.float64)
        dense[key] = copy.clone() if copy.untyped_storage().data_ptr() in stored else copy
        stored.add(dense[key].untyped_storage().data_ptr())
    texts = {key: json.dumps(value) for key, value in metadata.items()}
    content = save(dense, texts)
    if (size := int.from_bytes(content[:8], "little")) > MAX_TEXT_BYTES:
        largest = max(texts, key=lambda key: len(texts[key]))
        raise FileError(
            f"{name} has {size:,} bytes of names and texts; at most {MAX_TEXT_BYTES:,} are read: save it without {largest[:60]}, or with fewer tensors."
        )
    return content


def _classes_error(name: str, classes: list[str]) -> FileError:
    return FileError(
        f"{name} holds objects of {', '.join(classes[:3])}{', …' * (len(classes) > 3)}, whose code would have to run: save their tensors alone, such as "
        "torch.save(dict(outputs), …), or weights.detach() of a tensor."
    )
