"""Sequences that a transformer reads at once, such as pictures or columns of a series: its calls of attention as one, in which none sees another.

A family runs them as a batch, or as one call after the other; either way the model computes what it would without us, bit for bit. A few also
attend across the sequences, at each place from one to the other.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from attention.models.attention_call import MaskCache, ModelCall, OwnAttention, is_large

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
        is_across: whether every second call of a module is across the sequences, which have the same length then.
        in_turn: the lengths of all sequences for which a module calls its attention one after the other, by the id of the module.
        waiting: the calls of a module that calls once for each sequence, with their outputs; those that came so far.
        n_calls: how many calls each module has made, by its id.
    """

    n_texts: int
    is_across: bool = False
    in_turn: dict[int, tuple[int, ...]] = field(default_factory=dict)
    waiting: list[tuple[ModelCall, Tensor]] = field(default_factory=list)
    n_calls: Counter[int] = field(default_factory=Counter)
    _masks: dict[tuple[tuple[int, ...], int, bool], tuple[Tensor | None, Tensor]] = field(default_factory=dict)

    def mask(self, lengths: tuple[int, ...], own: Tensor | None = None, order: Tensor | None = None) -> Tensor | None:
        """The mask of all sequences as one, [1 head query_pos key_pos], the same tensor in a pass; None if there is one sequence without a mask.

        Args:
            lengths: of the sequences.
            own: the mask of each sequence, [sequence head query_pos key_pos], boolean or additive.
            order: the tokens in the order of the sequences, if it is another than theirs.
        """
        if len(lengths) == 1 and own is None:
            return None
        key = lengths, id(own), order is not None
        if key not in self._masks:
            if own is None:
                whose = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
                joined = (whose[:, None] == whose)[None, None]
            else:
                blocks = own[: len(lengths)].expand(len(lengths), -1, -1, -1)
                joined = along_diagonal(blocks, 1, -math.inf if own.is_floating_point() else False)
            places = slice(None) if order is None else order.argsort()
            self._masks[key] = own, joined[..., places, :][..., places]  # with its own, so that no other gets this id
        return self._masks[key][1]

    def note_lengths(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A hook before a module that calls its attention once for each sequence: notes the sequences."""
        ends = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments[_ONE_CALL_EACH].tolist()
        self.in_turn[id(module)] = tuple(b - a for a, b in pairwise(ends))

    def run(self, wrapper: _Wrapper, call: ModelCall) -> tuple[Tensor, Tensor | None]:
        """What the model continues with after one of its calls, of which the wrapper sees all sequences of a text as one."""
        if id(call.module) in self.in_turn:
            return self._run_in_turn(wrapper, call, self.in_turn[id(call.module)])
        self.n_calls[id(call.module)] += 1
        if len(call.query) == self.n_texts:
            return wrapper(call)
        n_sequences, length = len(call.query) // self.n_texts, call.query.shape[2]
        order = None
        if self.is_across and self.n_calls[id(call.module)] % 2 == 0:
            order = torch.arange(n_sequences * length).view(length, n_sequences).T.flatten()
        attention, joined = _PackedAttention.of([call], (length,) * n_sequences, self, order)
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
def packed(model: Module, n_texts: int, is_across: bool = False) -> Iterator[None]:
    """A context in which the calls of this thread are those of a model that reads sequences beside each text, which see themselves only.

    With `is_across`, every second call of a module is across the sequences, from each token to those of the others at its place.
    """
    packing = _Packing(n_texts, is_across)
    token = _PACKING.set(packing)
    with ExitStack() as hooks:
        hooks.callback(_PACKING.reset, token)
        for module in model.modules():
            if _calls_for_each_sequence(type(module).forward):
                hooks.callback(module.register_forward_pre_hook(packing.note_lengths, with_kwargs=True).remove)
        yield


def current_packing() -> _Packing | None:
    """The packing of this thread; None where a model reads texts alone."""
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
        joined_mask: the mask of all sequences as one, [1 head query_pos key_pos], of which a pass has one; None if there is one sequence without a mask.
        order: the tokens in the order of the sequences, if it is another than theirs.
    """

    lengths: tuple[int, ...] = ()
    is_batch: bool = True
    own: tuple[_Tensors, tuple[_Tensors, ...]] | None = None
    joined_mask: Tensor | None = None
    order: Tensor | None = None

    @classmethod
    def of(
        cls, calls: Sequence[ModelCall], lengths: tuple[int, ...], packing: _Packing, order: Tensor | None = None
    ) -> tuple[Self, ModelCall]:
        """The attention of the calls of one module, a batch of all sequences or a call for each, and the call that has it."""
        first, is_batch = calls[0], len(calls) == 1
        parts = tuple((call.query, call.key, call.value) for call in calls)
        query, key, value = (_join([part[i] for part in parts], 2, packing.n_texts, is_batch) for i in range(3))
        if order is not None:
            query, key, value = (tensor[:, :, order.argsort()] for tensor in (query, key, value))
        own, tensors = first.attention, ((query, key, value), parts)
        own_mask = first.masks.eager(own, first.query, first.key).mask if is_batch else None
        mask = packing.mask(lengths, own_mask, order)
        attention = cls(own.module, own.args, own.kwargs, lengths, is_batch, tensors, mask, order)
        return attention, replace(first, query=query, key=key, value=value, attention=attention)

    @property
    def mask(self) -> Tensor | None:
        """The mask of all sequences as one, in which no sequence sees another."""
        return self.joined_mask

    @property
    def n_sequences(self) -> int:
        """How many sequences of a text the model runs as a batch."""
        return len(self.lengths) if self.is_batch else 1

    def with_mask(self, mask: Tensor | None) -> OwnAttention:
        """The same: its mask is made of the lengths, whatever a fused attention would need."""
        return self

    def split(self, tensor: Tensor, axis: int) -> list[Tensor]:
        """A tensor with all sequences of each text along an axis, as the model has it in each of its calls."""
        if self.order is not None:
            tensor = tensor.index_select(axis, self.order)
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
        results = [_eager(self._plain, *part[:2]).run_eager(*part) for part in self._parts(query, key, value)]
        return self._joined(results, len(query), keep_weights=True)

    def run_eager_rows(self, query: Tensor, key: Tensor, value: Tensor, rows: slice) -> tuple[Tensor, Tensor | None]:
        """Eager attention of a slice of the queries of all sequences."""
        chosen = torch.arange(query.shape[2])[rows]
        weights = query.new_zeros(*query.shape[:2], len(chosen), key.shape[2])
        output = value.new_zeros(len(query), len(chosen), query.shape[1], value.shape[-1])
        tokens = torch.arange(query.shape[2]) if self.order is None else self.order
        for index, part in enumerate(_slices(self.lengths)):
            keys = tokens[part]
            places = torch.isin(keys, chosen).nonzero()[:, 0].tolist()  # in the sequence, at equal distances
            if not places:
                continue
            step = places[1] - places[0] if len(places) > 1 else 1
            to = torch.searchsorted(chosen, keys[places])
            q, k, v = (tensor[:, :, keys] for tensor in (query, key, value))
            at = slice(places[0], places[-1] + 1, step)
            own, of_own = _eager(self._of_sequence(index), q, k).run_eager_rows(q, k, v, at)
            output[:, to] = own
            if of_own is not None:
                weights[:, :, to[:, None], keys] = of_own
        return output, weights

    def _of_sequence(self, index: int) -> OwnAttention:
        """The attention of one sequence of each text."""

        def select_rows(argument: Any) -> Any:
            is_of_each = isinstance(argument, Tensor) and argument.ndim == 4 and len(argument) > 1
            return argument[index :: len(self.lengths)] if is_of_each and self.is_batch else argument

        return self._plain.with_each_argument(select_rows)

    @property
    def _plain(self) -> OwnAttention:
        return OwnAttention(self.module, self.args, self.kwargs)

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
        if self.order is not None:
            output = output[:, self.order.argsort()]
        weights = [weights for _, weights in results if weights is not None]
        n_sequences, total = len(self.lengths), sum(self.lengths)
        if len(weights) < len(results) or (not keep_weights and is_large(weights[0].shape[1], total, total)):
            return output, None
        if self.is_batch:
            joined = along_diagonal(weights[0], n_texts)
            if self.order is None:
                return output, joined
            back = self.order.argsort()
            return output, joined[:, :, back[:, None], back]
        in_turn = [part[0] for part in weights]
        joined = in_turn[0].new_zeros(n_texts, len(in_turn[0]), total, total)
        parts = _slices(self.lengths)
        for index, block in enumerate(in_turn):
            text, sequence = divmod(index, n_sequences)
            joined[text, :, parts[sequence], parts[sequence]] = block
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


def _slices(lengths: Sequence[int]) -> list[slice]:
    """The places of sequences of these lengths that follow each other."""
    return [slice(stop - length, stop) for length, stop in zip(lengths, accumulate(lengths), strict=True)]


def _eager(attention: OwnAttention, query: Tensor, key: Tensor) -> OwnAttention:
    """The same with the mask of eager attention."""
    return MaskCache().eager(attention, query, key)
