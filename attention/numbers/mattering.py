"""Which heads matter for a prediction: what changes without each, beside what each writes straight into it.

A head whose silencing changes little may still do something: other heads step in for it (backup heads). So two can be silenced
together, and the same heads compared before and after. Source: Wang et al. 2022, "Interpretability in the Wild", section 3.4;
McGrath et al. 2023, "The Hydra Effect".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.printed import number, shown

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

MOST_NAMED = 3  # changes that are named one by one
CAVEAT = "A small change is not “does not matter”: other heads may step in (backup heads)."


def by(change: float) -> str:
    """A change with its sign: +0.12, −3.4, 0."""
    return f"{'+' if change > 0 else ''}{number(change, 3).text}"


@dataclass(frozen=True, eq=False)
class Matters:
    """What silencing each head in turn changes, as a map [layer head]; NaN where a layer has not so many heads.

    Attributes:
        what: what is measured, such as "log-probability of ·copper".
        silence: "zero" or "mean".
        before: it, of the run with no head silenced but those that `changes` silence.
        change: without each head less `before`.
        direct: what each head adds straight to the logit, or to the logit difference; all NaN where that is not known.
        remainder: of that logit, what no head adds straight; NaN where it is not known.
        changes: what is changed in the model all the while, each in a few words; empty: it is as it is.
        n_heads: how many heads each layer has.
        unknown: why the direct effects are not known, in a sentence; empty where they are.
    """

    what: str
    silence: str
    before: float
    change: NDArray[np.float64]
    direct: NDArray[np.float64]
    remainder: float
    changes: tuple[str, ...]
    n_heads: tuple[int, ...]
    unknown: str = ""

    @property
    def nbytes(self) -> int:
        """The memory of its numbers, in bytes."""
        return int(self.change.nbytes + self.direct.nbytes)

    @property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """Every head as (layer, head), in their order."""
        return tuple((layer, head) for layer, many in enumerate(self.n_heads) for head in range(many))

    @property
    def limit(self) -> float:
        """The end of a scale symmetric about 0 that all changes are within."""
        import numpy as np

        return float(np.nanmax(np.abs(self.change), initial=0.0))

    @property
    def known(self) -> bool:
        """Whether the direct effects are known."""
        return not self.unknown

    @property
    def changed(self) -> str:
        """What is changed in the model all the while, in words that go on after "with"; empty where nothing is."""
        return ", ".join(self.changes) if len(self.changes) <= MOST_NAMED else f"{len(self.changes)} changes"

    @property
    def columns(self) -> tuple[str, ...]:
        """What its columns are called in a table of heads."""
        how = "silenced" if self.silence == "zero" else "replaced by its mean"
        how += f" with {self.changed}" if self.changes else ""
        return (f"change of {self.what}, {how}", *(["direct effect on the logit"] if self.known else []))

    def numbers(self, layer: int, head: int) -> tuple[float, ...]:
        """The numbers of one head, one for each of `columns`."""
        both = float(self.change[layer, head]), float(self.direct[layer, head])
        return both[: len(self.columns)]

    def others(self, layer: int, head: int) -> str:
        """The median of what the other heads of its layer change, one at a time, in words; empty where it is the only one."""
        import numpy as np

        rest = np.delete(self.change[layer, : self.n_heads[layer]], head)
        return f"Another head of its layer: {by(float(np.median(rest)))} (median of {len(rest)})." if len(rest) else ""

    def sorted(self) -> tuple[tuple[int, int], ...]:
        """All heads, the one whose silencing changes most first."""
        return tuple(sorted(self.heads, key=lambda one: -abs(float(self.change[one]))))

    def frame(self, order: Sequence[tuple[int, int]] = ()) -> pd.DataFrame:
        """A row for each head in this order, or the one that changes most first: its layer, its head, `columns`."""
        import pandas as pd

        order = order or self.sorted()
        rows = [(*one, *self.numbers(*one)) for one in order]
        return pd.DataFrame(rows, columns=["layer", "head", *self.columns])

    def said(self, layer: int, head: int) -> str:
        """What is so of one head, in words."""
        change = float(self.change[layer, head])
        direct = (
            f"; it adds {by(float(self.direct[layer, head]))} to the logit straight (direct effect)"
            if self.known
            else ""
        )
        return f"Without L{layer} H{head}: {self.what} {shown(self.before)} → {shown(self.before + change)} ({by(change)}){direct}."


@dataclass(frozen=True)
class Together:
    """What silencing some heads together changes, and as many random heads of the same layers.

    Attributes:
        heads: that are silenced, as (layer, head).
        what: what is measured.
        before: it, of the unchanged run; `after` without the heads.
        alone: the change without each of them alone, in their order; their sum is mostly not the change without all.
        random: the changes without as many random heads of the same layers, sorted.
    """

    heads: tuple[tuple[int, int], ...]
    what: str
    before: float
    after: float
    alone: tuple[float, ...]
    random: tuple[float, ...]

    @property
    def change(self) -> float:
        """What all of them together change."""
        return self.after - self.before

    @property
    def median(self) -> float:
        """The median of the random ones; NaN where there are no others to draw."""
        from statistics import median

        return median(self.random) if self.random else math.nan

    @property
    def said(self) -> str:
        """It in words."""
        names = ", ".join(f"L{layer} H{head}" for layer, head in self.heads)
        control = (
            f"; as many random heads of the same layers: {by(self.median)} (median of {len(self.random)})"
            if self.random
            else ""
        )
        return f"Without {names}: {self.what} {shown(self.before)} → {shown(self.after)} ({by(self.change)}){control}."


@dataclass(frozen=True)
class Progress:
    """How far it has come.

    Attributes:
        done: heads, of `total`.
        seconds: that the rest takes, about.
        found: what was found, in the last.
    """

    done: int
    total: int
    seconds: float
    found: Matters | None = None
