"""The run behind a trace, as path patching needs it: of a transformers model, or of a tiny trained one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from attention.base.errors import ConfigError
from attention.sources.repeated_run import TrainedRun, TransformerRun

if TYPE_CHECKING:
    from attention.trace.model_run import ModelRun
    from attention.trace.parts import PartRunner

_TINY_SECONDS = 1e-4  # of one sequence in a tiny model, in a batch


class PatchedRun(Protocol):
    """One of the two runs of path patching.

    Attributes:
        key: everything that its numbers depend on.
        name: of the model.
        lengths: the numbers of tokens of its texts.
        n_heads: the number of query heads in each layer; 0 where it has no attention.
        n_kv_heads: the number of heads of keys and values in each layer, as far as it is known before a run.
        seconds: the estimated time of one run in a batch.
        is_bounded: whether a run may not take long, since others wait for it.
    """

    key: Hashable
    name: str
    lengths: list[int]
    n_heads: tuple[int, ...]
    n_kv_heads: tuple[int, ...]
    seconds: float
    is_bounded: bool

    def position(self, position: int | None) -> int:
        """The position of the prediction; None is the end of the text, or the last mask.

        Raises:
            ConfigError: there is no such position.
        """

    def runner(self, position: int) -> PartRunner:
        """What repeats the run."""

    def token_names(self, ids: Sequence[int]) -> Sequence[str]:
        """The readable form of some tokens."""

    def find_token(self, text: str) -> int:
        """The id of the one token that a text stands for.

        Raises:
            TextError: the text is no token, or several.
        """


def both_runs(a: ModelRun | None, b: ModelRun | None) -> tuple[PatchedRun, PatchedRun]:
    """The runs behind two traces, as path patching needs them.

    Raises:
        ConfigError: a trace has no run, the two are of different models or lengths, or their parts cannot be patched.
    """
    if isinstance(a, TransformerRun) and isinstance(b, TransformerRun):
        return _check_pair(_TransformerSide(a), _TransformerSide(b), _suggestion(a, b))
    if isinstance(a, TrainedRun) and isinstance(b, TrainedRun):
        return _check_pair(_TrainedSide(a), _TrainedSide(b), "")
    got = "traces of two kinds of models" if a is not None and b is not None else "a trace without a model"
    raise ConfigError(
        f"Path patching runs the model of two traces again; got {got}: give two traces of one Model, or of one Trained."
    )


def _check_pair(a: PatchedRun, b: PatchedRun, suggestion: str) -> tuple[PatchedRun, PatchedRun]:
    from attention.patching import validate

    if (a.name, a.n_heads) != (b.name, b.n_heads):
        raise ConfigError(
            f"Both runs of path patching are of one model; got {a.name} and {b.name}: give two texts of the same model."
        )
    validate.check_lengths(a.lengths, b.lengths, lambda: suggestion)
    return a, b


def _suggestion(a: TransformerRun, b: TransformerRun) -> str:
    """A text for the second run with as many tokens as the first has; empty if none is known, or needed."""
    from attention.models import validate_patches

    lengths = [[ids.shape[-1] for ids in run.inputs.values()] for run in (a, b)]
    if lengths[0] == lengths[1] or len(lengths[0]) != 1:
        return ""
    return validate_patches.match_length(b.loaded, b.source.text, a.source.text, lengths[0][0])


class _TransformerSide:
    """The run of a transformers model.

    Raises:
        ConfigError: it has no heads that can be patched, or no logits.
    """

    def __init__(self, run: TransformerRun) -> None:
        from attention.models import lm_head, transformer_parts

        self._run, self._source, self._loaded = run, run.source, run.loaded
        loaded, other = self._loaded, self._source.other
        self.name = loaded.name
        if not loaded.sites:
            raise ConfigError(
                f"Path patching replaces queries, keys, values and head outputs, and of {self.name} only the weights are known: "
                "choose a model of another family."
            )
        if not lm_head.vocabulary_size(loaded):
            raise ConfigError(
                f"Path patching measures a logit, and {self.name} predicts no tokens: choose a model with a language-model head."
            )
        sites = loaded.sites_by_layer
        self.lengths = [ids.shape[-1] for ids in run.inputs.values()]
        self.n_heads = loaded.heads_by_layer
        self.n_kv_heads = tuple(
            len(sites[layer].parameters.get("w_k", range(count))) if count else 0
            for layer, count in enumerate(self.n_heads)
        )
        self.seconds = transformer_parts.estimate_seconds(loaded, run.inputs)
        self.is_bounded = not loaded.in_memory
        unattached = None if other is None else replace(other, handle=None)  # a cache must not hold the model
        self.key: Hashable = (loaded.uid, run.inputs.key, self._source.interventions, self._source.frozen, unattached)

    def position(self, position: int | None) -> int:
        from attention.models import lm_head

        wanted = () if position is None else (position,)
        positions = lm_head.prediction_positions(self._loaded, self._run.inputs, wanted)
        if not positions:
            raise ConfigError(lm_head.no_prediction_reason(self._loaded, positions))
        return positions[-1]

    def runner(self, position: int) -> PartRunner:
        from attention.models.transformer_parts import TransformerParts

        forward = self._source.patched_forward(self._loaded, self._run.inputs)
        return TransformerParts(self._loaded, self._run.inputs, forward, position)

    def token_names(self, ids: Sequence[int]) -> Sequence[str]:
        return self._run.token_names(ids)

    def find_token(self, text: str) -> int:
        return self._run.find_token(text)[0]


class _TrainedSide:
    """The run of a tiny trained model."""

    def __init__(self, run: TrainedRun) -> None:
        self._run, source = run, run.source
        self._source, example, design = source, source.example, source.plan.design
        self.name = f"{source.task} (seed {source.seed}, step {source.step})"
        self.lengths = [len(tokens) for tokens in (example.memory, example.tokens) if tokens]
        self.n_heads = self.n_kv_heads = tuple(map(design.heads_of, design.attention_layers))
        self.seconds, self.is_bounded = _TINY_SECONDS, True
        self.key: Hashable = source

    def position(self, position: int | None) -> int:
        n_tokens = len(self._source.example.tokens)
        position = n_tokens - 1 if position is None else position
        if not 0 <= position < n_tokens:
            raise ConfigError(
                f"A prediction is read at a token from 0 to {n_tokens - 1}; got {position}: choose one of these."
            )
        return position

    def runner(self, position: int) -> PartRunner:
        from attention.training import trained_trace

        source = self._source
        return trained_trace.part_runner(
            source.plan, source.snapshot(), source.example, source.patched_forward(), position
        )

    def token_names(self, ids: Sequence[int]) -> Sequence[str]:
        return self._run.token_names(ids)

    def find_token(self, text: str) -> int:
        return self._run.find_token(text)[0]
