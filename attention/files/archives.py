"""A file of named arrays from an untrusted source: its headers are read first, and an array only on access.

The formats are .npz, .npy, .safetensors and .json, and files of torch.save after `attention.files.torch_file` has read them. Nothing
is unpickled, and nothing is unpacked before its size is known. Metadata of an unexpected form is ignored.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from math import prod
from os import PathLike
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.base.errors import FileError, MatrixError
from attention.base.progress import current_callback
from attention.files.matrix import MAX_NUMBERS, MAX_SIDE, excerpt, too_large_error

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


_MAX_AXES = 6
MAX_ARRAYS = 2**13  # a model of 200 layers has fewer
MAX_TEXT_BYTES = 2**20  # bytes of the tokens, and of a header
_MAX_ALL_TEXT_BYTES = 2**22  # bytes of all texts of a file


class _Kind(NamedTuple):
    """The kind of numbers of an array: the type to which they are converted, its bytes, and whether the stored numbers have 16 bits or fewer."""

    dtype: str
    itemsize: int
    low_precision: bool = False


# A half is read as a float, which holds the same numbers, so that later steps are computed with enough digits.
_HALF, _FLOAT, DOUBLE, _BOOL = _Kind("float32", 4, True), _Kind("float32", 4), _Kind("float64", 8), _Kind("bool", 1)


Step = str | int | list[str]
"""From a value to one inside it: a key, an index, or [attribute]."""


class Entry(NamedTuple):
    """One array of a file: its shape, the kind of its numbers, a function that loads it, and in a file of JSON or torch.save the Python that finds it in `file`."""

    shape: tuple[int, ...]
    kind: _Kind
    load: Callable[[], Tensor]
    python: str = ""

    @property
    def nbytes(self) -> int:
        """The bytes of the array in memory, without loading it."""
        return prod(self.shape) * self.kind.itemsize


@dataclass(frozen=True)
class Archive:
    """The contents of a file.

    Attributes:
        arrays: its arrays of numbers, by name.
        metadata: everything else, by name: lists of texts, numbers, and the description of the layers in an export.
        refused: the reason why an entry cannot be read, by name.
        notes: sentences on how a text was read.
        is_table: whether it is the text of a table, whose one array may be weights or scores.
        classes: of a file of torch.save, the classes of its objects that torch does not know.
        is_lines: whether a .json file has one value in each line.
        has_records: whether a .json file is a list of objects that are no layers, so that each is a sentence.
    """

    arrays: dict[str, Entry] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    is_lines: bool = False
    has_records: bool = False
    notes: tuple[str, ...] = ()
    is_table: bool = False
    classes: Sequence[str] = ()


def open_archive(name: str, content: bytes) -> Archive:
    """The contents of a file, as claimed by its headers; the extension of `name`, one of `EXTENSIONS`, selects the reader.

    Raises:
        FileError: a damaged file.
    """
    return _READERS[PurePath(name).suffix.lower()](quote(name), content)


def read_at_most(path: str | PathLike[str], most: int, what: str) -> bytes:
    """The bytes of a file, as many as are read and one more, so that a larger one is seen.

    Args:
        path: of the file.
        most: bytes that are read.
        what: what the file should be, such as "A sound is a WAV, FLAC or MP3 file".

    Raises:
        FileError: it cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            return file.read(most + 1)
    except (OSError, ValueError) as error:
        raise FileError(f"{what} that can be read; got “{str(path)[:80]}”, which cannot be: check its path.") from error


_MAP_NUMBERS = 2**14
"""Of a list of lists among the descriptions of a file, above which it is one of its arrays, and no description."""


def in_memory(archive: Archive) -> Archive:
    """An archive whose arrays have been read, without the lists that they were read from: it is small, and quick to copy into another process."""
    arrays = {key: entry._replace(load=_loader(entry)) for key, entry in archive.arrays.items()}
    metadata = _without_maps(archive.metadata, {})
    return replace(archive, arrays=arrays, metadata=metadata)


