"""The model behind the trace of a `Model`; and its other run on a text of another length, of which corresponding tokens are patched."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from attention.base import cache
from attention.base.errors import ConfigError, MissingError, SizeError
from attention.base.tokens import isolated, label
from attention.explanation.alignment import MAX_NAMED, align, without_partner
from attention.patching.forward import Activations, AlignedPositions, PatchedForward
from attention.trace.cost import ALLOW_MORE

if TYPE_CHECKING:
    from torch import Tensor

    from attention.models.loaded import LoadedModel
    from attention.models.text_inputs import TextInputs
    from attention.patching.intervention import Intervention
    from attention.trace.linear_run import LinearRun
    from attention.trace.model_run import HeadMatrices, VocabularyWeights
    from attention.trace.parts import RunParts

_Result = TypeVar("_Result")
_LINEAR_RUN = "linear run"
_TENSORS_PER_LAYER = (
    12  # rows of d_model numbers that a linear run keeps for each token: leaves, and the graph between them
)
_BYTES_PER_NUMBER = 4
_LINEAR_PASSES = 1.5  # what a linear run takes, in plain passes


@dataclass(frozen=True, eq=False)
class TransformerRun:
    """The run of a transformers model, with the interventions of its source; `ModelRun` says what each method raises. It keeps no model in memory alive.

    Attributes:
        inputs: the token ids of each text, [1 pos], with the generated ones.
    """

    is_tiny = False
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
        """The model and its text, without overrides."""
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
        """The bytes of the files of the input, which the run keeps."""
        return sum(len(each.content) for each in self._source.given)

    def linear_run(self) -> LinearRun:
        """The same run with frozen norms, heads and MLPs."""
        from attention.models import linearize

        def compute() -> LinearRun:
            source = self.source
            loaded = source.load()
            refuse_sites("The sum over the parts of a model", source.interventions)
            _ = self.memory_bytes()
            return linearize.run_linear(loaded, self.inputs, source.patched_forward(loaded, self.inputs))

        return cache.memoize(self._cache_key, _LINEAR_RUN, None, compute)

    def estimate_seconds(self) -> float:
        """The estimated seconds of `linear_run`, without running it; 0 if its result is cached."""
        from attention.models import forward_pass

        if not self.memory_bytes():
            return 0.0
        source = self.source
        loaded = source.load()
        changes = forward_pass.PassInterventions(source.interventions, source.frozen)
        tokens = sum(ids.shape[-1] for ids in self.inputs.values())
        return _LINEAR_PASSES * forward_pass.estimate_seconds(loaded, tokens, changes)

    def parts(self) -> RunParts:
        """The same run, whose parts can be read and replaced."""
        from attention.models import forward_pass, lm_head, residual_stream
        from attention.models.forward_pass import ReadableTexts
        from attention.trace.parts import RunParts

        source, loaded = self.source, self.loaded
        refuse_sites("Path patching", source.interventions)
        if not loaded.sites:
            raise ConfigError(
                f"Path patching replaces queries, keys, values and head outputs, and of {loaded.name} only the weights are known: "
                "choose a model of another family."
            )
        if not lm_head.vocabulary_size(loaded):
            raise ConfigError(
                f"Path patching measures a logit, and {loaded.name} predicts no tokens: choose a model with a language-model head."
            )

        def position(position: int | None) -> int:
            wanted = () if position is None else (position,)
            positions = lm_head.prediction_positions(loaded, self.inputs, wanted)
            if not positions:
                raise ConfigError(lm_head.no_prediction_reason(loaded, positions))
            return positions[-1]

        def runner(positions: tuple[int, ...]) -> residual_stream.TransformerParts:
            forward = source.patched_forward(loaded, self.inputs)
            return residual_stream.TransformerParts(loaded, self.inputs, forward, positions)

        sites, n_heads = loaded.sites_by_layer, loaded.heads_by_layer
        other = source.other and replace(source.other, handle=None)  # a cache must not hold the model
        return RunParts(
            key=(loaded.uid, self.inputs.key, source.interventions, source.frozen, other),
            model=loaded.name,
            text=source.text,
            lengths=tuple(ids.shape[-1] for ids in self.inputs.values()),
            tokens=ReadableTexts(loaded, self.inputs, 0).texts[-1],
            n_heads=n_heads,
            n_kv_heads=tuple(
                len(sites[layer].parameters.get("w_k", range(count))) if count else 0
                for layer, count in enumerate(n_heads)
            ),
            seconds=residual_stream.estimate_seconds(loaded, self.inputs),
            is_bounded=not loaded.in_memory,
            position=position,
            runner=runner,
            text_of_length=lambda like, length: forward_pass.match_length(loaded, source.text, like, length),
        )

    def head_matrices(self) -> HeadMatrices:
        """The matrices of every head of the model, whatever its input and interventions."""
        from attention.models.model_matrices import ModelMatrices

        self.loaded.check_text_only("What the matrices of a head do to vectors")
        return ModelMatrices(self.loaded)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The ids of the tokens that the model reads and predicts in: those of its last text."""
        return tuple(int(id_) for id_ in [*self.inputs.values()][-1][0])

    def residual_stream(self) -> tuple[Tensor, ...]:
        """The residual stream that enters each layer, [query_pos d_model], and the one after the last layer."""
        from attention.models import residual_stream

        return self._run_again("residual stream", residual_stream.residual_stream).tensors

    def logits(self) -> Tensor:
        """The logits at all positions, [query_pos vocabulary]."""
        from attention.models import residual_stream

        return self._run_again("logits", residual_stream.all_logits)

    def vocabulary_weights(self) -> VocabularyWeights:
        """The embedding, the unembedding and the norm before it."""
        from attention.models import residual_stream

        return residual_stream.vocabulary_weights(self.loaded)

    def _run_again(self, what: str, run: Callable[[LoadedModel, TextInputs, PatchedForward, int], _Result]) -> _Result:
        def compute() -> _Result:
            source = self.source
            loaded = source.load()
            return run(loaded, self.inputs, source.patched_forward(loaded, self.inputs), source.max_bytes)

        return cache.memoize(self._cache_key, what, None, compute)

    def find_token(self, text: str) -> tuple[int, str]:
        """The id of the one token that a text stands for, and its readable form."""
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
        """The bytes that `linear_run` takes, counted in advance; 0 if its result is cached."""
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


