"""Pictures, tiles or windows that a vision transformer reads at once, each for itself: its calls of attention as one call, in which none sees another.

A family runs them as a batch, or as one call after the other; either way the model computes what it would without us, bit for bit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from attention.models.attention_call import ModelCall, OwnAttention, is_large

if TYPE_CHECKING:
    from torch.nn import Module

_Tensors = tuple[Tensor, Tensor, Tensor]
"""Query, key and value of one call of the model, [batch head pos d]."""
_Wrapper = Callable[[ModelCall], tuple[Tensor, Tensor | None]]
_ONE_CALL_EACH = "cu_seqlens"
"""The argument of the attention modules that call their attention once for each sequence."""


@dataclass(eq=False)
class _Packing:
    """The sequences of one pass.

    Attributes:
        n_texts: how many equal texts are in the batch.
        in_turn: the lengths of all sequences for which a module calls its attention one after the other, by the id of the module.
        waiting: the calls of a module that calls once for each sequence, with their outputs; those that came so far.
    """

    n_texts: int
    in_turn: dict[int, tuple[int, ...]] = field(default_factory=dict)
    waiting: list[tuple[ModelCall, Tensor]] = field(default_factory=list)
    _visible: dict[tuple[int, ...], Tensor] = field(default_factory=dict)

    def visible(self, lengths: tuple[int, ...]) -> Tensor | None:
        """The cells that are no pair of two sequences, [1 1 query_pos key_pos], the same tensor in a pass; None if there is one sequence."""
        if len(lengths) == 1:
            return None
        if lengths not in self._visible:
            whose = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
            self._visible[lengths] = (whose[:, None] == whose)[None, None]
        return self._visible[lengths]

    def note_lengths(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A hook before a module that calls its attention once for each sequence: notes the sequences."""
        ends = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments[_ONE_CALL_EACH].tolist()
        self.in_turn[id(module)] = tuple(b - a for a, b in pairwise(ends))

    def run(self, wrapper: _Wrapper, call: ModelCall) -> tuple[Tensor, Tensor | None]:
        """What the model continues with after one of its calls, of which the wrapper sees all sequences of a text as one."""
        if id(call.module) in self.in_turn:
            return self._run_in_turn(wrapper, call, self.in_turn[id(call.module)])
        if len(call.query) == self.n_texts:
            return wrapper(call)
        n_sequences, length = len(call.query) // self.n_texts, call.query.shape[2]
        attention, joined = _PackedAttention.of([call], (length,) * n_sequences, self)
        return attention.split(wrapper(joined)[0], 1)[0], None

    def _run_in_turn(
        self, wrapper: _Wrapper, call: ModelCall, lengths: tuple[int, ...]
    ) -> tuple[Tensor, Tensor | None]:
        """The output of one sequence. The last call of a module gives the wrapper all of them, and corrects the earlier outputs in place."""
        if len(lengths) == 1:
            return wrapper(call)
        output, _ = call.run()
        self.waiting.append((call, output))
        if len(self.waiting) < len(lengths):
            return output, None
        calls, outputs = zip(*self.waiting, strict=True)
        self.waiting.clear()
        attention, joined = _PackedAttention.of(calls, lengths[: len(lengths) // self.n_texts], self)
        changed, _ = wrapper(joined)
        for own, new in zip(outputs, attention.split(changed, 1), strict=True):
            own.copy_(new)  # the module joins the outputs only after its last call
        return output, None


_PACKING: ContextVar[_Packing | None] = ContextVar("packing", default=None)


@contextmanager
def packed(model: Module, n_texts: int) -> Iterator[None]:
    """A context in which the calls of this thread are those of a model that reads sequences beside each text, which see themselves only."""
    packing = _Packing(n_texts)
    token = _PACKING.set(packing)
    with ExitStack() as hooks:
        hooks.callback(_PACKING.reset, token)
        for module in model.modules():
            if _calls_for_each_sequence(type(module).forward):
                hooks.callback(module.register_forward_pre_hook(packing.note_lengths, with_kwargs=True).remove)
        yield


def current_packing() -> _Packing | None:
    """The packing of this thread; None where a model reads no pictures."""
    return _PACKING.get()


@lru_cache(maxsize=2048)
def _calls_for_each_sequence(forward: Callable[..., Any]) -> bool:
    """Whether modules with this method, or those in them, call their attention once for each sequence."""
    return _ONE_CALL_EACH in inspect.signature(forward).parameters


@dataclass(frozen=True, eq=False)
class _PackedAttention(OwnAttention):
    """The attention of a model for several sequences at once, as one attention in which each sequence sees itself only.

    Attributes:
        lengths: of the sequences of one text.
        is_batch: whether the model runs the sequences as a batch; otherwise one after the other.
        own: the tensors of the packed call, and those that the model itself passed in each of its calls: copies with other strides would
            change the last bits.
        visible: the cells that are no pair of two sequences, [1 1 query_pos key_pos], of which a pass has one; None if there is one sequence.
        added: what the model adds to the scores of its sequences, along the diagonal, [1 head query_pos key_pos], and the smallest number elsewhere; None if it adds nothing.
    """

    lengths: tuple[int, ...] = ()
    is_batch: bool = True
    own: tuple[_Tensors, tuple[_Tensors, ...]] | None = None
    visible: Tensor | None = None
    added: Tensor | None = None

    @classmethod
    def of(cls, calls: Sequence[ModelCall], lengths: tuple[int, ...], packing: _Packing) -> tuple[Self, ModelCall]:
        """The attention of the calls of one module, a batch of all sequences or a call for each, and the call that has it."""
        first, is_batch = calls[0], len(calls) == 1
        parts = tuple((call.query, call.key, call.value) for call in calls)
        query, key, value = (_join([part[i] for part in parts], 2, packing.n_texts, is_batch) for i in range(3))
        own, tensors = first.attention, ((query, key, value), parts)
        attention = cls(own.module, own.args, own.kwargs, lengths, is_batch, tensors, packing.visible(lengths))
        if is_batch and own.mask is not None and len(lengths) > 1:  # one for all windows, or one for each
            blocks = own.mask[: len(lengths)].expand(len(lengths), *own.mask.shape[1:])
            hidden = torch.finfo(blocks.dtype).min if blocks.is_floating_point() else False
            added = along_diagonal(blocks, 1, hidden)
            attention = replace(attention, added=added)
        return attention, replace(first, query=query, key=key, value=value, attention=attention)

    @property
    def mask(self) -> Tensor | None:
        """The cells that are no pair of two sequences, as a boolean mask, or hidden by what the model adds to its scores."""
        return self.visible if self.added is None else self.added

    @property
    def n_sequences(self) -> int:
        """How many sequences of a text the model runs as a batch."""
        return len(self.lengths) if self.is_batch else 1

    def with_mask(self, mask: Tensor | None) -> OwnAttention:
        """The same: its mask is made of the lengths, whatever a fused attention would need."""
        return self

    def split(self, tensor: Tensor, axis: int) -> list[Tensor]:
        """A tensor with all sequences of each text along an axis, as the model has it in each of its calls."""
        if self.is_batch:
            shape = (*tensor.shape[:axis], len(self.lengths), -1, *tensor.shape[axis + 1 :])
            parts = tensor.reshape(shape).movedim(axis, 1)
            return [parts.flatten(0, 1).contiguous()]
        return [part for text in torch.split(tensor, 1) for part in torch.split(text, list(self.lengths), axis)]

    def run(self, query: Tensor, key: Tensor, value: Tensor, keep_weights: bool = True) -> tuple[Tensor, Tensor | None]:
        """The attention that the model runs, of all sequences."""
        results = [self._plain.run(*part, keep_weights) for part in self._parts(query, key, value)]
        return self._joined(results, len(query), keep_weights)

    def run_eager(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor | None]:
        """Its family's eager attention of all sequences."""
        results = [self._plain.run_eager(*part) for part in self._parts(query, key, value)]
        return self._joined(results, len(query), keep_weights=True)

    def run_eager_rows(self, query: Tensor, key: Tensor, value: Tensor, rows: slice) -> tuple[Tensor, Tensor | None]:
        """Eager attention of a slice of the queries of all sequences."""
        chosen = range(*rows.indices(query.shape[2]))
        weights = query.new_zeros(*query.shape[:2], len(chosen), key.shape[2])
        outputs, first, done = [], 0, 0
        for length in self.lengths:
            n_rows = sum(first <= row < first + length for row in chosen)
            if n_rows:
                own = chosen[done : done + n_rows]
                keys = slice(first, first + length)
                part = slice(own[0] - first, own[-1] - first + 1, own.step)
                plain = self._of_sequence(first // length)
                output, of_own = plain.run_eager_rows(query[:, :, keys], key[:, :, keys], value[:, :, keys], part)
                outputs.append(output)
                if of_own is not None:
                    weights[:, :, done : done + n_rows, keys] = of_own
                done += n_rows
            first += length
        return torch.cat(outputs, dim=1), weights

    @property
    def _plain(self) -> OwnAttention:
        return OwnAttention(self.module, self.args, self.kwargs)

    def _of_sequence(self, index: int) -> OwnAttention:
        """The attention of one sequence, with its own mask where each has one."""
        if self.added is None:
            return self._plain

        def own(argument: Any) -> Any:
            is_map = isinstance(argument, Tensor) and argument.ndim == 4 and len(argument) == self.n_sequences
            return argument[index : index + 1] if is_map else argument

        return self._plain.with_each_argument(own)

    def _parts(self, *tensors: Tensor) -> Sequence[_Tensors]:
        is_own = self.own is not None and all(mine is given for mine, given in zip(self.own[0], tensors, strict=True))
        if self.own is not None and is_own and not torch.is_grad_enabled():  # gradients are those of the packed tensors
            return self.own[1]
        query, key, value = (self.split(tensor, 2) for tensor in tensors)
        return list(zip(query, key, value, strict=True))

    def _joined(
        self, results: Sequence[tuple[Tensor, Tensor | None]], n_texts: int, keep_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The outputs of all sequences in a row, and their weights along the diagonal."""
        output = _join([output for output, _ in results], 1, n_texts, self.is_batch)
        weights = [weights for _, weights in results if weights is not None]
        n_sequences, total = len(self.lengths), sum(self.lengths)
        if len(weights) < len(results) or (not keep_weights and is_large(weights[0].shape[1], total, total)):
            return output, None
        if self.is_batch:
            return output, along_diagonal(weights[0], n_texts)
        in_turn = [part[0] for part in weights]
        joined = in_turn[0].new_zeros(n_texts, len(in_turn[0]), total, total)
        for index, block in enumerate(in_turn):
            text, sequence = divmod(index, n_sequences)
            keys = slice(first := sum(self.lengths[:sequence]), first + self.lengths[sequence])
            joined[text, :, keys, keys] = block
        return output, joined


def along_diagonal(blocks: Tensor, n_texts: int, elsewhere: float = 0) -> Tensor:
    """The maps [text·sequence head query_pos key_pos] of equally long sequences along the diagonal of one map for each text."""
    n_sequences, (_, n_heads, n_queries, n_keys) = len(blocks) // n_texts, blocks.shape
    joined = blocks.new_full((n_texts, n_heads, n_sequences, n_queries, n_sequences, n_keys), elsewhere)
    diagonal = torch.arange(n_sequences, device=blocks.device)
    joined[:, :, diagonal, :, diagonal] = blocks.unflatten(0, (n_texts, n_sequences)).transpose(0, 1)
    return joined.flatten(4, 5).flatten(2, 3)


def _join(parts: Sequence[Tensor], axis: int, n_texts: int, is_batch: bool) -> Tensor:
    """The sequences of each text in a row along an axis; the opposite of `PackedAttention.split`."""
    if is_batch:
        sequences = parts[0].reshape(n_texts, -1, *parts[0].shape[1:])
        return sequences.movedim(1, axis).flatten(axis, axis + 1)
    n_sequences = len(parts) // n_texts
    texts = [torch.cat(tuple(parts[i * n_sequences : (i + 1) * n_sequences]), dim=axis) for i in range(n_texts)]
    return torch.cat(texts)
