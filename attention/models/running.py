"""One forward pass of a loaded model: from text to token ids, and from token ids to the model's output."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from attention.base.errors import AttentionError, ModelError
from attention.models.loaded import LoadedModel
from attention.models.text_inputs import (
    BESIDE,
    POSITIONS,
    TYPES,
    TextInputs,
    count_positions,
    count_types,
    encode_pair,
    joins_pairs,
    pair_of,
    split_at_separators,
)
from attention.vision.families import PICTURES, no_family_error, no_text_error
from attention.vision.packed_sequences import packed
from attention.vision.picture_inputs import PictureInputs, picture_inputs

_PROBE = (
    "a b c d"  # the text that every model is tried with: several words, since a rotation does not change position 0
)
_PROBE_TOKENS = 8
_PROBE_SIDE = 64  # pixels
PAIR = "pair of texts"
"""The name of two texts that a model reads together."""
ATTENTIONS = {
    "layer": "attentions",
    "encoder": "encoder_attentions",
    "decoder": "decoder_attentions",
    "cross": "cross_attentions",
}
"""The output field of transformers with the weights of each kind of layer."""


def tokenize_inputs(
    loaded: LoadedModel, text: str, text2: str, max_tokens: int
) -> tuple[TextInputs, list[tuple[str, int]]]:
    """The input ids [1 pos] of a forward pass by argument name, at most `max_tokens` of each text, or of a pair; and the truncated texts.

    A truncated text is its name ("text", "second text", `PAIR`) with its full length. In an encoder-decoder model the second text begins
    with the token that starts the decoder; an encoder that tells two texts apart reads both as a pair.
    """
    if text2.strip() and text.strip() and joins_pairs(loaded):
        pair, length = encode_pair(loaded, text, text2, max_tokens)
        return pair, [(PAIR, length)] if length > max_tokens else []
    texts = {"input_ids": text} | ({"decoder_input_ids": text2} if loaded.is_encoder_decoder else {})
    model_inputs: dict[str, Tensor] = {}
    truncated: list[tuple[str, int]] = []
    for name, content in texts.items():
        ids = loaded.tokenizer(content or "a", return_tensors="pt", truncation=False, verbose=False)["input_ids"]
        start = torch.tensor([[_start_id(loaded.model)]]) if name == "decoder_input_ids" else ids[:, :0]
        if not content.strip():
            ids = ids[:, :0]
        elif ids.shape[1] + start.shape[1] > max_tokens:
            truncated.append(("second text" if model_inputs else "text", ids.shape[1] + start.shape[1]))
            max_length = max_tokens - start.shape[1]
            ids = loaded.tokenizer(content, return_tensors="pt", truncation=True, max_length=max_length)["input_ids"]
        model_inputs[name] = torch.cat([start, ids], dim=1)
    return TextInputs(model_inputs, texts=(*texts.values(),)), truncated


def probe_inputs(loaded: LoadedModel) -> TextInputs:
    """The input that every model is tried with: a short text, or a drawn picture, or both."""
    if loaded.pictures is None:
        return tokenize_inputs(loaded, _PROBE, _PROBE, _PROBE_TOKENS)[0]
    import numpy as np

    from attention.vision.reader import RawPicture

    rows, columns = np.indices((_PROBE_SIDE // 2, _PROBE_SIDE), dtype=np.uint8)  # two tiles are fewer than four
    picture = np.stack([rows * 4, columns * 4, rows * columns], axis=-1)  # every patch is another
    max_tokens = loaded.max_length or 2**20
    text, limit = (_PROBE, max_tokens) if loaded.pictures.reads_text else ("", 2**20)
    return picture_inputs(loaded, [RawPicture(picture, "")], text, limit)[0]


def cut_ids(
    loaded: LoadedModel, input_ids: tuple[tuple[str, tuple[int, ...]], ...], max_tokens: int
) -> tuple[TextInputs, list[tuple[str, int]]]:
    """The same as `tokenize_inputs` for token ids by argument name, and what stands beside them; a decoder without ids gets the token that starts it."""
    ids = {name: row for name, row in input_ids if name not in BESIDE}
    beside = {name: torch.tensor([row[:max_tokens]]) for name, row in input_ids if name in BESIDE}
    if loaded.is_encoder_decoder:
        ids.setdefault("decoder_input_ids", (_start_id(loaded.model),))
    whose = dict(zip(ids, ("text", "second text"), strict=False))
    truncated = [(whose[name], len(row)) for name, row in ids.items() if len(row) > max_tokens]
    rows = {name: torch.tensor([row[:max_tokens]]) for name, row in ids.items()}
    first, texts = rows["input_ids"][0].tolist(), list[int]()
    if TYPES in beside:
        texts = beside[TYPES][0].tolist()
    elif joins_pairs(loaded):
        texts = split_at_separators(loaded.tokenizer, first)
    pair = pair_of(loaded.tokenizer, first, texts)
    return TextInputs(rows, beside, pair), truncated


def run(loaded: LoadedModel, model_inputs: Mapping[str, Tensor], *, gradients: bool = False, **kwargs: Any) -> Any:
    """The output of one forward pass, without key-value cache; a model runs one pass at a time.

    Args:
        loaded: the model.
        model_inputs: the ids of its texts.
        gradients: whether the pass is differentiated with respect to activations (never to weights). The caller holds the lock of
            the model until the backward pass has ended.
        kwargs: further arguments of the model.

    Raises:
        ModelError: the model does not read such ids.
    """
    check_ids(loaded, model_inputs)
    sequences: AbstractContextManager[None] = nullcontext()
    if isinstance(model_inputs, PictureInputs):
        sequences = packed(loaded.model, len(model_inputs[PICTURES]), model_inputs.pictures.lengths)
    with torch.set_grad_enabled(gradients), loaded.session(), _frozen_weights(loaded.model), sequences:
        silence_warnings()
        if hasattr(loaded.model.config, "use_cache"):
            kwargs["use_cache"] = False
        try:
            return loaded.model(**place_ids(loaded, model_inputs), **kwargs)
        except AttentionError:  # raised by our own patches
            raise
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            if loaded.pictures is None and (no_text := no_text_error(loaded.name, loaded.model)):
                raise no_text from error
            message = " ".join(str(error).split())[:150]
            if loaded.pictures is not None:
                raise ModelError(
                    f"{loaded.name} should read what its own processor makes of a picture, and fails with “{message}”: check its preprocessor_config.json."
                ) from error
            if PICTURES in signature(loaded.model.forward).parameters:
                raise no_family_error(loaded.name, loaded.model) from error
            raise ModelError(
                f"{loaded.name} should read tokens and nothing else, and fails with “{message}”: try it alone, as model(**tokenizer(text, return_tensors='pt')), "
                "or choose a model of texts."
            ) from error


@contextmanager
def _frozen_weights(model: Any) -> Iterator[None]:
    """A context in which no gradient of the weights is computed; afterwards each weight requires its gradient as before."""
    weights = [weight for weight in model.parameters() if weight.requires_grad] if torch.is_grad_enabled() else []
    try:
        for weight in weights:
            weight.requires_grad_(False)
        yield
    finally:
        for weight in weights:
            weight.requires_grad_(True)


def place_ids(loaded: LoadedModel, model_inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The arguments of the model on its device: the token ids, and pixels in the dtype of the model."""
    arguments = model_inputs.arguments if isinstance(model_inputs, TextInputs) else model_inputs
    placed = {name: tensor.to(loaded.device) for name, tensor in arguments.items()}
    return placed | {PICTURES: placed[PICTURES].to(loaded.model.dtype)} if PICTURES in placed else placed


