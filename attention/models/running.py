"""A loaded model reads a text: the ids of its tokens, and one forward pass."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from attention.errors import AttentionError, ModelError
from attention.models.loaded import Loaded

ATTENTIONS = {
    "layer": "attentions",
    "encoder": "encoder_attentions",
    "decoder": "decoder_attentions",
    "cross": "cross_attentions",
}
"""What transformers calls the weights of each kind of layer."""


def inputs(loaded: Loaded, text: str, text2: str, most: int) -> tuple[dict[str, Tensor], list[tuple[str, int]]]:
    """What a forward pass takes, the ids of the tokens, `most` of each text; and which texts were cut, with their lengths.

    With an encoder and a decoder the second text begins with the token that starts the decoder.
    """
    texts = {"input_ids": text} | ({"decoder_input_ids": text2} if loaded.two_texts else {})
    made: dict[str, Tensor] = {}
    cut: list[tuple[str, int]] = []
    for name, words in texts.items():
        ids = loaded.tokenizer(words or "a", return_tensors="pt", truncation=False, verbose=False)["input_ids"]
        first = torch.tensor([[_start(loaded.model)]]) if name == "decoder_input_ids" else ids[:, :0]
        if not words.strip():
            ids = ids[:, :0]
        elif ids.shape[1] + first.shape[1] > most:
            cut.append(("second text" if made else "text", ids.shape[1] + first.shape[1]))
            ids = loaded.tokenizer(words, return_tensors="pt", truncation=True, max_length=most - first.shape[1])[
                "input_ids"
            ]
        made[name] = torch.cat([first, ids], dim=1)
    return made, cut


def weights(found: Any, given: dict[str, Tensor]) -> list[tuple[str, Tensor]]:
    """The attention weights that a forward pass gave which was asked for them, by the name of the layer: [head query_pos key_pos].

    Empty where it gives none, or of another shape, such as blocks.
    """
    there = []
    lengths = {ids.shape[1] for ids in given.values()}
    for kind, name in ATTENTIONS.items():
        for i, one in enumerate(found.get(name) or ()):
            if isinstance(one, Tensor) and one.ndim == 4 and {*one.shape[2:]} <= lengths:
                there.append((f"{kind} {i}", one[0].detach()))
    return there


def run(loaded: Loaded, given: dict[str, Tensor], **more: Any) -> Any:
    """One forward pass; nothing is learned, nothing is kept for the next token. Passes of one model run one after the other."""
    hush()
    with torch.no_grad(), loaded.lock.hold():
        if hasattr(loaded.model.config, "use_cache"):
            more["use_cache"] = False
        try:
            return loaded.model(**given, **more)
        except AttentionError:  # said by who changes it meanwhile
            raise
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            said = " ".join(str(error).split())[:150]
            raise ModelError(
                f"{loaded.name} should read tokens and nothing else, and says “{said}”: choose a model of texts."
            ) from error


def hush() -> None:
    """Keeps what transformers warns of out of a terminal; for good, since threads that come and go share what is ignored."""
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # of transformers
    warnings.filterwarnings(
        "ignore", module=r"(transformers|torch|attention\.models)\b"
    )  # the same once more does nothing


def _start(model: Any) -> int:
    config = model.config
    found = (getattr(config, name, None) for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"))
    return next((one for one in found if one is not None), 0)
