"""What the numbers of many texts say of a head: its name, such as "induction"; whether a value is more than chance; and what differs between two results.

A head has a name only where the texts and a control are both clear.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attention.base.errors import ConfigError
from attention.base.printed import format_number
from attention.corpus.run_plan import CONTROL_WORDS
from attention.metrics.find_rule import FindRule
from attention.metrics.metric import NULLS, RANDOM, SHUFFLED, UNIFORM, all_metrics, find

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from attention.corpus.result import HeadsResult


_MIN_TEXTS = 5  # a head gets a label if at least this number of texts have its metric
_ENOUGH = 4.0  # the standard errors beyond which the best of hundreds of heads is hardly there by chance
_MARGIN = 0.1
"""The part of its null by which a value may differ from it: no null is exact, and over many texts the smallest difference has many standard errors."""
_POSITION = "position"
_MOSTLY = 0.5


def declared(metric: str) -> tuple[str, str]:
    """The null and the positive control of a metric of a result, or of a find rule; empty where it has none, or is not known here."""
    try:
        found = find(metric) if metric in all_metrics() else FindRule.parse(metric).metric
    except ConfigError:
        return "", ""
    return found.null, found.control


def _null_values(result: HeadsResult, metric: str) -> NDArray[np.float64]:
    """The mean of a metric over the texts under its null, [head]; NaN where it is unknown, as in results of an earlier version."""
    null, _ = declared(metric)
    if null == UNIFORM:
        return result.column(metric, "uniform")
    return result.column(metric, "mean") - result.column(metric, "excess_mean")


def compared(result: HeadsResult, metric: str) -> dict[str, NDArray[np.float64]]:
    """What the mean of a metric is compared with, by name, each [head]: its null first, then uniform attention and the controls."""
    null, _ = declared(metric)
    values = {null: _null_values(result, metric)} if null else {}
    values.setdefault(UNIFORM, result.column(metric, "uniform"))
    return values | {words: result.column(metric, f"{name}_mean") for name, words in CONTROL_WORDS.items()}


def compared_words(values: Mapping[str, float], null: str, control: str) -> list[str]:
    """Such values of a head in words, those that are known: by chance, the positive control, and the others."""
    known = {name: f"{format_number(value)} ({name})" for name, value in values.items() if math.isfinite(value)}
    groups = {
        "by chance ": [null],
        "positive control ": [control],
        "also ": [name for name in known if name not in (null, control)],
    }
    lines = {words: [known[name] for name in names if name in known] for words, names in groups.items()}
    return [words + ", ".join(numbers) for words, numbers in lines.items() if numbers]


@dataclass(frozen=True)
class Label:
    """A label of a head, with the numbers that it rests on.

    Attributes:
        name: the label.
        metric: the metric, or the offset of "position".
        value: its mean over the texts.
        null: its null, such as `UNIFORM`.
        null_value: what that gives; NaN where the result has no nulls.
        control: its positive control, such as `RANDOM`.
        control_value: its mean over the control.
        typical: the median over all heads of what ranks them: `control_value` where the control is `RANDOM`, otherwise `value`.
    """

    name: str
    metric: str
    value: float
    null: str
    null_value: float
    control: str
    control_value: float
    typical: float

    @property
    def sentence(self) -> str:
        """The label in words, with its numbers."""
        name = f"{self.name} ({self.metric})" if self.name == _POSITION else self.name
        numbers = [f"{self.value:.2f} on texts", f"{self.control_value:.2f} on {CONTROL_WORDS[self.control]}"]
        place = self.control == RANDOM
        numbers[place] += f" ({self.typical:.2f} in the median head)"
        null = "" if math.isnan(self.null_value) else f", {self.null_value:.2f} {NULLS[self.null]}"
        return f"{name}: {numbers[place]}, {numbers[not place]}{null}"


class _LabelRule(NamedTuple):
    """When a head gets a label: it stands out of its model, and a second number agrees.

    What ranks the heads is the positive control of a metric that matches tokens, random tokens that repeat, and otherwise the texts. A head stands
    out if (value − base) / (1 − base) is at least `least`; the base is what the median head of the model has, or uniform attention if that is
    more. The second number agrees if shuffled words have at least `least`; or, where random tokens rank, if the texts have no less than the null.

    None of the labels in `unless` may be there, and none of the metrics in `unless_mostly` may have half of the weight.
    """

    name: str
    metric: str
    least: float
    unless: tuple[str, ...] = ()
    unless_mostly: tuple[str, ...] = ()


# Half of what is left above the base, or less where the measured heads of MiniLM and SmolLM2 suggest it; decision 0212 has the numbers.
_RULES = (
    _LabelRule("previous token", "previous", 0.5),
    _LabelRule("induction", "distant induction", 0.5),
    _LabelRule("duplicate token", "duplicate token", 0.5),
    _LabelRule("first token", "first token", 0.5),
    _LabelRule("punctuation", "punctuation", 0.3),
    _LabelRule(_POSITION, _POSITION, 0.4, ("previous token",)),
    _LabelRule("local", "local", 0.5, ("previous token", _POSITION), ("self", "previous", "next")),
)
"""Every label, in the order in which they are given."""


def of(result: HeadsResult) -> tuple[tuple[Label, ...], ...]:
    """The labels of every head, in the order of `result.heads`; most heads have none."""
    found: list[list[Label]] = [[] for _ in result.heads]
    for rule in _RULES:
        numbers = _position_numbers(result) if rule.metric == _POSITION else _metric_numbers(result, rule.metric)
        by_control = numbers.control == RANDOM
        ranked = numbers.control_value if by_control else numbers.value
        if np.isnan(ranked).all():
            continue
        typical = float(np.nanmedian(ranked))
        base = np.maximum(typical, 0.0 if by_control else numbers.uniform)
        # NaN is never above anything: without a value or a control there is no label. Without a null, nothing is below it.
        stands_out = ranked - base >= rule.least * (1 - base)
        agrees = ~(numbers.value < numbers.null_value) if by_control else numbers.control_value >= rule.least
        usable = stands_out & (base < 1) & agrees & (numbers.n_texts >= _MIN_TEXTS)
        for name in rule.unless_mostly:
            usable &= ~(result.column(name, "mean") >= _MOSTLY)
        for head in np.flatnonzero(usable).tolist():
            if not any(label.name in rule.unless for label in found[head]):
                value, null_value, control_value = (float(column[head]) for column in numbers[3:6])
                null, control = (numbers.null, null_value), (numbers.control, control_value)
                found[head].append(Label(rule.name, numbers.metrics[head], value, *null, *control, typical))
    return tuple(map(tuple, found))


class _Numbers(NamedTuple):
    """What a rule looks at, each [head]."""

    metrics: list[str]
    null: str
    control: str
    value: NDArray[np.float64]
    null_value: NDArray[np.float64]
    control_value: NDArray[np.float64]
    uniform: NDArray[np.float64]
    n_texts: NDArray[np.float64]


def _metric_numbers(result: HeadsResult, metric: str) -> _Numbers:
    null, control = declared(metric)
    names = "mean", f"{control}_mean", "uniform", "count"
    value, control_value, uniform, count = (result.column(metric, name) for name in names)
    metrics = [metric] * len(result.heads)
    return _Numbers(metrics, null, control, value, _null_values(result, metric), control_value, uniform, count)


def _position_numbers(result: HeadsResult) -> _Numbers:
    """Those of the offset with the largest weight, other than the query itself and the token before it."""
    names = "peak_offset", "peak_weight", "shuffled_peak_weight", "uniform", "count"
    offsets, weights, shuffled, uniform, count = (result.column("previous", name) for name in names)
    metrics = [f"offset {offset:+.0f}" for offset in offsets.tolist()]
    return _Numbers(metrics, UNIFORM, SHUFFLED, weights, uniform, shuffled, uniform, count)


class Chance(NamedTuple):
    """A value of a head beside its null, and beside the controls.

    Attributes:
        value: the mean over the texts.
        null: the null that the metric declares, such as `BY_DISTANCE`; empty if it has none.
        expected: the mean under the null; NaN if it is unknown.
        difference: the mean over the texts of the value minus that under the null.
        standard_error: of `difference`, from its spread over the texts.
        texts: the number of texts behind the difference.
        uniform: the mean if all visible keys had the same weight.
        shuffled: the mean over the same texts with their words in random order.
        control: the positive control that the metric declares, such as `RANDOM`; empty if it has none.
        random: the mean over random tokens that repeat.
    """

    value: float
    null: str
    expected: float
    difference: float
    standard_error: float
    texts: int
    uniform: float
    shuffled: float
    control: str
    random: float

    @classmethod
    def of(cls, result: HeadsResult, metric: str, head: int) -> Chance:
        """The numbers of the head with this index in `result.heads`; NaN where there are none."""
        null, control = declared(metric)
        names = "mean", "excess_mean", "excess_sd", "excess_count", "uniform", "shuffled_mean", "random_mean"
        numbers = (float(result.column(metric, name)[head]) for name in names)
        value, difference, sd, count, uniform, shuffled, random = numbers
        n_texts, expected = int(count) if count > 0 else 0, float(_null_values(result, metric)[head])
        error = sd / math.sqrt(n_texts) if n_texts > 1 else math.nan
        return cls(value, null, expected, difference, error, n_texts, uniform, shuffled, control, random)

    @property
    def standard_errors(self) -> float:
        """How far the value is beyond a margin of a tenth of its null, in standard errors; 0 within the margin, negative below it, NaN if unknown."""
        beyond = abs(self.difference) - _MARGIN * abs(self.expected)
        if math.isnan(beyond) or math.isnan(self.standard_error):
            return math.nan
        size = 0.0 if beyond <= 0 else beyond / self.standard_error if self.standard_error > 0 else math.inf
        return math.copysign(size, self.difference) if size else 0.0

    @property
    def is_more(self) -> bool | None:
        """Whether the value is more than chance: more than `_ENOUGH` standard errors beyond the margin; None if the texts do not say."""
        return None if math.isnan(self.standard_errors) else self.standard_errors > _ENOUGH

    @property
    def sentence(self) -> str:
        """The answer to "is that more than chance?", with the numbers that it rests on."""
        if math.isnan(self.value):
            return "No text has a value."
        others = self._others()
        if not self.null:
            return f"This metric has no null. {self.value:.2f} on texts{others}."
        if math.isnan(self.standard_errors):
            known = "" if math.isnan(self.expected) else f", {self.expected:.2f} {NULLS[self.null]}"
            why = "too few texts" if self.texts else "the result has no differences from the null: run it again"
            return f"Unknown, {why}. {self.value:.2f} on texts{known}{others}."
        size, is_less = abs(self.standard_errors), self.standard_errors < -_ENOUGH
        answer = "Yes" if self.is_more else "No, less" if is_less else "Not clear" if size else "No"
        far = f"{size:.1f} standard errors beyond a tenth of that" if size else "which is within a tenth of that"
        more = f"{abs(self.difference):.3f} ± {self.standard_error:.3f} {'more' if self.difference >= 0 else 'less'}"
        return (
            f"{answer}: {self.value:.2f} on texts, {self.expected:.2f} {NULLS[self.null]}; "
            f"{more} over {self.texts:,} texts, {far}{others}."
        )

    def _others(self) -> str:
        """The other numbers in words: uniform attention, and the controls."""
        numbers = [] if self.null == UNIFORM else [(self.uniform, NULLS[UNIFORM])]
        values = {SHUFFLED: self.shuffled, RANDOM: self.random}
        # Random tokens say something of metrics that match tokens alone.
        shown = [name for name in values if name in (SHUFFLED, self.control)]
        numbers += [
            (values[name], f"on {CONTROL_WORDS[name]}{' (the positive control)' if name == self.control else ''}")
            for name in shown
        ]
        known = [f"{value:.2f} {words}" for value, words in numbers if not math.isnan(value)]
        return f"; {', '.join(known)}" if known else ""


@dataclass(frozen=True, eq=False)
class HeadChanges:
    """The change of one metric, head by head, for the heads that both results have.

    Attributes:
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
        places = [{head: place for place, head in enumerate(result.heads)} for result in (first, second)]
        heads = tuple(head for head in places[0] if head in places[1])
        a, b = (
            {name: result.column(metric, name)[[of_head[head] for head in heads]] for name in ("mean", "sd", "count")}
            for result, of_head in zip((first, second), places, strict=True)
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
        size = np.nan_to_num(np.abs(self.change), nan=-1.0, posinf=np.inf)
        return [int(i) for i in np.argsort(-size, kind="stable")]

    def frame(self, names: tuple[str, str] = ("first", "second")) -> pd.DataFrame:
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
