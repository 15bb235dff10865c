"""A loaded model, its attention sites and the order of its layers; and the lock by which threads take turns."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from threading import Event, Lock, get_ident
from typing import TYPE_CHECKING, Any, Protocol

from attention.base import cache
from attention.base.errors import MissingError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.nn import Module

    from attention.media import InputReader, Medium


_KINDS = ("vision", "qformer", "text", "layer", "channels", "encoder", "decoder", "cross")
"""The kinds of layers, in the order of a trace."""


@dataclass(frozen=True, eq=False)
class Site:
    """One place of a model where attention is called."""

    # "layer 3"; in an encoder-decoder model "encoder 2", "decoder 2" or "cross 2"; in a model that reads a picture and a text "vision 2" or "text 2".
    name: str
    parameters: dict[str, Tensor]  # W_Q, W_K, … by the names of the glossary, where they are known
    pure_projections: frozenset[str]  # which of query, key and value are exactly their projection of the input
    sizes: Mapping[str, tuple[int, int]]  # the number of heads and their width, of "q", "k" and "v"
    width: int  # how many numbers are recorded for each token
    supports_row_blocks: bool = False  # whether its attention can be computed for some of the queries at a time
    path: str = ""  # the name of its attention module in the model
    is_causal: bool = False  # whether no query sees a later key
    has_bias: bool = False  # whether something is added to its scores

    @property
    def n_heads(self) -> int:
        """The number of query heads."""
        return self.sizes["q"][0]


class _Preparable(Protocol):
    """What prepares a user's model for a recorded pass; `in_memory.Attachment` is one."""

    modules: list[Module]

    def attached(self) -> AbstractContextManager[None]:
        """A context in which the model can be recorded; afterwards it is as before."""


