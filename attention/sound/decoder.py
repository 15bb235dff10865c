"""The text that a decoder reads beside a sound: the tokens with which it begins, and the words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attention.base.errors import ModelError
from attention.models import running

if TYPE_CHECKING:
    from attention.models.loaded import LoadedModel


def decoder_ids(
    loaded: LoadedModel, sound: Mapping[str, Tensor], text: str, max_tokens: int
) -> tuple[Tensor, list[tuple[str, int]]]:
    """The ids [1 pos] that a decoder reads, at most `max_tokens`: those with which it begins, and those of the text; and the truncated texts.

    A text that itself begins with the first of these tokens, such as <|startoftranscript|><|de|><|translate|><|notimestamps|>, is read as it is. Without
    a text they are what a generated one continues.

    Args:
        loaded: an encoder-decoder model.
        sound: the arguments of the model for the sound, by which it may detect a language.
        text: of the decoder.
        max_tokens: of the decoder.
    """
    start = running.start_id(loaded.model)
    hears_language = hasattr(loaded.model, "detect_language")  # Whisper, whose words have the blank before them
    words = f" {text.strip()}" if hears_language and not text.lstrip().startswith("<|") else text
    ids = loaded.tokenizer(words, add_special_tokens=False, verbose=False)["input_ids"] if text.strip() else []
    if ids[:1] != [start]:
        begun = _begun(loaded, sound) if hears_language else [start]
        ids = [*begun, *ids]
    return torch.tensor([ids[:max_tokens]]), [("second text", len(ids))] if len(ids) > max_tokens else []


def _begun(loaded: LoadedModel, sound: Mapping[str, Tensor]) -> list[int]:
    """What Whisper begins with: <|startoftranscript|>, then language, task and <|notimestamps|> as its generation config has them, or as it hears them."""
    with torch.no_grad(), loaded.session():
        running.silence_warnings()
        try:
            output = loaded.model.generate(
                **running.on_device(loaded, sound), max_new_tokens=1, do_sample=False, num_beams=1,
                return_dict_in_generate=True, force_unique_generate_call=True,
            )  # fmt: skip
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            message = " ".join(str(error).split())[:150]
            raise ModelError(
                f"{loaded.name} should begin a text as its generation_config.json says, and fails with “{message}”: check that file, "
                "or give the whole text of the decoder, from <|startoftranscript|>, as text2=."
            ) from error
    begun: list[int] = output.sequences[0, :-1].tolist()
    return begun
