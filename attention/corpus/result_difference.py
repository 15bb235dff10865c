"""What differs between two results over many texts: a base and a fine-tuned model, or one model on two sets of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attention.errors import MissingError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from attention.corpus.heads_result import HeadsResult


@dataclass(frozen=True, eq=False)
class HeadChanges:
    """The change of one metric, head by head, for the heads that both results have.

    Attributes:
        metric: the name of the metric.
        heads: as (layer, head).
        first: the mean in the first result, [head].
        second: the mean in the second, [head].
        first_sd: the standard deviation over the texts of the first, [head]; NaN for fewer than two texts.
        second_sd: that of the second, [head].
        error: the standard error of the change for independent texts, √(sd²/n + sd²/n), [head].
    """

    metric: str
    heads: tuple[tuple[int, int], ...]
    first: NDArray[np.float64]
    second: NDArray[np.float64]
    first_sd: NDArray[np.float64]
    second_sd: NDArray[np.float64]
    error: NDArray[np.float64]

    @classmethod
    def of(cls, first: HeadsResult, second: HeadsResult, metric: str) -> HeadChanges:
        """The change of a metric that both results have.

        Raises:
            MissingError: one has no such metric.
        """
        places = {head: place for place, head in enumerate(second.heads)}
        heads = tuple(head for head in first.heads if head in places)
        own = {head: place for place, head in enumerate(first.heads)}
        rows = [own[head] for head in heads], [places[head] for head in heads]
        a, b = (
            {name: result.column(metric, name)[row] for name in ("mean", "sd", "count")}
            for result, row in zip((first, second), rows, strict=True)
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            error = np.sqrt(a["sd"] ** 2 / a["count"] + b["sd"] ** 2 / b["count"])
        return cls(metric, heads, a["mean"], b["mean"], a["sd"], b["sd"], error)

    @property
    def change(self) -> NDArray[np.float64]:
        """The second mean minus the first, [head]; NaN where one has none."""
        return self.second - self.first

    @property
    def in_errors(self) -> NDArray[np.float64]:
        """The change in standard errors, [head]; 0 without a change, NaN where the spread is unknown."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where((self.change == 0) & ~np.isnan(self.error), 0.0, self.change / self.error)

    @property
    def order(self) -> list[int]:
        """The indices of the heads, the largest change first; those without one are last."""
        return _order(self.change)

    def frame(self, names: tuple[str, str]) -> pd.DataFrame:
        """The heads in the order of their change as a table.

        Args:
            names: of the two results, for the headings.
        """
        import pandas as pd

        order = self.order
        return pd.DataFrame({
            "head": [f"L{layer} H{head}" for layer, head in (self.heads[i] for i in order)],
            f"mean, {names[0]}": self.first[order],
            f"mean, {names[1]}": self.second[order],
            "change": self.change[order],
            "standard error": self.error[order],
            "change in standard errors": self.in_errors[order],
            f"standard deviation, {names[0]}": self.first_sd[order],
            f"standard deviation, {names[1]}": self.second_sd[order],
        })  # fmt: skip


@dataclass(frozen=True, eq=False)
class ResultDifference:
    """Two results: every metric that both have.

    Attributes:
        changes: of each such metric, by name.
        words: what differs between the runs, in sentences; empty if nothing does.
    """

    changes: dict[str, HeadChanges]
    words: str

    @property
    def is_empty(self) -> bool:
        """Whether no mean differs."""
        return not any(np.nan_to_num(changes.change).any() for changes in self.changes.values())


def difference(first: HeadsResult, second: HeadsResult) -> ResultDifference:
    """What changed from the first result to the second.

    Raises:
        MissingError: they have no head, or no metric, in common.
    """
    metrics = [name for name in first.metrics if name in second.metrics]
    if not metrics or not set(first.heads) & set(second.heads):
        missing = "head" if metrics else "metric"
        raise MissingError(f"Two results are compared by the heads and metrics that both have; these have no {missing} in common: choose others.")  # fmt: skip
    return ResultDifference({name: HeadChanges.of(first, second, name) for name in metrics}, describe(first, second))


def describe(first: HeadsResult, second: HeadsResult) -> str:
    """What differs between two runs, in sentences; empty if nothing does."""
    a, b = first.plan, second.plan
    sentences = list[str]()
    if a["model_digest"] != b["model_digest"]:
        names = f"{first.model} and {second.model}" if first.model != second.model else f"two versions of {first.model}"
        sentences.append(f"The models differ: {names}.")
    if a["texts_digest"] != b["texts_digest"]:
        sentences.append(f"The texts differ, {a['n_texts']:,} and {b['n_texts']:,}: a change may come from the texts.")
    if a["max_tokens"] != b["max_tokens"]:
        sentences.append(f"The texts are cut at {a['max_tokens']:,} and at {b['max_tokens']:,} tokens.")
    if (a["controls"], a["seed"]) != (b["controls"], b["seed"]):
        sentences.append("The controls differ.")
    lone = [name for name in (*first.metrics, *second.metrics) if (name in first.metrics) != (name in second.metrics)]
    if lone:
        sentences.append(f"Metrics of one result only are left out: {', '.join(lone)}.")
    if n_heads := len(set(first.heads) ^ set(second.heads)):
        sentences.append(f"{n_heads:,} heads that one result does not have are left out.")
    return " ".join(sentences)


def _order(values: NDArray[np.float64]) -> list[int]:
    return [int(i) for i in np.argsort(-np.nan_to_num(np.abs(values), nan=-1.0, posinf=np.inf), kind="stable")]
