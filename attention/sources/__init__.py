"""Where a trace comes from: each source is a frozen dataclass with `.trace()`, one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from attention.formula.config import AttentionConfig
    from attention.formula.intervention import Intervention
    from attention.formula.trace import Trace
    from attention.formula.what_if import WhatIf


class Snippet(NamedTuple):
    """How the Python of a trace begins; `attention.export.program` writes `tokens` before it and the formula after it.

    The names are those of the steps and parameters, with `x` for `input` and `x2` for `memory`.

    Attributes:
        about: where the numbers come from, ASCII, a few words after "from".
        lines: what makes the steps of the layer that cannot be made from others: `x` and the
            projections; or `query`, `key` and `value` where there are none; or `value` and `scores`
            where there are no queries; and so on. A layer with a step that is drawn needs a function `generator` too.
        without: what of the layer they do not make, which is then not said either.
        inside: the layers of the trace that are changed while the lines run, by their index; for each there is then a function
            such as `layer_5`, which makes the heads' outputs that go on of its query, key and value.
    """

    about: str
    lines: tuple[str, ...]
    without: tuple[str, ...] = ()
    inside: tuple[int, ...] = ()


class Source(Protocol):
    """Anything that gives a trace. Frozen and hashable, so that it can be the key of a cache."""

    def trace(self) -> Trace:
        """The tokens and every step this source can record."""
        ...

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """How the Python begins that makes a layer of `trace`, the trace of this source, again in plain torch."""
        ...


@runtime_checkable
class Turnable(Source, Protocol):
    """A source with knobs after the scores: what it records does not depend on them.

    Its `config` is an `AttentionConfig` where the numbers are made here, a `WhatIf` where it brings its own formula.
    """

    config: AttentionConfig | WhatIf

    @property
    def base(self) -> Turnable:
        """The source that records the same, with those knobs where they were: its trace, turned, is this one's."""
        ...

    @property
    def needs(self) -> int:
        """The bytes that its steps take while they are made, counted before; too many raise what `trace` would."""
        ...


@runtime_checkable
class Preparable(Turnable, Protocol):
    """A source that waits for its turn by itself, so that many may ask for its traces at once."""

    def prepare(self) -> None:
        """Does what takes long and little memory before a trace is made, such as training or generating tokens."""
        ...


@runtime_checkable
class Changeable(Source, Protocol):
    """A source whose heads can be changed inside it before all that follows is made, and that says something in the end."""

    interventions: tuple[Intervention, ...]

    @property
    def unchanged(self) -> Source:
        """The same with nothing changed: what it says is what was said before."""
        ...

    def token(self, text: str) -> tuple[int, str]:
        """The token that is meant by a text: its number, and how it is read; TextError where it is none, or several."""
        ...


@runtime_checkable
class Patchable(Changeable, Protocol):
    """One whose later attention can be frozen, and whose heads can take from the other state."""

    frozen: bool
    other: Source | None

    @property
    def reads(self) -> str:
        """The text that it reads, as a person can type it."""
        ...

    def beside(self, other: object) -> Patchable:
        """Itself with `other` as the other state, where it takes something from one and has none; of two that are compared."""
        ...
