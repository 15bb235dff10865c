"""Interventions on a loaded model: whether the model has the layers, heads and cells, and how much memory they take."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from attention.base.errors import ConfigError
from attention.formula.edit_kinds import LayerSize
from attention.models.loaded import inputs_of_site
from attention.patching import validate
from attention.patching.intervention import Intervention

if TYPE_CHECKING:
    from attention.models.loaded import LoadedModel

_PUNCTUATION = ".,;:!?…"


def count_numbers(loaded: LoadedModel, interventions: tuple[Intervention, ...], frozen: bool, length: int) -> int:
    """How many numbers of the unchanged model and of the other state are stored besides those of this state."""
    order, sites = loaded.layer_indices, loaded.sites_by_layer
    valid = [item for item in interventions if item.layer is None or item.layer in sites]  # `check` refuses others
    n_maps = sum(sites[layer].n_heads for layer in validate.layers_after_first(order, valid)) if frozen else 0
    patched = validate.patched_layers(order, valid).items()
    n_maps += sum(sites[layer].n_heads for layer, with_weights in patched if with_weights)
    return 2 * n_maps * length * length + sum(sites[layer].width for layer, _ in patched) * length


def check_interventions(loaded: LoadedModel, interventions: tuple[Intervention, ...], lengths: Sequence[int]) -> None:
    """Check, before it runs, that the model has the layers, heads and cells of the interventions.

    Args:
        loaded: the model.
        interventions: to be applied to it.
        lengths: of its texts; empty if no intervention has cells.

    Raises:
        ConfigError: there is no such layer, head or cell.
    """
    if interventions and not loaded.sites:
        raise ConfigError(
            f"The attention of {loaded.name} cannot be changed from outside: choose a model of another family."
        )
    extents, lengths = [], lengths or (0,)
    sites = loaded.sites_by_layer
    for index in range(loaded.n_layers):
        site = sites.get(index)
        if site is None:
            extents.append(LayerSize(f"layer {index}", 0, 0, 0))
            continue
        n_queries, n_keys = (lengths[which] for which in inputs_of_site(site.name))
        extents.append(LayerSize(site.name, site.n_heads, n_queries, n_keys))
    validate.check(interventions, extents)


def match_length(loaded: LoadedModel, text: str, like: str, length: int) -> str:
    """A text of exactly `length` tokens: `text` shortened, or extended with the words of `like`; empty if none is found."""
    from attention.models.running import tokenize_inputs

    if loaded.pictures is not None:
        return ""

    def count_tokens(candidate: str) -> int:
        return next(iter(tokenize_inputs(loaded, candidate, "", 2**20)[0].values())).shape[-1]

    # A full stop in the middle, or at the end, can be one token too many.
    for start, rest in product((text.rstrip(_PUNCTUATION), text), (like, like.rstrip(_PUNCTUATION))):
        words = [*start.split(), *rest.split()[len(start.split()) :]]

        def count_prefix(n_words: int, words: list[str] = words) -> int:
            return count_tokens(" ".join(words[:n_words]))

        n_words = bisect_left(range(len(words)), length, key=count_prefix)
        if n_words and count_prefix(n_words) == length:
            return " ".join(words[:n_words])
    return ""