def refuse_sites(what: str, interventions: Sequence[Intervention]) -> None:
    """Refuses interventions on MLPs and the residual stream where only those on heads are known.

    Raises:
        ConfigError: there is one.
    """
    for change in interventions:
        if change.site:
            raise ConfigError(f"{what} knows interventions on heads; got {change.label}: remove it here.")


def unmatched_words(loaded: LoadedModel, inputs: TextInputs, other_inputs: TextInputs) -> str:
    """The tokens of two runs that match none of the other, in words."""
    from attention.models.forward_pass import ReadableTexts

    here, there = (ReadableTexts(loaded, ids, 0).texts[-1] for ids in (inputs, other_inputs))
    return without_partner(align(here, there), here, there, ("this one", "the other"))


def check_alignment(
    lengths: Sequence[int], other_lengths: Sequence[int], with_weights: bool, unmatched: Callable[[], str]
) -> None:
    """Checks that runs of these lengths can be aligned; `unmatched` names the tokens that match none of the other.

    Raises:
        ConfigError: weights are patched, or one run has a second text and the other none.
    """
    if with_weights:
        raise ConfigError(
            "Weights have a row and a column for each token, and are patched only between texts of the same number of tokens; "
            f"the other has {' and '.join(map(str, other_lengths))}, this one {' and '.join(map(str, lengths))} "
            f"(without a partner: {unmatched()}): patch the query, key, value or head output instead."
        )
    if len(lengths) != len(other_lengths):
        raise ConfigError(
            f"Both states need the same number of texts; the other has {len(other_lengths)}, this one {len(lengths)}: "
            "give both a second text, or none."
        )


def at_aligned_positions(
    loaded: LoadedModel, inputs: TextInputs, other_inputs: TextInputs, activations: Mapping[int, Activations]
) -> Mapping[int, Activations]:
    """The activations of the other run, by layer, with their positions in this run."""
    from attention.models.forward_pass import ReadableTexts

    here, there = (ReadableTexts(loaded, ids, 0) for ids in (inputs, other_inputs))
    result = {}
    for layer, activation in activations.items():
        name = loaded.sites_by_layer[layer].name
        queries, keys = (
            _aligned_positions(*tokens) for tokens in zip(here.of_site(name), there.of_site(name), strict=True)
        )
        result[layer] = replace(activation, queries=queries, keys=keys)
    return result


def text_positions(loaded: LoadedModel, inputs: TextInputs, other_inputs: TextInputs) -> AlignedPositions:
    """The corresponding positions of the only text of both runs."""
    from attention.models.forward_pass import ReadableTexts

    return _aligned_positions(*(ReadableTexts(loaded, ids, 0).texts[0] for ids in (inputs, other_inputs)))


def _aligned_positions(here: tuple[str, ...], there: tuple[str, ...]) -> AlignedPositions:
    """The positions of the tokens that have exactly one partner, as a comparison aligns them; a word in other pieces has none."""
    pairs = [(group.a[0], group.b[0]) for group in align(here, there).groups if group.is_one_to_one]
    return AlignedPositions(tuple(a for a, _ in pairs), tuple(b for _, b in pairs))


def alignment_sentences(loaded: LoadedModel, inputs: TextInputs, other_inputs: TextInputs) -> tuple[str, ...]:
    """A sentence for each text that has another number of tokens in the other run: which of its tokens are patched."""
    from attention.models.forward_pass import ReadableTexts

    texts = (ReadableTexts(loaded, ids, 0).texts for ids in (inputs, other_inputs))
    return tuple(_describe_alignment(*pair) for pair in zip(*texts, strict=False) if len(pair[0]) != len(pair[1]))


def _describe_alignment(here: tuple[str, ...], there: tuple[str, ...]) -> str:
    """Which tokens of a text are patched from another text, in a sentence."""
    patched = set(_aligned_positions(here, there).here)
    rest = [f"{i} {isolated(label(token, 40, escape=False))}" for i, token in enumerate(here) if i not in patched]
    more = f" and {len(rest) - MAX_NAMED} more" if len(rest) > MAX_NAMED else ""
    verb = "keeps its" if len(rest) == 1 else "keep their"
    own = f"; {', '.join(rest[:MAX_NAMED])}{more} {verb} own values" if rest else ""
    how = align(here, there).description
    return f"Patches act at {len(patched)} of {len(here)} tokens, those with a partner in the other state's {len(there)} tokens ({how}){own}."
