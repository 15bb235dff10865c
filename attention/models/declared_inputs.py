"""What a model reads, by its config.json alone: a page asks for it before any weight is loaded."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

from attention.models.vision_families import FIRST_TOKENS, IN_TEXT, TWO_TOWERS, reads_text, vision_config

if TYPE_CHECKING:
    from attention.models.loaded import LoadedModel

_LARGEST_CONFIG = 2**20  # bytes


class DeclaredInputs(NamedTuple):
    """What a model reads.

    Attributes:
        text: whether it reads a text.
        picture: whether it reads a picture.
        continues: whether a text of it may have a continuation that it writes, or a second text.
    """

    text: bool
    picture: bool
    continues: bool


TEXT_ALONE = DeclaredInputs(text=True, picture=False, continues=True)


def inputs_of(loaded: LoadedModel) -> DeclaredInputs:
    """What a loaded model reads."""
    reader = loaded.pictures
    if reader is None:
        return TEXT_ALONE
    return DeclaredInputs(reader.reads_text, True, reader.image_token_id is not None)


def declared_inputs(folder: Path) -> DeclaredInputs:
    """What the model of a folder reads; one that cannot be loaded counts as a model of texts."""
    file = folder / "config.json"
    try:
        stat = file.stat()
        return TEXT_ALONE if stat.st_size > _LARGEST_CONFIG else _read(file, stat.st_mtime_ns)
    except (OSError, ValueError):
        return TEXT_ALONE


@lru_cache(maxsize=256)
def _read(file: Path, _changed: int) -> DeclaredInputs:
    """The same for the config.json of a folder, read again when it was changed."""
    config = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        return TEXT_ALONE
    model_type = str(config.get("model_type"))
    if not ("vision_config" in config or model_type in {*FIRST_TOKENS, *TWO_TOWERS, *IN_TEXT}):
        return TEXT_ALONE  # without transformers, which takes seconds to import
    from transformers import AutoConfig

    from attention.models.loading import model_class

    cls = model_class(config)
    if not hasattr(cls, "forward"):  # the config names no class
        is_known = model_type in {*FIRST_TOKENS, *TWO_TOWERS, *IN_TEXT}
        return DeclaredInputs(model_type not in FIRST_TOKENS, True, model_type in IN_TEXT) if is_known else TEXT_ALONE
    try:
        parsed = AutoConfig.from_pretrained(file.parent, local_files_only=True, trust_remote_code=False)
    except Exception:  # a broken file can raise anything in transformers; loading says what is wrong with it
        return TEXT_ALONE
    model = SimpleNamespace(forward=cls.forward, config=parsed)
    if vision_config(model) is None:
        return TEXT_ALONE
    has_text = reads_text(model)
    return DeclaredInputs(has_text, True, has_text and model_type in IN_TEXT)
