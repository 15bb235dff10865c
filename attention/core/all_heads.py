"""All heads of a trace at a glance: what `Trace.heads` returns, and a notebook draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.core.display import Displayed
from attention.core.steps import find_step
from attention.errors import MissingError, check_index

if TYPE_CHECKING:
    from attention.core.trace import Trace

_SHOWN_LAYERS = 12


@dataclass(frozen=True, eq=False, repr=False)
class AllHeads(Displayed):
    """One step of every head of a trace, as small maps on one colour scale.

    Attributes:
        trace: the trace.
        step: the step of each head.
        layer: the layer whose heads are shown; None for all layers.

    Raises:
        MissingError: there is no such step or layer, or no layer has the step.
    """

    trace: Trace
    step: str
    layer: int | None = None

    def __post_init__(self) -> None:
        name = find_step(self.step).name
        if self.layer is not None:
            check_index("layers", self.layer, len(self.trace.layers))
        if not self.layers:
            raise MissingError(f"no layer of this trace has {name}: choose another step.")

    @property
    def layers(self) -> tuple[int, ...]:
        """The indices of the layers that are shown."""
        chosen = range(len(self.trace.layers)) if self.layer is None else (self.layer,)
        return tuple(index for index in chosen if self.trace.layers[index].has(self.step))

    def __repr__(self) -> str:
        rows = [f"L{index}: heads 0 to {self.trace.layers[index].n_heads - 1}" for index in self.layers[:_SHOWN_LAYERS]]
        rows += ["…"] if len(self.layers) > _SHOWN_LAYERS else []
        count = sum(self.trace.layers[index].n_heads for index in self.layers)
        return "\n  ".join([f"AllHeads({self.step} of {count} heads in {len(self.layers)} layers:", *rows]) + ")"
