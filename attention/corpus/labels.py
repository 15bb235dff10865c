"""Names of heads, such as "induction": only where the texts and a control are both clear; and whether a value is more than chance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from attention.corpus.run_plan import RANDOM, SHUFFLED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MIN_TEXTS = 5
"""A head gets a label if at least this number of texts have its metric."""
POSITION = "position"
_MOSTLY = 0.5
_MAX_POSITION = 16  # farther offsets exist in few texts
_CONTROL_WORDS = {SHUFFLED: "shuffled words", RANDOM: "random tokens that repeat"}


class LabelledResult(Protocol):
    """What labels need of a result, as `HeadsResult` has it."""

    @property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """(layer, head) in order."""

    def column(self, metric: str, name: str) -> NDArray[np.float64]:
        """A number of a metric for every head, [head]."""

    def offset_weights(self, layer: int, head: int) -> NDArray[np.floating]:
        """The mean weight at each offset, [offset], the middle is 0."""

    def shuffled_offset_weights(self, layer: int, head: int) -> NDArray[np.floating]:
        """The same on shuffled words; empty without this control."""


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
        return f"{self.name}: {self.value:.2f} of the weight on texts, {self.null_value:.2f} on {control}, {self.uniform:.2f} by chance"


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
        for head, labels in enumerate(found):
            label = _position(result, head, rule) if rule.metric == POSITION else _of_metric(result, head, rule)
            excess = (label.value - label.uniform) / (1 - label.uniform) if label and label.uniform < 1 else math.nan
            if label is None or not (excess >= rule.least and label.null_value >= rule.control_least):
                continue
            has_other = any(each.name in rule.unless for each in labels)
            if not has_other and not any(result.column(name, "mean")[head] >= _MOSTLY for name in rule.unless_mostly):
                labels.append(label)
    return tuple(map(tuple, found))


def _of_metric(result: LabelledResult, head: int, rule: LabelRule) -> Label | None:
    """The numbers of a rule for a head; None if too few texts have them."""
    metric, control = rule.metric, rule.control
    names = "mean", "uniform", f"{control}_mean", "count"
    value, uniform, null, count = (float(result.column(metric, name)[head]) for name in names)
    return Label(rule.name, metric, value, control, null, uniform) if count >= MIN_TEXTS else None


def _position(result: LabelledResult, head: int, rule: LabelRule) -> Label | None:
    """The numbers of the offset with the largest weight, other than the query itself and the token before it."""
    import numpy as np

    weights = np.array(result.offset_weights(*result.heads[head]), np.float64)
    shuffled = np.array(result.shuffled_offset_weights(*result.heads[head]), np.float64)
    middle = len(weights) // 2
    offsets = np.arange(len(weights)) - middle
    usable = (offsets != 0) & (offsets != -1) & (np.abs(offsets) <= _MAX_POSITION) & ~np.isnan(weights)
    if not usable.any() or not len(shuffled) or not result.column("previous", "count")[head] >= MIN_TEXTS:
        return None
    best = int(np.where(usable, weights, -1).argmax())
    uniform = float(result.column("previous", "uniform")[head])
    metric = f"offset {offsets[best]}"
    return Label(rule.name, metric, float(weights[best]), SHUFFLED, float(shuffled[best]), uniform)


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
