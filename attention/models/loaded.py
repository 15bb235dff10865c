"""A model in memory, and its attention sites."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from attention.models.fair_lock import FairLock

if TYPE_CHECKING:
    from torch import Tensor

_KINDS = ("layer", "encoder", "decoder", "cross")  # the order of the layers of a trace


@dataclass(frozen=True, eq=False)
class Site:
    """One place of a model where attention is called.

    Attributes:
        name: "layer 3"; in an encoder-decoder model "encoder 2", "decoder 2" or "cross 2".
        parameters: W_Q, W_K, … by the names of the glossary, where they are known.
        pure_projections: which of query, key and value are exactly their projection of the input.
        n_heads: number of query heads.
        width: how many numbers are recorded for each token.
        supports_row_blocks: whether its attention can be computed for some of the queries at a time.
    """

    name: str
    parameters: dict[str, Tensor]
    pure_projections: frozenset[str]
    n_heads: int
    width: int
    supports_row_blocks: bool = False


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model in memory, ready to be recorded.

    Attributes:
        name: as the user wrote it.
        model: a transformers model, in single precision.
        tokenizer: its transformers tokenizer.
        sites: its attention sites in call order; empty if its family cannot be recorded.
        is_encoder_decoder: whether it is an encoder-decoder model.
        max_length: the largest number of tokens in a text; None if there is no limit.
        nbytes: size of its weights.
        n_maps: total number of query × key matrices of its heads, if there are no sites.
        about: a note to show with the model, such as that it is a 4-bit version; may be empty.
        lock: allows one forward pass at a time; each model has its own.
    """

    name: str
    model: Any
    tokenizer: Any
    sites: tuple[Site, ...]
    is_encoder_decoder: bool
    max_length: int | None
    nbytes: int
    n_maps: int = 0
    about: str = ""
    lock: FairLock = field(default_factory=FairLock)

    @cached_property
    def layer_indices(self) -> tuple[int, ...]:
        """For each of the `sites`, in call order, its index in `trace.layers`."""
        call_indices = sorted(range(len(self.sites)), key=lambda i: _KINDS.index(self.sites[i].name.split()[0]))
        return tuple(call_indices.index(i) for i in range(len(call_indices)))

    @property
    def sites_by_layer(self) -> tuple[Site, ...]:
        """The sites in the order of `trace.layers`."""
        return tuple(self.sites[self.layer_indices.index(layer)] for layer in range(len(self.sites)))
