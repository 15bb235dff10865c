"""The options of a real model: its name, its texts, the interventions on it, and its memory limit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from attention.core.override import Override
from attention.errors import ConfigError, ModelError
from attention.io.picture import Picture
from attention.patching.intervention import Intervention, as_interventions

if TYPE_CHECKING:
    from attention.models.in_memory import ModelHandle

MAX_PICTURES = 16
"""The largest number of pictures of one input."""


@dataclass(frozen=True)
class ModelOptions:
    """The fields of a `Model`.

    Attributes:
        name: a folder, a name from the operator's list, or a hub id.
        text: the input.
        text2: the input of the decoder of an encoder-decoder model; empty: the most likely tokens that the model generates, at most
            `MAX_NEW_TOKENS`.
        config: overrides of the formula of every layer in the trace; the model itself does not change.
        words: merge the subword tokens of a word: weights are summed over keys, averaged over queries.
        special: how special tokens such as [CLS] are shown, one of `attention.analysis.subwords.SPECIAL_TOKEN_MODES`.
        max_tokens: longer texts are cut there, or at the model's own limit, and the trace notes it.
        max_bytes: memory of all steps of all layers; more is refused before the model runs.
        generate: the number of tokens to generate after the text, at most `MAX_NEW_TOKENS`.
        generate_temperature: 0: greedy; otherwise tokens are sampled from the softmax of the logits divided by it.
        generate_seed: seed of the sampling; a shorter continuation is a prefix of a longer one with the same seed.
        prefix_len: how many of the generated tokens the model reads; None: all.
        predict: the positions of the predictions; empty: the end of the text, the position before each generated token, or each mask.
        interventions: the interventions on heads inside the model; later layers see their effect.
        frozen: frozen attention: the layers after the first intervention use the weights of the unchanged model and the values of the
            changed one.
        other: the other run of activation patching: the same model with a text of the same number of tokens.
        align: whether the text of `other` may have another number of tokens: corresponding tokens are then patched, and the others
            keep their values. Weights cannot be patched so.
        device: where torch runs a model of a folder, such as "cuda"; empty: the CPU. A model in memory stays where it is.
        handle: the model in memory that `Model.of` wraps, which has a name only for people; None: `name` is loaded.
        input_ids: the token ids of each argument of the model, if they are given instead of the texts.
        note: what happened to the ids before; shown with the trace.
        image: a picture for a model that reads one, also beside a text: the path or the bytes of a PNG, JPEG or WebP file, or an image
            of Pillow; kept as a `Picture`, which is compared by its digest. Several for a language model that reads pictures in its text:
            a list of these, kept as a tuple.
    """

    name: str
    text: str = ""
    text2: str = ""
    config: Override = Override()
    words: bool = False
    special: str = "show"
    max_tokens: int = 2048
    max_bytes: int = 2**33
    generate: int = 0
    generate_temperature: float = 0.0
    generate_seed: int = 0
    prefix_len: int | None = None
    predict: tuple[int, ...] = ()
    interventions: tuple[Intervention, ...] = ()
    frozen: bool = False
    other: ModelOptions | None = None
    device: str = ""
    handle: ModelHandle | None = None
    input_ids: tuple[tuple[str, tuple[int, ...]], ...] = ()
    note: str = ""
    align: bool = False
    image: Picture | tuple[Picture, ...] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.name, PathLike):
            object.__setattr__(self, "name", fspath(self.name))
        if not isinstance(self.name, str):
            raise ModelError(
                f"Model(folder, text) names the folder of a model; got a {type(self.name).__name__}: "
                "give a model that you have loaded as Model.of(model, tokenizer, text)."
            )
        for field in ("text", "text2"):
            if not isinstance(value := getattr(self, field), str):
                raise ConfigError(
                    f"{field} is one text; got a value of type {type(value).__name__}: give several as Model.of(model, tokenizer, texts=[…]), "
                    "or a Model for each."
                )
        object.__setattr__(self, "image", _read(self.image))
        object.__setattr__(self, "interventions", as_interventions(self.interventions))

    @property
    def key(self) -> tuple[object, ...]:
        """What stands for it in a key of the cache, which must hold neither a model in memory nor the files of pictures."""
        return replace(self, handle=None, image=None), tuple(picture.digest for picture in self.images)

    @property
    def images(self) -> tuple[Picture, ...]:
        """The pictures, in their order; empty without one."""
        if self.image is None:
            return ()
        return (self.image,) if isinstance(self.image, Picture) else self.image


def _read(image: Any) -> Picture | tuple[Picture, ...] | None:
    """The picture of a file or an image; of a list of these, all of them, or the only one.

    Raises:
        ConfigError: they are too many.
        FileError: one is no picture that can be read.
    """
    if image is None or isinstance(image, Picture):
        return image
    if not isinstance(image, list | tuple):
        return Picture.open(image) if isinstance(image, str | PathLike) else Picture.of(image)
    if not 0 < len(image) <= MAX_PICTURES:
        raise ConfigError(
            f"A model reads from 1 to {MAX_PICTURES} pictures at once; got {len(image)}: give fewer, or leave image= out for a model of texts."
        )
    first, *others = (_read(item) for item in image)
    if not isinstance(first, Picture) or not all(isinstance(other, Picture) for other in others):
        raise ConfigError(
            "image= is a picture or a list of pictures; got a list in a list, or nothing in one: give each picture once."
        )
    return (first, *others) if others else first  # type: ignore[arg-type]  # all are pictures
