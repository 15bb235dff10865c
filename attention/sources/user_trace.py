"""The trace of tensors in a user's memory, by the rules for files: recorded numbers are shown, and a formula that reproduces them computes the rest.

The output of a model of transformers, of one pass or of all steps of a generation, is read by its form alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attention.base.errors import FileError, MatrixError, ModelError, ShapeError
from attention.base.printed import plural
from attention.base.tokens import Generated
from attention.files.given_mask import FAR, GivenMask, MaskSizes
from attention.files.given_places import GivenPlaces
from attention.files.plan import SHARED_BY_LAYERS, in_words
from attention.files.user_tensors import (
    as_tensor,
    is_list_of_arrays,
    is_low_precision,
    join_steps,
    table_labels,
    token_row,
    token_texts,
)
from attention.formula.names import HEAD_AXES, MASKED_SCORES, WEIGHTS
from attention.formula.steps import DECLARED, meant_by, our_name
from attention.trace.layer import Layer
from attention.trace.trace import TensorInputs, Trace

if TYPE_CHECKING:
    from torch import Tensor

    from attention.files.read_layers import GivenLayer

_ENCODER, _CROSS = "encoder", "cross"
_SUFFIX = "attentions"
_RECORD = 'load the model with attn_implementation="eager" and run it with output_attentions=True, or use attention.record(model, …)'
# Of TransformerLens, [pos head width].
_ROWS_FIRST = ("hook_q", "hook_k", "hook_v", "hook_z", "hook_rot_q", "hook_rot_k")
_CACHED = re.compile(r"blocks\.(\d{1,4})\.(?:attn\.)?(hook_\w{1,30})", re.ASCII)  # in TransformerLens
_NO_WEIGHTS = "none returned"  # what a layer of an output has instead of weights
_SIDES = ("query_pos", "key_pos")


@dataclass(frozen=True)
class _Labels:
    """The tokens of one side of the maps."""

    texts: tuple[str, ...] = ()  # of all positions; empty if they are not known
    real: tuple[int, ...] = ()  # the positions that are no padding; empty if all are

    @classmethod
    def of(cls, tokens: Any, batch: int, tokenizer: Any) -> _Labels:
        """The tokens as `Trace.of` takes them, of one sequence of a batch."""
        if tokens is None:
            return cls()
        mask = tokens.get("attention_mask") if isinstance(tokens, Mapping) else None
        is_real = [] if mask is None else token_row(mask, batch)
        if tokenizer is not None and isinstance(tokens, str | Mapping):
            tokens = (tokenizer(tokens) if isinstance(tokens, str) else tokens)["input_ids"]
        row = token_row(tokens, batch)
        real = tuple(position for position, number in enumerate(is_real) if number)
        return cls(_readable(row, tokenizer), real if len(real) < len(is_real) == len(row) else ())


def _readable(row: Sequence[Any], tokenizer: Any) -> tuple[str, ...]:
    """The tokens of ids as their tokenizer writes them; texts as they are."""
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)  # of a processor
    if tokenizer is None or not all(isinstance(each, int) for each in row):
        return token_texts(row)
    if not hasattr(tokenizer, "convert_ids_to_tokens"):  # of the packages tokenizers and tiktoken
        return tuple(tokenizer.decode([each]) for each in row)
    from attention.models.token_pieces import readable_tokens

    return readable_tokens(tokenizer, row)


@dataclass
class _Parts:
    """The tensors of all layers, as they were read."""

    # The part of the model to which each layer belongs: encoder, decoder, cross or another one; empty where it has one part.
    kinds: list[str] = field(default_factory=list)
    recorded: list[dict[str, Tensor]] = field(
        default_factory=list
    )  # of each layer by step; empty for a layer that has none
    axes: list[str] = field(default_factory=list)  # how those of each tensor were read, in words
    n_batch: int = 1  # the number of sequences that there are
    low_precision: bool = False  # whether the numbers had 16 bits or fewer
    ids: list[int] = field(default_factory=list)  # of a generated text with its prompt; empty for one pass
    n_prompt: int = 0  # how many of them are the prompt

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Any], batch: int | None) -> _Parts:
        """Tensors by the names of their steps, each of one layer or of all."""
        parts = cls()
        columns: dict[str, list[Tensor | None]] = {}
        for typed, value in tensors.items():
            name = our_name(typed)
            if name in columns:
                raise ShapeError(f"a layer has one {name}; got it twice, also as {typed}: give one of them.")
            columns[name] = parts._layers_of(typed, name, value, batch)
        counts = {name: len(column) for name, column in columns.items()}
        n_layers = max(counts.values())
        for name, column in columns.items():
            if counts[name] == 1 and name in SHARED_BY_LAYERS:
                columns[name] = column * n_layers
            elif counts[name] != n_layers:
                listed = ", ".join(f"{each} {count}" for each, count in counts.items())
                raise ShapeError(f"each tensor is of the same number of layers; got {listed}: give all layers of each.")
        rows = ({name: column[i] for name, column in columns.items()} for i in range(n_layers))
        parts.recorded = [{name: tensor for name, tensor in row.items() if tensor is not None} for row in rows]
        parts.kinds = [""] * n_layers
        return parts

    def _layers_of(self, typed: str, name: str, value: Any, batch: int | None) -> list[Tensor | None]:
        """A tensor of each layer, of the sequence that is shown, in the order of our axes."""
        self.low_precision |= is_low_precision(value)
        is_list, axes = is_list_of_arrays(value), DECLARED[name].axes
        given = value if is_list else [value]
        tensors = [None if each is None else as_tensor(each, typed) for each in given]
        if typed in _ROWS_FIRST:
            tensors = [each.transpose(-3, -2) if each is not None and each.ndim > 2 else each for each in tensors]
        first = next(tensor for tensor in tensors if tensor is not None)
        n_more = first.ndim - len(axes)
        before = {0: (), 1: ("batch",), 2: ("layer", "batch")}.get(n_more)
        if n_more == 1 and not is_list and batch is None and len(first) > 1:
            before = ("layer",)
        lacks_head = n_more == -1 and axes[0] in HEAD_AXES
        if not lacks_head and (before is None or (is_list and n_more == 2)):
            raise ShapeError(
                f"{typed} has the axes [{' '.join(axes)}], with axes of layers and of a batch before them if there are several; got {list(first.shape)}: bring it into this order."
            )
        before = before or ()
        words = " ".join(in_words((*before, *axes[lacks_head:])))
        self.axes.append(f"{name} [{words}] = {' × '.join(map(str, first.shape))}")
        of_layers = list(first) if "layer" in before else tensors
        return [None if tensor is None else self._of_one(tensor, typed, len(axes), batch) for tensor in of_layers]

    def _of_one(self, tensor: Tensor, typed: str, n_axes: int, batch: int | None) -> Tensor:
        if tensor.ndim < n_axes:
            return tensor[None]
        if tensor.ndim == n_axes:
            return tensor
        self.n_batch = max(self.n_batch, len(tensor))
        return _sequence_of(tensor, typed, batch).clone()  # a view would keep the whole batch in memory


def _sequence_of(tensor: Tensor, typed: str, batch: int | None) -> Tensor:
    """The sequence that is shown, of a tensor of several."""
    if not 0 <= (batch or 0) < len(tensor):
        raise ShapeError(
            f"{typed} is of {plural(len(tensor), 'sequence')}, counted from 0; got batch={batch}: choose one of them."
        )
    return tensor[batch or 0]


class _Tokens:
    """The tokens of each layer: of the text that attends, of that attended to, if it is another one, and where tokens are."""

    def __init__(self, queries: _Labels, keys: _Labels, places: GivenPlaces | None) -> None:
        self.queries, self.keys, self.places = queries, keys, places
        self.used: set[str] = set()  # which of these fitted a layer
        self.unmatched: list[int] = []  # the layers whose positions are numbered, although tokens were given
        self.n_padding = 0  # the number of positions that were left out as padding

    def apply(
        self, index: int, kind: str, recorded: dict[str, Tensor]
    ) -> tuple[dict[str, Tensor], tuple[str, ...], tuple[str, ...]]:
        sizes = Layer(recorded=recorded).sizes
        n_keys = sizes.get("key_pos", sizes.get("query_pos", 1))
        n_queries = sizes.get("query_pos", n_keys)
        other = ("keys", "queries") if self.keys.texts else ("queries",)
        of_queries, of_keys = {_ENCODER: (other, other), _CROSS: (("queries",), other), "": (("queries",), other)}.get(
            kind, (("queries",), ("queries",))
        )
        queries, keys = self._fitting(of_queries, n_queries), self._fitting(of_keys, n_keys)
        if queries is None and keys is not None and kind != _CROSS and n_queries <= n_keys:
            queries = _Labels(
                keys.texts[n_keys - n_queries :]
            )  # the last tokens of a text whose first ones are in a cache
        keys = queries if keys is None and n_queries == n_keys else keys
        if (queries is None or keys is None) and (self.queries.texts or self.keys.texts or self.places):
            self.unmatched.append(index)
        queries = queries or _Labels(tuple(f"x{i}" for i in range(n_queries)))
        keys = keys or (queries if n_queries == n_keys else _Labels(tuple(f"k{i}" for i in range(n_keys))))
        for labels, axis in zip((queries, keys), _SIDES, strict=True):
            if labels.real:
                self.n_padding = max(self.n_padding, len(labels.texts) - len(labels.real))
                recorded = {name: _selected(name, tensor, axis, labels.real) for name, tensor in recorded.items()}
        return recorded, _without_padding(queries), _without_padding(keys)

    def check(self, layers: Sequence[Layer]) -> None:
        sides = {(len(layer.tokens), len(layer.key_tokens)) for layer in layers if layer.has_attention}
        listed = " and ".join(f"{queries} queries and {keys} keys" for queries, keys in sorted(sides)[:3])
        for name, labels in (("queries", self.queries), ("keys", self.keys)):
            if labels.texts and name not in self.used:
                argument = "tokens" if name == "queries" else "key_tokens"
                raise ShapeError(
                    f"{argument} are {len(labels.texts)}, and the layers have {listed}: give one token for each of the {name}."
                )
        if self.places is not None and "places" not in self.used:
            raise ShapeError(
                f"places are {self.places.words}, and the layers have {listed}: give the grid of these, without [CLS] and the like, or one place for each token."
            )

    @property
    def notes(self) -> list[str]:
        from attention.files.read_layers import listed_layers

        return [
            f"In layers {listed_layers(self.unmatched)} there is another number of positions than of tokens: they are numbered."
            if self.unmatched
            else "",
            f"Padding is left out: {plural(self.n_padding, 'token')}." if self.n_padding else "",
        ]

    def _fitting(self, names: Sequence[str], size: int) -> _Labels | None:
        """The first tokens of this length, with their places."""
        of_size = (name for name in names if len(getattr(self, name).texts) == size)
        name = next(of_size, "")
        labels: _Labels | None = getattr(self, name) if name else None
        self.used.add(name)
        if self.places is None or (placed := self.places.on(size, labels.texts if labels else None)) is None:
            return labels
        self.used.add("places")
        return _Labels(placed, labels.real if labels else ())


def _without_padding(labels: _Labels) -> tuple[str, ...]:
    return tuple(labels.texts[i] for i in labels.real) if labels.real else labels.texts


def _selected(name: str, tensor: Tensor, axis: str, real: Sequence[int]) -> Tensor:
    axes = DECLARED[name].axes
    return tensor[(slice(None),) * axes.index(axis) + (list(real),)] if axis in axes else tensor


def _is_output(value: Any) -> bool:
    """Whether this is what a model returned, rather than a tensor, or a tensor of each layer."""
    return isinstance(value, Mapping) or (
        isinstance(value, tuple | list)
        and (
            all(each is None for each in value)
            or any(isinstance(each, tuple | list) and any(map(_is_layer, each)) for each in value)
        )
    )


def _read_output(output: Any, batch: int) -> _Parts:
    """The weights in an output, of one sequence of its batch: what a model or its `generate` returned, its tuple, or the attentions themselves.

    The layers are those of the encoder, of the decoder, then of cross-attention.
    """
    fields = _fields(output)
    windows = next((name for name in fields if name.endswith("global_attentions")), "")
    if windows:
        raise ModelError(
            f"the weights of this output are windows around each query, beside {windows}, and no maps: use attention.record(model, …), or Model.of(model, tokenizer, text)."
        )
    sequences = _row_of(getattr(output, "sequences", None), batch)
    beams = _row_of(getattr(output, "beam_indices", None), batch)
    parts = _Parts(low_precision=True, ids=sequences)
    for name, value in sorted(fields.items(), key=lambda field: _rank(_kind(field[0]))):
        kind = _kind(name) if len(fields) > 1 else ""
        steps = [list(step) for step in value] if _is_generation(value) else [list(value)]
        sizes = [len(layer) for step in steps for layer in step if layer is not None]
        if not sizes:
            raise ModelError(
                f"{name} of this output has no weights, as sdpa and flash attention return none: {_RECORD}."
            )
        parts.n_batch = max(parts.n_batch, 1 if beams else sizes[0])
        rows = [row for row in beams[: len(steps)] if row >= 0] if beams and len(steps) > 1 else [batch] * len(steps)
        if len(steps) == 1 and len(sequences) and sizes[0] < len(output.sequences):
            rows = [batch * sizes[0] // len(output.sequences)]  # an encoder reads a text once for all that follow it
        layers: list[Tensor | None] = []
        for index in range(len(steps[0])):
            of_layer = [_weights(step[index], name, index, row) for step, row in zip(steps, rows, strict=False)]
            weights = [each for each in of_layer if each is not None]
            layers.append(join_steps(weights, kind != _CROSS) if len(weights) > 1 else weights[0] if weights else None)
        if len(steps) > 1 and kind != _CROSS:
            first = next(layer for layer in steps[0] if layer is not None)
            joined = next(layer for layer in layers if layer is not None)
            parts.n_prompt = joined.shape[-1] - joined.shape[-2] + first.shape[-2]
        parts.kinds += [kind] * len(layers)
        parts.recorded += [{} if layer is None else {WEIGHTS: layer} for layer in layers]
    return parts


def _fields(output: Any) -> dict[str, Any]:
    """The attentions of an output by the names of their fields."""
    if isinstance(output, Mapping):
        named = {name: value for name, value in output.items() if isinstance(name, str) and name.endswith(_SUFFIX)}
        fields = {name: value for name, value in named.items() if value is not None and len(value)}
        if fields:
            return fields
        inner = [name for name, value in output.items() if getattr(value, _SUFFIX, None) is not None]
        if inner:
            raise ModelError(
                f"this output has the attentions of several models; got it whole: give one of them, output.{' or output.'.join(inner)}."
            )
        if not named and hasattr(output, _SUFFIX):
            named = {_SUFFIX: None}
        got = f"no {next(iter(named))}" if named else f"only {', '.join(map(str, [*output][:6]))}"
        raise ModelError(f"an output with attentions is needed; got {got}: {_RECORD}.")
    if _is_generation(output) or all(each is None for each in output):
        return {_SUFFIX: output}
    parts = [part for part in output if isinstance(part, tuple | list) and part and all(map(_is_map, part))]
    if len(parts) != 1:
        raise ModelError(
            f"one tuple of weights, [batch head query key] of each layer, is needed; got a tuple with {len(parts)} of them: give it, such as output[-1], or run the model with return_dict=True."
        )
    return {_SUFFIX: parts[0]}


def _kind(name: str) -> str:
    return name.removesuffix(_SUFFIX).rstrip("_")


def _rank(kind: str) -> int:
    return (kind != _ENCODER) + (kind == _CROSS)


def _is_layer(value: Any) -> bool:
    return len(getattr(value, "shape", ())) > 1


def _is_map(value: Any) -> bool:
    """Whether this may be the weights of a layer of a batch, and not keys or values."""
    if len(getattr(value, "shape", ())) != 4:
        return False
    return bool(((as_tensor(value[:1], _SUFFIX).sum(-1) - 1).abs() < 0.05).all())  # half precision rounds


def _is_generation(value: Any) -> bool:
    return bool(value) and all(isinstance(step, tuple | list) and any(map(_is_layer, step)) for step in value)


def _row_of(table: Any, batch: int) -> list[int]:
    if table is None:
        return []
    if not 0 <= batch < len(table):
        raise _no_sequence(len(table), batch)
    return [int(each) for each in table[batch]]


def _no_sequence(size: int, batch: int) -> ShapeError:
    return ShapeError(f"this output has {size} sequences, counted from 0; got batch={batch}: choose one of them.")


def _weights(value: Any, name: str, index: int, batch: int) -> Tensor | None:
    """The weights of one layer and sequence, [head query_pos key_pos]."""
    if value is None:
        return None
    shape: Sequence[int] = getattr(value, "shape", ())
    if len(shape) != 4:
        raise ShapeError(
            f"layer {index} of {name} needs the axes [batch head query key]; got {list(shape)}: give maps, or use attention.record(model, …)."
        )
    if not 0 <= batch < shape[0]:
        raise _no_sequence(shape[0], batch)
    return as_tensor(value[batch], f"layer {index} of {name}")


def trace_of(inputs: TensorInputs) -> Trace:
    """The trace of tensors, or of the output of a model: see `Trace.of`.

    Raises:
        AttentionError: as for `Trace.of`.
    """
    from attention.files.read_layers import read_layers  # imports torch

    tensors, output = {name: value for name, value in inputs.tensors.items() if value is not None}, inputs.output
    if cached := _of_cache(output):
        tensors, output = cached | tensors, None
    elif output is not None and not _is_output(output):
        tensors, output = {WEIGHTS: output} | tensors, None
    if (output is None) == (not tensors):
        got = f"an output beside {', '.join(tensors)}" if tensors else "neither"
        raise MatrixError(
            f"a trace is of weights, of query and key, of scores, or of what a model returned; got {got}: give one of them."
        )
    batch, places = inputs.batch or 0, GivenPlaces.of(inputs.places, inputs.picture)
    queries, keys = (_Labels.of(tokens, batch, inputs.tokenizer) for tokens in (inputs.tokens, inputs.key_tokens))
    continuation: tuple[str, ...] = ()
    if output is not None:
        parts = _read_output(output, batch)
        if not keys.texts and _is_of_encoder(queries, parts):
            queries, keys = keys, queries
        queries, continuation = _written(queries, parts, inputs.tokenizer)
    else:
        parts = _Parts.of_tensors(tensors, inputs.batch)
        rows, columns = next((labels for value in tensors.values() if any(labels := table_labels(value))), ((), ()))
        queries, keys = _Labels(queries.texts or rows, queries.real), _Labels(keys.texts or columns, keys.real)
    mask, tokens = _mask(inputs, parts), _Tokens(queries, keys, places)
    try:
        layers, problems, row_sums = read_layers(
            _given_layers(parts, mask, tokens, inputs), "a trace", len(parts.kinds) > 1, inputs.max_bytes
        )
    except FileError as error:
        raise MatrixError(str(error)) from None
    tokens.check(layers)
    first = next(layer for layer in layers if layer.has_attention)
    notes = [
        *problems,
        f"The axes were read as {', '.join(parts.axes)}; if they are others, bring them into this order."
        if parts.axes
        else "",
        f"Sequence {batch} of {parts.n_batch} is shown: batch= chooses another."
        if parts.n_batch > 1 and inputs.batch is None
        else "",
        *tokens.notes,
        "" if mask is None else mask.note,
        row_sums,
    ]
    pictures = () if places is None else places.pictures
    return Trace(
        first.tokens, layers, first.key_tokens, notes=tuple(filter(None, notes)), continuation=continuation, pictures=pictures,
        input_tokens=queries.texts if continuation else (),
    )  # fmt: skip


def _of_cache(value: Any) -> dict[str, list[Any]]:
    """The tensors of each layer in a cache of TransformerLens, by their names there; empty for everything else."""
    cached: dict[str, dict[int, Any]] = {}
    for name, tensor in value.items() if callable(getattr(value, "items", None)) else ():
        if (match := _CACHED.fullmatch(str(name))) and len(meant_by(match[2])) == 1:
            cached.setdefault(match[2], {})[int(match[1])] = tensor
    n_layers = 1 + max((number for by_layer in cached.values() for number in by_layer), default=-1)
    return {name: [by_layer.get(number) for number in range(n_layers)] for name, by_layer in cached.items()}


def _is_of_encoder(labels: _Labels, parts: _Parts) -> bool:
    """Whether tokens are those of the text that the encoder read, by their number: they fit its keys, and no query of the decoder."""
    pairs = [
        (kind, recorded[WEIGHTS].shape) for kind, recorded in zip(parts.kinds, parts.recorded, strict=True) if recorded
    ]
    source = {shape[-1] for kind, shape in pairs if kind in (_ENCODER, _CROSS)}
    written = {shape[-2] for kind, shape in pairs if kind != _ENCODER}
    return len(labels.texts) in source - written


def _written(labels: _Labels, parts: _Parts, tokenizer: Any) -> tuple[_Labels, tuple[str, ...]]:
    """The tokens that a model read while it wrote, those that it wrote marked as such; and the last one, which it did not read."""
    if not parts.n_prompt:
        return labels, ()
    n_keys = max(
        recorded[WEIGHTS].shape[-1]
        for kind, recorded in zip(parts.kinds, parts.recorded, strict=True)
        if recorded and kind not in (_ENCODER, _CROSS)
    )
    texts, written = labels.texts, _readable(parts.ids, tokenizer)
    if not texts or len(texts) == parts.n_prompt < n_keys:
        rest = written or tuple(f"x{i}" for i in range(n_keys))
        texts = (*(texts or rest[: parts.n_prompt]), *rest[parts.n_prompt :])
    marked = (*texts[: parts.n_prompt], *map(Generated, texts[parts.n_prompt :]))
    real = (*labels.real, *range(parts.n_prompt, n_keys)) if labels.real else ()
    return _Labels(marked[:n_keys], real), marked[n_keys:]


def _mask(inputs: TensorInputs, parts: _Parts) -> GivenMask | None:
    if inputs.mask is None:
        return None
    mask, first = as_tensor(inputs.mask, "mask"), next(filter(None, parts.recorded), {})
    n_layers = len(parts.recorded) if len(parts.recorded) > 1 else None
    sizes = MaskSizes.of(n_layers, Layer(recorded=first).sizes)
    of_batch = (
        mask.ndim == 4
        or (mask.ndim == 2 and mask.shape != (sizes.queries, sizes.keys))
        or (mask.ndim == 3 and len(mask) != sizes.heads)
    )
    if of_batch and len(mask) == parts.n_batch:
        mask = _sequence_of(mask, "mask", inputs.batch)
    return GivenMask.of(mask, sizes, inputs.mask_means)


def _given_layers(parts: _Parts, mask: GivenMask | None, tokens: _Tokens, inputs: TensorInputs) -> Iterator[GivenLayer]:
    """The tensors of each layer, with its name, its tokens and the usual formula."""
    from attention.files.read_layers import GivenLayer, usual_formula

    for index, (kind, recorded) in enumerate(zip(parts.kinds, parts.recorded, strict=True)):
        number = parts.kinds[:index].count(kind)
        name = f"{kind or 'layer'} {number}" if len({*parts.kinds}) > 1 else ""
        if not recorded:
            yield GivenLayer(number, name, mixer=_NO_WEIGHTS)
            continue
        given = _completed(recorded if mask is None else mask.put_into(recorded, index))
        given, queries, keys = tokens.apply(index, kind, given)
        formula = usual_formula(given, lambda key, index=index: _number(key, getattr(inputs, key, None), index))  # type: ignore[misc]  # its default
        yield GivenLayer(index, name, given, queries, keys, formula, low_precision=parts.low_precision)


def _completed(recorded: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a layer with the bias of each head, and with the mask that masked scores show."""
    sizes = Layer(recorded={key: tensor for key, tensor in recorded.items() if key not in SHARED_BY_LAYERS}).sizes
    if "bias" in recorded and len(recorded["bias"]) == 1:
        recorded = recorded | {"bias": recorded["bias"].expand(sizes.get("head", 1), -1, -1)}
    if MASKED_SCORES in recorded and "mask" not in recorded:
        masked = recorded[MASKED_SCORES]
        # Some libraries hide a key by the smallest number instead of −∞.
        hidden = masked < masked.amax(-1, keepdim=True) - FAR
        recorded = recorded | {MASKED_SCORES: masked.masked_fill(hidden, -math.inf)}
        recorded |= {"mask": ~hidden[0]} if bool((hidden == hidden[:1]).all()) else {}
    return recorded


def _number(name: str, value: Any, index: int) -> float | None:
    numbers = as_tensor(value, name).flatten().tolist() if value is not None else [None]
    if len(numbers) > 1 and index >= len(numbers):
        raise ShapeError(
            f"{name} is one number, or one for each layer; got {len(numbers)} for more layers: give one for each."
        )
    number = numbers[index if len(numbers) > 1 else 0]
    if number is not None and not 0 < number < math.inf:
        raise MatrixError(f"{name} is a number above 0; got {number}: give one, or leave it out for √d_k.")
    return number
