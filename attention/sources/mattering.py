"""Which heads of a model matter for what it says of a text: each silenced in turn, in batches, and what each writes straight."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from attention.errors import ConfigError
from attention.formula import kept
from attention.numbers.mattering import Matters, Progress, Together
from attention.sources.model import Model

if TYPE_CHECKING:
    from torch import Tensor

    from attention.models.loaded import Loaded
    from attention.models.silencing import Asked

RANDOM = 16
"""How many times random heads are drawn for a comparison."""


def seconds(model: Model) -> float:
    """About how long `which` takes, counted before.

    Raises:
        ConfigError: it would be too long.
        AttentionError: as for `Model.trace`.
    """
    from attention.models import silencing

    loaded, given = _plain(model)
    return silencing.work(loaded, given, sum(site.n_heads for site in loaded.sites))


def which(
    model: Model,
    position: int | None = None,
    target: int | None = None,
    distractor: int | None = None,
    silence: str = "zero",
    also: tuple[tuple[int, int], ...] = (),
) -> Iterator[Progress]:
    """The change of a prediction with each head silenced in turn; whoever asks no further stops it between two batches.

    The model is taken as it is, without what is changed of it; `also` silences some heads all the while.

    Args:
        model: with a text.
        position: where the prediction is read; None: at the end of the text. Without a language-model head that of the vector
            whose cosine it is, None: the mean over all tokens.
        target: the id of a token; None: the likeliest.
        distractor: of another; then it is the logit difference of both.
        silence: "zero" or "mean".
        also: heads, as (layer, head).

    Yields:
        How far it is; last with what was found.

    Raises:
        ConfigError: there is no such head, or it would take too long.
    """
    import numpy as np

    from attention.models import attributing, intervening, silencing

    loaded, given = _plain(model)
    _check(loaded, also)
    places = intervening.order(loaded)
    n_heads = tuple(loaded.sites[places.index(at)].n_heads for at in range(len(places)))
    heads = [(layer, head) for layer, many in enumerate(n_heads) for head in range(many)]
    _ = silencing.work(loaded, given, len(heads))
    asked, what = _asked(loaded, given, position, target, distractor)
    key = ("matters", id(loaded), loaded.name, _ids(given), asked, silence, also)
    if (found := kept.KEPT.get(key)) is not None:
        yield Progress(len(heads), len(heads), 0, found)
        return
    change = np.full((len(n_heads), max(n_heads)), np.nan)
    straight, remainder = change.copy(), math.nan
    began, done, before = time.monotonic(), 0, math.nan
    yield Progress(0, len(heads), silencing.work(loaded, given, len(heads)))
    for batch in silencing.runs(loaded, given, [tuple({*also, one}) for one in heads], asked, silence, also):
        for before, after in batch:
            change[heads[done]] = after - before
            done += 1
        left = (time.monotonic() - began) / done * (len(heads) - done)
        yield Progress(done, len(heads), left)
    written = attributing.direct(loaded, given, asked)
    if written is not None:
        for layer, parts in written[0].items():
            straight[layer, : len(parts)] = parts.numpy()
        remainder = written[1]
    found = Matters(what, silence, before, change, straight, remainder, also, n_heads)
    yield Progress(len(heads), len(heads), 0, kept.KEPT.once(key, lambda: found))


def together(
    model: Model,
    heads: tuple[tuple[int, int], ...],
    position: int | None = None,
    target: int | None = None,
    distractor: int | None = None,
    silence: str = "zero",
) -> Together:
    """What silencing some heads together changes, each alone, and as many random other heads of the same layers.

    Raises:
        ConfigError: there is no such head, or it would take too long.
    """
    from attention.models import intervening, silencing

    loaded, given = _plain(model)
    _check(loaded, heads)
    asked, what = _asked(loaded, given, position, target, distractor)
    key = ("together", id(loaded), loaded.name, _ids(given), asked, heads, silence)
    if (kept_before := kept.KEPT.get(key)) is not None:
        known: Together = kept_before
        return known
    places = intervening.order(loaded)
    drawn = _drawn(heads, {at: loaded.sites[places.index(at)].n_heads for at, _ in heads})
    groups = [heads, *((one,) for one in heads), *drawn]
    _ = silencing.work(loaded, given, len(groups))
    found = [pair for batch in silencing.runs(loaded, given, groups, asked, silence) for pair in batch]
    changes = [after - before for before, after in found]
    alone, random = changes[1 : 1 + len(heads)], sorted(changes[1 + len(heads) :])
    return kept.KEPT.once(key, lambda: Together(heads, what, *found[0], tuple(alone), tuple(random)))


def _plain(model: Model) -> tuple[Loaded, dict[str, Tensor]]:
    loaded, given = replace(model, interventions=(), frozen=False, other=None).loaded_and_given()
    if not loaded.sites:
        raise ConfigError(
            f"{loaded.name} does not let its heads be silenced from outside: choose a model of another family."
        )
    return loaded, given


def _check(loaded: Loaded, heads: tuple[tuple[int, int], ...]) -> None:
    from attention.formula.intervention import Intervention
    from attention.models import intervening

    intervening.check(loaded, tuple(Intervention(*one, silence="zero") for one in heads), ())


def _asked(
    loaded: Loaded, given: dict[str, Tensor], position: int | None, target: int | None, distractor: int | None
) -> tuple[Asked, str]:
    """What is looked at, and it in words."""
    from attention.models import predicting, running, silencing
    from attention.models.pieces import readable

    wanted = () if position is None else (position,)
    if not predicting.vocabulary(loaded):
        length = next(iter(given.values())).shape[-1]
        if position is not None and not 0 <= position < length:
            raise ConfigError(f"Positions count from 0 to {length - 1}; got {position}: choose one of these.")
        where = "tokens' vectors (mean)" if position is None else f"vector of token {position}"
        return silencing.Asked(position), f"cosine of {where} with the unchanged"
    at = predicting.positions(loaded, given, wanted)
    if not at:
        raise ConfigError(predicting.why_not(loaded, at))
    if target is None:
        with predicting.asked(at[-1:]):
            found = running.run(loaded, given)
        target = predicting.predictions(loaded, given, found, at[-1:])[0].ids[0]
    size = predicting.vocabulary(loaded)
    for one in (target, distractor):
        if one is not None and not 0 <= one < size:
            raise ConfigError(f"Tokens of {loaded.name} count from 0 to {size - 1:,}; got {one}: choose one of these.")
    names = [readable(loaded.tokenizer, [one])[0] for one in (target, distractor) if one is not None]
    what = f"log-probability of {names[0]}" if distractor is None else f"logit of {names[0]} less that of {names[1]}"
    return silencing.Asked(at[-1], target, distractor), what


def _drawn(heads: tuple[tuple[int, int], ...], n_heads: dict[int, int]) -> list[tuple[tuple[int, int], ...]]:
    """Random other heads, as many of each layer; none where a layer has not so many others."""
    import torch

    generator = torch.Generator().manual_seed(0)
    others = {at: [head for head in range(many) if (at, head) not in heads] for at, many in n_heads.items()}
    wanted = {at: sum(layer == at for layer, _ in heads) for at in others}
    if any(len(others[at]) < wanted[at] for at in others):
        return []
    found = []
    for _ in range(RANDOM):
        group: list[tuple[int, int]] = []
        for at, there in others.items():
            order = torch.randperm(len(there), generator=generator)[: wanted[at]].tolist()
            group += [(at, there[i]) for i in order]
        found.append(tuple(group))
    return found


def _ids(given: dict[str, Tensor]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(one[0].tolist()) for one in given.values())
