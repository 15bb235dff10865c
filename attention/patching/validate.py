"""Validation of interventions against a model, the activations they need from other runs, and their descriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from attention.base.errors import ConfigError
from attention.formula.edit_kinds import LayerSize, check_index
from attention.formula.formula import UNCHANGED_MODEL
from attention.formula.names import WEIGHTS
from attention.patching.forward import PatchedForward
from attention.patching.intervention import Intervention

if TYPE_CHECKING:
    from attention.patching.forward import RunOther
    from attention.trace.layer import Layer

_LONGEST_SUGGESTION = 300  # characters, in an error
T = TypeVar("T")


def prepare_pass(
    interventions: tuple[Intervention, ...], order: Sequence[int], unchanged: RunOther | None, other: RunOther
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
    forward = PatchedForward(interventions)
    if unchanged is not None and (frozen := layers_after_first(order, interventions)):
        forward.unchanged = unchanged(dict.fromkeys(frozen, True))
    if requested := patched_layers(order, interventions):
        forward.other = other(requested)
    return forward


def layers_after_first(order: Sequence[int], interventions: Iterable[Intervention]) -> Sequence[int]:
    """The indices of the layers that run after the first changed layer."""
    starts = (0 if change.layer is None else order.index(change.layer) for change in interventions)
    return order[min(starts, default=len(order)) + 1 :]


def count_layers(order: Sequence[int], interventions: Sequence[Intervention], frozen: bool) -> int:
    """The number of layers that are changed or frozen."""
    layers = {index for change in interventions for index in (order if change.layer is None else (change.layer,))}
    return len(layers.union(layers_after_first(order, interventions) if frozen else ()))


def patched_layers(order: Sequence[int], interventions: Iterable[Intervention]) -> dict[int, bool]:
    """The indices of the layers that are patched from the other state; True: they need its weights."""
    layers: dict[int, bool] = {}
    for patch in (intervention for intervention in interventions if intervention.patch):
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
        if intervention.layer is not None and intervention.layer not in indices:
            raise ConfigError(
                f"An intervention changes a layer with attention, of this model {', '.join(map(str, indices))}; "
                f"got {intervention.layer}, which has none: choose one of these."
            )
        for layer in [layers[index] for index in (indices if intervention.layer is None else [intervention.layer])]:
            check_index(f"heads of {layer.name}", intervention.head, layer.n_heads)
            for kind in intervention.kinds:
                kind.check(intervention, layer)


def check_other_state(source: str, other: T | None, problem: str) -> T:
    """`other`, checked as the state to patch from.

    Args:
        source: the class name of the source, for the error.
        other: the other state.
        problem: the reason why `other` cannot be patched from; empty if it can.

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


def check_lengths(lengths: Sequence[int], other_lengths: Sequence[int], suggest: Callable[[], str] = str) -> None:
    """Raises an error if the texts of the other state have another number of tokens.

    Args:
        lengths: numbers of tokens of this state's texts.
        other_lengths: numbers of tokens of the other state's texts.
        suggest: returns a text with the right number of tokens; empty if none is known.

    Raises:
        ConfigError: the lengths differ; the message suggests a text.
    """
    if list(other_lengths) == list(lengths):
        return
    text = suggest()
    suggestion = f"such as “{text}”" if 0 < len(text) <= _LONGEST_SUGGESTION else "a text with as many tokens"
    raise ConfigError(
        f"Patching needs the same number of tokens in both states; the other has {' and '.join(map(str, other_lengths))}, "
        f"this one {' and '.join(map(str, lengths))}: give the other state {suggestion}."
    )
