"""What a folder of a model holds, read from its small files before a weight is loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from attention.errors import ModelError

_LARGEST_CONFIG = 2**20  # bytes of config.json
_LARGEST_BESIDE = 2**26  # bytes of a tokenizer's file; a vocabulary of 256,000 pieces takes half of that
_MOST_FILES = 1000  # that weights are cut into
_NUMBER = 4  # bytes; weights are loaded in single precision
_REPEATED = re.compile(r"layers?$|depth|blocks$|experts|attention_types")  # in a config: how often a part is there
_TOKENIZER = 10  # how much larger a vocabulary is in memory than in its files
_FEW = 256  # of a part, which any model may have; more need as many tensors


@dataclass(frozen=True)
class Folder:
    """A folder with a model that can be loaded.

    Attributes:
        path: of the folder.
        config: what stands in its config.json.
        nbytes: what its weights take in memory, as single-precision numbers.
        beside: bytes of the files beside the weights, nearly all of them the tokenizer's.
    """

    path: Path
    config: dict[str, Any]
    nbytes: int
    beside: int = 0

    @property
    def needs(self) -> int:
        """Bytes of memory that the loaded model takes with its tokenizer. What is read from a file meanwhile, the system can drop."""
        return self.nbytes + _TOKENIZER * self.beside


def checked(path: Path, name: str, most_mb: int) -> Folder:
    """The folder, if there is a model in it that may be loaded here.

    Raises:
        ModelError: there is no folder, no config.json, only pickled weights, code of its own, or too much.
    """
    if not path.is_dir():
        raise ModelError(
            f"A model is a folder with config.json and *.safetensors; there is no folder {name}: check its name."
        )
    config = _config(path, name)
    weights = [one for one in sorted(path.glob("*.safetensors"))[:_MOST_FILES] if one.is_file()]
    beside = [one for end in ("json", "txt", "model") for one in path.glob(f"*.{end}") if one.is_file()]
    if large := next((one.name for one in beside if one.stat().st_size > _LARGEST_BESIDE), ""):
        raise ModelError(
            f"What lies beside the weights may take at most {_LARGEST_BESIDE / 2**20:,.0f} MB a file; {large} of {name} takes more: download it again."
        )
    if not weights:
        pickled = next((one.name for one in (*path.glob("*.bin"), *path.glob("*.pt*"), *path.glob("*.ckpt"))), "")
        if pickled:
            raise ModelError(
                f"{name} has its weights as {pickled}, a pickle, which can run any code when it is opened: "
                "save it as safetensors with model.save_pretrained(folder)."
            )
        raise ModelError(f"{name} has a config.json but no *.safetensors: download the weights too.")
    shapes = [shape for one in weights for shape in _shapes(one, name)]
    nbytes = _NUMBER * sum(prod(shape) for shape in shapes)
    if nbytes > most_mb * 2**20:
        raise too_large(name, nbytes, most_mb)
    most = max([_FEW, len(shapes), *(shape[0] for shape in shapes if shape)])
    # A config decides what is built before any weight is looked at.
    if (claimed := max(_repeated(config), default=0)) > most:
        raise ModelError(
            f"The config.json of {name} speaks of {claimed:,} parts, of which its weights have not as many: download it again."
        )
    return Folder(path, config, nbytes, sum(one.stat().st_size for one in beside))


def too_large(name: str, nbytes: int, most_mb: int) -> ModelError:
    """What is said of a model whose weights are more than is allowed."""
    return ModelError(
        f"A model may take at most {most_mb:,} MB of memory here; {name} takes {nbytes / 2**20:,.0f} MB: "
        "choose a smaller one, or raise LAB_MAX_MODEL_MB."
    )


def _config(path: Path, name: str) -> dict[str, Any]:
    file = path / "config.json"
    if not file.is_file():
        raise ModelError(
            f"A model is a folder with config.json and *.safetensors; {name} has no config.json: check the folder."
        )
    try:
        if file.stat().st_size > _LARGEST_CONFIG:
            raise ValueError
        found = json.loads(file.read_text(encoding="utf-8"))
        kind = found["model_type"]
        if not isinstance(kind, str):
            raise TypeError
    except (ValueError, TypeError, KeyError, OSError, RecursionError) as error:
        raise ModelError(
            f"The config.json of {name} should say a model_type, such as bert; it cannot be read: download it again."
        ) from error
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if kind not in CONFIG_MAPPING:
        own = (
            "brings code of its own, which is never run here" if "auto_map" in found else "is not known to transformers"
        )
        raise ModelError(
            f"{name} is a “{kind[:40]}”, which {own}: choose a model of a family that transformers has built in."
        )
    return dict(found)


def _repeated(value: Any, key: str = "") -> Iterator[int]:
    """How often the parts are there that a config repeats."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _repeated(one, name)
    elif isinstance(value, list):
        for one in value:
            yield from _repeated(one, key)
    elif isinstance(value, int | float) and _REPEATED.search(key):
        yield int(min(2**62, value))  # in this order, which no NaN comes through


def _shapes(file: Path, name: str) -> list[list[int]]:
    """The shapes of a file of weights, from its header alone."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as header:
            return [header.get_slice(key).get_shape() for key in list(header.keys())]
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file.name} of {name} is cut off or no safetensors file: download it again.") from error
