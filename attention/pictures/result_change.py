"""The change of one metric from one result over many texts to another, head by head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from attention.corpus.heads_result import HeadsResult


@dataclass(frozen=True, eq=False)
class HeadChanges:
    """The heads that both results have.

    Attributes:
        metric: the name of the metric.
        heads: as (layer, head).
        first: the mean in the first result, [head].
        second: the mean in the second.
        error: the standard error of their difference, if the texts are independent.
    """

    metric: str
    heads: tuple[tuple[int, int], ...]
    first: NDArray[np.float64]
    second: NDArray[np.float64]
    error: NDArray[np.float64]

    @classmethod
    def of(cls, first: HeadsResult, second: HeadsResult, metric: str) -> HeadChanges:
        """The change of a metric that both results have."""
        heads = tuple(head for head in first.heads if head in set(second.heads))
        places = [[result.heads.index(head) for head in heads] for result in (first, second)]
        columns = [
            {name: result.column(metric, name)[place] for name in ("mean", "sd", "count")}
            for result, place in zip((first, second), places, strict=True)
        ]
        with np.errstate(invalid="ignore", divide="ignore"):
            variance = sum(column["sd"] ** 2 / column["count"] for column in columns)
        return cls(metric, heads, columns[0]["mean"], columns[1]["mean"], np.sqrt(variance))

    @property
    def change(self) -> NDArray[np.float64]:
        """The second mean minus the first, [head]."""
        return self.second - self.first

    @property
    def order(self) -> list[int]:
        """The indices of the heads, the largest change first."""
        return [int(i) for i in np.argsort(-np.abs(np.nan_to_num(self.change)), kind="stable")]

    def frame(self, names: tuple[str, str]) -> pd.DataFrame:
        """The heads in this order as a table."""
        import pandas as pd

        order = self.order
        with np.errstate(invalid="ignore", divide="ignore"):
            in_errors = self.change / self.error
        return pd.DataFrame({
            "head": [f"L{layer} H{head}" for layer, head in (self.heads[i] for i in order)],
            f"mean, {names[0]}": self.first[order],
            f"mean, {names[1]}": self.second[order],
            "change": self.change[order],
            "standard error": self.error[order],
            "change in standard errors": in_errors[order],
        })  # fmt: skip
