"""Text that a model says itself, token by token: the likeliest each time, or drawn by a seed of its own.

Others who run the same model have their turn between two tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from torch import Tensor

from attention.errors import ModelError
from attention.formula.kept import KEPT
from attention.models.fair_lock import FairLock
from attention.models.loaded import Loaded
from attention.models.running import hush
from attention.progress import telling


def continued(
    loaded: Loaded,
    given: Mapping[str, Tensor],
    more: int,
    temperature: float = 0,
    seed: int = 0,
    changed: tuple[Hashable, Callable[[dict[str, Tensor]], Tensor]] | None = None,
) -> dict[str, Tensor]:
    """The ids with up to `more` that the model says itself after them; it may say before that the text has ended.

    Args:
        loaded: a model that says what comes next.
        given: what it reads.
        more: at most so many tokens.
        temperature: 0: the likeliest token each time, as transformers' own `generate`; otherwise drawn from the softmax of
            the logits divided by it.
        seed: of what is drawn.
        changed: where something in the model is changed, what, and what gives the logits [vocabulary] after some ids; the whole
            text then goes through it for each token, since a change may reach back.

    Raises:
        ModelError: it has no head that says tokens.
    """
    if not loaded.model.can_generate():
        raise ModelError(f"{loaded.name} has a decoder that says no words: type a second text for it to read.")
    name = [*given][-1]
    ids = tuple((key, tuple(one[0].tolist())) for key, one in given.items())
    key = ("generated", id(loaded), loaded.name, ids, more, temperature, seed, changed and changed[0])
    draw = _Drawn(temperature, seed) if temperature else None

    def say() -> Tensor:
        hush()
        processors: list[Any] = [_Between(loaded.lock, more), *([draw] if draw else [])]
        with torch.no_grad(), loaded.lock.hold():
            said: Tensor = loaded.model.generate(
                **given, attention_mask=torch.ones_like(given["input_ids"]), max_new_tokens=more, do_sample=False,
                num_beams=1, logits_processor=processors,
            )  # fmt: skip
        return said

    def say_changed() -> Tensor:
        assert changed is not None
        there, ends = {**given}, loaded.model.generation_config.eos_token_id
        for count in range(more):
            _tell(count, more)
            logits = changed[1](there)[None]
            token = (draw(logits, logits) if draw else logits).argmax(-1)
            there[name] = torch.cat([there[name], token[None]], dim=-1)
            if int(token) in (ends if isinstance(ends, list) else [ends]):
                break
        return there[name]

    return {**given, name: KEPT.once(key, say_changed if changed else say)}


class _Between:
    """A logits processor that changes nothing: between two tokens it lets others run the model, and tells how far it is."""

    def __init__(self, lock: FairLock, more: int) -> None:
        self.lock, self.more, self.count = lock, more, 0

    def __call__(self, _: Tensor, scores: Tensor) -> Tensor:
        self.count += 1
        _tell(self.count, self.more)
        self.lock.pause()
        return scores


def _tell(count: int, more: int) -> None:
    """Tells whoever waits; one who does not wait any more raises here, and the rest is not generated."""
    if tell := telling():
        tell("Generating tokens …", count / more)


class _Drawn:
    """Makes the likeliest token one that is drawn from the softmax: noise of a Gumbel distribution is added to the logits.

    Source: Gumbel 1954; Maddison et al. 2014, "A* Sampling", section 2. The noise has a generator of its own, so that nobody
    else's numbers change it, and each token has its own, so that fewer tokens are the beginning of more.
    """

    def __init__(self, temperature: float, seed: int) -> None:
        self.temperature = temperature
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, _: Tensor, scores: Tensor) -> Tensor:
        shares = torch.rand(scores.shape, generator=self.generator, dtype=torch.float64).clamp(1e-300, 1 - 2**-53)
        return scores.double() / self.temperature - (-shares.log()).log()
