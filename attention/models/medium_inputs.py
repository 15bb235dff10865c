"""The input of a model that reads another medium than text, and a text where it reads both; and the errors for models that are not read."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from inspect import signature
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attention.base.errors import ModelError
from attention.media import DECODER_TEXT, InputReader, Medium, media
from attention.models.text_inputs import Sides, TextInputs
from attention.models.token_pieces import readable_tokens

_TEXT = "input_ids"
_TEXTS = (_TEXT, DECODER_TEXT)
_WORDS = {
    **dict.fromkeys(("pixel_values", "flattened_patches", "pixel_mask"), "pictures"),
    **dict.fromkeys(("pixel_values_videos", "video_values"), "videos"),
    **dict.fromkeys(("input_features", "input_values", "audio_mel", "audio_codes", "spectrogram"), "sounds"),
}
"""What models read, by the main input of a transformers model."""


class ReadInput(NamedTuple):
    """An input of a medium as a model reads it.

    Attributes:
        arguments: of the model for it: its numbers, and the sizes that the model must know.
        seen: what the model saw, each with a `digest`.
        tokens: of the part of the model that reads it, by position.
        in_text: those that stand in a text, in its order.
        lengths: of the sequences of that part, each of which sees itself only.
        n_in_text: how many tokens each of the given inputs has in the text.
        sides: the queries and keys of layers that read others than `tokens` and the text, by the name of the layer or by its kind.
        notes: sentences for the user.
    """

    arguments: dict[str, Tensor]
    seen: tuple[Any, ...]
    tokens: tuple[str, ...]
    in_text: tuple[str, ...]
    lengths: tuple[int, ...]
    n_in_text: tuple[int, ...]
    sides: Mapping[str, Sides] = MappingProxyType({})
    notes: tuple[str, ...] = ()


class MediumInputs(TextInputs):
    """The numbers of the tokens [1 pos] by argument of the model: the positions in its input, and the ids of its text if it reads one.

    The model reads the numbers of `read` in place of these positions, as the `reader` says.
    """

    def __init__(self, ids: Mapping[str, Tensor], read: ReadInput, reader: InputReader) -> None:
        super().__init__(ids)
        self.read, self.reader = read, reader

    @property
    def token_ids(self) -> dict[str, Tensor]:
        """Those of the numbers that are ids of a vocabulary."""
        return {name: ids for name, ids in self.items() if name in _TEXTS}

    @property
    def arguments(self) -> dict[str, Tensor]:
        """The arguments of the model, for as many rows as the ids have."""
        n_rows = len(next(iter(self.values())))
        of_input = {
            name: tensor.expand(n_rows, *tensor.shape[1:]) if len(tensor) == 1 else torch.cat([tensor] * n_rows)
            for name, tensor in self.read.arguments.items()
        }
        types = {}
        if self.reader.token_id is not None and self.reader.types_argument:
            is_input = torch.isin(self[_TEXT], self.reader.token_id)
            is_input &= is_input.cumsum(-1) <= len(self.read.in_text)
            types = {self.reader.types_argument: is_input.long() * self.reader.token_type}
        return {**self, **of_input, **types}

    @property
    def key(self) -> Hashable:
        """What stands for the input in a key of the cache."""
        return super().key, tuple(seen.digest for seen in self.read.seen)

    def own_sides(self, layer: str) -> Sides | None:
        """As `ReadInput.sides`, which is asked for the name of a layer, then for its kind."""
        sides = self.read.sides
        return sides.get(layer) or sides.get(layer.partition(" ")[0])

    def _like(self, ids: Mapping[str, Tensor], _: Mapping[str, Tensor]) -> MediumInputs:
        return MediumInputs(ids, self.read, self.reader)

    def tokens(self, tokenizer: Any) -> list[tuple[str, ...]]:
        """The tokens of each argument; in a text, those of the input stand at their places."""
        texts = [self.read.tokens]
        for text in self.token_ids.values():
            ids, of_input = text[0].tolist(), iter(self.read.in_text)
            named = zip((id_ == self.reader.token_id for id_ in ids), readable_tokens(tokenizer, ids), strict=True)
            # A model may also generate the token that stands for the input, which is then a word.
            texts.append(tuple(next(of_input, name) if is_input else name for is_input, name in named))
        return texts

    def names_after(self, output: Any) -> Mapping[str, str]:
        """As `InputReader.names_after`."""
        return self.reader.names_after(self.read, output)


def no_text_error(name: str, model: Any) -> ModelError | None:
    """The error for a model whose main input is no text; None for a model of texts."""
    arguments = signature(model.forward).parameters
    argument = getattr(model, "main_input_name", _TEXT)
    if argument == _TEXT and _TEXT not in arguments:  # its family does not say
        argument = next((each for each in arguments if each in _WORDS), _TEXT)
    if argument == _TEXT or not isinstance(argument, str):
        return None
    what = _WORDS.get(argument, f"{argument} instead of tokens")
    if what == "pictures" and getattr(
        model.config, "num_frames", None
    ):  # as TimeSformer, whose argument has the name of pictures
        what = "videos"
    for medium in media():
        if what == medium.name:
            return no_family_error(medium, name, model)
    return ModelError(
        f"The Lab reads models of texts, and {name} reads {what}: choose a language model, such as GPT-2, Llama or BERT."
    )


def unread_medium(model: Any, field: str = "") -> Medium | None:
    """The medium, of any field of `Model` or of this one, that a model has an argument for; it need not be of a family that is read."""
    arguments = signature(model.forward).parameters
    return next((each for each in media() if each.argument in arguments and field in ("", each.field)), None)


def no_family_error(medium: Medium, name: str, model: Any) -> ModelError:
    """The error for a model of a medium whose family is not read, with those that are."""
    return ModelError(
        f"The Lab reads {medium.name} with models of the families {', '.join(sorted(medium.families))}; "
        f"{name} is a {model.config.model_type}: choose a model of these, or a language model, such as GPT-2, Llama or BERT."
    )
