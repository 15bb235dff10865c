"""A loaded model, and its attention sites."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from attention.models.fair_lock import FairLock

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.nn import Module

    from attention.models.picture_reader import PictureReader

_uids = count()
_KINDS = ("vision", "text", "layer", "encoder", "decoder", "cross")  # the order of the layers of a trace


@dataclass(frozen=True, eq=False)
class Site:
    """One place of a model where attention is called.

    Attributes:
        name: "layer 3"; in an encoder-decoder model "encoder 2", "decoder 2" or "cross 2"; in a model
            that reads a picture and a text "vision 2" or "text 2".
        parameters: W_Q, W_K, … by the names of the glossary, where they are known.
        pure_projections: which of query, key and value are exactly their projection of the input.
        n_heads: number of query heads.
        width: how many numbers are recorded for each token.
        supports_row_blocks: whether its attention can be computed for some of the queries at a time.
        path: the name of its attention module in the model.
    """

    name: str
    parameters: dict[str, Tensor]
    pure_projections: frozenset[str]
    n_heads: int
    width: int
    supports_row_blocks: bool = False
    path: str = ""


class Preparable(Protocol):
    """What prepares a user's model for a recorded pass; `attachment.Attachment` is one."""

    modules: list[Module]

    def attached(self) -> AbstractContextManager[None]:
        """A context in which the model can be recorded; afterwards it is as before."""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model in memory, ready to be recorded.

    Attributes:
        name: as the user wrote it.
        model: a transformers model: loaded from a folder in single precision, or a user's own.
        tokenizer: its transformers tokenizer; None for a model that reads pictures and no text.
        sites: its attention sites in call order; empty if its family cannot be recorded.
        is_encoder_decoder: whether it is an encoder-decoder model.
        max_length: the largest number of tokens in a text; None if there is no limit.
        nbytes: size of its weights.
        without_attention: the layers of a hybrid model that have no attention: what each has instead, by its index in `trace.layers`.
        n_maps: total number of query × key matrices of its heads, if there are no sites.
        about: a note to show with the model, such as that it is a 4-bit version; may be empty.
        lock: allows one forward pass at a time; each model has its own.
        attachment: prepares a model that belongs to the user for each pass, and puts it back; None: the model is ours, and prepared.
        pictures: how it reads pictures; None for a model of texts.
        uid: identifies the model in cache keys, which must not hold it.
    """

    name: str
    model: Any
    tokenizer: Any
    sites: tuple[Site, ...]
    is_encoder_decoder: bool
    max_length: int | None
    nbytes: int
    without_attention: Mapping[int, str] = field(default_factory=dict)
    n_maps: int = 0
    about: str = ""
    lock: FairLock = field(default_factory=FairLock)
    attachment: Preparable | None = None
    pictures: PictureReader | None = None
    uid: int = field(default_factory=lambda: next(_uids))

    def replace(self, **fields: Any) -> LoadedModel:
        """The same model with other fields."""
        return dataclasses.replace(self, **fields)

    @contextmanager
    def session(self) -> Iterator[None]:
        """A context in which this thread may run the model, which is prepared for it."""
        with self.lock.hold():
            if self.attachment is None:
                yield
                return
            with self.attachment.attached():
                yield

    @property
    def in_memory(self) -> bool:
        """Whether the model belongs to the user, who loaded it and may still use it."""
        return self.attachment is not None

    @property
    def device(self) -> torch.device:
        """Where the model reads its token ids."""
        import torch

        weight = getattr(self.input_embeddings, "weight", None)
        return weight.device if isinstance(weight, torch.Tensor) else torch.device(self.model.device)

    @property
    def input_embeddings(self) -> Module | None:
        """The module that turns token ids into vectors, or a picture for a model without text; None if transformers names none."""
        try:
            module: Module | None = self.model.get_input_embeddings()
        except NotImplementedError:  # of two towers, transformers does not choose one
            text_model = getattr(self.model, "text_model", None)
            module = None if text_model is None else text_model.get_input_embeddings()
        return module

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The special tokens of the texts, and the tokens of a picture that are no patches."""
        of_text = () if self.tokenizer is None else tuple(self.tokenizer.all_special_tokens)
        return of_text if self.pictures is None else (*of_text, *self.pictures.special_tokens)

    @cached_property
    def layer_indices(self) -> tuple[int, ...]:
        """For each of the `sites`, in call order, its index in `trace.layers`."""
        calls = sorted(range(len(self.sites)), key=lambda i: _KINDS.index(self.sites[i].name.split()[0]))
        indices = [index for index in range(self.n_layers) if index not in self.without_attention]
        by_call = dict(zip(calls, indices, strict=True))
        return tuple(by_call[i] for i in range(len(calls)))

    @property
    def n_layers(self) -> int:
        """The number of layers of a trace, with those that have no attention."""
        return len(self.sites) + len(self.without_attention)

    @property
    def heads_by_layer(self) -> tuple[int, ...]:
        """The number of heads of each layer of a trace; 0 where it has no attention."""
        sites = self.sites_by_layer
        return tuple(sites[index].n_heads if index in sites else 0 for index in range(self.n_layers))

    @property
    def sites_by_layer(self) -> Mapping[int, Site]:
        """The sites by their index in `trace.layers`, in this order."""
        return dict(sorted(zip(self.layer_indices, self.sites, strict=True), key=lambda pair: pair[0]))
