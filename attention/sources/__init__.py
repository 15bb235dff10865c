"""Where a trace comes from: each source is a frozen dataclass with `.trace()`, one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from attention.formula.trace import Trace


class Snippet(NamedTuple):
    """How the Python of a trace begins; `attention.code` writes `tokens` before it and the formula after it.

    The names are those of the steps and parameters, with `x` for `input` and `x2` for `memory`.

    Attributes:
        about: where the numbers come from, ASCII, a few words after "from".
        lines: what makes the steps of the layer that cannot be made from others: `x` and the
            projections; or `query`, `key` and `value` where there are none; or `value` and `scores`
            where there are no queries; and so on. A layer with dropout needs a function `generator` too.
        mask: what says which keys a query may attend to, in `query_pos` and `key_pos` if it wants;
            empty where no rule says it, then the mask is written down cell by cell.
    """

    about: str
    lines: tuple[str, ...]
    mask: str = ""


class Source(Protocol):
    """Anything that gives a trace. Frozen and hashable, so that it can be the key of a cache."""

    def trace(self) -> Trace:
        """The tokens and every step this source can record."""
        ...

    def snippet(self, trace: Trace) -> Snippet:
        """How the Python begins that makes `trace`, the trace of this source, again in plain torch."""
        ...


@runtime_checkable
class Turnable(Source, Protocol):
    """A source whose trace is made in two halves, so that the first can be kept while a knob of the second is turned."""

    @property
    def unturned(self) -> Turnable:
        """The source that has the same scores, whatever mask, scaling and temperature are."""
        ...

    @property
    def needs(self) -> int:
        """The bytes that its trace takes while it is made, counted before; too many raise what `trace` would."""
        ...

    def scores(self) -> Trace:
        """The tokens and the steps up to the scores."""
        ...

    def trace(self, scores: Trace | None = None) -> Trace:
        """The tokens and every step, from the `scores` of `unturned` if they are given."""
        ...
