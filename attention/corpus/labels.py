"""Labels of heads, such as "previous token": only where the value and its control are clear; each label has both numbers.

A label about places, such as "previous token", must also show where the words are shuffled: else it may be what these words have in common.
A label about repetition, such as "induction", must show on random tokens, where words mean nothing (Olsson et al. 2022). Both are
compared with uniform attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attention.printed import format_number

if TYPE_CHECKING:
    from attention.corpus.heads_result import HeadsResult

LEAST, TIMES = 0.4, 3.0
"""A labelled head has at least this weight, and this many times the weight by chance."""
POSITION_LABEL = "position"
_NULL, _SHUFFLED, _RANDOM = "under uniform attention", "on shuffled words", "on random repeated tokens"
_CONTROLS = {_SHUFFLED: "shuffled_mean", _RANDOM: "random_mean"}


class _Rule(NamedTuple):
    """How heads get a label.

    Attributes:
        label: the label.
        metric: what it measures.
        control: where the value must be as large; on random tokens it is the one that counts, and the texts must only be above chance.
        least: the smallest value.
        times: how many times the value by chance.
        instead_of: labels that say more; a head with one of them does not get this one.
    """

    label: str
    metric: str
    control: str = _SHUFFLED
    least: float = LEAST
    times: float = TIMES
    instead_of: tuple[str, ...] = ()


_RULES = (
    _Rule("previous token", "previous"),
    _Rule("next token", "next"),
    _Rule("self", "self"),
    _Rule("induction", "distant induction", _RANDOM),
    _Rule("duplicate token", "duplicate token", _RANDOM),
    _Rule("punctuation", "punctuation"),
    _Rule("first token", "first token", least=0.5),
    _Rule("local", "local", least=0.8, times=1.5, instead_of=("previous token", "next token", "self")),
)
NAMES = (*(rule.label for rule in _RULES), POSITION_LABEL)
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
    """The labels of each head in the order of the result; most heads have none, and no head has any in a run without controls."""
    labels: list[list[Label]] = [[] for _ in result.heads]
    for rule in _RULES:
        if rule.metric not in result.metrics:
            continue
        on_texts, chance, on_control = (
            result.column(rule.metric, name).tolist() for name in ("mean", "uniform", _CONTROLS[rule.control])
        )
        for i, of_head in enumerate(labels):
            smallest = on_control[i] if rule.control == _RANDOM else np.minimum(on_texts[i], on_control[i])
            says_more = any(label.name in rule.instead_of for label in of_head)
            # NaN is never above anything, nor is its minimum with a number: a metric without a value, or a run without the control, gives no label.
            if smallest >= max(rule.least, rule.times * chance[i]) and on_texts[i] > chance[i] and not says_more:
                values = (
                    (on_texts[i], "of the weight over the texts"),
                    (on_control[i], rule.control),
                    (chance[i], _NULL),
                )
                value = on_control[i] if rule.control == _RANDOM else on_texts[i]
                of_head.append(Label(rule.label, rule.metric, value, _NULL, chance[i], _sentence(rule.label, values)))
    _add_positions(result, labels)
    return tuple(map(tuple, labels))


def _add_positions(result: HeadsResult, labels: list[list[Label]]) -> None:
    """Adds the label of heads that attend to one other offset, such as two tokens back, whatever the words."""
    offsets, weights, shuffled = (
        result.column(result.metrics[0], name).tolist()
        for name in ("peak_offset", "peak_weight", "shuffled_peak_weight")
    )
    for of_head, offset, weight, control in zip(labels, offsets, weights, shuffled, strict=True):
        if abs(offset) > 1 and np.minimum(weight, control) >= LEAST:  # the others have labels of their own
            where = f"{abs(offset):.0f} tokens {'back' if offset < 0 else 'ahead'}"
            values = ((weight, f"of the weight {where}, over the texts"), (control, _SHUFFLED))
            sentence = _sentence(POSITION_LABEL, values)
            of_head.append(Label(POSITION_LABEL, "peak_weight", weight, _SHUFFLED, control, sentence))


def _sentence(label: str, values: Sequence[tuple[float, str]]) -> str:
    return f"{label}: {', '.join(f'{format_number(value)} {where}' for value, where in values)}"
