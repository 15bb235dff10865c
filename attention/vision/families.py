"""The families of models that read a picture, each declared: which tokens come before its patches, and how a picture enters a text.

What a model reads must be given: a text, a picture or both; others are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from attention.base.errors import ConfigError, MissingError, ModelError, TextError

CLS, _DISTILLATION = "[CLS]", "[distillation]"
PICTURES = "pixel_values"
"""The argument of a model for its pictures."""
TOKEN_TYPES = "mm_token_type_ids"
"""The argument of a model that must know which tokens of its text are those of a picture."""


def _registers(config: Any) -> tuple[str, ...]:
    return (CLS, *(f"[register {index}]" for index in range(config.num_register_tokens)))


FIRST_TOKENS: dict[str, Callable[[Any], tuple[str, ...]]] = {
    "vit": lambda _: (CLS,),
    "vit_msn": lambda _: (CLS,),
    "deit": lambda _: (CLS, _DISTILLATION),
    "dinov2": lambda _: (CLS,),
    "dinov2_with_registers": _registers,
    "dinov3_vit": _registers,
    "ijepa": lambda _: (),
    "clip_vision_model": lambda _: (CLS,),
    "siglip_vision_model": lambda _: (),
    "internvl_vision": lambda _: (CLS,),
    "qwen2_vl_vision": lambda _: (),
    "qwen2_5_vl_vision": lambda _: (),
    "qwen3_vl_vision": lambda _: (),
}
"""By `model_type` of a vision transformer: the names of its tokens before the patches, which follow row by row, from its config."""
GRID, TILES, VIEWS, MERGED = "grid", "tiles", "views", "merged"
IN_TEXT = {
    "llava": GRID,
    "llava_next": TILES,
    "internvl": VIEWS,
    "qwen2_vl": MERGED,
    "qwen2_5_vl": MERGED,
    "qwen3_vl": MERGED,
}
"""Language models that read the tokens of pictures at the places of an image token in their text, by `model_type`; how the tokens of a
picture are laid out, one of the four above."""
TWO_TOWERS = frozenset({"clip", "siglip"})
"""Models that read a picture and a text side by side, by `model_type`."""
PADDED_TEXTS = frozenset({"siglip"})
"""Models whose texts are padded to their full length, as they were in training: no mask hides the padding."""
_TEXT = "input_ids"
_WORDS = {
    **dict.fromkeys((PICTURES, "flattened_patches", "pixel_mask"), "pictures"),
    **dict.fromkeys(("pixel_values_videos", "video_values"), "videos"),
    **dict.fromkeys(("input_features", "input_values", "audio_mel", "audio_codes", "spectrogram"), "sound"),
}
"""By the main input of a transformers model."""


def vision_config(model: Any) -> Any | None:
    """The config of the vision transformer of a model that reads pictures, if its family is declared here; otherwise None."""
    if PICTURES not in signature(model.forward).parameters:
        return None
    config = model.config
    if config.model_type in FIRST_TOKENS:
        return config
    tower = getattr(config, "vision_config", None)
    is_known = config.model_type in IN_TEXT or config.model_type in TWO_TOWERS or not reads_text(model)
    return tower if is_known and getattr(tower, "model_type", "") in FIRST_TOKENS else None


def reads_text(model: Any) -> bool:
    """Whether a model reads a text."""
    return _TEXT in signature(model.forward).parameters


def patch_size(config: Any) -> tuple[int, int]:
    """The height and width of a patch in pixels."""
    size = config.patch_size
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return int(height), int(width)


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


def check_input(loaded: Any, text: str, has_picture: bool, has_ids: bool) -> None:
    """Check that a `LoadedModel`, which imports this module, gets what it reads.

    Raises:
        ConfigError: a picture for a model of texts, or no picture for a model that reads one.
        ModelError: a picture for a model of pictures whose family is not read.
        TextError: no text for a model that reads one.
    """
    reader = loaded.pictures
    if reader is None and has_picture:
        if PICTURES in signature(loaded.model.forward).parameters:
            raise no_family_error(loaded.name, loaded.model)
        raise ConfigError(
            f"{loaded.name} reads no pictures: leave image= out, or choose a model that reads them, such as a ViT or CLIP."
        )
    if reader is None:
        return
    if not has_picture:
        both = "a picture and a text: give both, as text= and image="
        what = both if reader.reads_text else "a picture: give it as image="
        raise ConfigError(f"{loaded.name} reads {what} (a PNG, JPEG or WebP file).")
    if has_ids:
        raise ConfigError(
            f"The text of {loaded.name} is given as text=, since its processor places the picture in it; got token ids or a second text: "
            "give text= and image= alone."
        )
    if not reader.reads_text and text.strip():
        raise ConfigError(f"{loaded.name} reads a picture and no text; got both: leave text= out.")
    if reader.reads_text and not text.strip():
        raise TextError(f"{loaded.name} reads a picture and a text; got no text: type one, or give it as text=.")


def check_text_only(loaded: Any, what: str) -> None:
    """Check that a `LoadedModel` reads nothing but texts.

    Raises:
        MissingError: it reads a picture.
    """
    if loaded.pictures is not None:
        raise MissingError(
            f"{what} is computed for models of texts, and {loaded.name} reads a picture: choose a language model."
        )