def check_ids(loaded: LoadedModel, model_inputs: Mapping[str, Tensor]) -> None:
    """Check that the model has all token ids, before it runs: a GPU does not recover from one that it lacks.

    Raises:
        ModelError: it lacks one.
    """
    sizes = {TYPES: count_types(loaded.model), POSITIONS: count_positions(loaded.model)}
    for name, numbers in model_inputs.beside.items() if isinstance(model_inputs, TextInputs) else ():
        if (size := sizes.get(name, 0)) and bool(((numbers < 0) | (numbers >= size)).any()):
            wrong_number = int(numbers[(numbers < 0) | (numbers >= size)][0])
            raise ModelError(
                f"The {name} of {loaded.name} are from 0 to {size - 1:,}; got {wrong_number:,}: give those that the model's own tokenizer makes."
            )
    table = getattr(loaded.input_embeddings, "weight", None)
    n_rows = len(table) if isinstance(table, Tensor) and table.ndim == 2 and table.is_floating_point() else None
    for name, ids in model_inputs.items():
        if name == PICTURES:
            continue
        wrong = ids[(ids < 0) | (ids >= n_rows)] if n_rows is not None else ids[ids < 0]
        if len(wrong):
            raise ModelError(
                f"The token ids of {loaded.name} are from 0 to {(n_rows or 1) - 1:,}; got {int(wrong[0]):,}: "
                "give the tokenizer that belongs to the model, and ids that it made."
            )


def silence_warnings() -> None:
    """Silence the warnings of transformers; permanently, since the warning filters are shared by all threads."""
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # transformers has no annotation
    warnings.filterwarnings("ignore", module=r"(transformers|torch|attention\.models)\b")  # idempotent


def _start_id(model: Any) -> int:
    """The id of the token that starts the decoder."""
    config = model.config
    ids = (getattr(config, name, None) for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"))
    return next((token_id for token_id in ids if token_id is not None), 0)
