"""Heads that are changed inside a forward pass: what they make instead goes on through W_O, and all that follows is made anew.

Nothing that is not changed is touched: other heads stay the model's own, bit for bit. Taken queries, keys and values go through
its own attention once more; weights are changed by our formula, and mixed with the values as the model mixes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import torch

from attention.errors import ConfigError
from attention.formula.by_hand import OTHER, UNCHANGED, ByHand
from attention.formula.changing import changed, divided, reach
from attention.formula.formula import Formula
from attention.formula.intervention import Intervention
from attention.formula.names import HEAD_OUTPUT, KEY, PATCHED_OUTPUT, QUERY, VALUE, WEIGHTS
from attention.formula.patching import patched_output

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.layer import Layer

_ENTER = (QUERY, KEY, VALUE)


@dataclass(frozen=True, eq=False)
class Attended:
    """What one layer of a model attended to, without the batch axis.

    Attributes:
        query: as it enters the product, [head query_pos d_k]; `key` [kv_head key_pos d_k], `value` [kv_head key_pos d_v].
        weights: as the model made them, [head query_pos key_pos]; None where it gives none.
        head_output: [head query_pos d_v].
        again: the model's own attention once more, of another query, key and value: its weights and head output.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    weights: Tensor | None
    head_output: Tensor
    again: Callable[[Tensor, Tensor, Tensor], tuple[Tensor | None, Tensor]]


T = TypeVar("T")
Call = TypeVar("Call", bound=Attended)


@dataclass(frozen=True, eq=False)
class Given:
    """What one layer of another run gives to this one.

    Attributes:
        call: as it was there, with the head output that went on.
        weights: as that run's trace shows them, [head query_pos key_pos]; None where nobody wants them.
        head_output: as it shows what went on, [head query_pos d_v].
    """

    call: Attended
    weights: Tensor | None
    head_output: Tensor


Run = Callable[[Mapping[int, bool]], Mapping[int, Given]]
"""Another run: what it gives of the layers that are wanted of it, by their index; True where their weights are wanted too."""


