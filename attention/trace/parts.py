"""A run of a model in which everything that its parts write to the residual stream can be read and replaced."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

Place = tuple[int, int]
"""A module by its index, and which of its calls it is: some families use one module in several layers."""
Inputs = dict[str, Tensor]
"""Query, key and value of an attention call, each [batch head pos d]."""
Compute = Callable[[], Any]
"""Computes what a handler replaces, such as the output of an MLP."""


@dataclass(frozen=True)
class Handlers:
    """Functions that read and replace the activations of a run.

    Attributes:
        inputs: receives the index of an attention call, and its query, key and value.
        head_outputs: receives the index of the call, the outputs of its heads [batch query_pos head d_v], and what computes a copy of
            them with the interventions of the run.
        projected: receives the place of W_O, the index of the call, and what computes its output.
        written: receives the place of an MLP, and what computes its output.
        embedding: receives the embedding of the text.
    """

    inputs: Callable[[int, Inputs], Inputs]
    head_outputs: Callable[[int, Tensor, Callable[[], Tensor]], Tensor]
    projected: Callable[[Place, int, Compute], Any] = lambda place, call, compute: compute()
    written: Callable[[Place, Compute], Any] = lambda place, compute: compute()
    embedding: Callable[[Tensor], Tensor] = lambda x: x


class PartRunner(Protocol):
    """Repeats one run of a model, with its interventions.

    Attributes:
        layers: the index in the trace of each attention call.
        batch_size: the number of texts that run at once.
    """

    layers: tuple[int, ...]
    batch_size: int

    def run(self, n_rows: int, handlers: Handlers) -> Tensor:
        """The logits [batch position token] in float64, of a batch of equal texts."""

    def mlp_layer(self, place: Place, n_calls: int) -> int:
        """The layer of a module that writes, which is called this number of times."""


@dataclass(frozen=True, eq=False)
class RunParts:
    """A run of a model whose parts can be read and replaced, and what is known of it before it runs again.

    Attributes:
        key: everything that its numbers depend on.
        model: the name of the model.
        text: its input, in a form that can be typed.
        lengths: the numbers of tokens of its texts.
        tokens: those of the text with the prediction.
        n_heads: the number of query heads in each layer; 0 where it has no attention.
        n_kv_heads: the number of heads of keys and values in each layer, as far as it is known before a run.
        seconds: the estimated time of one run in a batch.
        is_bounded: whether a run may not take long, since others wait for it.
        position: the position of a prediction; of None that at the end of the text, or of the last mask. Raises ConfigError if there
            is none.
        runner: what repeats the run, for the positions where logits are read.
        text_of_length: its text shortened, or extended with the words of another, to this number of tokens; empty if none is known.
    """

    key: Hashable
    model: str
    text: str
    lengths: tuple[int, ...]
    tokens: tuple[str, ...]
    n_heads: tuple[int, ...]
    n_kv_heads: tuple[int, ...]
    seconds: float
    is_bounded: bool
    position: Callable[[int | None], int]
    runner: Callable[[tuple[int, ...]], PartRunner]
    text_of_length: Callable[[str, int], str] = lambda _, __: ""


def repeat_rows(value: Any, n_rows: int) -> Any:
    """The output of a module for one text, repeated for each text of a batch; some families join batch and position."""
    if isinstance(value, tuple):
        return tuple(repeat_rows(item, n_rows) for item in value)
    return torch.cat([value] * n_rows) if isinstance(value, Tensor) else value


def replace_rows(value: Any, source: Any, rows: list[int], n_rows: int) -> Any:
    """The output of a module for a batch, with some texts of another batch of equal shape."""
    if isinstance(value, tuple):
        return tuple(replace_rows(*items, rows, n_rows) for items in zip(value, source, strict=True))
    if not isinstance(value, Tensor):
        return value
    result = value.clone()
    shape = (n_rows, -1, *value.shape[1:])
    result.view(shape)[rows] = source.view(shape)[rows]
    return result
