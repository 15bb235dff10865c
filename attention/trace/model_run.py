"""The model behind a trace: its residual stream, all logits, the weights between the vocabulary and vectors, and the matrices of each head.

Nothing of it is recorded with the trace: it is computed when it is first read, by running the model again with the
same interventions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from attention.base.errors import MissingError, check_index

if TYPE_CHECKING:
    from torch import Tensor

    from attention.trace.layer import Layer
    from attention.trace.linear_run import LinearRun
    from attention.trace.parts import RunParts


class ModelRun(Protocol):
    """A run of a model that can be repeated. It holds the input and the interventions, and no tensor of the model.

    Attributes:
        is_tiny: whether it is so short that no other process need run it.
    """

    is_tiny: bool

    @property
    def source(self) -> Any:
        """The source of the trace, with its interventions and without overrides.

        Raises:
            MissingError: the model was in memory, and is no longer.
        """

    def linear_run(self) -> LinearRun:
        """The same run with frozen norms and attention, in which every logit, query, key and value is a sum over parts of the model.

        Raises:
            MissingError: this model is not linear in its parts.
            SizeError: it would take more memory than the source allows.
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
            MissingError: the attention of its family cannot be recorded, or the model reads pictures.
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


class _ResidualStream:
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
    def residual(self) -> _ResidualStream:
        """The residual stream: `residual[layer]` enters this layer, [query_pos d_model].

        Raises:
            MissingError: the source has no model.
        """
        return _ResidualStream(self._run_of("residual stream"))

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


@dataclass(frozen=True, eq=False)
class LayerMatrices:
    """The matrices of one layer in float32, with the linear part of the norms before and after it folded in.

    A norm is a linear map times a scale that depends on the text. The linear map is folded in: the weights of the norm, and the
    subtraction of the mean in a LayerNorm, which is also taken from what W_O writes. The scale is left out, as are all biases. The norm of
    each query and key, where a family has one, is folded into W_Q and W_K in the same way. These are
    the matrices that TransformerLens makes when it loads a model. A head that shares its key and value has its own copy.

    Attributes:
        name: the name of the layer, such as "layer 3".
        n_heads: the number of query heads.
        w_q: [head d_model d_k]; None if unknown.
        w_k: [head d_model d_k]; None if unknown.
        w_v: [head d_model d_v]; None if unknown.
        w_o: [head d_v d_model]; None if unknown.
        normalize: the input norm without its weights and biases, for rows [… d_model].
        rotations: rotation matrices [pos d_k d_k] of some positions, by which query and key rows are multiplied from the right; None
            without rotary embedding.
        no_ov_reason: why W_V or W_O is unknown, in a sentence; empty if both are known.
        no_qk_reason: why W_Q, W_K or the rotation is unknown, in a sentence; empty if all are known.
        no_logits_reason: why the output of this layer has no linear path to the logits, in a sentence; empty if it has one.
    """

    name: str
    n_heads: int
    w_q: Tensor | None = None
    w_k: Tensor | None = None
    w_v: Tensor | None = None
    w_o: Tensor | None = None
    normalize: Callable[[Tensor], Tensor] = field(default=lambda rows: rows)
    rotations: Callable[[Sequence[int]], Tensor] | None = None
    no_ov_reason: str = ""
    no_qk_reason: str = ""
    no_logits_reason: str = ""


class HeadMatrices(Protocol):
    """The matrices of all heads of a model, and its vocabulary."""

    @property
    def uid(self) -> int | None:
        """Identifies the model in cache keys; None if nothing is worth caching."""

    @property
    def n_heads(self) -> tuple[int, ...]:
        """The number of query heads in each layer."""

    @property
    def no_vocabulary_reason(self) -> str:
        """Why there is no linear map from a token through a head to the logits, in a sentence; empty if there is one."""

    def layer(self, index: int) -> LayerMatrices:
        """The matrices of one layer, computed when they are requested."""

    def token_product(self, center_unembed: bool) -> Tensor:
        """Final norm · W_U · W_E, [d_model d_model]: from the residual stream to the logits, and by the rows of W_E back.

        With `center_unembed` the mean over the vocabulary is subtracted from W_U.
        """

    def estimated_seconds(self) -> float:
        """The estimated seconds of `token_product`; 0 once it is cached."""

    def embedding(self, token: int, layer: int) -> Tensor:
        """The residual stream of a single token as a head of this layer reads it, [d_model]."""

    def logits(self, vector: Tensor) -> Tensor:
        """What a vector of the residual stream adds to each logit through final norm and W_U, without the scale of the norm: [token]."""

    def find_token(self, text: str) -> int:
        """The id of the one token that a text stands for.

        Raises:
            TextError: the text is no token, or several.
        """

    def token_names(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The tokens with these ids, in readable form."""
