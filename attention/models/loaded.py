"""A loaded model, its attention sites and the numbers of its layers; and the lock by which threads take turns.

In hybrid models, where some layers have no attention, an attention call has the model's own layer index.
"""

from __future__ import annotations

import dataclasses
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, groupby, pairwise
from threading import Event, Lock, get_ident
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.nn import Module

    from attention.vision.reader import PictureReader


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
        is_causal: whether no query sees a later key.
        path: the name of its attention module in the model.
    """

    name: str
    parameters: dict[str, Tensor]
    pure_projections: frozenset[str]
    n_heads: int
    width: int
    supports_row_blocks: bool = False
    path: str = ""
    is_causal: bool = False


class Preparable(Protocol):
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

    @property
    def waiting(self) -> int:
        """The number of waiting threads."""
        return len(self._queue)

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
        for model in (
            self.model,
            getattr(self.model, "text_model", None),
        ):  # of two towers, transformers does not choose one
            with suppress(NotImplementedError):
                module: Module | None = None if model is None else model.get_input_embeddings()
                return module
        return None

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


_LIST_PATH = re.compile(r"((?:[^.]+\.)*?[^.\d][^.]*)\.(\d+)\.")
"""A module inside of a list of modules: the path of the outermost list, and the index in it."""
_LONGEST_KIND = 30  # characters
_ATTENTION_KINDS = ("attention", "full", "sliding", "chunked", "hybrid")


class LayerNumbers(NamedTuple):
    """The layer index of each attention call, and the layers of the model that have no attention.

    Attributes:
        of_calls: in call order.
        without_attention: what each layer without attention has instead, by its index.
    """

    of_calls: tuple[int, ...]
    without_attention: Mapping[int, str]


def hybrid_numbers(model: Any, paths: Sequence[str]) -> LayerNumbers | None:
    """The layer numbers of a model whose list of layers is longer than its list of attention calls; None for all other models.

    Args:
        model: of transformers.
        paths: of its attention modules, in call order.
    """
    places = [_LIST_PATH.match(path) for path in paths]
    matches = [place for place in places if place is not None]
    if not matches or len(matches) < len(paths) or len({place[1] for place in matches}) > 1:
        return None
    indices = tuple(int(place[2]) for place in matches)
    n_layers = len(model.get_submodule(matches[0][1]))
    if len(indices) >= n_layers or any(b <= a for a, b in pairwise(indices)):
        return None
    others = (index for index in range(n_layers) if index not in indices)
    return LayerNumbers(indices, {index: _mixer(model.config, index, n_layers) for index in others})


def describe_layers(mixers: Mapping[int, str]) -> str:
    """A sentence about the layers without attention."""
    by_mixer: dict[str, list[int]] = {}
    for index, mixer in mixers.items():
        by_mixer.setdefault(mixer, []).append(index)
    listed = "; ".join(f"{', '.join(_ranges(indices))} ({mixer})" for mixer, indices in by_mixer.items())
    noun = "layer" if len(mixers) == 1 else "layers"
    return f"This model has no attention weights in {noun} {listed}: layers are numbered as in the model."


def _mixer(config: Any, index: int, n_layers: int) -> str:
    """What the config calls a layer without attention."""
    text_config = config.get_text_config()
    for name in ("layers_block_type", "layer_types"):
        kinds = getattr(text_config, name, None)
        if isinstance(kinds, list | tuple) and len(kinds) == n_layers:
            kind = " ".join(re.findall("[a-z0-9]+", str(kinds[index]).lower()))[:_LONGEST_KIND]
            if kind and kind.split()[0] not in _ATTENTION_KINDS:
                return kind
    return "something else"


def _ranges(indices: Sequence[int]) -> Iterator[str]:
    """Runs of indices, such as 0–2 and 4."""
    for _, group in groupby(enumerate(indices), key=lambda pair: pair[1] - pair[0]):
        run = [index for _, index in group]
        yield f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run))
