"""What is changed of a loaded model: whether it has that, in which order its layers run, what it costs, which text fits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from attention.errors import ConfigError
from attention.formula import fitting
from attention.formula.intervention import Intervention
from attention.formula.patching import Extent

if TYPE_CHECKING:
    from attention.models.loaded import Loaded

_STOPS = ".,;:!?…"


def numbers(loaded: Loaded, those: tuple[Intervention, ...], frozen: bool, length: int) -> int:
    """How many numbers of the unchanged model and of the other state are kept beside those of this one."""
    places, sites = loaded.order, loaded.layers
    there = [one for one in those if one.layer is None or one.layer < len(sites)]  # the others are refused
    maps = [sites[at].n_heads for at in fitting.later(places, there)] if frozen else []
    taken = fitting.takes(places, there).items()
    maps += [sites[at].n_heads for at, weights in taken if weights]
    return 2 * sum(maps) * length * length + sum(sites[at].width for at, _ in taken) * length


def check(loaded: Loaded, those: tuple[Intervention, ...], lengths: Sequence[int]) -> None:
    """Looks whether the model has what is changed, before it runs; `lengths` are those of its texts, none where no cell is asked for.

    Raises:
        ConfigError: it has no such layer, head or cell.
    """
    if those and not loaded.sites:
        raise ConfigError(
            f"{loaded.name} does not let its attention be changed from outside: choose a model of another family."
        )
    layers, lengths = [], lengths or (0,)
    for site in loaded.layers:
        n_queries = lengths[-1 if site.name.startswith(("decoder", "cross")) else 0]
        n_keys = lengths[-1 if site.name.startswith("decoder") else 0]
        layers.append(Extent(site.name, site.n_heads, n_queries, n_keys))
    fitting.check(those, layers)


def of_length(loaded: Loaded, text: str, like: str, length: int) -> str:
    """The text cut, or gone on with as in `like`, so that the model reads `length` tokens; empty where that does not come out."""
    from attention.models.running import inputs

    def count(one: str) -> int:
        return next(iter(inputs(loaded, one, "", 2**20)[0].values())).shape[-1]

    # A full stop in the middle, or at the end, is a token too many sometimes.
    for one, other in product((text.rstrip(_STOPS), text), (like, like.rstrip(_STOPS))):
        words = [*one.split(), *other.split()[len(one.split()) :]]

        def first(many: int, words: list[str] = words) -> int:
            return count(" ".join(words[:many]))

        many = bisect_left(range(len(words)), length, key=first)
        if many and first(many) == length:
            return " ".join(words[:many])
    return ""
