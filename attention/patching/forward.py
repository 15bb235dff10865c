"""A forward pass with interventions: patched head outputs enter W_O, and the model recomputes everything after them.

The other heads stay bit for bit as the model computes them. Patched queries, keys and values go through the model's
own attention again. Changed weights are computed by our formula, of which every changed head gets its own (`apply`), and
multiplied with the values as the model does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch

from attention.base.errors import ConfigError
from attention.formula.edit_kinds import LayerSize, check_index, patched_output
from attention.formula.formula import OTHER_STATE, UNCHANGED_MODEL, Formula
from attention.formula.names import HEAD_OUTPUT, KEY, PATCHED_OUTPUT, QUERY, VALUE, WEIGHTS
from attention.patching.intervention import Intervention

if TYPE_CHECKING:
    from torch import Tensor

    from attention.trace.layer import Layer

_ATTENTION_INPUTS = (QUERY, KEY, VALUE)
_LONGEST_SUGGESTION = 300  # characters, in an error


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """Inputs and outputs of the attention of one layer of a model, without the batch axis."""

    query: Tensor  # the factor of the product, [head query_pos d_k]
    key: Tensor  # [kv_head key_pos d_k]
    value: Tensor  # [kv_head key_pos d_v]
    weights: Tensor | None  # the model's weights, [head query_pos key_pos]; None if it returns none
    head_output: Tensor  # [head query_pos d_v]
    # Calls the model's own attention with another query, key and value; returns its weights and head output.
    rerun: Callable[[Tensor, Tensor, Tensor], tuple[Tensor | None, Tensor]]


_T = TypeVar("_T")
_Call = TypeVar("_Call", bound=AttentionCall)


class AlignedPositions(NamedTuple):
    """Corresponding positions along one axis of two runs."""

    here: tuple[int, ...]  # positions of the run that is patched
    there: tuple[int, ...]  # for each of them, the position of the other run


@dataclass(frozen=True, eq=False)
class Activations:
    """Activations of one layer of another run, to patch into this run."""

    # The other run's attention call; its head output is the patched one. It has weights only if they were requested.
    call: AttentionCall
    weights: Tensor | None  # the weights in that run's trace, [head query_pos key_pos]; None if they were not requested
    head_output: Tensor  # the patched head output in that run's trace, [head query_pos d_v]
    # The corresponding query positions; None: both runs have the same, and all are patched.
    queries: AlignedPositions | None = None
    keys: AlignedPositions | None = None  # the corresponding key positions; None: both runs have the same

    def patch_into(self, current: Tensor, step: str) -> Tensor:
        """This run's `current` rows of query, key, value or head output, [head pos d], with those of the other run at corresponding positions."""
        return _at_positions(current, getattr(self.call, step), self.keys if step in (KEY, VALUE) else self.queries)

    def patched_head_output(self, layer: Layer) -> Tensor:
        """The same for the head output [head query_pos d_v] of `layer`, in this run's trace."""
        if self.queries is None:
            return self.head_output
        return _at_positions(layer[HEAD_OUTPUT], self.head_output, self.queries)


_RunOther = Callable[[Mapping[int, bool]], Mapping[int, Activations]]
"""Another run: maps requested layers (by index; True: with weights) to their activations."""


