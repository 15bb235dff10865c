"""A model in memory, and the places in it that attend."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from attention.models.fair_lock import FairLock

if TYPE_CHECKING:
    from torch import Tensor

_PLACES = ("layer", "encoder", "decoder", "cross")


@dataclass(frozen=True, eq=False)
class Site:
    """One place of a model where attention is called.

    Attributes:
        name: "layer 3"; with two texts "encoder 2", "decoder 2" or "cross 2".
        parameters: W_Q, W_K, … by the names of the glossary, as far as they can be named.
        made: which of query, key and value are their projection of the input, and nothing more.
        n_heads: of the queries.
        width: how many numbers are recorded of one token.
        by_rows: whether its attention can be made for some queries at a time.
    """

    name: str
    parameters: dict[str, Tensor]
    made: frozenset[str]
    n_heads: int
    width: int
    by_rows: bool = False


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model in memory, ready to be recorded.

    Attributes:
        name: as a person asked for it.
        model: of transformers, in single precision; `tokenizer` what cuts its texts.
        sites: in the order in which they are called; empty where the family does not say what it does.
        two_texts: whether it has an encoder and a decoder.
        limit: the most tokens of a text; None where it has none.
        maps: how many query × key matrices its heads have together, where there are no sites.
        nbytes: of its weights.
        about: a line that belongs beside it, such as that it is a 4-bit version; empty: nothing.
        lock: of one forward pass at a time; each model has its own.
    """

    name: str
    model: Any
    tokenizer: Any
    sites: tuple[Site, ...]
    two_texts: bool
    limit: int | None
    nbytes: int
    maps: int = 0
    about: str = ""
    lock: FairLock = field(default_factory=FairLock)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """For each of the `sites`, in the order in which they are called, its index in `trace.layers`."""
        places = sorted(range(len(self.sites)), key=lambda at: _PLACES.index(self.sites[at].name.split()[0]))
        return tuple(places.index(at) for at in range(len(places)))

    @property
    def layers(self) -> tuple[Site, ...]:
        """The sites in the order of `trace.layers`."""
        return tuple(self.sites[self.order.index(at)] for at in range(len(self.sites)))
