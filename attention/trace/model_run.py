"""The model behind a trace: its residual stream, all logits, and the weights between the vocabulary and vectors.

Nothing of it is recorded with the trace: it is computed when it is first read, by running the model again with the
same interventions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from attention.base.errors import MissingError, check_index

if TYPE_CHECKING:
    from torch import Tensor

    from attention.trace.head_matrices import HeadMatrices
    from attention.trace.layer import Layer
    from attention.trace.linear_run import LinearRun
    from attention.trace.parts import RunParts


class ModelRun(Protocol):
    """A run of a model that can be repeated. It holds the input and the interventions, and no tensor of the model.

    Attributes:
        source: the source of the trace, with its interventions and without overrides.
        is_tiny: whether it is so short that no other process need run it.
    """

    is_tiny: bool

    @property
    def source(self) -> Any:
        """The source of the trace, without overrides."""

    def linear_run(self) -> LinearRun:
        """The same run with frozen norms and attention, in which every logit, query, key and value is a sum over parts of the model.

        Raises:
            MissingError: this model is not linear in its parts.
        """

    def memory_bytes(self) -> int:
        """The bytes that `linear_run` takes, counted in advance; 0 if its result is cached.

        Raises:
            SizeError: it would take more memory than the source allows.
        """

    def estimate_seconds(self) -> float:
        """The estimated seconds of `linear_run`, without running it; 0 if its result is cached.

        Raises:
            SizeError: it would take more memory than the source allows.
        """

    def parts(self) -> RunParts:
        """The same run, whose parts can be read and replaced.

        Raises:
            ConfigError: the model has no heads that can be patched, or no logits.
        """

    def head_matrices(self) -> HeadMatrices:
        """The matrices of every head of the model, whatever its input and interventions.

        Raises:
            ModelError: the attention of its family cannot be recorded.
        """

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The ids of the tokens that the model reads and predicts in."""

    def residual_stream(self) -> tuple[Tensor, ...]:
        """The residual stream that enters each layer, [query_pos d_model], and the one after the last layer.

        Raises:
            MissingError: the layers of this model do not follow each other.
            SizeError: it would take more memory than the source allows.
        """

    def logits(self) -> Tensor:
        """The logits at all positions, [query_pos vocabulary].

        Raises:
            MissingError: this model predicts no tokens.
            SizeError: they would take more memory than the source allows.
        """

    def vocabulary_weights(self) -> VocabularyWeights:
        """The embedding, the unembedding and the norm before it.

        Raises:
            MissingError: they are not plain matrices.
        """

    def find_token(self, text: str) -> tuple[int, str]:
        """The id of the one token of the model that a text stands for, and its readable form.

        Raises:
            TextError: the text is no token, or several.
        """

    def token_names(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The readable form of some tokens of the vocabulary."""


class ResidualStream:
    """The residual stream of a trace: `residual[layer]` enters this layer, [query_pos d_model]; the last one leaves the last layer.

    The rows are `trace.input_tokens`: pieces, with special tokens, also where the trace shows words. In a model that normalizes
    after each layer (post-LN, such as BERT), the stream is normalized. The first access runs the model once for all layers.
    """

    def __init__(self, model_run: ModelRun) -> None:
        self._model_run = model_run

    def __repr__(self) -> str:
        return f"ResidualStream of {self._model_run.source!r}"[:100]

    def __len__(self) -> int:
        return len(self._model_run.residual_stream())

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._model_run.residual_stream())

    def __getitem__(self, layer: int) -> Tensor:
        """The stream that enters a layer, [query_pos d_model]; of the number of layers, the stream after the last one.

        Raises:
            MissingError: there is no such layer, or the layers of the model do not follow each other.
            SizeError: the streams of all layers take more memory than the source allows.
        """
        streams = self._model_run.residual_stream()
        check_index("layers of the residual stream", layer, len(streams))
        return streams[layer]


class ModelTensors:
    """The properties of a trace that read its model.

    Attributes:
        layers: the layers of the trace.
        model_run: the run of its model; None without a model.
    """

    layers: tuple[Layer, ...]
    model_run: ModelRun | None

    @property
    def residual(self) -> ResidualStream:
        """The residual stream: `residual[layer]` enters this layer, [query_pos d_model].

        Raises:
            MissingError: the source has no model.
        """
        return ResidualStream(self._run_of("residual stream"))

    @property
    def logits(self) -> Tensor:
        """The logits at all positions, [query_pos vocabulary], computed when they are first read.

        Raises:
            MissingError: the source has no model, or the model predicts no tokens.
            SizeError: they take more memory than the source allows.
        """
        return self._run_of("logits").logits()

    @property
    def w_e(self) -> Tensor:
        """The embedding W_E of the model, [vocabulary d_model]: a view, in the dtype and on the device of the model.

        Raises:
            MissingError: the source has no model.
        """
        return self._run_of("W_E").vocabulary_weights().w_e

    @property
    def w_u(self) -> Tensor:
        """The unembedding W_U of the model, [d_model vocabulary]: a view, in the dtype and on the device of the model.

        Raises:
            MissingError: the source has no model, or the model predicts no tokens.
        """
        weights = self._run_of("W_U").vocabulary_weights()
        if weights.w_u is None:
            raise MissingError(
                "This model predicts no tokens, so it has no W_U: choose a model with a language-model head."
            )
        return weights.w_u

    @property
    def final_norm(self) -> FinalNorm:
        """The norm after the last layer, a function of [query_pos d_model].

        Raises:
            MissingError: the source has no model, or the model has no norm there.
        """
        norm = self._run_of("final norm").vocabulary_weights().final_norm
        if norm is None:
            raise MissingError(
                "This model has no norm after its last layer: read the stream after the last layer as it is, residual[len(layers)]."
            )
        return norm

    def _run_of(self, what: str) -> ModelRun:
        if self.model_run is None:
            raise MissingError(
                f"This trace comes from no model, so it has no {what}: trace a Model, or a tiny Trained one."
            )
        return self.model_run


@dataclass(frozen=True, eq=False)
class VocabularyWeights:
    """The weights between the vocabulary and the vectors of a model, as it stores them: views, in its dtype and on its device.

    Attributes:
        w_e: the embedding, [vocabulary d_model].
        w_u: the unembedding, [d_model vocabulary]; None if the model predicts no tokens.
        final_norm: the norm after the last layer; None if there is none, as where each layer ends with its own.
    """

    w_e: Tensor
    w_u: Tensor | None
    final_norm: FinalNorm | None


@dataclass(frozen=True, eq=False)
class FinalNorm:
    """The norm after the last layer: `final_norm(x)` is what the unembedding multiplies, [query_pos d_model].

    Attributes:
        name: its class, such as LayerNorm.
        weight: its scale, [d_model], as the model stores it: some families add 1 to it; None if it has none.
        bias: its shift, [d_model]; None if it has none.
        eps: the number that it adds to the variance; None if it is not known.
        apply: computes it as the model does.
    """

    name: str
    weight: Tensor | None
    bias: Tensor | None
    eps: float | None
    apply: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        """The rows of x, [… d_model], normalized as in the model: float32, on the CPU."""
        return self.apply(x)

    def __repr__(self) -> str:
        return f"FinalNorm({self.name}, eps={self.eps})"