@dataclass
class PatchedForward:
    """One forward pass with interventions, layer by layer."""

    interventions: tuple[Intervention, ...] = ()  # those of heads
    sites: tuple[Intervention, ...] = ()  # those of MLPs and of the residual stream, see `attention.models.layer_sites`
    # What they write in the other state, [pos d_model] of each part, by site and layer; and the corresponding positions, None: all.
    other_sites: Mapping[tuple[str, int], Sequence[Tensor]] = field(default_factory=dict)
    site_positions: AlignedPositions | None = None
    captured_sites: dict[tuple[str, int], list[Tensor]] | None = (
        None  # the same of this run, filled at the places that another needs
    )
    # Activations of the unchanged model by layer index, for layers whose weights are frozen.
    unchanged: Mapping[int, Activations] = field(default_factory=dict)
    other: Mapping[int, Activations] = field(default_factory=dict)  # activations of the other state by layer index
    # The layers whose activations another run needs, by index; True: with weights.
    requested: Mapping[int, bool] = field(default_factory=dict)
    captured: dict[int, Activations] = field(default_factory=dict)  # the activations of these layers

    @property
    def needs_weights(self) -> bool:
        """Whether the pass may need the model's weights in any layer."""
        return bool(self.interventions or self.unchanged or self.requested)

    def affects(self, index: int) -> bool:
        """Whether the pass changes or freezes the layer with this index."""
        return index in self.unchanged or any(
            intervention.layer in (None, index) for intervention in self.interventions
        )

    def run_layer(self, index: int, call: _Call, make_layer: Callable[[_Call], Layer]) -> tuple[Layer, Tensor | None]:
        """The layer with this index, and the patched head output that enters W_O; None if the layer is unchanged.

        `make_layer` makes a layer of a call.
        """
        interventions = [
            part
            for intervention in self.interventions
            if intervention.layer in (None, index)
            for part in intervention.parts
        ]
        patched = None
        call = self._patch_inputs(index, call, interventions)
        layer = make_layer(call)
        if interventions or index in self.unchanged:
            layer, call, patched = self._apply(index, call, layer, interventions)
        if index in self.requested:
            z = call.head_output if patched is None else patched
            traced_output = layer[PATCHED_OUTPUT if layer.has(PATCHED_OUTPUT) else HEAD_OUTPUT]
            weights = layer.blocks(WEIGHTS)[0] if self.requested[index] else None
            own_weights = call.weights if self.requested[index] else None
            self.captured[index] = Activations(
                replace(call, head_output=z, weights=own_weights), weights, traced_output
            )
        return layer, patched

    def _patch_inputs(self, index: int, call: _Call, interventions: Sequence[Intervention]) -> _Call:
        patches = [intervention for intervention in interventions if intervention.patch in _ATTENTION_INPUTS]
        if not patches:
            return call
        inputs = {name: _copy_with_strides(getattr(call, name)) for name in _ATTENTION_INPUTS}
        affected: set[int] = set()
        for patch in patches:
            tensor, heads = inputs[patch.patch], _affected_heads(patch, len(call.query), len(call.key))
            group = len(call.query) // len(tensor)
            rows = sorted({head // group for head in heads})
            tensor[rows] = self.other[index].patch_into(tensor, patch.patch)[rows]
            affected |= heads
        new_weights, new_output = call.rerun(*inputs.values())
        replaced = sorted(affected)
        weights = None
        if call.weights is not None and new_weights is not None:
            weights = _replace_heads(call.weights, new_weights, replaced)
        z = _replace_heads(call.head_output, new_output, replaced)
        query, key, value = inputs.values()
        return replace(call, query=query, key=key, value=value, weights=weights, head_output=z)

    def _apply(
        self, index: int, call: _Call, layer: Layer, interventions: Sequence[Intervention]
    ) -> tuple[Layer, _Call, Tensor]:
        """The layer and the call with the interventions, and the patched output of all heads [head query_pos d_v]."""
        base = layer.formula
        if base is None:
            needs_formula = any(not kind.only_output(part) for part in interventions for kind in part.kinds)
            if needs_formula or index in self.unchanged:
                raise ConfigError(
                    f"{layer.name} allows only changes of head outputs, since its formula is not known here; "
                    "got another change: ablate its heads instead."
                )
            base = Formula(divisor=None)
        formula = apply(base, len(call.query), len(call.key), interventions, index in self.unchanged)
        if index in self.other and self.other[index].queries is not None:
            formula = _with_aligned_patches(formula)
        tensors = self._patched_tensors(index, call, interventions)
        layer = replace(layer.with_tensors(**tensors), formula=formula if layer.formula else None)
        changed_heads = [
            head
            for head in range(len(call.query))
            if _formula_of_weights(formula.for_head(head)) != _formula_of_weights(base)
        ]
        if changed_heads:
            weights = layer.blocks(WEIGHTS)[0] if call.weights is None else call.weights.clone()
            for head in changed_heads:
                weights[head] = self._head_weights(index, head, layer)
            value = call.value.repeat_interleave(len(call.query) // len(call.value), dim=0)
            z = call.head_output.clone()
            mixed = torch.matmul(weights[None], value[None])[0]  # all heads at once, as eager attention does
            z[changed_heads] = mixed[changed_heads]
            call = replace(call, weights=weights, head_output=z)
        takes_output = any(intervention.patch == HEAD_OUTPUT for intervention in interventions)
        other_output = self.other[index].patch_into(call.head_output, HEAD_OUTPUT) if takes_output else None
        if takes_output:
            layer = layer.with_tensors(patched_head_output=self.other[index].patched_head_output(layer))
        patched = torch.stack(
            [
                patched_output(
                    formula.for_head(head).head_edits, z, None if other_output is None else other_output[head]
                )
                for head, z in enumerate(call.head_output)
            ]
        )
        if layer.formula is None and formula.patches_output:
            layer = layer.with_tensors(patched_output=patched)
        return layer, call, patched

    def _patched_tensors(self, index: int, call: _Call, interventions: Sequence[Intervention]) -> dict[str, Tensor]:
        """Recorded tensors from other runs: weights and outputs of all heads, of which the formula uses some."""
        tensors: dict[str, Tensor] = {}
        if index in self.unchanged:
            tensors["patched_weights"] = _not_none(self.unchanged[index].weights)
        for intervention in interventions:
            if intervention.patch == WEIGHTS:
                weights = _not_none(self.other[index].weights)
                heads = sorted(_affected_heads(intervention, len(call.query), len(call.key)))
                tensors["patched_weights"] = _replace_heads(tensors.get("patched_weights", weights), weights, heads)
        return tensors

    def _head_weights(self, index: int, head: int, layer: Layer) -> Tensor:
        """A changed head's weights: those of our formula, or bit for bit those of the other run."""
        edits = _not_none(layer.formula).for_head(head).head_edits
        run = {OTHER_STATE: self.other, UNCHANGED_MODEL: self.unchanged}.get(dict(edits.patches).get(WEIGHTS, ""), {})
        weights = run[index].call.weights if index in run and not edits.cells else None
        return layer.blocks(WEIGHTS, heads=slice(head, head + 1))[0][0] if weights is None else weights[head]


def _affected_heads(intervention: Intervention, n_heads: int, n_kv_heads: int) -> set[int]:
    """The heads that an intervention affects; patched keys or values affect all heads that share them."""
    if intervention.head is None:
        return set(range(n_heads))
    shared = any(kind.affects_kv_group(intervention) for kind in intervention.kinds)
    group = n_heads // n_kv_heads if shared else 1
    first = intervention.head // group * group
    return set(range(first, first + group))


def apply(
    formula: Formula, n_heads: int, n_kv_heads: int, interventions: Iterable[Intervention], frozen: bool = False
) -> Formula:
    """A layer's formula with interventions; `frozen`: the other heads keep the weights of the unchanged model."""
    base, heads = formula, dict[int, Formula]()
    if frozen:
        base = replace(base, head_edits=base.head_edits.with_patch(WEIGHTS, UNCHANGED_MODEL))
    for intervention in interventions:
        if intervention.head is None:
            base = _with_intervention(base, intervention)
            heads = {head: _with_intervention(edited, intervention) for head, edited in heads.items()}
        else:
            affected = _affected_heads(intervention, n_heads, n_kv_heads)
            heads |= {head: _with_intervention(heads.get(head, base), intervention) for head in affected}
    if any(edited.divisor for edited in (base, *heads.values())):  # all heads then have the step of scaled scores
        base, heads = _with_divisor(base), {head: _with_divisor(edited) for head, edited in heads.items()}
    return replace(base, heads=tuple(sorted((head, edited) for head, edited in heads.items() if edited != base)))


def _with_intervention(formula: Formula, intervention: Intervention) -> Formula:
    for kind in intervention.kinds:
        if kind.changes_weights(intervention):  # a change of a head's weights overrides their freezing
            edits = formula.head_edits
            patches = tuple(pair for pair in edits.patches if pair != (WEIGHTS, UNCHANGED_MODEL))
            formula = replace(formula, head_edits=replace(edits, patches=patches))
        formula = kind.edit_formula(formula, intervention)
    return formula


def _with_aligned_patches(formula: Formula) -> Formula:
    """The formula with patches from another state that has other tokens: only corresponding tokens are patched."""
    heads = tuple((head, _with_aligned_patches(edited)) for head, edited in formula.heads)
    return replace(formula, head_edits=formula.head_edits.aligned, heads=heads)


def _with_divisor(formula: Formula) -> Formula:
    return replace(formula, divisor=formula.divisor or 1.0)


def _formula_of_weights(formula: Formula) -> Formula:
    """The part of a head's formula that determines its weights."""
    return replace(_with_divisor(formula), head_edits=formula.head_edits.of_weights, heads=())


def _not_none(value: _T | None) -> _T:
    assert value is not None
    return value


def _copy_with_strides(tensor: Tensor) -> Tensor:
    """A copy with the same strides: other strides would change the order of summation, and so the last bits."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


def _at_positions(current: Tensor, other: Tensor, positions: AlignedPositions | None) -> Tensor:
    """`other` [head pos d]; with `positions`, `current` with the rows of `other` at corresponding positions."""
    if positions is None:
        return other
    result = current.clone()
    result[:, list(positions.here)] = other[:, list(positions.there)]
    return result


def _replace_heads(tensor: Tensor, source: Tensor, heads: list[int]) -> Tensor:
    if tensor is source:
        return tensor
    result = tensor.clone()
    result[heads] = source[heads]
    return result


def prepare_pass(
    interventions: tuple[Intervention, ...], order: Sequence[int], unchanged: _RunOther | None, other: _RunOther
) -> PatchedForward:
    """The pass with these interventions and the activations that it needs from other runs.

    Args:
        interventions: the interventions.
        order: the layer indices, in the order in which the layers run.
        unchanged: runs the unchanged model; None: later attention is not frozen.
        other: runs the other state.

    Raises:
        ConfigError: the other state does not have the activations to patch from.
    """
    of_heads = tuple(each for each in interventions if not each.site)
    forward = PatchedForward(of_heads, tuple(each for each in interventions if each.site))
    if unchanged is not None and (frozen := layers_after_first(order, interventions)):
        forward.unchanged = unchanged(dict.fromkeys(frozen, True))
    if requested := patched_layers(order, interventions):
        forward.other = other(requested)
    return forward


def layers_after_first(order: Sequence[int], interventions: Iterable[Intervention]) -> Sequence[int]:
    """The indices of the layers that run after the first changed layer."""
    starts = []
    for change in interventions:
        if change.layer is None or not change.site:
            starts.append(0 if change.layer is None else order.index(change.layer))
        else:  # a layer with an MLP may have no attention, where all layers are in one list
            starts.append(sum(index <= (change.layer or 0) for index in order) - 1)
    return order[min(starts, default=len(order)) + 1 :]


def count_layers(order: Sequence[int], interventions: Sequence[Intervention], frozen: bool) -> int:
    """The number of layers that are changed or frozen."""
    layers = {index for change in interventions for index in (order if change.layer is None else (change.layer,))}
    return len(layers.union(layers_after_first(order, interventions) if frozen else ()))


def patched_layers(order: Sequence[int], interventions: Iterable[Intervention]) -> dict[int, bool]:
    """The indices of the layers that are patched from the other state; True: they need its weights."""
    layers: dict[int, bool] = {}
    for patch in (intervention for intervention in interventions if intervention.patch and not intervention.site):
        for index in order if patch.layer is None else [patch.layer]:
            layers[index] = layers.get(index, False) or patch.patch == WEIGHTS
    return layers


def describe(interventions: Iterable[Intervention], layers: Sequence[Layer], frozen: bool) -> tuple[str, ...]:
    """A sentence for each intervention, and one for frozen attention."""
    sentences = [intervention.words + _shared_heads(intervention, layers) for intervention in interventions]
    if sentences and frozen:
        sentences.append(f"Later layers attend as in {UNCHANGED_MODEL} (frozen attention): its A, the V of this run.")
    return tuple(sentences)


def _shared_heads(intervention: Intervention, layers: Sequence[Layer]) -> str:
    """A sentence about the heads that share the patched keys or values; empty if they share none."""
    index = intervention.layer
    if intervention.site:
        return ""
    layer = next(layer for layer in layers if layer.has_attention) if index is None else layers[index]
    group = layer.n_heads // layer.sizes.get("kv_head", layer.n_heads)
    shared = any(kind.affects_kv_group(intervention) for kind in intervention.kinds)
    if intervention.head is None or not shared or group == 1:
        return ""
    first = intervention.head // group * group
    heads = [str(head) for head in range(first, first + group)]
    return f" Heads {', '.join(heads[:-1])} and {heads[-1]} share key head {first // group}, and change together."


def check(interventions: Sequence[Intervention], layers: Sequence[LayerSize]) -> None:
    """Raises an error if the layers do not have the changed heads or cells; called before a run.

    Raises:
        ConfigError: there is no such layer, head or cell.
    """
    for intervention in interventions:
        check_index("layers", intervention.layer, len(layers))
        indices = [index for index, layer in enumerate(layers) if layer.n_heads]
        if intervention.site:
            longest = max((layer.n_queries for layer in layers), default=0)
            check_index("positions", max(intervention.positions, default=None), longest)
            continue
        if intervention.layer is not None and intervention.layer not in indices:
            raise ConfigError(
                f"An intervention changes a layer with attention, of this model {', '.join(map(str, indices))}; "
                f"got {intervention.layer}, which has none: choose one of these."
            )
        for layer in [layers[index] for index in (indices if intervention.layer is None else [intervention.layer])]:
            check_index(f"heads of {layer.name}", intervention.head, layer.n_heads)
            check_index(f"queries of {layer.name}", max(intervention.positions, default=None), layer.n_queries)
            for kind in intervention.kinds:
                kind.check(intervention, layer)


def check_other_state(source: str, other: _T | None, problem: str) -> _T:
    """`other`, checked as the state to patch from; `source` is the name of its class, and `problem` why it cannot be patched from, or empty.

    Raises:
        ConfigError: there is no other state, or it cannot be patched from.
    """
    if other is None:
        raise ConfigError(
            f"Patching needs another state to patch from; got none: "
            f"give its text (other= in a link, other={source}(…) in Python), or compare two states."
        )
    if problem:
        raise ConfigError(
            f"The other state is of the same model and is not itself patched; this one {problem}: choose another."
        )
    return other


def check_lengths(
    lengths: Sequence[int],
    other_lengths: Sequence[int],
    suggest: Callable[[], str] = str,
    unmatched: Callable[[], str] = str,
) -> None:
    """Raises an error if the texts of the other state have another number of tokens.

    Raises:
        ConfigError: the lengths differ; the message suggests the text of `suggest`, and names the tokens of `unmatched`, unless these are empty.
    """
    if list(other_lengths) == list(lengths):
        return
    text = suggest()
    suggestion = f"such as “{text}”" if 0 < len(text) <= _LONGEST_SUGGESTION else "a text with as many tokens"
    words = f" (without a partner: {lone})" if (lone := unmatched()) else ""
    raise ConfigError(
        f"Patching needs the same number of tokens in both states; the other has {' and '.join(map(str, other_lengths))}, "
        f"this one {' and '.join(map(str, lengths))}{words}: give the other state {suggestion}."
    )
