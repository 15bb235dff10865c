"""The model behind the trace of a `Model` or of a tiny trained model."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from attention.base import cache
from attention.base.errors import MissingError, SizeError
from attention.trace.cost import ALLOW_MORE

if TYPE_CHECKING:
    from torch import Tensor

    from attention.models.loaded import LoadedModel
    from attention.models.text_inputs import TextInputs
    from attention.patching.forward import PatchedForward
    from attention.trace.head_matrices import HeadMatrices
    from attention.trace.linear_run import LinearRun
    from attention.trace.model_run import VocabularyWeights

Result = TypeVar("Result")
_LINEAR_RUN = "linear run"
_TENSORS_PER_LAYER = (
    12  # rows of d_model numbers that a linear run keeps for each token: leaves, and the graph between them
)
_BYTES_PER_NUMBER = 4
_LINEAR_PASSES = 1.5  # what a linear run takes, in plain passes


@dataclass(frozen=True, eq=False)
class TransformerRun:
    """The run of a transformers model, with the interventions of its source. It keeps no model in memory alive.

    Attributes:
        inputs: the token ids of each text, [1 pos], with the generated ones.
    """

    _source: Any  # a `Model`, whose module imports this one; without its handle, which would keep the model alive
    inputs: TextInputs
    _in_memory: tuple[weakref.ref[Any], ...] = ()  # the model and its tokenizer or processor
    _uid: int = field(default_factory=cache.new_uid)

    @classmethod
    def of(cls, source: Any, inputs: TextInputs) -> TransformerRun:
        """The run of a source with these token ids."""
        handle, other = source.handle, source.other
        references = () if handle is None else (weakref.ref(handle.model), weakref.ref(handle.processor))
        unattached = replace(source.base, handle=None, other=None if other is None else replace(other, handle=None))
        return cls(unattached, inputs, references)

    def __post_init__(self) -> None:
        weakref.finalize(self, cache.mark_released, self._cache_key)

    @property
    def source(self) -> Any:
        """The model and its text, without overrides.

        Raises:
            MissingError: the model was in memory, and is no longer.
        """
        if not self._in_memory:
            return self._source
        from attention.models.in_memory import handle_of

        model, processor = (reference() for reference in self._in_memory)
        if model is None or processor is None:
            raise MissingError(
                f"{self._source.name} is expected in memory; it was deleted: keep the model and its tokenizer as long as the trace."
            )
        handle, other = handle_of(model, processor), self._source.other
        return replace(self._source, handle=handle, other=None if other is None else replace(other, handle=handle))

    @property
    def nbytes(self) -> int:
        """The bytes of the picture files of the input, which the run keeps."""
        image = self._source.image
        pictures = image if isinstance(image, tuple) else (image,)
        return sum(len(picture.content) for picture in pictures if picture is not None)

    def linear_run(self) -> LinearRun:
        """The same run with frozen norms, heads and MLPs.

        Raises:
            MissingError: what the heads of this model write is not known.
            SizeError: it would take more memory than `max_bytes` of the source.
        """
        from attention.models import linearize

        def compute() -> LinearRun:
            source = self.source
            loaded = source.load()
            _ = self.memory_bytes()
            return linearize.run_linear(loaded, self.inputs, source.patched_forward(loaded, self.inputs))

        return cache.memoize(self._cache_key, _LINEAR_RUN, None, compute)

    def estimate_seconds(self) -> float:
        """The estimated seconds of `linear_run`, without running it; 0 if its result is cached.

        Raises:
            SizeError: it would take more memory than `max_bytes` of the source.
        """
        from attention.models import forward_pass

        if not self.memory_bytes():
            return 0.0
        source = self.source
        loaded = source.load()
        changes = forward_pass.PassInterventions(source.interventions, source.frozen)
        tokens = sum(ids.shape[-1] for ids in self.inputs.values())
        return _LINEAR_PASSES * forward_pass.estimate_seconds(loaded, tokens, changes)

    def head_matrices(self) -> HeadMatrices:
        """The matrices of every head of the model, whatever its input and interventions.

        Raises:
            ModelError: the attention of its family cannot be recorded.
            MissingError: the model reads pictures.
        """
        from attention.models.model_matrices import ModelMatrices
        from attention.vision.modalities import check_text_only

        check_text_only(self.loaded, "What the matrices of a head do to vectors")
        return ModelMatrices(self.loaded)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The ids of the tokens that the model reads and predicts in: those of its last text."""
        return tuple(int(id_) for id_ in [*self.inputs.values()][-1][0])

    def residual_stream(self) -> tuple[Tensor, ...]:
        """The residual stream that enters each layer, [query_pos d_model], and the one after the last layer.

        Raises:
            MissingError: the layers of this model do not follow each other.
            SizeError: it would take more memory than `max_bytes` of the source.
        """
        from attention.models import residual_stream

        return self._run_again("residual stream", residual_stream.residual_stream).tensors

    def logits(self) -> Tensor:
        """The logits at all positions, [query_pos vocabulary].

        Raises:
            MissingError: this model predicts no tokens.
            SizeError: they would take more memory than `max_bytes` of the source.
        """
        from attention.models import residual_stream

        return self._run_again("logits", residual_stream.all_logits)

    def vocabulary_weights(self) -> VocabularyWeights:
        """The embedding, the unembedding and the norm before it.

        Raises:
            MissingError: they are not plain matrices.
        """
        from attention.models import residual_stream

        return residual_stream.vocabulary_weights(self.loaded)

    def _run_again(self, what: str, run: Callable[[LoadedModel, TextInputs, PatchedForward, int], Result]) -> Result:
        """The cached result of a pass with the interventions of the source."""

        def compute() -> Result:
            source = self.source
            loaded = source.load()
            return run(loaded, self.inputs, source.patched_forward(loaded, self.inputs), source.max_bytes)

        return cache.memoize(self._cache_key, what, None, compute)

    def find_token(self, text: str) -> tuple[int, str]:
        """The id of the one token that a text stands for, and its readable form.

        Raises:
            TextError: the text is no token, or several.
        """
        found: tuple[int, str] = self.source.find_token(text)
        return found

    def token_names(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The readable form of some tokens of the vocabulary, or of classes."""
        from attention.models import lm_head

        return lm_head.names_of(self.loaded, ids)

    @property
    def loaded(self) -> LoadedModel:
        """The loaded model; loads it again if it was removed from memory."""
        loaded: LoadedModel = self.source.load()
        return loaded

    @property
    def _cache_key(self) -> int:
        return -1 - self._uid  # recorded tensors have the others

    def memory_bytes(self) -> int:
        """The bytes that `linear_run` takes, counted in advance; 0 if its result is cached.

        Raises:
            SizeError: they are more than `max_bytes` of the source.
        """
        if cache.CACHE.get((self._cache_key, _LINEAR_RUN, None)) is not None:
            return 0
        loaded = self.loaded
        n_tokens = max(ids.shape[-1] for ids in self.inputs.values())
        d_model = int(getattr(loaded.model.config, "hidden_size", 0) or 0)
        needed = len(loaded.sites) * n_tokens * d_model * _TENSORS_PER_LAYER * _BYTES_PER_NUMBER
        if needed > self._source.max_bytes:
            raise SizeError(
                f"The parts of every vector need at most {self._source.max_bytes / 2**20:,.0f} MB here; {n_tokens:,} tokens in "
                f"{len(loaded.sites)} layers need {needed / 2**20:,.0f} MB: choose a shorter text, {ALLOW_MORE}."
            )
        return needed


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """The run of a tiny trained model, with the interventions of its source.

    Attributes:
        source: a `Trained`, without overrides.
    """

    source: Any  # its module imports this one

    def linear_run(self) -> LinearRun:
        """The same run with frozen norms, heads and MLPs."""
        from attention.training import trained_trace

        source = self.source
        return trained_trace.linear_run(source.plan, source.snapshot(), source.example, source.patched_forward())

    def memory_bytes(self) -> int:
        """The bytes that `linear_run` takes: none worth counting, since the model is tiny."""
        return 0

    def estimate_seconds(self) -> float:
        """The estimated seconds of `linear_run`: none, since the model is tiny."""
        return 0.0

    def head_matrices(self) -> HeadMatrices:
        """The matrices of every head of the model, whatever its input and interventions."""
        from attention.training.parts import TrainedMatrices

        plan = self.source.plan
        return TrainedMatrices(plan.design, self.source.snapshot().parameters, self.source.example.answers)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The ids of the tokens that the model reads."""
        example = self.source.example
        return tuple(int(id_) for id_ in example.ids[0, : len(example.tokens)])

    def residual_stream(self) -> tuple[Tensor, ...]:
        """The residual stream that enters each layer, [query_pos d_model], and the one after the last layer.

        Raises:
            MissingError: the model has an encoder, so its layers do not follow each other.
        """
        from attention.training import trained_trace

        source = self.source
        return trained_trace.residual_stream(source.plan, source.snapshot(), source.example, source.patched_forward())

    def logits(self) -> Tensor:
        """The logits at all positions, [query_pos answer]."""
        from attention.training import trained_trace

        source = self.source
        return trained_trace.forward_pass(source.plan, source.snapshot(), source.example, source.patched_forward())[1]

    def vocabulary_weights(self) -> VocabularyWeights:
        """The embedding of tokens, the matrix of answers, and the norm before it."""
        from attention.training import trained_trace

        return trained_trace.vocabulary_weights(self.source.snapshot().parameters)

    def find_token(self, text: str) -> tuple[int, str]:
        """The id of the answer that a text stands for, and its readable form.

        Raises:
            TextError: the answer does not exist.
        """
        found: tuple[int, str] = self.source.find_token(text)
        return found

    def token_names(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The answers with these ids."""
        answers = self.source.example.answers
        return tuple(answers[id_] for id_ in ids)