@dataclass
class Pass:
    """One forward pass with changes, layer by layer.

    Attributes:
        those: what is changed.
        unchanged: of the unchanged model, by the index of the layer, where later attention is frozen at its weights.
        other: of the other state, by the index of the layer.
        wanted: the layers of which another run wants something, and whether their weights too.
        gives: what they give.
    """

    those: tuple[Intervention, ...] = ()
    unchanged: Mapping[int, Given] = field(default_factory=dict)
    other: Mapping[int, Given] = field(default_factory=dict)
    wanted: Mapping[int, bool] = field(default_factory=dict)
    gives: dict[int, Given] = field(default_factory=dict)

    @property
    def with_weights(self) -> bool:
        """Whether it may need the weights that the model makes, of whatever layer."""
        return bool(self.those or self.unchanged or self.wanted)

    def touches(self, at: int) -> bool:
        """Whether something of the layer with index `at` is changed, or frozen."""
        return at in self.unchanged or any(one.layer in (None, at) for one in self.those)

    def layer(self, at: int, call: Call, make: Callable[[Call], Layer]) -> tuple[Layer, Tensor | None]:
        """The layer with index `at`, and what goes on through W_O instead of its head output; None where nothing is changed.

        Args:
            at: its index in the trace.
            call: what it attended to.
            make: makes a layer of that.
        """
        those = [one for whole in self.those if whole.layer in (None, at) for one in whole.parts]
        kept = None
        call = self._entered(at, call, those)
        layer = make(call)
        if those or at in self.unchanged:
            layer, call, kept = self._changed(at, call, layer, those)
        if at in self.wanted:
            z = call.head_output if kept is None else kept
            shown = layer[PATCHED_OUTPUT if layer.has(PATCHED_OUTPUT) else HEAD_OUTPUT]
            weights = layer.part(WEIGHTS)[0] if self.wanted[at] else None
            self.gives[at] = Given(replace(call, head_output=z), weights, shown)
        return layer, kept

    def _entered(self, at: int, call: Call, those: Sequence[Intervention]) -> Call:
        """The call with the queries, keys and values that are taken from the other state."""
        taking = [one for one in those if one.take in _ENTER]
        if not taking:
            return call
        there = {name: _copied(getattr(call, name)) for name in _ENTER}
        reached: set[int] = set()
        for one in taking:
            whole, heads = there[one.take], reach(one, len(call.query), len(call.key))
            group = len(call.query) // len(whole)
            which = sorted({head // group for head in heads})
            whole[which] = getattr(self.other[at].call, one.take)[which]
            reached |= heads
        weights, z = call.again(*there.values())
        some = sorted(reached)
        mixed = None if call.weights is None or weights is None else _with(call.weights, weights, some)
        z = _with(call.head_output, z, some)
        query, key, value = there.values()
        return replace(call, query=query, key=key, value=value, weights=mixed, head_output=z)

    def _changed(self, at: int, call: Call, layer: Layer, those: Sequence[Intervention]) -> tuple[Layer, Call, Tensor]:
        formula = own = layer.formula
        if own is None:
            inside = [one for one in those if not all(kind.on_output(one) for kind in one.kinds)]
            if inside or at in self.unchanged:
                raise ConfigError(
                    f"Of {layer.name} only the output of heads can be changed, since its formula is not known here: silence them."
                )
            formula = own = Formula(divisor=None)
        assert own is not None
        formula = changed(own, len(call.query), len(call.key), those, at in self.unchanged)
        layer = replace(layer.recording(**self._taken(at, call, those)), formula=formula if layer.formula else None)
        others = [head for head in range(len(call.query)) if _plain(formula.of(head)) != _plain(own)]
        if others:
            weights = layer.part(WEIGHTS)[0] if call.weights is None else call.weights.clone()
            for head in others:
                weights[head] = self._weights(at, head, layer)
            value = call.value.repeat_interleave(len(call.query) // len(call.value), dim=0)
            z = call.head_output.clone()
            z[others] = torch.matmul(weights[None], value[None])[0][
                others
            ]  # all heads at once, as eager attention does
            call = replace(call, weights=weights, head_output=z)
        theirs = self.other[at].call.head_output if any(one.take == HEAD_OUTPUT for one in those) else None
        whole = torch.stack(
            [
                patched_output(formula.of(head).by_hand, z, None if theirs is None else theirs[head])
                for head, z in enumerate(call.head_output)
            ]
        )
        if layer.formula is None and formula.keeps:
            layer = layer.recording(patched_output=whole)
        return layer, call, whole

    def _taken(self, at: int, call: Call, those: Sequence[Intervention]) -> dict[str, Tensor]:
        """What the layer's trace shows of other runs: weights and outputs of all heads, of which some are taken."""
        found: dict[str, Tensor] = {}
        if at in self.unchanged:
            found["patched_weights"] = _known(self.unchanged[at].weights)
        for one in those:
            if one.take == WEIGHTS:
                weights = _known(self.other[at].weights)
                there = found.get("patched_weights", weights)
                found["patched_weights"] = _with(there, weights, sorted(reach(one, len(call.query), len(call.key))))
            if one.take == HEAD_OUTPUT:
                found["patched_head_output"] = self.other[at].head_output
        return found

    def _weights(self, at: int, head: int, layer: Layer) -> Tensor:
        """A changed head's weights: as our formula makes them, or to the bit as the other run had them."""
        hand = _known(layer.formula).of(head).by_hand
        run = {OTHER: self.other, UNCHANGED: self.unchanged}.get(dict(hand.taken).get(WEIGHTS, ""), {})
        theirs = run[at].call.weights if at in run and not hand.cells else None
        return layer.part(WEIGHTS, heads=slice(head, head + 1))[0][0] if theirs is None else theirs[head]


def _plain(formula: Formula) -> Formula:
    """What of a head's formula decides on its weights."""
    hand = formula.by_hand
    shares = ByHand(hand.cells, tuple(pair for pair in hand.taken if pair[0] == WEIGHTS))
    return replace(divided(formula), by_hand=shares, heads=())


def _known(one: T | None) -> T:
    assert one is not None  # who asks has looked
    return one


def _copied(tensor: Tensor) -> Tensor:
    """A copy that lies in memory as the tensor does: another order of strides is another order of sums."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


def _with(whole: Tensor, others: Tensor, heads: list[int]) -> Tensor:
    """A tensor with some heads of another."""
    if whole is others:
        return whole
    found = whole.clone()
    found[heads] = others[heads]
    return found
