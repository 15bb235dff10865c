"""Sources of traces: each source is a frozen dataclass with a `trace` method, in its own module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from attention.formula.config import AttentionConfig
    from attention.formula.override import Override
    from attention.patching.intervention import Intervention
    from attention.program.literals import Snippet
    from attention.trace.model_run import HeadMatrices, ModelRun
    from attention.trace.trace import Trace


class Source(Protocol):
    """Anything that has a trace. A source is frozen and hashable, so that it can be a cache key."""

    def trace(self) -> Trace:
        """The tokens, and every step that the source can record."""

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """The beginning of a Python program that computes a layer of `trace`, which is the trace of this source, in plain torch."""


@runtime_checkable
class Configurable(Source, Protocol):
    """A source with knobs after the scores; its recorded steps do not depend on them.

    Its `config` is an `AttentionConfig` if the source has no formula of its own, otherwise a `Override`.
    """

    config: AttentionConfig | Override

    @property
    def base(self) -> Configurable:
        """The source with default knobs after the scores: the trace of this source is the trace of the base, with `config` applied."""

    def memory_bytes(self) -> int:
        """The bytes that the steps take while they are computed, counted in advance; raises like `trace` if they exceed the limit."""


@runtime_checkable
class Preparable(Configurable, Protocol):
    """A source with its own queue, so that several of its traces can be requested at once."""

    def prepare(self) -> None:
        """Does slow work that needs little memory before the trace, such as training or generation."""


@runtime_checkable
class Intervenable(Source, Protocol):
    """A source that makes predictions, and whose heads can be patched or ablated inside the model."""

    interventions: tuple[Intervention, ...]

    @property
    def without_interventions(self) -> Source:
        """The same source without interventions."""

    def run(self) -> ModelRun:
        """The run of the model, without the trace, which may be large; raises like `trace`."""

    def head_matrices(self) -> HeadMatrices:
        """The matrices of every head of the model, whatever its input and interventions; raises ModelError if they are not known."""

    def find_token(self, text: str) -> tuple[int, str]:
        """The id of the token that a text stands for, and its readable form; raises TextError if it is no token, or several."""


@runtime_checkable
class Patchable(Intervenable, Protocol):
    """A source with frozen attention, whose heads can be patched from another run."""

    frozen: bool
    other: Source | None

    @property
    def input_text(self) -> str:
        """The input text, in a form that can be typed."""

    def with_other_run(self, other: object) -> Patchable:
        """The source with `other` as its other run, where it patches from one and has none. A comparison passes its second state."""
