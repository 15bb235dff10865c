"""What a model reads: its texts as ids, cut where they must be, and what it says itself after them; counted before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.errors import ConfigError
from attention.formula.cost import ALLOW_MORE
from attention.formula.prediction import MOST_GENERATED

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attention.formula.intervening import Pass
    from attention.models.loaded import Loaded
    from attention.models.work import Changed
    from attention.sources.model_options import ModelOptions


@dataclass(frozen=True, eq=False)
class Texts:
    """What a model reads.

    Attributes:
        given: the ids of each text, [1 pos], by what the model calls it.
        said: how many of the last ones the model has said itself.
        later: the ids that it says after these, where the text is read as it was before.
    """

    given: dict[str, Tensor]
    said: int
    later: tuple[int, ...]


def texts(
    model: ModelOptions, loaded: Loaded, notes: list[str], changing: Callable[[dict[str, Tensor]], Pass]
) -> Texts:
    """The texts of a model, with what it says itself; what a person must know of them goes to `notes`.

    Args:
        model: what is asked of it.
        loaded: the model in memory.
        notes: gets more sentences.
        changing: what is changed while it reads some ids.

    Raises:
        ConfigError: as for `cost`.
    """
    before = inputs(model, loaded, notes)
    _ = cost(model, loaded, before)
    grown = _grown(model, loaded, before, notes, changing)
    name = [*grown][-1]
    first, whole = before[name].shape[-1], grown[name].shape[-1]
    said = whole - first if model.said is None else max(0, min(model.said, whole - first))
    given = {**grown, name: grown[name][:, : first + said]}
    return Texts(given, said, tuple(grown[name][0, first + said :].tolist()))


def inputs(model: ModelOptions, loaded: Loaded, notes: list[str]) -> dict[str, Tensor]:
    """The ids of the tokens, cut where the model or the operator wants no more."""
    from attention.models import running

    most = min(model.max_tokens, loaded.limit or model.max_tokens)
    given, cut = running.inputs(loaded, model.text, model.text2, most)
    whose = "the model's limit" if most == loaded.limit else "as many as are shown here"
    notes += [
        f"The {name} has {length:,} tokens; read are the first {most:,}, {whose}: shorten it to see it whole."
        for name, length in cut
    ]
    if model.text2.strip() and not loaded.two_texts:
        notes.append("This model reads one text only: the second text does nothing.")
    return given


def cost(model: ModelOptions, loaded: Loaded, given: dict[str, Tensor]) -> int:
    """The bytes of all that is recorded, and of what the largest layer takes while it is made.

    Raises:
        ConfigError: they are more than `max_bytes`, or changes and generated tokens would take too long.
    """
    from attention.models import intervening, predicting, recording, work
    from attention.models.layers import MAPS, NUMBER

    more = _to_say(model, loaded, given)
    work.check(loaded, sum(ids.shape[-1] for ids in given.values()), more, _passes(model))
    longest = max(*(ids.shape[-1] for ids in given.values()), len(predicting.read_text(given)) + more)
    kept = sum(site.width for site in loaded.sites) * longest
    kept += intervening.numbers(loaded, model.interventions, model.frozen, longest)
    # Maps of one head, and of what hides keys; of all heads some rows are made at a time, unless heads are changed.
    rows = {
        site.n_heads * recording.rows_at_once(site, longest, whole=bool(model.interventions)) for site in loaded.sites
    }
    making = MAPS * (max(rows, default=loaded.maps * longest) + longest) * longest
    if not loaded.sites:
        kept = loaded.maps * longest * longest
    kept += predicting.numbers(loaded, given, model.predict, more)
    nbytes = (kept + making) * NUMBER
    if nbytes > model.max_bytes:
        raise ConfigError(
            f"All steps need at most {model.max_bytes / 2**20:,.0f} MB here; {longest:,} tokens in {len(loaded.sites)} layers "
            f"need {nbytes / 2**20:,.0f} MB: choose a shorter text, a smaller model, {ALLOW_MORE}."
        )
    return nbytes


def _passes(model: ModelOptions) -> list[Changed]:
    """What is changed in each of the passes that a text takes: its own, the unchanged one, and those of the other state."""
    from attention.models.work import Changed

    found = [Changed(model.interventions, model.frozen)] + [Changed()] * (model.frozen and bool(model.interventions))
    if model.other is not None and any(one.take for one in model.interventions):
        found += _passes(model.other)
    return found


def _to_say(model: ModelOptions, loaded: Loaded, given: dict[str, Tensor]) -> int:
    """How many tokens the model says itself: as many as are asked for, and fit."""
    from attention.models import predicting

    by_itself = loaded.two_texts and not model.text2.strip()
    wanted = model.generate or (MOST_GENERATED - 1 if by_itself else 0)
    if not by_itself and (not predicting.vocabulary(loaded) or predicting.fills(loaded)):
        return 0
    room = min(model.max_tokens, loaded.limit or model.max_tokens) - len(predicting.read_text(given))
    return max(0, min(wanted, room, MOST_GENERATED))


def _grown(
    model: ModelOptions,
    loaded: Loaded,
    given: dict[str, Tensor],
    notes: list[str],
    changing: Callable[[dict[str, Tensor]], Pass],
) -> dict[str, Tensor]:
    """The ids with all that the model says itself after them."""
    from attention.models import generating, passing, predicting

    more = _to_say(model, loaded, given)
    if model.generate > more:
        notes.append(
            f"{model.generate} tokens were to be generated; {more} are: the model says no more, or the text is long."
        )
    if not more:
        return given
    how = "the likeliest token each time"
    if model.generate_temperature:
        how = f"drawn with temperature {model.generate_temperature:g} and seed {model.generate_seed}"
    if loaded.two_texts and not model.text2.strip():
        notes.append(f"The decoder reads what the model itself says, {how}: type a second text for another.")

    def changed(there: dict[str, Tensor]) -> Tensor:
        last = len(predicting.read_text(there)) - 1
        logits = predicting.logits_of(passing.changed(loaded, there, changing(there), (last,)))
        assert logits is not None
        return logits[-1]

    key = (model.interventions, model.frozen, model.other)
    anew = (key, changed) if model.interventions and loaded.sites else None
    return generating.continued(loaded, given, more, model.generate_temperature, model.generate_seed, anew)
