"""Labels of heads, such as "previous token": only where the value is large and clearly above its value by chance; each label has both numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from attention.printed import format_number

if TYPE_CHECKING:
    from attention.corpus.heads_result import HeadsResult

LEAST, TIMES = 0.4, 3.0
"""A labelled head has at least this weight, and this many times the weight by chance."""
NULL_NAME = "under uniform attention"


class _Rule(NamedTuple):
    """How heads get a label.

    Attributes:
        label: the label.
        metric: what it measures.
        on_random: whether the value on random repeated tokens counts, where words mean nothing (Olsson et al. 2022); the texts must be above chance too.
        least: the smallest value.
        instead_of: labels that say more; a head with one of them does not get this one.
    """

    label: str
    metric: str
    on_random: bool = False
    least: float = LEAST
    instead_of: tuple[str, ...] = ()


_RULES = (
    _Rule("previous token", "previous"),
    _Rule("next token", "next"),
    _Rule("self", "self"),
    _Rule("induction", "distant induction", on_random=True),
    _Rule("duplicate token", "duplicate token", on_random=True),
    _Rule("punctuation", "punctuation"),
    _Rule("first token", "first token", least=0.5),
    _Rule("local", "local", least=0.8, instead_of=("previous token", "next token", "self")),
)
NAMES = tuple(rule.label for rule in _RULES)
"""All labels."""


class Label(NamedTuple):
    """What a head does, with its evidence.

    Attributes:
        name: one of `NAMES`.
        metric: the metric behind it.
        value: its mean.
        null_name: what the value is compared with.
        null_value: the mean by chance.
        sentence: all of this in words.
    """

    name: str
    metric: str
    value: float
    null_name: str
    null_value: float
    sentence: str


def of(result: HeadsResult) -> tuple[tuple[Label, ...], ...]:
    """The labels of each head in the order of the result; most heads have none."""
    labels: list[list[Label]] = [[] for _ in result.heads]
    for rule in _RULES:
        if rule.metric not in result.metrics:
            continue
        on_texts, chance, on_random = (result.column(rule.metric, name) for name in ("mean", "uniform", "random_mean"))
        values = on_random if rule.on_random else on_texts
        where = "on random repeated tokens" if rule.on_random else "over the texts"
        for i, of_head in enumerate(labels):
            value, null = float(values[i]), float(chance[i])
            says_more = any(label.name in rule.instead_of for label in of_head)
            least = max(rule.least, (1.5 if rule.label == "local" else TIMES) * null)
            # NaN is never above anything: a metric without a value, or a run without the control, gives no label.
            if value >= least and on_texts[i] > null and not says_more:
                sentence = f"{rule.label}: {format_number(value)} {where}, {format_number(null)} {NULL_NAME}"
                of_head.append(Label(rule.label, rule.metric, value, NULL_NAME, null, sentence))
    return tuple(map(tuple, labels))
