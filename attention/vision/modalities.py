"""What a model reads: a text, a picture or both, which must be given; others are refused."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

from attention.base.errors import ConfigError, MissingError, ModelError, TextError
from attention.vision.families import FIRST_TOKENS, IN_TEXT, PICTURES, TWO_TOWERS

if TYPE_CHECKING:
    from attention.models.loaded import LoadedModel

_TEXT = "input_ids"
_SOUND = "sound"
_WORDS = {
    PICTURES: "pictures",
    "flattened_patches": "pictures",
    "pixel_mask": "pictures",
    "pixel_values_videos": "videos",
    "video_values": "videos",
    "input_features": _SOUND,
    "input_values": _SOUND,
    "audio_mel": _SOUND,
    "audio_codes": _SOUND,
    "spectrogram": _SOUND,
}
"""By the main input of a transformers model."""


def no_text_error(name: str, model: Any) -> ModelError | None:
    """The error for a model whose main input is no text; None for a model of texts."""
    arguments = signature(model.forward).parameters
    argument = getattr(model, "main_input_name", _TEXT)
    if argument == _TEXT and _TEXT not in arguments:  # its family does not say
        argument = next((each for each in arguments if each in _WORDS), _TEXT)
    if argument == _TEXT or not isinstance(argument, str):
        return None
    what = _WORDS.get(argument, f"{argument} instead of tokens")
    if what == "pictures":
        return no_family_error(name, model)
    return ModelError(
        f"The Lab reads models of texts, and {name} reads {what}: choose a language model, such as GPT-2, Llama or BERT."
    )


def no_family_error(name: str, model: Any) -> ModelError:
    """The error for a model of pictures whose family is not read, with those that are."""
    families = ", ".join(sorted((*FIRST_TOKENS, *TWO_TOWERS, *IN_TEXT)))
    return ModelError(
        f"The Lab reads pictures with models of the families {families}; "
        f"{name} is a {model.config.model_type}: choose a model of these, or a language model, such as GPT-2, Llama or BERT."
    )


def check_input(loaded: LoadedModel, text: str, has_picture: bool, has_ids: bool) -> None:
    """Check that a model gets what it reads.

    Raises:
        ConfigError: a picture for a model of texts, or no picture for a model that reads one.
        ModelError: a picture for a model of pictures whose family is not read.
        TextError: no text for a model that reads one.
    """
    reader = loaded.pictures
    if reader is None and has_picture and PICTURES in signature(loaded.model.forward).parameters:
        raise no_family_error(loaded.name, loaded.model)
    if reader is None and has_picture:
        raise ConfigError(
            f"{loaded.name} reads no pictures: leave image= out, or choose a model that reads them, such as a ViT or CLIP."
        )
    if reader is not None and not has_picture:
        what = (
            "a picture and a text: give both, as text= and image="
            if reader.reads_text
            else "a picture: give it as image="
        )
        raise ConfigError(f"{loaded.name} reads {what} (a PNG, JPEG or WebP file).")
    if reader is not None and has_ids:
        raise ConfigError(
            f"The text of {loaded.name} is given as text=, since its processor places the picture in it; got token ids or a second text: "
            "give text= and image= alone."
        )
    if reader is not None and not reader.reads_text and text.strip():
        raise ConfigError(f"{loaded.name} reads a picture and no text; got both: leave text= out.")
    if reader is not None and reader.reads_text and not text.strip():
        raise TextError(f"{loaded.name} reads a picture and a text; got no text: type one, or give it as text=.")


def check_text_only(loaded: LoadedModel, what: str) -> None:
    """Check that a model reads nothing but texts.

    Raises:
        MissingError: it reads a picture.
    """
    if loaded.pictures is not None:
        raise MissingError(
            f"{what} is computed for models of texts, and {loaded.name} reads a picture: choose a language model."
        )
