"""The mean of the attention weights of every head over prompts of one length, as a trace.

    from attention.comparison import compare, mean_weights
    mean = mean_weights(Model(folder, text).trace() for text in texts)
    mean.layers[9].weights[6]                                     # the mean pattern of L9 H6, [query_pos key_pos]
    compare(mean, mean_weights(Model(folder, text).trace() for text in corrupted), at=HeadIndex(9, 6))

A mean of patterns is one number for each pair of positions, so that positions need the same role in all prompts, such as names in a template.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from attention.base.errors import ConfigError
from attention.explanation.alignment import align, without_partner
from attention.formula.names import WEIGHTS
from attention.trace.layer import Layer
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from torch import Tensor


def mean_weights(traces: Iterable[Trace]) -> Trace:
    """The mean of the weights [head query_pos key_pos] of each layer over traces of one model, whose texts have the same number of tokens.

    A token that differs between them is numbered, such as "x4", so that two means of one template can be compared. Traces are read one after the other, so that a generator needs
    the memory of one.

    Raises:
        ConfigError: there is no trace, or one has another number of tokens, layers or heads than the first.
    """
    sums: list[Tensor | None] = []
    first: Trace | None = None
    texts: list[list[tuple[str, ...]]] = []  # of each layer, the query tokens and the key tokens
    seen: list[tuple[dict[str, None], ...]] = []
    count = 0
    for count, trace in enumerate(traces, start=1):
        weights = [layer.blocks(WEIGHTS)[0].double() if layer.has_attention else None for layer in trace.layers]
        texts = [[layer.tokens, layer.key_tokens] for layer in trace.layers]
        if first is None:
            first, sums = trace, weights
            seen = [tuple({} for _ in side) for pair in texts for side in pair]
        else:
            _check(first, trace, count, sums, weights)
            sums = [None if a is None or b is None else a + b for a, b in zip(sums, weights, strict=True)]
        for places, side in zip(seen, [side for pair in texts for side in pair], strict=True):
            for place, token in zip(places, side, strict=True):
                place[token] = None
    if first is None:
        raise ConfigError("A mean is over at least one trace; got none: give the traces of some prompts.")
    labels = [
        tuple(f"x{i}" if len(place) > 1 else next(iter(place)) for i, place in enumerate(places)) for places in seen
    ]
    layers = []
    for index, (layer, total) in enumerate(zip(first.layers, sums, strict=True)):
        if total is None:
            layers.append(Layer(layer.name, mixer=layer.mixer))
            continue
        recorded = {WEIGHTS: (total / count).float()} | ({"mask": layer["mask"]} if layer.has("mask") else {})
        layers.append(Layer(layer.name, labels[2 * index], labels[2 * index + 1], recorded))
    index, shown = next(pair for pair in enumerate(layers) if pair[1].has_attention)
    varied = [
        f"{i} ({', '.join([*place][:2])}{', …' * (len(place) > 2)})"
        for i, place in enumerate(seen[2 * index])
        if len(place) > 1
    ]
    words = f", whose tokens differ at {', '.join(varied)}" if varied else ""
    return Trace(
        shown.tokens, tuple(layers), shown.key_tokens, notes=(f"The mean of the weights of {count} prompts{words}.",)
    )


def _check(
    first: Trace, trace: Trace, number: int, sums: Sequence[Tensor | None], weights: Sequence[Tensor | None]
) -> None:
    for a, b in zip(first.layers, trace.layers, strict=False):
        for here, there in ((a.tokens, b.tokens), (a.key_tokens, b.key_tokens)):
            if len(here) != len(there):
                lone = without_partner(align(here, there), here, there, ("prompt 1", f"prompt {number}"))
                raise ConfigError(
                    f"A mean is over prompts of one length; prompt 1 has {len(here)} tokens and prompt {number} has {len(there)} "
                    f"(without a partner: {lone}): give prompts with the same number of tokens."
                )
    shapes = [[None if each is None else tuple(each.shape) for each in group] for group in (sums, weights)]
    if shapes[0] != shapes[1]:
        raise ConfigError(
            f"A mean is over traces of one model; prompt {number} has other layers or heads than prompt 1: give traces of one model."
        )