def _loader(entry: Entry) -> Callable[[], Tensor]:
    try:
        return partial(_copy, entry.load().numpy())
    except FileError as error:  # said where the array is used
        return partial(_refuse, str(error))


def _copy(array: np.ndarray[Any, Any]) -> Tensor:
    import torch

    return torch.tensor(array)


def _refuse(sentence: str) -> Tensor:
    raise FileError(sentence)


def _without_maps(value: Any, known: dict[int, Any]) -> Any:
    """The same description with empty lists in place of maps; what it has at several places, it has only once."""
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, dict):
        known[id(value)] = {key: _without_maps(item, known) for key, item in value.items()}
    elif isinstance(value, list):
        shape, first = _shape(value)
        is_map = len(shape) > 1 and isinstance(first, int | float) and prod(shape) > _MAP_NUMBERS
        known[id(value)] = [] if is_map else [_without_maps(item, known) for item in value]
    else:
        return value
    return known[id(value)]


def damaged_error(name: str, kind: str, why: str) -> FileError:
    """The error for a file whose content does not match its name."""
    return FileError(f"{name} is not a valid {kind}: {why}; save it again, and use the complete file.")


def quote(text: str) -> str:
    """A name in quotation marks for a sentence: shortened, without invisible characters."""
    text = "".join(character if character.isprintable() else "�" for character in text)
    return f"“{text if len(text) <= 60 else text[:59] + '…'}”"


def _shape_problem(label: str, shape: tuple[int, ...], advice: str = "save a part of it") -> str:
    """The sentence about an array with too many axes, or without a number."""
    return f"{label} needs 2 to {_MAX_AXES} axes and a number in each; got {format_shape(shape) or 'none'}: {advice}."


def format_shape(shape: tuple[int, ...]) -> str:
    """A shape as readable text."""
    return " × ".join(f"{size:,}" for size in shape[:_MAX_AXES]) + (" × …" if len(shape) > _MAX_AXES else "")


def _natural_numbers(numbers: Any) -> tuple[int, ...] | None:
    """The integers from zero of a list, such as a shape in a header; None for anything else."""
    is_valid = isinstance(numbers, list | tuple) and all(type(number) is int and number >= 0 for number in numbers)
    return tuple(numbers) if is_valid else None


_MAX_JSON_NUMBERS = 2**21  # a Python list takes ten times the bytes of the file
_MAX_JSON_LISTS = 2**18
_MAX_JSON_KEYS = 2**17
_LARGE_JSON = 2**22  # bytes
_LONGEST_PATH = 300  # characters; each array has one of its own


