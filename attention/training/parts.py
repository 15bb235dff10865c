"""Repeats a run of a tiny trained model, in which everything that its parts write can be read and replaced.

A forward pass of a tiny model as a `LinearRun`: with frozen norms, heads and MLPs.

The matrices of the heads of a tiny trained model, with its norms folded in as `trace.model_run` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attention.base.errors import ConfigError, TextError
from attention.formula.names import EMBEDDING, KEY, MEMORY, QUERY, VALUE
from attention.trace.linear_run import LinearRun
from attention.trace.model_run import LayerMatrices
from attention.trace.parts import Handlers, Place
from attention.trace.residual_parts import EMBEDDING_PART, LOGITS, mlp_part
from attention.training import network

if TYPE_CHECKING:
    from attention.training.design import Design

MLP = (0, 0)
"""The place of the one MLP, after the last attention layer."""
_ROWS = 64  # texts at once: they are short
_NO_LAYER_OF_SEQUENCE = (
    "this head reads the keys of a second sequence, so no matrix leads from its tokens to the answers."
)
_OTHER_ANSWERS = "the answers of this task are other symbols than its tokens, so no answer is a copy of a token."


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


def run_linear(
    parameters: Mapping[str, Tensor], design: Design, batch: network.Batch, attention: Callable[..., Tensor]
) -> LinearRun:
    """The pass with frozen norms, heads and MLPs. It records the queries, keys and values of each layer, such as "query 1".

    Args:
        parameters: by their names.
        design: the model.
        batch: one sequence.
        attention: the head outputs [1 head pos d_v], patched or not, from the arguments of `network.attend`.
    """
    run, layers = LinearRun(), design.attention_layers

    def attend(name: str, *qkv_bias_visible: Any) -> tuple[Tensor, dict[str, Tensor]]:
        for step, tensor in zip((QUERY, KEY, VALUE), qkv_bias_visible, strict=False):
            run.read(f"{step} {layers.index(name)}", tensor)
        with torch.no_grad():
            return attention(name, *qkv_bias_visible), {}

    def part(name: str, x: Tensor) -> Tensor:
        if name in (EMBEDDING, MEMORY):
            return run.source(EMBEDDING_PART, x)
        if name == "mlp":
            return run.source(mlp_part(len(layers) - 1), x)
        if name == "end":
            run.read(LOGITS, x)
            return x
        index = layers.index(name)
        return run.head_outputs(index, design.heads_of(name), x)

    with torch.enable_grad(), _FrozenNorms(run):
        network.forward(parameters, design, batch, attention=attend, part=part)
    run.w_u = parameters["answer"].T
    return run


class _FrozenNorms(TorchFunctionMode):
    """In it, every layer norm is linear: its scale is frozen at the value for its input."""

    def __init__(self, run: LinearRun) -> None:
        super().__init__()
        self.run = run

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        y = func(*args, **(kwargs or {}))
        if func is not torch.nn.functional.layer_norm:
            return y
        return self.run.norm(args[0], y, kwargs["bias"], centered=True)


class TrainedMatrices:
    """The matrices of all heads of a tiny trained model; `attention.trace.model_run.HeadMatrices` says what each attribute is."""

    uid = None

    def __init__(self, design: Design, parameters: Mapping[str, Tensor], answers: tuple[str, ...]) -> None:
        self.design, self.parameters, self.answers = design, parameters, answers
        self.n_heads = tuple(design.heads_of(name) for name in design.attention_layers)
        self.no_vocabulary_reason = "" if design.tokens == design.answers and not design.memory else _OTHER_ANSWERS

    def layer(self, index: int) -> LayerMatrices:
        """The matrices of one layer."""
        name = self.design.attention_layers[index]
        n_heads, p = self.n_heads[index], self.parameters
        w_q, w_k, w_v = (
            network.split_heads(self._fold(name, p[f"{name} {w}"]), n_heads) for w in ("w_q", "w_k", "w_v")
        )
        w_o = p[f"{name} w_o"].view(n_heads, -1, self.design.width)
        w_o = w_o - w_o.mean(-1, keepdim=True)  # every norm that reads it subtracts its mean
        reason = _NO_LAYER_OF_SEQUENCE if self.design.memory else ""
        return LayerMatrices(
            name, n_heads, w_q, w_k, w_v, w_o, _normalize, no_logits_reason=reason, no_ov_reason=reason, no_qk_reason=reason
        )  # fmt: skip

    def token_product(self, center_unembed: bool) -> Tensor:
        """Final norm · W_U · W_E, [d_model d_model]; see `HeadMatrices`."""
        w_u = self.parameters["answer"]
        w_u = w_u - w_u.mean(-1, keepdim=True) if center_unembed else w_u
        return self._fold("end", w_u @ self.parameters["token"])

    def estimated_seconds(self) -> float:
        """0: the model is tiny."""
        return 0.0

    def embedding(self, token: int, layer: int) -> Tensor:
        """The row of a token in W_E, for heads of any layer: W_U is another matrix, so no first layer has to move it.

        Raises:
            ConfigError: the model has no such token.
        """
        if not 0 <= token < self.design.tokens:
            raise ConfigError(
                f"A token is an id from 0 to {self.design.tokens - 1:,}; got {token:,}: choose one of these."
            )
        return self.parameters["token"][token]

    def logits(self, vector: Tensor) -> Tensor:
        """What a vector adds to each answer, without the scale of the final norm: [token]."""
        return vector @ self._fold("end", self.parameters["answer"])

    def find_token(self, text: str) -> int:
        """The id of an answer.

        Raises:
            TextError: there is no such answer.
        """
        if text not in self.answers:
            raise TextError(f"A token is one of {', '.join(self.answers)}; got {text[:40]!r}: choose one.")
        return self.answers.index(text)

    def token_names(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The answers with these ids."""
        return tuple(self.answers[id_] for id_ in ids)

    def _fold(self, norm: str, matrix: Tensor) -> Tensor:
        """The linear part of a layer norm followed by a matrix."""
        folded = self.parameters[f"{norm} scale"][:, None] * matrix
        return folded - folded.mean(0)


def _normalize(rows: Tensor) -> Tensor:
    rows = rows - rows.mean(-1, keepdim=True)
    return rows / rows.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-12)
