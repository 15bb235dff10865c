"""Calls as the layers of a trace: tokens, the formula where it gives the numbers of the module, and what has to be said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from attention.base.errors import ConfigError, check_index
from attention.files.given_places import GivenPlaces
from attention.formula.functions import project_output
from attention.formula.names import HEAD_OUTPUT, MAP_AXES, OUTPUT, WEIGHTS
from attention.formula.scores import BLOCK_ROWS
from attention.formula.steps import STEPS
from attention.trace.layer import Layer
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from attention.formula.formula import Formula


@dataclass(frozen=True, eq=False)
class Call:
    """One attention of a recorded pass."""

    name: str  # the path of the module that computed it, such as "blocks.2.attn"; empty outside of all modules
    where: str  # the line of code, such as "model.py:31"
    # Tensors of one element of the batch by our names of steps and parameters, in the module's dtype.
    steps: Mapping[str, Tensor]
    # Computes the maps from Q and K, if the code has the steps in the order of ours; None: the steps are shown as recorded.
    formula: Formula | None = None
    # Sentences about what was not understood, without the name and the line, which are put before them.
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)  # explanations of recorded steps, as in `Layer`
    batch_size: int = 1  # the number of elements of the module's batch
    # The largest difference between the weights of the formula and those of the module; None if there are none to compare.
    max_weight_error: float | None = None
    is_prefix: bool = False  # whether its positions are the first of the tokens, since padding is left out
    extra_keys: tuple[str, ...] = ()  # the names of keys that the module adds after those of its input


_TOLERANCE = 1e-4  # how far weights may be from those of the formula, which computes in float32
_MAX_BYTES = 2**24  # of the maps of all heads of a layer; larger layers compute them head by head
_MAPS = tuple(step.name for step in STEPS if step.axes == MAP_AXES)
_BYTES_PER_NUMBER = 4
_SHOWN = 4  # names in a note


def checked(call: Call, exact: Tensor | None = None) -> Call:
    """The call without its maps, if its formula gives them; without a formula, if it does not.

    `exact` are the weights in float32 of a module in half precision, whose own are too coarse to tell one formula from another.
    """
    if call.formula is None:
        return call
    layer, steps = _layer(call), call.steps
    weights, output = steps.get(WEIGHTS), steps.get(HEAD_OUTPUT)
    is_formula, error = True, None
    if weights is not None:
        error = _largest_difference(layer, weights)
        compared = error if exact is None else _largest_difference(layer, exact)
        is_half = weights.dtype in (torch.bfloat16, torch.float16)
        is_formula = compared <= (_TOLERANCE if exact is not None or not is_half else 0.1)
    kept = {name: tensor for name, tensor in call.steps.items() if name not in _MAPS}
    if is_formula and output is not None:
        expected = plain(output).nan_to_num(0)
        scale = float(expected.abs().max()) + 1e-6
        eps = torch.finfo(output.dtype).eps
        is_same = bool((layer[HEAD_OUTPUT] - expected).abs().max() <= max(_TOLERANCE, 16 * eps) * scale)
        if is_same:
            del kept[HEAD_OUTPUT]
        is_formula = is_same or weights is not None or "dropout" in " ".join(call.notes)
    if is_formula:
        return replace(call, steps=kept, max_weight_error=error)
    note = "the formula does not give its weights: its steps are shown as recorded"
    return replace(call, formula=None, notes=(*call.notes, note))


def plain(tensor: Tensor) -> Tensor:
    """A tensor as truth values or float32 on the CPU."""
    tensor = tensor.detach().cpu()
    return tensor if tensor.dtype == torch.bool else tensor.float()


class Labels(NamedTuple):
    """What the positions are, as the arguments of `record` say it."""

    tokens: Any
    key_tokens: Any
    places: Any
    picture: Any


def trace_of(calls: Sequence[Call], notes: Sequence[str], labels: Labels, batch: int) -> Trace:
    """The trace of recorded calls, one layer for each, of this element of the batch; `notes` are said too.

    Raises:
        ConfigError: tokens are no words, or places are none.
        MissingError: no batch has this element.
    """
    check_index("elements of the batch", batch, max(call.batch_size for call in calls))
    words, key_words = _words(labels.tokens, "tokens"), _words(labels.key_tokens, "key_tokens")
    places = GivenPlaces.of(labels.places, labels.picture)
    names, layers, unnamed = _names(calls), [], list[str]()
    for call, name in zip(calls, names, strict=True):
        layer = _with_outputs(replace(_layer(call), name=name), call)
        n_queries, n_keys = layer.sizes["query_pos"], layer.sizes["key_pos"] - len(call.extra_keys)
        of_queries, of_keys = words, key_words or words
        if call.is_prefix and words is not None:
            of_queries = of_keys = words[:n_queries]
        queries, fits = _tokens(n_queries, of_queries, places)
        keys, keys_fit = _tokens(n_keys, of_keys, places, "x" if n_keys == n_queries else "key ")
        if not (fits and keys_fit):
            unnamed.append(f"{name} ({layer.sizes['query_pos']} × {layer.sizes['key_pos']})")
        layers.append(replace(layer, tokens=queries, key_tokens=(*keys, *call.extra_keys)))
    said = [
        f"{name} ({call.where}): {note.removesuffix('.')}."
        for name, call in zip(names, calls, strict=True)
        for note in call.notes
    ]
    if unnamed:
        given = f"{len(words)} tokens" if words is not None else "no tokens" if places is None else places.words
        said.append(
            f"{given[0].upper()}{given[1:]} and another number of positions (queries × keys) in {_listed(unnamed)}: these positions are numbered."
        )
    batches = {call.batch_size for call in calls if call.batch_size > 1}
    if batches:
        sizes = " or ".join(map(str, sorted(batches)))
        said.append(f"This is element {batch} of a batch of {sizes}; batch=… records another one.")
    errors = [call.max_weight_error for call in calls if call.max_weight_error is not None]
    return Trace(
        layers[0].tokens,
        tuple(layers),
        layers[0].key_tokens,
        notes=tuple(dict.fromkeys((*said, *notes))),
        no_prediction_reason="What runs here is not known: there are no predictions.",
        max_weight_error=max(errors, default=None),
        pictures=() if places is None else places.pictures,
    )


def _layer(call: Call) -> Layer:
    """The layer of a call, without tokens; with a formula, of what it is computed from."""
    steps = {name: plain(tensor) for name, tensor in call.steps.items()}
    if call.formula is not None:
        steps = {name: tensor for name, tensor in steps.items() if name not in (*_MAPS, HEAD_OUTPUT, OUTPUT)}
    layer = Layer(call.name, recorded=steps, formula=call.formula, provenance=call.provenance)
    sizes = layer.sizes
    n_bytes = len(_MAPS) * layer.n_heads * sizes["query_pos"] * sizes["key_pos"] * _BYTES_PER_NUMBER
    return replace(layer, materialize_all_heads=n_bytes <= _MAX_BYTES)


def _with_outputs(layer: Layer, call: Call) -> Layer:
    """A layer with the outputs that its formula does not give; with W_O, if it gives the output."""
    steps = call.steps
    if layer.formula is not None and HEAD_OUTPUT in steps:
        layer = layer.with_tensors(head_output=plain(steps[HEAD_OUTPUT]))
    if OUTPUT not in steps:
        return layer
    expected = plain(steps[OUTPUT])
    if layer.w_o is not None:
        output = project_output(layer[HEAD_OUTPUT], layer.w_o, layer.b_o)
        tolerance = max(_TOLERANCE, 16 * torch.finfo(steps[OUTPUT].dtype).eps) * (float(expected.abs().max()) + 1e-6)
        if bool(((output - expected).abs() <= tolerance).all()):
            return layer.without(OUTPUT) if layer.formula is not None else layer
    return layer.without("w_o", "b_o").with_tensors(output=expected)


def _largest_difference(layer: Layer, weights: Tensor) -> float:
    """The largest difference between the weights of the formula and those of a module; NaN, of a query that sees no key, counts as 0."""
    errors = [0.0]
    for start in range(0, weights.shape[1], BLOCK_ROWS):
        rows = slice(start, min(start + BLOCK_ROWS, weights.shape[1]))
        ours, theirs = layer.blocks(WEIGHTS, rows=rows)[0], plain(weights[:, rows]).nan_to_num(0)
        errors.append(float((ours - theirs).abs().max()))
    return max(errors)


def _words(tokens: Any, name: str) -> tuple[str, ...] | None:
    if tokens is None:
        return None
    if isinstance(tokens, str | bytes) or not isinstance(tokens, Iterable):
        raise ConfigError(
            f"{name} is a list of words, one for each position; got {tokens!r:.60}: write {name}=text.split(), or the list of your tokenizer."
        )
    return tuple(token if isinstance(token, str) else str(token) for token in tokens)


def _tokens(
    count: int, words: tuple[str, ...] | None, places: GivenPlaces | None, letter: str = "x"
) -> tuple[tuple[str, ...], bool]:
    """The tokens of an axis, and whether the user's fit it; numbered if not."""
    if places is not None and (placed := places.on(count, words)) is not None:
        return placed, True
    if words is not None and len(words) == count:
        return words, True
    return tuple(f"{letter}{position}" for position in range(count)), words is None and places is None


def _names(calls: Sequence[Call]) -> list[str]:
    counts, names = Counter[str](), []
    for call in calls:
        name = call.name or "attention"
        counts[name] += 1
        names.append(name if counts[name] == 1 else f"{name} (call {counts[name]})")
    return names


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
