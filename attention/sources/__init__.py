"""Sources of traces: each source is a frozen dataclass, in its own module, that inherits from one of the two protocols here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from attention.formula.config import AttentionConfig
    from attention.formula.override import Override
    from attention.patching.intervention import Intervention
    from attention.program.literals import Snippet
    from attention.trace.model_run import HeadMatrices, ModelRun
    from attention.trace.trace import Trace


class Source(Protocol):
    """Anything that has a trace. A source is frozen and hashable, so that it can be a cache key.

    Its `config` are the knobs after the scores, on which its recorded steps do not depend: an `AttentionConfig` if the source has no formula
    of its own, otherwise an `Override`.
    """

    config: AttentionConfig | Override

    @property
    def base(self) -> Self:
        """The source with default knobs after the scores: the trace of this source is the trace of the base, with `config` applied."""
        return replace(self, config=self.config.up_to_scores)  # type: ignore[type-var]  # a source is a dataclass

    def trace(self) -> Trace:
        """The tokens, and every step that the source can record."""

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """The beginning of a Python program that computes a layer of `trace`, which is the trace of this source, in plain torch."""

    def memory_bytes(self) -> int:
        """The bytes that the steps take while they are computed, counted in advance; raises like `trace` if they exceed the limit."""


@runtime_checkable
class Intervenable(Source, Protocol):
    """A source that makes predictions, and whose heads can be ablated inside the model, or patched from another run, also with frozen attention.

    Several of its traces can be requested at once: it has a queue of its own.
    """

    interventions: tuple[Intervention, ...]
    frozen: bool
    other: Source | None

    @property
    def input_text(self) -> str:
        """The input text, in a form that can be typed."""

    @property
    def without_interventions(self) -> Self:
        """The same source without interventions."""
        return replace(self, interventions=(), frozen=False, other=None)  # type: ignore[type-var]  # a source is a dataclass

    def with_other_run(self, other: object) -> Self:
        """The source with `other` as its other run, where it patches from one and has none. A comparison passes its second state."""
        needs_other = self.other is None and any(intervention.patch for intervention in self.interventions)
        if not (needs_other and isinstance(other, type(self))):
            return self
        return replace(self, other=replace(other.base, other=None))  # type: ignore[type-var]  # a source is a dataclass

    def prepare(self) -> None:
        """Does slow work that needs little memory before the trace, such as training or generation."""

    def run(self) -> ModelRun:
        """The run of the model, without the trace, which may be large; raises like `trace`."""

    def head_matrices(self) -> HeadMatrices:
        """The matrices of every head of the model, whatever its input and interventions; raises ModelError if they are not known."""

    def find_token(self, text: str) -> tuple[int, str]:
        """The id of the token that a text stands for, and its readable form; raises TextError if it is no token, or several."""
