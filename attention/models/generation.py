"""Text that the model generates, token by token: the likeliest each time, or sampled with a seed.

Other threads that run the same model get their turn between two tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from attention.base.cache import CACHE
from attention.base.errors import ModelError
from attention.base.progress import current_callback
from attention.models.loaded import FairLock, LoadedModel
from attention.models.running import place_ids, silence_warnings
from attention.models.text_inputs import TextInputs
from attention.vision.picture_inputs import PictureInputs


def generate(
    loaded: LoadedModel,
    model_inputs: TextInputs,
    max_new_tokens: int,
    temperature: float = 0,
    seed: int = 0,
    patched: tuple[Hashable, Callable[[TextInputs], Tensor]] | None = None,
) -> TextInputs:
    """The input ids followed by up to `max_new_tokens` generated ones; the model may end the text earlier.

    Args:
        loaded: a model that can generate text.
        model_inputs: the ids that it reads.
        max_new_tokens: the largest number of generated tokens.
        temperature: 0: the likeliest token each time, as in the `generate` of transformers; otherwise sampled from the softmax of
            the logits divided by the temperature.
        seed: of the samples.
        patched: for a patched model, a cache key and a function from ids to the logits [vocabulary] of the next token. The whole
            text then runs again for each token, since a patch may affect earlier positions.

    Raises:
        ModelError: the model has no head that generates tokens.
    """
    if not loaded.model.can_generate():
        raise ModelError(f"The decoder of {loaded.name} generates no words: type a second text for it to read.")
    name = [*model_inputs][-1]
    pictures = [seen.digest for seen in model_inputs.pictures.seen] if isinstance(model_inputs, PictureInputs) else []
    key = (
        "generated",
        loaded.uid,
        model_inputs.key,
        *pictures,
        max_new_tokens,
        temperature,
        seed,
        patched and patched[0],
    )
    sampler = _GumbelSampler(temperature, seed) if temperature else None

    def generate() -> Tensor:
        placed = place_ids(loaded, model_inputs)
        processors: list[Any] = [_PauseBetweenTokens(loaded.lock, max_new_tokens), *([sampler] if sampler else [])]
        with torch.no_grad(), loaded.session():
            silence_warnings()
            output_ids: Tensor = loaded.model.generate(
                **{"attention_mask": torch.ones_like(placed["input_ids"])} | placed, max_new_tokens=max_new_tokens,
                do_sample=False, num_beams=1, logits_processor=processors,
            )  # fmt: skip
        return output_ids.cpu()

    def generate_patched() -> Tensor:
        assert patched is not None
        extended, end_ids = model_inputs, loaded.model.generation_config.eos_token_id
        for count in range(max_new_tokens):
            _report(count, max_new_tokens)
            logits = patched[1](extended)[None]
            token = (sampler(logits, logits) if sampler else logits).argmax(-1)
            extended = extended.with_ids(name, torch.cat([extended[name], token[None]], dim=-1))
            if int(token) in (end_ids if isinstance(end_ids, list) else [end_ids]):
                break
        return extended[name]

    return model_inputs.with_ids(name, CACHE.get_or_compute(key, generate_patched if patched else generate))


class _PauseBetweenTokens:
    """A logits processor that leaves the logits unchanged: between two tokens it releases the model and reports progress."""

    def __init__(self, lock: FairLock, max_new_tokens: int) -> None:
        self.lock, self.max_new_tokens, self.count = lock, max_new_tokens, 0

    def __call__(self, _: Tensor, scores: Tensor) -> Tensor:
        self.count += 1
        _report(self.count, self.max_new_tokens)
        self.lock.pause()
        return scores


def _report(count: int, max_new_tokens: int) -> None:
    """Forward progress to the current callback; it raises if nobody waits any more, which stops the generation."""
    if callback := current_callback():
        callback("Generating tokens …", count / max_new_tokens)


class _GumbelSampler:
    """A logits processor whose likeliest token is a sample from the softmax: it adds Gumbel noise to the logits.

    The noise has its own generator, so that no other random numbers change it. Noise is drawn token by token, so that the first
    tokens are the same however many are generated.

    Source: Gumbel 1954; Maddison et al. 2014, "A* Sampling", section 2.
    """

    def __init__(self, temperature: float, seed: int) -> None:
        self.temperature = temperature
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, _: Tensor, scores: Tensor) -> Tensor:
        uniform = torch.rand(scores.shape, generator=self.generator, dtype=torch.float64).clamp(1e-300, 1 - 2**-53)
        noisy = scores.cpu().double() / self.temperature - (-uniform.log()).log()
        return noisy.to(scores.device)
