"""Repeats a run of a tiny trained model, in which everything that its parts write can be read and replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attention.core.names import EMBEDDING, KEY, QUERY, VALUE
from attention.patching.parts import Handlers, Place
from attention.training import network

if TYPE_CHECKING:
    from attention.training.design import Design

_ROWS = 64  # texts at once: they are short
MLP = (0, 0)
"""The place of the one MLP, after the last attention layer."""


class TinyParts:
    """Repeats one run of a tiny model; a `PartRunner`.

    Attributes:
        layers: the index in the trace of each attention call.
        batch_size: the number of texts that run at once.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        design: Design,
        batch: network.Batch,
        attention: Callable[..., tuple[Tensor, dict[str, Tensor]]],
        position: int,
    ) -> None:
        """The run of one sequence.

        Args:
            parameters: by their names.
            design: the model.
            batch: one sequence.
            attention: replaces `network.attend` with the interventions of the run, for one sequence.
            position: where logits are read.
        """
        self._parameters, self._design, self._batch = parameters, design, batch
        self._attention, self._position = attention, position
        self.layers, self.batch_size = tuple(range(len(design.attention_layers))), _ROWS

    def run(self, n_rows: int, handlers: Handlers) -> Tensor:
        """The logits at the position, [batch answer] in float64, of a batch of equal sequences."""
        names = self._design.attention_layers

        def attend(
            name: str, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, visible: Tensor | None
        ) -> tuple[Tensor, dict[str, Tensor]]:
            call = names.index(name)
            patched = handlers.inputs(call, {QUERY: query, KEY: key, VALUE: value})
            projections = patched[QUERY], patched[KEY], patched[VALUE]

            def intervened() -> Tensor:
                rows = (
                    self._attention(name, *(tensor[row : row + 1] for tensor in projections), bias, visible)[0]
                    for row in range(len(projections[0]))
                )
                return torch.cat([*rows]).transpose(1, 2)

            z, _ = network.attend(name, *projections, bias, visible)
            return handlers.head_outputs(call, z.transpose(1, 2), intervened).transpose(1, 2), {}

        def part(name: str, x: Tensor) -> Tensor:
            if name == EMBEDDING and not self._batch.memory:  # the memory is embedded on its own
                return handlers.embedding(x)
            return handlers.written(MLP, lambda: x) if name == "mlp" else x

        batch = self._batch
        rows = network.Batch(
            batch.tokens.expand(n_rows, -1),
            batch.answers.expand(n_rows, -1),
            batch.gold.expand(n_rows, -1, -1),
            tuple(ids.expand(n_rows, -1) for ids in batch.memory),
            None if batch.real is None else batch.real.expand(n_rows, -1),
            None if batch.patches is None else batch.patches.expand(n_rows, -1, -1),
        )
        with torch.no_grad():
            logits, _ = network.forward(self._parameters, self._design, rows, attention=attend, part=part)
        return logits[:, self._position].double()

    def mlp_layer(self, place: Place, n_calls: int) -> int:
        """The layer of the MLP: the last."""
        return self.layers[-1]
