"""The result of an ablation sweep: how a prediction changes without each head, and what each head writes directly to the logit.

Ablating a head may change little although the head does something: other heads compensate (backup heads). Several heads can
therefore be ablated together, and the sweep repeated on the ablated model. Source: Wang et al. 2022, "Interpretability in the
Wild", section 3.4; McGrath et al. 2023, "The Hydra Effect".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.printed import format_number, number

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

MAX_NAMED = 3  # interventions listed by name; more are only counted
CAVEAT = "A small change does not mean that the head does nothing: other heads may compensate (backup heads)."


def signed(change: float) -> str:
    """A change with its sign: +0.12, −3.4, 0."""
    return f"{'+' if change > 0 else ''}{number(change, 3).text}"


@dataclass(frozen=True, eq=False)
class AblationSweep:
    """The effect of ablating each head in turn, as a map [layer head]; NaN where a layer has fewer heads.

    Attributes:
        quantity: the measured quantity, such as "log-probability of ·copper".
        ablation: the ablation: "zero" or "mean".
        baseline: the quantity before the sweep's ablation, with the interventions in `interventions` active.
        change: the quantity without each head, minus `baseline`.
        direct: each head's direct contribution to the logit or logit difference; all NaN if unknown.
        remainder: the part of that logit that no head contributes directly; NaN if unknown.
        interventions: the interventions active during the whole sweep, each in a few words; empty for the unchanged model.
        n_heads: the number of heads in each layer.
        no_direct_reason: why the direct effects are unknown, in a sentence; empty if they are known.
    """

    quantity: str
    ablation: str
    baseline: float
    change: NDArray[np.float64]
    direct: NDArray[np.float64]
    remainder: float
    interventions: tuple[str, ...]
    n_heads: tuple[int, ...]
    no_direct_reason: str = ""

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        return int(self.change.nbytes + self.direct.nbytes)

    @property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """Every head as (layer, head), in order."""
        return tuple((layer, head) for layer, count in enumerate(self.n_heads) for head in range(count))

    @property
    def limit(self) -> float:
        """The end of a scale, symmetric about 0, that covers all changes."""
        import numpy as np

        return float(np.nanmax(np.abs(self.change), initial=0.0))

    @property
    def has_direct_effects(self) -> bool:
        """Whether the direct effects are known."""
        return not self.no_direct_reason

    @property
    def interventions_words(self) -> str:
        """The active interventions, as words that follow "with"; empty if there are none."""
        return (
            ", ".join(self.interventions)
            if len(self.interventions) <= MAX_NAMED
            else f"{len(self.interventions)} changes"
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The column headings of a table of heads."""
        how = "ablated" if self.ablation == "zero" else "replaced by its mean"
        how += f" with {self.interventions_words}" if self.interventions else ""
        return (
            f"change of {self.quantity}, {how}",
            *(["direct effect on the logit"] if self.has_direct_effects else []),
        )

    def row(self, layer: int, head: int) -> tuple[float, ...]:
        """The numbers of one head, one for each of `columns`."""
        cells = float(self.change[layer, head]), float(self.direct[layer, head])
        return cells[: len(self.columns)]

    def other_heads_words(self, layer: int, head: int) -> str:
        """The median change over the other heads of the layer, ablated one at a time, in words; empty if there are no other heads."""
        import numpy as np

        rest = np.delete(self.change[layer, : self.n_heads[layer]], head)
        return (
            f"Another head of its layer: {signed(float(np.median(rest)))} (median of {len(rest)})." if len(rest) else ""
        )

    def by_effect(self) -> tuple[tuple[int, int], ...]:
        """All heads, by decreasing size of their change."""
        return tuple(sorted(self.heads, key=lambda pair: -abs(float(self.change[pair]))))

    def frame(self, order: Sequence[tuple[int, int]] = ()) -> pd.DataFrame:
        """A row for each head in this order (by default that of `sorted`): layer, head, `columns`."""
        import pandas as pd

        order = order or self.by_effect()
        rows = [(*pair, *self.row(*pair)) for pair in order]
        return pd.DataFrame(rows, columns=["layer", "head", *self.columns])

    def describe(self, layer: int, head: int) -> str:
        """The change without one head, and its direct effect, in words."""
        change = float(self.change[layer, head])
        direct = (
            f"; it adds {signed(float(self.direct[layer, head]))} directly to the logit (direct effect)"
            if self.has_direct_effects
            else ""
        )
        return f"Without L{layer} H{head}: {self.quantity} {format_number(self.baseline)} → {format_number(self.baseline + change)} ({signed(change)}){direct}."


@dataclass(frozen=True)
class GroupAblation:
    """The effect of ablating several heads together, compared with random heads of the same layers.

    Attributes:
        heads: the ablated heads, as (layer, head).
        quantity: the measured quantity.
        baseline: the quantity in the unchanged run; `ablated` without the heads.
        individual_changes: the change without each head alone, in the order of `heads`; these rarely add up to the joint change.
        random_changes: the changes without the same number of random heads of the same layers, sorted.
    """

    heads: tuple[tuple[int, int], ...]
    quantity: str
    baseline: float
    ablated: float
    individual_changes: tuple[float, ...]
    random_changes: tuple[float, ...]

    @property
    def change(self) -> float:
        """The change with all of them ablated."""
        return self.ablated - self.baseline

    @property
    def random_median(self) -> float:
        """The median change over the random heads; NaN if there are no other heads to draw."""
        from statistics import median

        return median(self.random_changes) if self.random_changes else math.nan

    @property
    def description(self) -> str:
        """The result in words."""
        names = ", ".join(f"L{layer} H{head}" for layer, head in self.heads)
        control = (
            f"; the same number of random heads of the same layers: {signed(self.random_median)} (median of {len(self.random_changes)})"
            if self.random_changes
            else ""
        )
        return f"Without {names}: {self.quantity} {format_number(self.baseline)} → {format_number(self.ablated)} ({signed(self.change)}){control}."


@dataclass(frozen=True)
class SweepProgress:
    """The progress of a sweep.

    Attributes:
        done: the finished heads, of `total`.
        seconds: the estimated remaining time.
        result: the result, in the last report only.
    """

    done: int
    total: int
    seconds: float
    result: AblationSweep | None = None
