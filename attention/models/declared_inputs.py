"""What a model reads, by its config.json alone: a page asks for it before any weight is loaded."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, NamedTuple

from attention.vision.families import FIRST_TOKENS, IN_TEXT, TWO_TOWERS

if TYPE_CHECKING:
    from attention.models.loaded import LoadedModel

_LARGEST_CONFIG = 2**20  # bytes


class DeclaredInputs(NamedTuple):
    """What a model reads.

    Attributes:
        text: whether it reads a text.
        picture: whether it reads a picture.
        continues: whether a text of it may have a continuation that it writes, or a second text.
        several_pictures: whether it reads several pictures, each at a place in its text.
    """

    text: bool
    picture: bool
    continues: bool
    several_pictures: bool = False


TEXT_ALONE = DeclaredInputs(text=True, picture=False, continues=True)


def inputs_of(loaded: LoadedModel) -> DeclaredInputs:
    """What a loaded model reads."""
    reader = loaded.pictures
    if reader is None:
        return TEXT_ALONE
    in_text = reader.image_token_id is not None
    return DeclaredInputs(reader.reads_text, True, in_text, in_text)


def declared_inputs(folder: Path) -> DeclaredInputs:
    """What the model of a folder reads, by its family; one of another family counts as a model of texts until it is loaded."""
    file = folder / "config.json"
    try:
        stat = file.stat()
        is_read = S_ISREG(stat.st_mode) and stat.st_size <= _LARGEST_CONFIG  # a pipe of this name would be waited for
        return _read(file, stat.st_mtime_ns) if is_read else TEXT_ALONE
    except (OSError, ValueError, RecursionError):
        return TEXT_ALONE


@lru_cache(maxsize=256)
def _read(file: Path, _changed: int) -> DeclaredInputs:
    """The same for the config.json of a folder, read again when it was changed.

    Without transformers, which takes seconds to import, also in another thread at the same time.
    """
    config = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        return TEXT_ALONE
    model_type, names = config.get("model_type"), config.get("architectures")
    if not isinstance(model_type, str):
        return TEXT_ALONE
    if model_type in FIRST_TOKENS:
        return DeclaredInputs(text=False, picture=True, continues=False)
    if model_type in IN_TEXT:
        return DeclaredInputs(text=True, picture=True, continues=True, several_pictures=True)
    if model_type in TWO_TOWERS:
        is_classifier = isinstance(names, list) and str(next(iter(names), "")).endswith("ForImageClassification")
        return DeclaredInputs(text=not is_classifier, picture=True, continues=False)
    return TEXT_ALONE