class FairLock:
    """A reentrant lock: one thread at a time, first come, first served.

    Long work calls `pause` between two pieces; threads that arrived in the meantime then run first.
    """

    def __init__(self) -> None:
        self._guard = Lock()
        self._owner: int | None = None
        self._queue: deque[tuple[int, Event]] = deque()

    def __reduce__(self) -> tuple[type[FairLock], tuple[()]]:
        return FairLock, ()  # in another process it is free

    @contextmanager
    def hold(self) -> Iterator[None]:
        """A context that waits for the lock and holds it until the end of the block."""
        if self._owner == get_ident():
            yield
            return
        self._acquire()
        try:
            yield
        finally:
            self._release()

    def pause(self) -> None:
        """Let all threads that wait now run before this one, which holds the lock."""
        if self._queue:
            self._release()
            self._acquire()

    def _acquire(self) -> None:
        thread_id, granted = get_ident(), Event()
        with self._guard:
            if self._owner is None:
                self._owner = thread_id
                return
            self._queue.append((thread_id, granted))
        try:
            granted.wait()
        except BaseException:  # such as Ctrl-C: no thread may be left waiting for this one
            with self._guard:
                still_queued = (thread_id, granted) in self._queue
                if still_queued:
                    self._queue.remove((thread_id, granted))
            if not still_queued:
                self._release()
            raise

    def _release(self) -> None:
        with self._guard:  # hand the lock over directly, so that no new thread overtakes
            self._owner, granted = self._queue.popleft() if self._queue else (None, None)
        if granted is not None:
            granted.set()


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model in memory, ready to be recorded."""

    name: str  # as the user wrote it
    model: Any  # a transformers model: loaded from a folder in single precision, or a user's own
    tokenizer: Any  # its transformers tokenizer; None for a model that reads pictures and no text
    sites: tuple[Site, ...]  # its attention sites in call order; empty if its family cannot be recorded
    is_encoder_decoder: bool
    max_length: int | None  # the largest number of tokens in a text; None if there is no limit
    nbytes: int  # size of its weights
    # The layers whose attention is not recorded, as in a hybrid model: what each has instead, by its name.
    left_out: Mapping[str, str] = field(default_factory=dict)
    n_maps: int = 0  # total number of query × key matrices of its heads of which only weights are known
    about: str = ""  # a note to show with the model, such as that it is a 4-bit version; may be empty
    lock: FairLock = field(default_factory=FairLock)  # allows one forward pass at a time; each model has its own
    # Prepares a model that belongs to the user for each pass, and puts it back; None: the model is ours, and prepared.
    attachment: _Preparable | None = None
    readers: tuple[
        InputReader, ...
    ] = ()  # how it reads each other medium than text, such as pictures or videos; none for a model of texts
    uid: int = field(default_factory=cache.new_uid)  # identifies the model in cache keys, which must not hold it

    @property
    def reader(self) -> InputReader | None:
        """How it reads the medium that it is tried with, the first; None for a model of texts."""
        return self.readers[0] if self.readers else None

    @property
    def decodes_text(self) -> bool:
        """Whether it has a decoder that reads a text; that of a detector reads queries of its own."""
        return self.is_encoder_decoder and self.tokenizer is not None

    def reader_of(self, medium: Medium) -> InputReader | None:
        """How it reads a medium; None if it does not."""
        return next((reader for reader in self.readers if reader.medium == medium), None)

    def check_text_only(self, what: str) -> None:
        """Check that the model reads nothing but texts, for which alone something is computed.

        Raises:
            MissingError: it reads another medium.
        """
        if self.reader is not None:
            raise MissingError(
                f"{what} is computed for models of texts, and {self.name} reads {self.reader.medium.one}: choose a language model."
            )

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
        # Of two towers, transformers does not choose one.
        for model in (self.model, getattr(self.model, "text_model", None)):
            with suppress(NotImplementedError):  # transformers does not know it
                module: Module | None = None if model is None else model.get_input_embeddings()
                return module
        return None

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The special tokens of the texts, and the tokens of another input that have no place in it."""
        of_text = () if self.tokenizer is None else tuple(self.tokenizer.all_special_tokens)
        return (*of_text, *dict.fromkeys(token for reader in self.readers for token in reader.special_tokens))

    @cached_property
    def layer_names(self) -> tuple[str, ...]:
        """The names of the layers of a trace, in its order, with those that are left out."""
        return tuple(in_order([*(site.name for site in self.sites), *self.left_out]))

    @cached_property
    def layer_indices(self) -> tuple[int, ...]:
        """For each of the `sites`, in call order, its index in `trace.layers`."""
        return tuple(self.layer_names.index(site.name) for site in self.sites)

    @cached_property
    def without_attention(self) -> Mapping[int, str]:
        """What each layer that is left out has instead, by its index in `trace.layers`."""
        return {self.layer_names.index(name): mixer for name, mixer in self.left_out.items()}

    @property
    def n_layers(self) -> int:
        """The number of layers of a trace, with those that are left out."""
        return len(self.layer_names)

    @property
    def heads_by_layer(self) -> tuple[int, ...]:
        """The number of heads of each layer of a trace; 0 where it has no attention."""
        sites = self.sites_by_layer
        return tuple(sites[index].n_heads if index in sites else 0 for index in range(self.n_layers))

    @property
    def sites_by_layer(self) -> Mapping[int, Site]:
        """The sites by their index in `trace.layers`, in this order."""
        return dict(sorted(zip(self.layer_indices, self.sites, strict=True), key=lambda pair: pair[0]))


def inputs_of_site(site: str) -> tuple[int, int]:
    """Which inputs of the model are the queries and the keys of a site, by its name: 0 the first, −1 the last."""
    return -1 if site.startswith(("decoder", "cross", "text")) else 0, -1 if site.startswith(("decoder", "text")) else 0


def in_order(names: Sequence[str]) -> list[str]:
    """The names of layers in the order of a trace: by kind and number, and calls again at the end of their kind."""
    return sorted(names, key=lambda name: (_KINDS.index(name.split()[0]), name.count("again"), int(name.split()[1])))