def read_json(name: str, content: bytes) -> tuple[Any, bool]:
    """The value of a JSON file within bounds, or the list of those of its lines, and whether it is that. The name is quoted.

    Raises:
        FileError: a damaged file, or too many values.
    """
    numbers, lists = content.count(b",") + 1, content.count(b"[") + content.count(b"{")
    if numbers > _MAX_JSON_NUMBERS or lists > _MAX_JSON_LISTS:
        raise FileError(
            f"{name} has {numbers:,} numbers and texts in {lists:,} lists; a .json file may have {_MAX_JSON_NUMBERS:,} in {_MAX_JSON_LISTS:,} lists: "
            "save it as .npz or .safetensors."
        )
    if (keys := content.count(b":")) > _MAX_JSON_KEYS:
        raise FileError(
            f"{name} has {keys:,} names; a .json file may have {_MAX_JSON_KEYS:,}: save only its attention, as .npz or .safetensors."
        )
    if len(content) > _LARGE_JSON and (callback := current_callback()):
        callback(
            f"Reading {name}, whose {numbers:,} numbers and texts take about a second; a .npz or .safetensors file opens at once …",
            0.5,
        )
    try:
        return _parse_documents(content.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise damaged_error(name, "JSON file", "it cannot be parsed") from None


def json_archive(name: str, document: Any, is_lines: bool) -> Archive:
    """The nested lists of a JSON object, by name; or one without a name if the document is a list.

    Raises:
        FileError: too many arrays, or lists that are too deep.
    """
    items = document if isinstance(document, list) else []
    has_records = bool(items) and all(isinstance(item, dict) and "layer" not in item for item in items)
    archive = Archive(is_lines=is_lines, has_records=has_records)
    try:
        _add_json(archive, name, "", "file", document)
    except RecursionError:
        raise damaged_error(name, "JSON file", "its lists are too deep") from None
    return archive


def _read_json(name: str, content: bytes) -> Archive:
    return json_archive(name, *read_json(name, content))


def _parse_documents(text: str) -> tuple[Any, bool]:
    """The value of a JSON text, or the list of those of its lines, and whether it is that."""
    try:
        return json.loads(text), False
    except ValueError:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2:
            raise
        return [json.loads(line) for line in lines], True


def _add_json(archive: Archive, name: str, path: str, python: str, value: Any) -> None:
    """Adds what is in a JSON document: the arrays by their paths, such as "layers.3.attn", and everything else."""
    if len(archive.arrays) > MAX_ARRAYS:
        raise FileError(
            f"{name} has more than {MAX_ARRAYS:,} arrays, which is the limit: save only those of attention."
        )
    if len(path) > _LONGEST_PATH:
        archive.refused[path[:_LONGEST_PATH]] = (
            f"An array in {name} has a name of more than {_LONGEST_PATH} characters: shorten it."
        )
        return
    shape, first = _shape(value)
    if isinstance(value, dict):
        for key, item in value.items():
            _add_json(archive, name, f"{path}.{key}" if path else key, f"{python}[{key!r}]", item)
        archive.metadata[path] = value
    elif not isinstance(value, list) or isinstance(first, str):
        archive.metadata[path] = value
    elif isinstance(first, dict) or (len(shape) > 2 and not _is_even(value, shape)):
        archive.metadata[path] = value
        for index, item in enumerate(() if _are_tokens(value) else value):
            _add_json(archive, name, f"{path}.{index}" if path else str(index), f"{python}[{index}]", item)
    else:
        _add_array(archive, name, path, python, value)


def _add_array(archive: Archive, name: str, path: str, python: str, value: Any) -> None:
    label, (shape, first) = f"{quote(path)} in {name}" if path else name, _shape(value)
    if first is not None and not isinstance(first, int | float):
        archive.refused[path] = str(_not_numbers_error(label, shape))
    elif 0 in shape or len(shape) > _MAX_AXES:
        archive.refused[path] = _shape_problem(label, shape, "save numbers")
    else:
        kind = _BOOL if isinstance(first, bool) else DOUBLE
        archive.arrays[path] = Entry(shape, kind, partial(_load_json, label, value, kind.dtype, shape), python)


TEXT_KEYS = ("text", "token", "word", "str", "piece", "form", "surface")
"""What the text of a token is called where tokens are records, such as {"token": "the", "id": 5}."""


def _are_tokens(value: list[Any]) -> bool:
    """Whether these are records of tokens: each has a text, and none an array with rows."""
    return all(
        isinstance(item, dict)
        and any(isinstance(item.get(key), str) for key in TEXT_KEYS)
        and not any(isinstance(inner, list) and inner and isinstance(inner[0], list) for inner in item.values())
        for item in value
    )


def _is_even(value: Any, shape: tuple[int, ...]) -> bool:
    """Whether the lists of each level have equal lengths; numbers are not looked at."""
    if not isinstance(value, list) or len(value) != shape[0]:
        return False
    return len(shape) == 1 or all(_is_even(item, shape[1:]) for item in value)


def _shape(value: Any) -> tuple[tuple[int, ...], Any]:
    """The length of a list, of its first element if that is a list, and so on; and the first element that is not a list."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return tuple(shape), value


def _load_json(label: str, value: Any, dtype: str, shape: tuple[int, ...]) -> Tensor:
    import torch

    try:
        tensor = torch.tensor(value, dtype=torch.float64)
    except (ValueError, TypeError, RuntimeError, OverflowError):
        raise _not_numbers_error(label, shape) from None
    return tensor.to(getattr(torch, dtype))


def _not_numbers_error(label: str, shape: tuple[int, ...]) -> FileError:
    return FileError(
        f"{label} needs only numbers, in lists of equal length on each level; got something else below {format_shape(shape)}: "
        "write a number, true or false in each place."
    )


def _parse_about(text: object) -> dict[str, Any]:
    """The JSON object in which an export describes itself; empty if there is none."""
    value = _parse_json_or_text(text) if isinstance(text, str) else {}
    return value if isinstance(value, dict) else {}


def _parse_json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_SAFETENSORS = ".safetensors file"
_NPZ, _NPY = ".npz file as numpy.savez writes it", ".npy array as numpy.save writes it"
_LENGTH_BYTES = 8  # bytes of the length of the header
# For each type name in the file: the torch dtype, its bytes, and the kind to which it is converted.
_SAFETENSORS_KINDS: dict[str, tuple[str, int, _Kind]] = {
    "F64": ("float64", 8, DOUBLE),
    "F32": ("float32", 4, _FLOAT),
    "F16": ("float16", 2, _HALF),
    "BF16": ("bfloat16", 2, _HALF),
    "F8_E4M3": ("float8_e4m3fn", 1, _HALF),
    "F8_E5M2": ("float8_e5m2", 1, _HALF),
    "I64": ("int64", 8, DOUBLE),
    "I32": ("int32", 4, DOUBLE),
    "I16": ("int16", 2, DOUBLE),
    "I8": ("int8", 1, DOUBLE),
    "U8": ("uint8", 1, DOUBLE),
    "BOOL": ("bool", 1, _BOOL),
}
TORCH_DTYPES = {torch_dtype for torch_dtype, _, _ in _SAFETENSORS_KINDS.values()}
"""The names of the dtypes of torch that a .safetensors file may have."""


def _read_safetensors(name: str, content: bytes) -> Archive:
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    data_offset = _LENGTH_BYTES + length
    if length > MAX_TEXT_BYTES:
        raise FileError(
            f"{name} claims a header of {length:,} bytes; at most {MAX_TEXT_BYTES:,} are read: save fewer tensors."
        )
    if len(content) < data_offset:
        raise damaged_error(name, _SAFETENSORS, f"its header of {length:,} bytes is incomplete")
    try:
        header = json.loads(content[_LENGTH_BYTES:data_offset])
        metadata = header.pop("__metadata__", {})
        assert all(isinstance(entry, dict) for entry in (*header.values(), metadata))
    except (ValueError, RecursionError, AttributeError, TypeError, AssertionError):
        raise damaged_error(name, _SAFETENSORS, "its header is not a list of tensors") from None
    if len(header) > MAX_ARRAYS:
        raise FileError(
            f"{name} has {len(header):,} tensors; at most {MAX_ARRAYS:,} are read: save only those of attention."
        )
    archive = Archive(metadata=_safetensors_metadata(metadata))
    tensors = memoryview(content)[data_offset:]
    for key, entry in header.items():
        result = _safetensors_entry(f"{quote(key)} in {name}", entry, tensors)
        if isinstance(result, str):
            archive.refused[key] = result
        else:
            archive.arrays[key] = result
    return archive


def _safetensors_entry(label: str, entry: dict[str, Any], tensors: memoryview) -> Entry | str:
    """A tensor as the header describes it; a sentence if that is invalid."""
    shape, offsets = _natural_numbers(entry.get("shape")), _natural_numbers(entry.get("data_offsets"))
    if shape is None or offsets is None or len(offsets) != 2 or not isinstance(entry.get("dtype"), str):
        return str(damaged_error(label, "tensor", "its header has no valid shape and position"))
    if entry["dtype"] not in _SAFETENSORS_KINDS:
        return f"{label} needs numbers of a type such as F32 or BF16; got {quote(entry['dtype'])}: save it again with .float()."
    if len(shape) > _MAX_AXES or not prod(shape):
        return _shape_problem(label, shape)
    torch_dtype, itemsize, kind = _SAFETENSORS_KINDS[entry["dtype"]]
    start, end = offsets
    if end > len(tensors) or end - start != prod(shape) * itemsize:
        return f"{label} is {format_shape(shape)} by its header, but some of its numbers are missing: use the complete file."
    return Entry(shape, kind, partial(_load_safetensors, tensors, start, end, torch_dtype, shape, kind))


def _load_safetensors(
    tensors: memoryview, start: int, end: int, torch_dtype: str, shape: tuple[int, ...], kind: _Kind
) -> Tensor:
    import torch

    tensor = torch.frombuffer(bytearray(tensors[start:end]), dtype=getattr(torch, torch_dtype))
    return tensor.to(getattr(torch, kind.dtype)).reshape(shape)


def _safetensors_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """The metadata, whose values are texts: an export's own object under "trace", tokens as JSON, numbers."""
    texts = {key: text for key, text in metadata.items() if isinstance(text, str)}
    about = _parse_about(texts.pop("trace", ""))
    return {**{key: _parse_json_or_text(text) for key, text in texts.items()}, **about}


TORCH_ENDINGS = (".pt", ".pth", ".bin", ".ckpt")
TORCH_KEY = "torch.save"
"""The metadata of a .safetensors file that was made from a file of torch.save: the classes of its `Archive`, and the path of each array."""
_FROM_TORCH = (
    'x = torch.load({name}, map_location="cpu"); x = x if isinstance(x, dict) else {{"weights": x}}; '
    "safetensors.torch.save_file({{k: torch.stack(tuple(v)) for k, v in x.items() if v is not None and torch.is_tensor(v[0])}}, {safe})"
)


def is_torch_file(name: str) -> bool:
    """Whether a file of this name is one of torch.save."""
    return PurePath(name).suffix.lower() in TORCH_ENDINGS


def _read_torch(name: str, content: bytes) -> Archive:
    """The tensors of a file of torch.save that was read in a child process; it is then a .safetensors file."""
    if content[_LENGTH_BYTES : _LENGTH_BYTES + 1] != b"{":
        stem = PurePath(name.strip("“”")).stem
        lines = _FROM_TORCH.format(name=repr(name.strip("“”")), safe=repr(f"{stem}.safetensors"))
        raise FileError(
            f"{name} is a pickle, which can run code, so a server does not open it: use attention.File.open, or upload the .safetensors file that two lines make of it "
            f"on your machine, {lines}"
        )
    archive = _read_safetensors(name, content)
    match archive.metadata.get(TORCH_KEY):
        case {"paths": dict(paths), "classes": list(classes)}:
            pass
        case _:
            return archive  # a .safetensors file under another name
    metadata = {key: value for key, value in archive.metadata.items() if key != TORCH_KEY}
    try:
        lookups = {key: "".join(map(_lookup, path)) for key, path in paths.items()}
        order = {key: place for place, key in enumerate(paths)}  # .safetensors files have another
        in_order = sorted(archive.arrays.items(), key=lambda item: order[item[0]])
        arrays = {key: entry._replace(python=f"file{lookups[key]}") for key, entry in in_order}
    except (TypeError, ValueError, KeyError):
        raise damaged_error(name, "file as torch.save writes it", "its names cannot be read") from None
    return Archive(arrays, metadata, archive.refused, classes=[str(each) for each in classes])


def _lookup(step: Step) -> str:
    """The Python of a step. The file may be of foreign origin, so that nothing of it is Python but a name or a literal."""
    if isinstance(step, list):
        (attribute,) = step
        return f".{attribute}" if str(attribute).isidentifier() else f".__dict__[{str(attribute)!a}]"
    return f"[{step:d}]" if isinstance(step, int) else f"[{str(step)!a}]"


class _Header(NamedTuple):
    """The claims of a .npy header: shape, dtype, the byte offset of the numbers, and whether they are in Fortran order."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    data_offset: int
    fortran: bool


def _read_npy_header(data: bytes) -> _Header | None:
    """The header of a .npy file, or of its first bytes; None if it is damaged. The claims may be false."""
    from numpy.lib import format as npy

    stream = BytesIO(data)
    try:
        version = npy.read_magic(stream)
        header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, fortran, dtype = header(stream)
    except Exception:  # a damaged header makes NumPy raise nearly anything
        return None
    sizes = _natural_numbers(shape)
    return None if sizes is None else _Header(sizes, dtype, stream.tell(), fortran)


_ReadPrefix = Callable[[int], bytes]
"""Returns the first bytes of a .npy file, up to the given number."""

_MAX_HEADER = 2**14  # bytes
_ENTRY_SIGNATURE = b"PK\x01\x02"  # begins each entry in the directory of a zip archive
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # other methods may need gigabytes to unpack a byte


def _read_npy(name: str, content: bytes) -> Archive:
    return _read_archive(name, {"": lambda size: content[:size]})


def _read_npz(name: str, content: bytes) -> Archive:
    # zipfile makes an object of a thousand bytes from each entry of fifty bytes.
    if content.count(_ENTRY_SIGNATURE) > MAX_ARRAYS:
        raise FileError(
            f"{name} lists more than {MAX_ARRAYS:,} arrays, which is the limit: save only those of attention."
        )
    try:
        archive = zipfile.ZipFile(BytesIO(content))
        entries = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
    except Exception:  # a damaged list makes zipfile raise nearly anything
        raise damaged_error(name, _NPZ, "its list of arrays cannot be read") from None

    def read(entry: zipfile.ZipInfo, size: int) -> bytes:
        if entry.compress_type not in _COMPRESSIONS:
            raise FileError(
                f"{name} is compressed in another way than by numpy.savez_compressed: save it with that function."
            )
        try:
            with archive.open(entry) as stream:
                return stream.read(size)
        except Exception:  # a damaged array makes zipfile and its unpackers raise nearly anything
            raise damaged_error(name, _NPZ, "an array in it cannot be unpacked") from None

    return _read_archive(name, {entry.filename.removesuffix(".npy"): partial(read, entry) for entry in entries})


def _read_archive(name: str, files: dict[str, _ReadPrefix]) -> Archive:
    archive = Archive()
    text_bytes = 0  # of all texts: zeros of a thousand arrays of a megabyte are a file of a megabyte
    for key, read in files.items():
        label = f"{quote(key)} in {name}" if key else name
        header = _read_npy_header(read(_MAX_HEADER))
        if header is None:
            archive.refused[key] = str(damaged_error(label, _NPY, "its header cannot be read"))
            continue
        kind, shape = _kind_of(header), header.shape
        n_bytes = prod(shape) * header.dtype.itemsize
        if header.dtype.kind in "US" and len(shape) <= 2 and 0 < n_bytes <= MAX_TEXT_BYTES:
            text_bytes += n_bytes
            if text_bytes > _MAX_ALL_TEXT_BYTES:
                raise FileError(
                    f"{name} has more than {_MAX_ALL_TEXT_BYTES:,} bytes of texts, the limit: save only the tokens beside the attention."
                )
            archive.metadata[key] = _decoded(_load_array(label, header, read).tolist())
        elif kind is None:
            parts = "save its parts with numpy.savez(file, *parts), or **parts of a dictionary"
            archive.refused[key] = (
                f"{label} needs numbers of at most 64 bits; got an array of {quote(str(header.dtype))}: "
                f"{parts if header.dtype.hasobject else 'save it again with .astype(float)'}, or a list of texts with numpy.array(tokens, dtype=str)."
            )
        elif len(shape) > _MAX_AXES or not prod(shape):
            archive.refused[key] = _shape_problem(label, shape)
        else:
            archive.arrays[key] = Entry(shape, kind, partial(_load_npy, label, header, kind, read))
    archive.metadata.update(_parse_about(archive.metadata.pop("about", "")))
    return archive


def _kind_of(header: _Header) -> _Kind | None:
    kind, size = header.dtype.kind, header.dtype.itemsize
    return {"f": {2: _HALF, 4: _FLOAT, 8: DOUBLE}.get(size), "b": _BOOL, "i": DOUBLE, "u": DOUBLE}.get(kind)


def _load_npy(label: str, header: _Header, kind: _Kind, read: _ReadPrefix) -> Tensor:
    """The array; reads no more of the file than its header claims."""
    import torch

    # A writable copy in native byte order.
    return torch.from_numpy(_load_array(label, header, read).astype(kind.dtype, order="C"))


def _decoded(texts: Any) -> Any:
    """A text, a list of texts, or a list of such lists."""
    if isinstance(texts, list):
        return [_decoded(text) for text in texts]
    return texts.decode(errors="replace") if isinstance(texts, bytes) else texts


def _load_array(label: str, header: _Header, read: _ReadPrefix) -> Any:
    import numpy as np

    count = prod(header.shape)
    content = read(header.data_offset + count * header.dtype.itemsize)
    n_present = (len(content) - header.data_offset) // header.dtype.itemsize
    if n_present < count:
        raise FileError(
            f"{label} is {format_shape(header.shape)} by its header; got only {n_present:,} of {count:,} numbers: use the complete file."
        )
    array = np.frombuffer(content, header.dtype, count, header.data_offset)
    return array.reshape(header.shape, order="F" if header.fortran else "C")


def npy_size(content: bytes) -> int:
    """How many numbers the header of a .npy file claims; none if it cannot be read."""
    header = _read_npy_header(content[:_MAX_HEADER])
    return prod(header.shape) if header else 0


def format_npy(data: bytes, name: str) -> str:
    """The array of a .npy file, as nested lists with all digits of double precision.

    Raises:
        MatrixError: the file is damaged, or its array is neither a matrix nor a batch of matrices.
    """
    header = _read_npy_header(data)
    if header is None:
        raise MatrixError(
            f"{name} needs a .npy file as numpy.save writes it; got {len(data):,} bytes with a header that cannot be read: save it again, or as .csv."
        )
    shape, shape_text = header.shape, format_shape(header.shape)
    if header.dtype.kind not in "fiu" or header.dtype.itemsize > 8:
        raise MatrixError(
            f"{name} needs real numbers of at most 64 bits; got an array of {excerpt(str(header.dtype))}: save it again with .astype(float)."
        )
    if not 1 <= len(shape) <= _MAX_AXES or not prod(shape):
        raise MatrixError(
            f"{name} needs two axes, rows and columns, optionally in a batch, and a number in each; got {shape_text or 'no axis'}: save one of its matrices."
        )
    if prod(shape) > MAX_NUMBERS or max(shape[-2:]) > MAX_SIDE:
        raise too_large_error(name, shape_text)
    try:
        return repr(_load_array(name, header, lambda size: data[:size]).astype(float).tolist())
    except FileError as error:  # fewer numbers than the header claims
        raise MatrixError(str(error)) from None


_READERS: dict[str, Callable[[str, bytes], Archive]] = {
    ".npz": _read_npz,
    ".npy": _read_npy,
    ".safetensors": _read_safetensors,
    ".json": _read_json,
    ".jsonl": _read_json,
    **dict.fromkeys(TORCH_ENDINGS, _read_torch),
}
EXTENSIONS = tuple(_READERS)
