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
    loaded, given = _ready(model)
    return _work(model, loaded, given, sum(site.n_heads for site in loaded.sites))


def which(
    model: Model,
    position: int | None = None,
    target: int | None = None,
    distractor: int | None = None,
    silence: str = "zero",
    unchanged: bool = False,
) -> Iterator[Progress]:
    """The change of a prediction with each head silenced in turn; whoever asks no further stops it between two batches.

    Each is silenced on top of what is changed in the model.

    Args:
        model: with a text.
        position: where the prediction is read; None: at the end of the text. Without a language-model head that of the vector
            whose cosine it is, None: the mean over all tokens.
        target: the id of a token; None: the likeliest of the unchanged model.
        distractor: of another; then it is the logit difference of both.
        silence: "zero" or "mean".
        unchanged: of the model as it was, reading the same text.

    Yields:
        How far it is; last with what was found.

    Raises:
        ConfigError: there is no such head, or it would take too long.
    """
    import numpy as np

    from attention.models import attributing, silencing

    loaded, given = _ready(model)
    model = model.unchanged if unchanged else model
    n_heads = tuple(site.n_heads for site in loaded.layers)
    heads = [(layer, head) for layer, many in enumerate(n_heads) for head in range(many)]
    needs = _work(model, loaded, given, len(heads))
    asked, what = _asked(loaded, given, position, target, distractor)
    key = ("matters", *_key(model, loaded, given), asked, silence)
    if (found := kept.KEPT.get(key)) is not None:
        yield Progress(len(heads), len(heads), 0, found)
        return
    changing = model.changing(loaded, given)
    change = np.full((len(n_heads), max(n_heads)), np.nan)
    straight, remainder = change.copy(), math.nan
    began, done, before = time.monotonic(), 0, math.nan
    yield Progress(0, len(heads), needs)
    for batch in silencing.runs(loaded, given, [(one,) for one in heads], asked, silence, changing):
        for before, after in batch:
            change[heads[done]] = after - before
            done += 1
        left = (time.monotonic() - began) / done * (len(heads) - done)
        yield Progress(done, len(heads), left)
    written = attributing.direct(loaded, given, asked, changing)
    if not isinstance(written, str):
        for layer, parts in written[0].items():
            straight[layer, : len(parts)] = parts.numpy()
        remainder = written[1]
    changes = tuple(one.named for one in model.interventions)
    unknown = written if isinstance(written, str) else ""
    found = Matters(what, silence, before, change, straight, remainder, changes, n_heads, unknown)
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

    All of it on top of what else is changed in the model, which need not silence the heads yet.

    Raises:
        ConfigError: there is no such head, or it would take too long.
    """
    from attention.formula.intervention import Intervention
    from attention.models import intervening, silencing

    loaded, given = _ready(model)
    intervening.check(loaded, tuple(Intervention(*one, silence="zero") for one in heads), ())
    model = replace(model, interventions=tuple(one for one in model.interventions if one.silences not in heads))
    asked, what = _asked(loaded, given, position, target, distractor)
    key = ("together", *_key(model, loaded, given), asked, heads, silence)
    if (kept_before := kept.KEPT.get(key)) is not None:
        known: Together = kept_before
        return known
    drawn = _drawn(heads, {at: loaded.layers[at].n_heads for at, _ in heads})
    groups = [heads, *((one,) for one in heads), *drawn]
    _ = _work(model, loaded, given, len(groups))
    changing = model.changing(loaded, given)
    found = [pair for batch in silencing.runs(loaded, given, groups, asked, silence, changing) for pair in batch]
    changes = [after - before for before, after in found]
    alone, random = changes[1 : 1 + len(heads)], sorted(changes[1 + len(heads) :])
    return kept.KEPT.once(key, lambda: Together(heads, what, *found[0], tuple(alone), tuple(random)))


def _ready(model: Model) -> tuple[Loaded, dict[str, Tensor]]:
    loaded, given = model.loaded_and_given()
    if not loaded.sites:
        raise ConfigError(
            f"{loaded.name} does not let its heads be silenced from outside: choose a model of another family."
        )
    return loaded, given


def _work(model: Model, loaded: Loaded, given: dict[str, Tensor], many: int) -> float:
    from attention.formula.fitting import touched
    from attention.models import silencing

    return silencing.seconds(loaded, given, many, touched(loaded.order, model.interventions, model.frozen))


def _key(model: Model, loaded: Loaded, given: dict[str, Tensor]) -> tuple[object, ...]:
    """What a run depends on: the model, what it reads, and what is changed in it."""
    ids = tuple(tuple(one[0].tolist()) for one in given.values())
    return id(loaded), loaded.name, ids, model.interventions, model.frozen, model.other


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
        return silencing.Asked(position), f"cosine of {where} with no head silenced"
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
