"""The input of a model that reads a picture, and a text where it reads both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attention.errors import ConfigError, TextError
from attention.models.token_pieces import readable_tokens
from attention.models.vision_families import PICTURES

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

    from attention.models.loaded import LoadedModel
    from attention.models.picture_reader import PictureReader, ReadPicture

_TEXT = "input_ids"
PICTURE_FIRST = "The picture stands before the text, which has no {token} in it: write {token} where it should stand."


class PictureInputs(dict[str, Tensor]):
    """The numbers of the tokens [1 pos] by argument of the model: the positions in its picture, and the ids of its text if it reads one.

    Attributes:
        picture: the picture, whose pixels the model reads in place of the positions.
    """

    def __init__(self, ids: Mapping[str, Tensor], picture: ReadPicture) -> None:
        super().__init__(ids)
        self.picture = picture

    @property
    def arguments(self) -> dict[str, Tensor]:
        """The arguments of the model, for as many rows as the ids have."""
        n_rows = len(self[PICTURES])
        return {**self, PICTURES: self.picture.pixels.expand(n_rows, -1, -1, -1)}

    def repeated(self, n_rows: int) -> PictureInputs:
        """The same for a batch of equal texts and pictures."""
        return PictureInputs({name: ids.expand(n_rows, -1) for name, ids in self.items()}, self.picture)

    def tokens(self, reader: PictureReader, tokenizer: Any) -> list[tuple[str, ...]]:
        """The tokens of each argument; in a text, the tokens of the picture stand at their places."""
        texts = [self.picture.tokens]
        if _TEXT in self:
            ids = self[_TEXT][0].tolist()
            of_picture = iter(self.picture.tokens[reader.n_left_out :])
            is_picture = [token_id == reader.image_token_id for token_id in ids]
            names = zip(is_picture, readable_tokens(tokenizer, ids), strict=True)
            texts.append(tuple(next(of_picture) if is_patch else name for is_patch, name in names))
        return texts


def repeated(model_inputs: Mapping[str, Tensor], n_rows: int) -> dict[str, Tensor]:
    """The inputs of a batch of equal texts."""
    if isinstance(model_inputs, PictureInputs):
        return model_inputs.repeated(n_rows)
    return {name: ids.expand(n_rows, -1) for name, ids in model_inputs.items()}


def picture_inputs(
    loaded: LoadedModel, rgb: NDArray[uint8], digest: str, text: str, max_tokens: int
) -> tuple[PictureInputs, list[tuple[str, int]], list[str]]:
    """The input of one picture [row column 3] and its text; the truncated texts, as for a model of texts; and sentences for the user.

    Raises:
        ConfigError: the picture has more tokens than are read; they cannot be cut.
        TextError: the text is empty, or has more than one place for the picture.
    """
    reader = loaded.pictures
    assert reader is not None  # the caller has checked it
    picture = reader.read(rgb, digest)
    ids = {PICTURES: torch.arange(len(picture.tokens))[None]}
    truncated: list[tuple[str, int]] = []
    notes: list[str] = []
    if len(picture.tokens) > max_tokens and reader.image_token_id is None and not reader.reads_text:
        raise _too_many(loaded, len(picture.tokens), max_tokens)
    if reader.image_token_id is not None:
        text, notes = _with_image_token(loaded, reader, text)
        ids[_TEXT] = reader.expanded_ids(text, rgb)
        if (length := ids[_TEXT].shape[1]) > max_tokens:
            raise _too_many(loaded, length, max_tokens)
        if (count := int((ids[_TEXT] == reader.image_token_id).sum())) != len(picture.tokens) - reader.n_left_out:
            raise ConfigError(
                f"The text of {loaded.name} should have {len(picture.tokens) - reader.n_left_out} image tokens, and its processor makes {count}: "
                "check patch_size, num_additional_image_tokens and vision_feature_select_strategy in its processor_config.json."
            )
    elif reader.reads_text:
        padding = "max_length" if reader.pads_text else False
        length = len(loaded.tokenizer(text, verbose=False)[_TEXT])
        truncated += [("text", length)] if length > max_tokens else []
        ids[_TEXT] = loaded.tokenizer(
            text, return_tensors="pt", padding=padding, truncation=True, max_length=max_tokens
        )[_TEXT]
    return PictureInputs(ids, picture), truncated, notes


def _with_image_token(loaded: LoadedModel, reader: PictureReader, text: str) -> tuple[str, list[str]]:
    """The text with one image token, and a sentence if it was not there."""
    token = str(reader.processor.image_token)
    if (count := text.count(token)) > 1:
        raise TextError(
            f"The Lab reads one picture at a time; the text for {loaded.name} has {count} places for one ({token}): leave one of them."
        )
    return (text, []) if count else (f"{token}\n{text}", [PICTURE_FIRST.format(token=token)])


def _too_many(loaded: LoadedModel, length: int, max_tokens: int) -> ConfigError:
    return ConfigError(
        f"At most {max_tokens:,} tokens are read here; {loaded.name} makes {length:,} of this picture"
        f"{' and its text' if loaded.pictures and loaded.pictures.reads_text else ''}, and a picture cannot be cut: "
        "choose a model with larger patches, or raise max_tokens."
    )
