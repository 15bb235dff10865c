"""A model folder by its small files, before any weight is loaded: what its model reads, and whether it may be loaded."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from stat import S_ISREG
from typing import Any

from attention.base.errors import ModelError
from attention.media import MOST_LETTERS, DeclaredInputs, Residues, media, residues_among

_LARGEST_CONFIG = 2**20  # bytes of config.json
_TEMPLATES = "additional_chat_templates/*"
_OTHER_FILES = ("*.json", "*.txt", "*.model", "*.tiktoken", "*.jinja", _TEMPLATES)  # which transformers reads
_LARGEST_TOKENIZER_FILE = 2**26  # bytes; a vocabulary of 256,000 pieces takes half of that
_OTHER_WEIGHTS = ("gguf", "h5", "msgpack", "onnx")  # of other libraries
_MOST_FILES = 1000  # of sharded weights
_BYTES_PER_NUMBER = 4  # weights are loaded in single precision
_COUNT_KEYS = re.compile(r"layers?$|depth|blocks$|experts|attention_types")  # config keys that count repeated parts
_TOKENIZER_FACTOR = 10  # size of a vocabulary in memory, relative to its files
_ALWAYS_ALLOWED = 256  # repeated parts; a config with more needs as many tensors


@dataclass(frozen=True)
class Folder:
    """A folder with a model that can be loaded."""

    path: Path
    config: dict[str, Any]  # the content of its config.json
    nbytes: int  # size of its weights in memory, in single precision
    other_bytes: int = 0  # size of the other files, nearly all of them of the tokenizer

    @property
    def needs(self) -> int:
        """Bytes of memory of the loaded model with its tokenizer; the system can drop pages of the files."""
        return self.nbytes + _TOKENIZER_FACTOR * self.other_bytes


def check_folder(path: Path, name: str, most_mb: int) -> Folder:
    """The folder, if it has a model that may be loaded here.

    Raises:
        ModelError: there is no folder or no config.json, the weights are pickled, or the model brings code or is too large.
    """
    if not path.is_dir():
        raise ModelError(
            f"A model is a folder with config.json and *.safetensors; there is no folder {name}: check its name."
        )
    config = _config(path, name)
    weights = [file for file in sorted(path.glob("*.safetensors"))[:_MOST_FILES] if file.is_file()]
    other_files = [file for pattern in _OTHER_FILES for file in path.glob(pattern) if file.is_file()]
    entries = [*path.iterdir(), *path.glob(_TEMPLATES)]
    if special := next((each.name for each in entries if each.exists() and not (each.is_file() or each.is_dir())), ""):
        raise ModelError(
            f"A model is a folder of files; {special} of {name} is a pipe or a device, which may never end: delete it."
        )
    _check_readable((*weights, *other_files), name)
    if large := next((file.name for file in other_files if file.stat().st_size > _LARGEST_TOKENIZER_FILE), ""):
        raise ModelError(
            f"Each file besides the weights may take at most {_LARGEST_TOKENIZER_FILE / 2**20:,.0f} MB; {large} of {name} takes more: download it again."
        )
    if not weights:
        pickled = next((file.name for file in (*path.glob("*.bin"), *path.glob("*.pt*"), *path.glob("*.ckpt"))), "")
        if pickled:
            raise ModelError(
                f"{name} has its weights as {pickled}, a pickle, which can run any code when it is opened: "
                "save it as safetensors with model.save_pretrained(folder)."
            )
        if other := next((file.name for suffix in _OTHER_WEIGHTS for file in path.glob(f"*.{suffix}")), ""):
            raise ModelError(
                f"{name} has its weights as {other}, and *.safetensors are read: load it with transformers, and save it with model.save_pretrained(folder)."
            )
        raise ModelError(f"{name} has a config.json but no *.safetensors: download the weights too.")
    shapes = [shape for file in weights for shape in _shapes(file, name)]
    nbytes = _BYTES_PER_NUMBER * sum(prod(shape) for shape in shapes)
    if nbytes > most_mb * 2**20:
        raise too_large(name, nbytes, most_mb)
    max_parts = max([_ALWAYS_ALLOWED, len(shapes), *(shape[0] for shape in shapes if shape)])
    # The config alone decides how large a model is built, before any weight is read.
    if (claimed := max(_part_counts(config), default=0)) > max_parts:
        raise ModelError(
            f"The config.json of {name} claims {claimed:,} parts, more than its weights have: download it again."
        )
    return Folder(path, config, nbytes, sum(file.stat().st_size for file in other_files))


def _check_readable(files: Iterable[Path], name: str) -> None:
    if closed := next((file.name for file in files if not os.access(file, os.R_OK)), ""):
        raise ModelError(f"{closed} of {name} may not be read by this server's user: change its permissions.")


def too_large(name: str, nbytes: int, most_mb: int) -> ModelError:
    """The error for a model whose weights are larger than allowed."""
    return ModelError(
        f"A model may take at most {most_mb:,} MB of memory here; {name} takes {nbytes / 2**20:,.0f} MB: "
        "choose a smaller one, or raise LAB_MAX_MODEL_MB."
    )


def _config(path: Path, name: str) -> dict[str, Any]:
    file = path / "config.json"
    if not file.is_file() and (path / "adapter_config.json").is_file():
        raise ModelError(
            f"{name} is an adapter of a model: load it with peft, and save the whole with model.merge_and_unload().save_pretrained(folder)."
        )
    if not file.is_file():
        raise ModelError(
            f"A model is a folder with config.json and *.safetensors; {name} has no config.json: check the folder."
        )
    _check_readable((file,), name)
    try:
        if file.stat().st_size > _LARGEST_CONFIG:
            raise ValueError
        config = json.loads(file.read_text(encoding="utf-8"))
        model_type = config["model_type"]
        if not isinstance(model_type, str):
            raise TypeError
    except (ValueError, TypeError, KeyError, OSError, RecursionError) as error:
        raise ModelError(
            f"The config.json of {name} should have a model_type, such as bert; it cannot be read: download it again."
        ) from error
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if model_type not in CONFIG_MAPPING:
        reason = (
            "brings code of its own, which is never run here (load it yourself, and use Model.of in Python)"
            if "auto_map" in config
            else "is not known to transformers"
        )
        raise ModelError(
            f"{name} is a “{model_type[:40]}”, which {reason}: choose a model of a family that transformers has built in."
        )
    return dict(config)


def _part_counts(value: Any, key: str = "") -> Iterator[int]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _part_counts(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _part_counts(item, key)
    elif isinstance(value, int | float) and _COUNT_KEYS.search(key):
        yield int(min(2**62, value))  # in this order, NaN becomes 2**62


def _shapes(file: Path, name: str) -> list[list[int]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as header:
            return [header.get_slice(key).get_shape() for key in list(header.keys())]
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file.name} of {name} is truncated or not a safetensors file: download it again.") from error


TEXT_ALONE = DeclaredInputs(text=True, medium=None, continues=True)


def declared_inputs(folder: Path) -> DeclaredInputs:
    """What the model of a folder reads, by its family; one of another family counts as a model of texts until it is loaded."""
    file = folder / "config.json"
    try:
        stat = file.stat()
        is_read = S_ISREG(stat.st_mode) and stat.st_size <= _LARGEST_CONFIG  # a pipe of this name would be waited for
        return _read(file, stat.st_mtime_ns) if is_read else TEXT_ALONE
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return TEXT_ALONE


@lru_cache(maxsize=256)
def _read(file: Path, _changed: int) -> DeclaredInputs:
    # Without transformers, which takes seconds to import, also in another thread at the same time.
    config = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        return TEXT_ALONE
    model_type, names = config.get("model_type"), config.get("architectures")
    if not isinstance(model_type, str):
        return TEXT_ALONE
    class_name = str(next(iter(names), "")) if isinstance(names, list) else ""
    declared = (medium.declared(model_type, class_name) for medium in media())
    first, *others = [*filter(None, declared)] or [of_text(residues_among(_small_vocabulary(file.parent, config)))]
    return first._replace(instead=tuple(each.medium for each in others if each.medium))


def of_text(residues: Residues | None) -> DeclaredInputs:
    """What a model of texts reads: words, or a chain of residues."""
    return (
        TEXT_ALONE if residues is None else DeclaredInputs(text=True, medium=None, continues=False, residues=residues)
    )


def _small_vocabulary(folder: Path, config: Mapping[str, Any]) -> Collection[str]:
    """The pieces of the vocabulary of a folder, if it is small enough for one of letters and is kept as text."""
    size = config.get("vocab_size")
    if not isinstance(size, int) or size > MOST_LETTERS:
        return ()
    for file in (folder / "vocab.txt", folder / "tokenizer.json"):
        if file.is_file() and file.stat().st_size <= _LARGEST_CONFIG:
            text = file.read_text(encoding="utf-8")
            if file.suffix == ".txt":
                return text.split()
            vocabulary = json.loads(text)["model"]["vocab"]
            return [each if isinstance(each, str) else str(each[0]) for each in vocabulary]  # with a score, or without
    return ()
