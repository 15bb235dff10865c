"""From pictures, and a text where a model reads both, to the input of a pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attention.base.errors import AttentionError, ConfigError, ModelError, TextError
from attention.models.medium_inputs import MediumInputs, ReadInput
from attention.vision.families import PICTURES

if TYPE_CHECKING:
    from attention.models.loaded import LoadedModel
    from attention.vision.reader import PictureReader, RawPicture

_TEXT = "input_ids"


def picture_inputs(
    loaded: LoadedModel, reader: PictureReader, pictures: Sequence[RawPicture], text: str, max_tokens: int
) -> tuple[MediumInputs, list[tuple[str, int]], list[str]]:
    """As `attention.media.InputReader.inputs`."""
    notes: list[str] = []
    if reader.token_id is not None:
        text, notes = _with_image_tokens(loaded, reader, text, len(pictures))
    elif len(pictures) > 1:
        raise ConfigError(
            f"{loaded.name} reads one picture at a time; got {len(pictures)}: make a Model for each, or choose a language model that reads pictures."
        )
    read, text_ids = _read(loaded, reader, pictures, text, max_tokens)
    ids = {PICTURES: torch.arange(len(read.tokens))[None]}
    truncated: list[tuple[str, int]] = []
    if not reader.reads_text and len(read.tokens) > max_tokens:
        raise _too_many(loaded, len(read.tokens), max_tokens)
    if text_ids is not None:
        ids[_TEXT] = text_ids
        if (length := text_ids.shape[1]) > max_tokens:
            raise _too_many(loaded, length, max_tokens)
        if (count := text_ids.tolist()[0].count(reader.token_id)) != len(read.in_text):
            raise ConfigError(
                f"The text of {loaded.name} should have {len(read.in_text)} image tokens, and its processor makes {count}: "
                "check patch_size, num_additional_image_tokens and vision_feature_select_strategy in its processor_config.json."
            )
    elif reader.reads_text:
        padding = "max_length" if reader.pads_text else False
        length = len(loaded.tokenizer(text, verbose=False)[_TEXT])
        truncated += [("text", length)] if length > max_tokens else []
        ids[_TEXT] = loaded.tokenizer(
            text, return_tensors="pt", padding=padding, truncation=True, max_length=max_tokens
        )[_TEXT]
    return MediumInputs(ids, read, reader), truncated, notes


def _read(
    loaded: LoadedModel, reader: PictureReader, pictures: Sequence[RawPicture], text: str, max_tokens: int
) -> tuple[ReadInput, Tensor | None]:
    """The pictures as the model reads them, and the ids of the text if it reads them in it."""
    try:
        n_at_least = sum(map(reader.count_in_advance, pictures)) // reader.n_merged**2
        if n_at_least > max_tokens:
            raise _too_many(loaded, n_at_least, max_tokens)
        return reader.read(pictures, text, loaded.tokenizer)
    except AttentionError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        message = " ".join(str(error).split())[:150]
        raise ModelError(
            f"The processor of {loaded.name} should read this picture, and fails with “{message}”: check its preprocessor_config.json."
        ) from error


def _with_image_tokens(loaded: LoadedModel, reader: PictureReader, text: str, n_pictures: int) -> tuple[str, list[str]]:
    """The text with an image token for each picture, and a sentence if they were not there."""
    token, place = reader.image_token(loaded.tokenizer), reader.place_of_picture(loaded.tokenizer)
    count = text.count(token)
    if count == n_pictures:
        return text, []
    if count:
        raise TextError(
            f"The text for {loaded.name} has {count} {'place' if count == 1 else 'places'} for a picture ({token}), "
            f"and {n_pictures} {'is' if n_pictures == 1 else 'are'} given: write {place} once for each picture, or nowhere."
        )
    stands, it = ("picture stands", "it") if n_pictures == 1 else ("pictures stand", "each of them")
    note = f"The {stands} before the text, which has no {place} in it: write {place} where {it} should stand."
    return f"{place}\n" * n_pictures + text, [note]


def _too_many(loaded: LoadedModel, length: int, max_tokens: int) -> ConfigError:
    return ConfigError(
        f"At most {max_tokens:,} tokens are read here; {loaded.name} makes {length:,} of this picture"
        f"{' and its text' if loaded.reader and loaded.reader.reads_text else ''}, and a picture cannot be cut: "
        "choose a model with larger patches, or raise max_tokens."
    )
