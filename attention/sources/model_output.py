"""The attention in what a model of transformers returned: of one pass, or of all steps of a generation. The output is read by its form alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.base.errors import ModelError, ShapeError
from attention.files.generation_steps import join_steps
from attention.files.user_tensors import as_tensor

if TYPE_CHECKING:
    from torch import Tensor

ENCODER, _DECODER, CROSS = "encoder", "decoder", "cross"
_SUFFIX = "attentions"
_RECORD = 'load the model with attn_implementation="eager" and run it with output_attentions=True, or use attention.record(model, …)'


class Block(NamedTuple):
    """The layers of one part of a model.

    Attributes:
        kind: "encoder", "decoder", "cross" or another part; empty where the model has one part.
        layers: the weights of each layer, [head query_pos key_pos]; None for a layer that returned none.
    """

    kind: str
    layers: list[Tensor | None]


class OutputAttentions(NamedTuple):
    """The attention in an output.

    Attributes:
        blocks: the parts of the model: the encoder, the decoder, then cross-attention.
        ids: the ids of a generated text with its prompt; empty for one pass.
        n_prompt: how many of them are the prompt.
        n_batch: the number of sequences.
    """

    blocks: list[Block]
    ids: list[int]
    n_prompt: int
    n_batch: int


def is_output(value: Any) -> bool:
    """Whether this is what a model returned, rather than a tensor, or a tensor of each layer."""
    return isinstance(value, Mapping) or (
        isinstance(value, tuple | list)
        and (
            all(each is None for each in value)
            or any(isinstance(each, tuple | list) and any(map(_is_layer, each)) for each in value)
        )
    )


def read_output(output: Any, batch: int) -> OutputAttentions:
    """The attention in an output, of one sequence of its batch.

    Args:
        output: what a model or its `generate` returned, the tuple of a model with return_dict=False, or the attentions themselves.
        batch: the sequence.

    Raises:
        ModelError: the output has no weights.
        ShapeError: its weights have other axes, or there is no such sequence.
    """
    fields = _fields(output)
    windows = next((name for name in fields if name.endswith("global_attentions")), "")
    if windows:
        raise ModelError(
            f"the weights of this output are windows around each query, beside {windows}, and no maps: use attention.record(model, …), or Model.of(model, tokenizer, text)."
        )
    sequences = _row_of(getattr(output, "sequences", None), batch)
    beams = _row_of(getattr(output, "beam_indices", None), batch)
    blocks, n_prompt, n_batch = [], 0, 1
    for name, value in sorted(fields.items(), key=lambda field: _rank(_kind(field[0]))):
        kind = _kind(name) if len(fields) > 1 else ""
        steps = [list(step) for step in value] if _is_generation(value) else [list(value)]
        sizes = [len(layer) for step in steps for layer in step if layer is not None]
        if not sizes:
            raise ModelError(
                f"{name} of this output has no weights, as sdpa and flash attention return none: {_RECORD}."
            )
        n_batch = max(n_batch, 1 if beams else sizes[0])
        rows = [row for row in beams[: len(steps)] if row >= 0] if beams and len(steps) > 1 else [batch] * len(steps)
        if len(steps) == 1 and len(sequences) and sizes[0] < len(output.sequences):
            rows = [batch * sizes[0] // len(output.sequences)]  # an encoder reads a text once for all that follow it
        layers: list[Tensor | None] = []
        for index in range(len(steps[0])):
            of_layer = [_weights(step[index], name, index, row) for step, row in zip(steps, rows, strict=False)]
            weights = [each for each in of_layer if each is not None]
            layers.append(join_steps(weights, kind != CROSS) if len(weights) > 1 else weights[0] if weights else None)
        if len(steps) > 1 and kind != CROSS:
            first = next(layer for layer in steps[0] if layer is not None)
            joined = next(layer for layer in layers if layer is not None)
            n_prompt = joined.shape[-1] - joined.shape[-2] + first.shape[-2]
        blocks.append(Block(kind, layers))
    return OutputAttentions(blocks, sequences, n_prompt, n_batch)


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
    return (kind != ENCODER) + (kind == CROSS)


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
