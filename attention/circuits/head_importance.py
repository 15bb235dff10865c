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

from attention.base.printed import format_number, number
from attention.formula.edit_kinds import ABLATIONS, PATCH_CODES
from attention.formula.names import HEAD_OUTPUT, KEY, QUERY, VALUE, WEIGHTS

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

SWEEP_KINDS = (*ABLATIONS, *PATCH_CODES)
"""What a sweep does with each head: zero or mean ablation, or a step that is patched from the other run."""
STEP_WORDS = {QUERY: "queries", KEY: "keys", VALUE: "values", WEIGHTS: WEIGHTS, HEAD_OUTPUT: "output (Z)"}
"""The patched steps in words."""
_MAX_NAMED = 3  # interventions listed by name; more are only counted
SATURATION_CAVEAT = "It is a straight-line estimate: where a softmax is saturated its gradient is almost 0, so changes of queries and keys are underestimated (Kramár et al. 2024, AtP*)."
CAVEAT = "A small change does not mean that the head does nothing: other heads may compensate (backup heads)."


def signed(change: float) -> str:
    """A change with its sign: +0.12, −3.4, 0."""
    return f"{'+' if change > 0 else ''}{number(change, 3).text}"


@dataclass(frozen=True, eq=False)
class HeadSweep:
    """The effect of ablating or patching each head in turn, as a map [layer head]; NaN where a layer has fewer heads.

    Attributes:
        quantity: the measured quantity, such as "log-probability of ·copper".
        kind: what each head gets, one of `SWEEP_KINDS`.
        baseline: the quantity before the sweep's changes, with the interventions in `interventions` active.
        change: the quantity with each head changed, minus `baseline`.
        direct: each head's direct contribution to the logit or logit difference; all NaN if unknown.
        remainder: the part of that logit that no head contributes directly; NaN if unknown.
        interventions: the interventions active during the whole sweep, each in a few words; empty for the unchanged model.
        n_heads: the number of heads in each layer.
        no_direct_reason: why the direct effects are unknown, in a sentence; empty if they are known.
        estimate: the change as attribution patching estimates it from gradients; all NaN if unknown.
        no_estimate_reason: why the estimates are unknown, in a sentence; empty if they are known.
        alignment: which tokens were patched if the other text has another number of tokens, in sentences.
    """

    quantity: str
    kind: str
    baseline: float
    change: NDArray[np.float64]
    direct: NDArray[np.float64]
    remainder: float
    interventions: tuple[str, ...]
    n_heads: tuple[int, ...]
    no_direct_reason: str
    estimate: NDArray[np.float64]
    no_estimate_reason: str = ""
    alignment: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        return int(self.change.nbytes + self.direct.nbytes + self.estimate.nbytes)

    @property
    def is_ablation(self) -> bool:
        """Whether the heads are ablated, not patched from another run."""
        return self.kind in ABLATIONS

    @property
    def title(self) -> str:
        """What the sweep does with each head, in a few words."""
        return "Without each head" if self.is_ablation else f"Each head with the {STEP_WORDS[self.kind]} of B"

    @property
    def rank_correlation(self) -> float:
        """Spearman's rank correlation between the estimates and the exact changes, from −1 to 1; NaN if unknown, or if all are equal."""
        import numpy as np

        heads = tuple(np.array(self.heads).T)
        return rank_correlation(self.change[heads], self.estimate[heads])

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
    def has_estimates(self) -> bool:
        """Whether the estimates are known."""
        return not self.no_estimate_reason

    @property
    def interventions_words(self) -> str:
        """The active interventions, as words that follow "with"; empty if there are none."""
        return (
            ", ".join(self.interventions)
            if len(self.interventions) <= _MAX_NAMED
            else f"{len(self.interventions)} changes"
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The column headings of a table of heads."""
        how = {"zero": "ablated", "mean": "replaced by its mean"}.get(self.kind, "")
        how = how or f"{STEP_WORDS[self.kind]} from B"
        how += f" with {self.interventions_words}" if self.interventions else ""
        return (
            f"change of {self.quantity}, {how}",
            *(["estimate of that change (attribution patching)"] if self.has_estimates else []),
            *(["direct effect on the logit"] if self.has_direct_effects else []),
        )

    def row(self, layer: int, head: int) -> tuple[float, ...]:
        """The numbers of one head, one for each of `columns`."""
        place = layer, head
        return (
            float(self.change[place]),
            *([float(self.estimate[place])] if self.has_estimates else []),
            *([float(self.direct[place])] if self.has_direct_effects else []),
        )

    def other_heads_words(self, layer: int, head: int) -> str:
        """The median change over the other heads of the layer, changed one at a time, in words; empty if there are no other heads."""
        import numpy as np

        rest = np.delete(self.change[layer, : self.n_heads[layer]], head)
        return (
            f"Another head of its layer: {signed(float(np.median(rest)))} (median of {len(rest)})." if len(rest) else ""
        )

    def by_effect(self) -> tuple[tuple[int, int], ...]:
        """All heads, by decreasing size of their change."""
        return tuple(sorted(self.heads, key=lambda pair: -abs(float(self.change[pair]))))

    def frame(self, order: Sequence[tuple[int, int]] = ()) -> pd.DataFrame:
        """A row for each head in this order (by default that of `by_effect`): layer, head, `columns`."""
        import pandas as pd

        order = order or self.by_effect()
        rows = [(*pair, *self.row(*pair)) for pair in order]
        return pd.DataFrame(rows, columns=["layer", "head", *self.columns])

    def describe(self, layer: int, head: int) -> str:
        """The change when one head is ablated or patched, and its direct effect, in words."""
        change = float(self.change[layer, head])
        direct = (
            f"; it adds {signed(float(self.direct[layer, head]))} directly to the logit (direct effect)"
            if self.has_direct_effects
            else ""
        )
        name = f"L{layer} H{head}"
        how = f"Without {name}" if self.is_ablation else f"{name} with the {STEP_WORDS[self.kind]} of B"
        return f"{how}: {self.quantity} {format_number(self.baseline)} → {format_number(self.baseline + change)} ({signed(change)}){direct}."

    def describe_estimate(self) -> str:
        """How well the estimates rank the heads, and when they fail, in sentences; the reason if there are none."""
        if not self.has_estimates:
            return f"Attribution patching gives no estimate: {self.no_estimate_reason}"
        return f"Attribution patching estimates the same from one backward pass: rank correlation with the exact sweep (Spearman) {format_number(self.rank_correlation)} over {len(self.heads)} heads. {SATURATION_CAVEAT}"


@dataclass(frozen=True, eq=False)
class HeadEstimates:
    """The effect of each head as attribution patching estimates it, and its direct effect, as maps [layer head]; NaN where a layer has fewer heads.

    Attributes:
        quantity: the measured quantity, such as "log-probability of ·copper".
        kind: what each head would get, one of `SWEEP_KINDS`.
        baseline: the quantity in the unchanged run.
        estimate: the estimated change.
        direct: each head's direct contribution to the logit or logit difference; all NaN if unknown.
        n_heads: the number of heads in each layer.
        no_direct_reason: why the direct effects are unknown, in a sentence; empty if they are known.
        alignment: which tokens would be patched if the other text has another number of tokens, in sentences.
    """

    quantity: str
    kind: str
    baseline: float
    estimate: NDArray[np.float64]
    direct: NDArray[np.float64]
    n_heads: tuple[int, ...]
    no_direct_reason: str = ""
    alignment: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        return int(self.estimate.nbytes + self.direct.nbytes)

    def by_effect(self) -> tuple[tuple[int, int], ...]:
        """All heads as (layer, head), by decreasing size of their estimate."""
        heads = [(layer, head) for layer, count in enumerate(self.n_heads) for head in range(count)]
        return tuple(sorted(heads, key=lambda pair: -abs(float(self.estimate[pair]))))

    def frame(self) -> pd.DataFrame:
        """A row for each head in the order of `by_effect`: layer, head, estimate, direct effect."""
        import pandas as pd

        rows = [(*pair, float(self.estimate[pair]), float(self.direct[pair])) for pair in self.by_effect()]
        return pd.DataFrame(rows, columns=["layer", "head", "estimate", "direct effect"])


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
    result: HeadSweep | None = None


def rank_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Spearman's rank correlation of two rows of numbers; equal numbers share the mean of their ranks. NaN if one has no order."""
    import pandas as pd

    ranks = [pd.Series(row).rank() for row in (a, b)]
    constant = any(row.nunique() < 2 for row in ranks)  # also where all are NaN
    return math.nan if constant else float(ranks[0].corr(ranks[1]))
