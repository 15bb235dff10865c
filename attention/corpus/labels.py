"""What the numbers of many texts say of a head: its name, such as "induction"; whether a value is more than chance; and what differs between two results.

A head has a name only where the texts and a control are both clear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from attention.base.errors import MissingError
from attention.corpus.run_plan import RANDOM, SHUFFLED

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from attention.corpus.result import HeadsResult


MIN_TEXTS = 5
"""A head gets a label if at least this number of texts have its metric."""
POSITION = "position"
_MOSTLY = 0.5
_CONTROL_WORDS = {SHUFFLED: "shuffled words", RANDOM: "random tokens that repeat"}


class LabelledResult(Protocol):
    """What labels need of a result, as `HeadsResult` has it."""

    @property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """(layer, head) in order."""

    def column(self, metric: str, name: str) -> NDArray[np.float64]:
        """A number of a metric for every head, [head]."""


@dataclass(frozen=True)
class Label:
    """A label of a head, with the numbers that it rests on.

    Attributes:
        name: the label.
        metric: the metric.
        value: its mean over the texts.
        null_name: the control.
        null_value: its mean over the control.
        uniform: its value under uniform attention.
    """

    name: str
    metric: str
    value: float
    null_name: str
    null_value: float
    uniform: float

    @property
    def sentence(self) -> str:
        """The label in words, with its numbers."""
        control = _CONTROL_WORDS[self.null_name]
        name = f"{self.name} ({self.metric})" if self.name == POSITION else self.name
        return f"{name}: {self.value:.2f} of the weight on texts, {self.null_value:.2f} on {control}, {self.uniform:.2f} by chance"


class LabelRule(NamedTuple):
    """When a head gets a label: both the excess (value − uniform) / (1 − uniform) on texts and the value on the control are large.

    Attributes:
        name: the label.
        metric: its metric.
        control: the condition that must agree.
        least: of the excess on texts.
        control_least: of the value on the control.
        unless: labels of which none may be there.
        unless_mostly: metrics of which none may have half of the weight.
    """

    name: str
    metric: str
    control: str
    least: float
    control_least: float
    unless: tuple[str, ...] = ()
    unless_mostly: tuple[str, ...] = ()


# Half of the weight, or less where the measured heads of MiniLM and SmolLM2 suggest it; decision 0185 says on how few texts.
# Position does not depend on words: shuffled words must agree. Matching does not depend on meaning: random tokens must agree, and there it
# is clearer than on texts, where a repeated word seldom has one continuation and the first token takes the rest.
RULES = (
    LabelRule("previous token", "previous", SHUFFLED, 0.5, 0.5),
    LabelRule("induction", "distant induction", RANDOM, 0.1, 0.5),
    LabelRule("duplicate token", "duplicate token", RANDOM, 0.15, 0.4),
    LabelRule("first token", "first token", SHUFFLED, 0.5, 0.5),
    LabelRule("punctuation", "punctuation", SHUFFLED, 0.3, 0.4),
    LabelRule(POSITION, POSITION, SHUFFLED, 0.4, 0.4, ("previous token",)),
    LabelRule("local", "local", SHUFFLED, 0.5, 0.5, ("previous token", POSITION), ("self", "previous", "next")),
)
"""Every label, in the order in which they are given."""


def of(result: LabelledResult) -> tuple[tuple[Label, ...], ...]:
    """The labels of every head, in the order of `result.heads`; most heads have none."""
    found: list[list[Label]] = [[] for _ in result.heads]
    for rule in RULES:
        of_rule = _positions(result, rule) if rule.metric == POSITION else _of_metric(result, rule)
        means = [result.column(name, "mean").tolist() for name in rule.unless_mostly]
        for head, (label, labels) in enumerate(zip(of_rule, found, strict=True)):
            excess = (label.value - label.uniform) / (1 - label.uniform) if label and label.uniform < 1 else math.nan
            # NaN is never above anything: without a value or a control there is no label.
            if label is None or not (excess >= rule.least and label.null_value >= rule.control_least):
                continue
            has_other = any(each.name in rule.unless for each in labels)
            if not has_other and not any(column[head] >= _MOSTLY for column in means):
                labels.append(label)
    return tuple(map(tuple, found))


def _of_metric(result: LabelledResult, rule: LabelRule) -> list[Label | None]:
    """The numbers of a rule for every head; None if too few texts have them."""
    names = "mean", "uniform", f"{rule.control}_mean", "count"
    columns = (result.column(rule.metric, name).tolist() for name in names)
    return [
        Label(rule.name, rule.metric, value, rule.control, null, uniform) if count >= MIN_TEXTS else None
        for value, uniform, null, count in zip(*columns, strict=True)
    ]


def _positions(result: LabelledResult, rule: LabelRule) -> list[Label | None]:
    """The numbers of the offset with the largest weight, other than the query itself and the token before it, for every head."""
    names = "peak_offset", "peak_weight", "shuffled_peak_weight", "uniform", "count"
    columns = (result.column("previous", name).tolist() for name in names)
    return [
        Label(rule.name, f"offset {offset:+.0f}", weight, rule.control, null, uniform) if count >= MIN_TEXTS else None
        for offset, weight, null, uniform, count in zip(*columns, strict=True)
    ]


class Chance(NamedTuple):
    """A value of a head beside what chance gives.

    Attributes:
        value: the mean over the texts.
        uniform: the mean if all visible keys had the same weight.
        shuffled: the mean over the same texts with their words in random order.
        difference: the mean over the texts of the value minus that of the same text shuffled.
        standard_error: of `difference`, from its spread over the texts.
        texts: the number of texts behind the difference.
    """

    value: float
    uniform: float
    shuffled: float
    difference: float
    standard_error: float
    texts: int

    @classmethod
    def of(cls, result: LabelledResult, metric: str, head: int) -> Chance:
        """The numbers of the head with this index in `result.heads`; NaN where there are none."""
        names = "mean", "uniform", "shuffled_mean", "difference_mean", "difference_sd", "difference_count"
        value, uniform, shuffled, difference, sd, count = (float(result.column(metric, name)[head]) for name in names)
        n_texts = int(count) if count > 0 else 0
        return cls(value, uniform, shuffled, difference, sd / math.sqrt(n_texts) if n_texts > 1 else math.nan, n_texts)

    @property
    def standard_errors(self) -> float:
        """The difference in standard errors; above about 4, chance is a poor explanation even for the best of hundreds of heads."""
        return self.difference / self.standard_error if self.standard_error > 0 else math.nan

    @property
    def sentence(self) -> str:
        """The answer to "is that more than chance?"."""
        if math.isnan(self.value):
            return "No text has a value."
        words = f"{self.value:.2f} on texts, {self.uniform:.2f} if all visible keys had the same weight"
        if math.isnan(self.standard_errors):
            return f"{words}; too few texts, or no shuffled words, to say whether it is more than chance."
        more = f"{abs(self.difference):.3f} ± {self.standard_error:.3f} {'more' if self.difference >= 0 else 'less'}"
        return (
            f"{words}, {self.shuffled:.2f} on shuffled words: {more} than on the same words in random order, "
            f"{abs(self.standard_errors):.1f} standard errors over {self.texts:,} texts."
        )


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
