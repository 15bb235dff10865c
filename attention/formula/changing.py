"""The formula of a layer of which heads are changed: every head that is gets its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from attention.formula.by_hand import UNCHANGED
from attention.formula.formula import Formula
from attention.formula.intervention import Intervention
from attention.formula.names import WEIGHTS


def reach(one: Intervention, n_heads: int, n_kv_heads: int) -> set[int]:
    """The heads that a change reaches: all that share the key head of which keys or values are taken."""
    if one.head is None:
        return set(range(n_heads))
    group = n_heads // n_kv_heads if any(kind.reaches_group(one) for kind in one.kinds) else 1
    first = one.head // group * group
    return set(range(first, first + group))


def changed(
    formula: Formula, n_heads: int, n_kv_heads: int, those: Iterable[Intervention], frozen: bool = False
) -> Formula:
    """A layer's formula with what is changed of its heads; `frozen`: the weights of all others are the unchanged model's."""
    base, heads = formula, dict[int, Formula]()
    if frozen:
        base = replace(base, by_hand=base.by_hand.taking(WEIGHTS, UNCHANGED))
    for one in those:
        if one.head is None:
            base, heads = turned(base, one), {head: turned(own, one) for head, own in heads.items()}
        else:
            heads |= {head: turned(heads.get(head, base), one) for head in reach(one, n_heads, n_kv_heads)}
    if any(own.divisor for own in (base, *heads.values())):  # one step for all heads, where some divide by nothing
        base, heads = divided(base), {head: divided(own) for head, own in heads.items()}
    return replace(base, heads=tuple(sorted((head, own) for head, own in heads.items() if own != base)))


def turned(formula: Formula, one: Intervention) -> Formula:
    """A head's formula with one change."""
    for kind in one.kinds:
        if kind.unfreezes(one):  # whoever changes a head's weights does not want them frozen
            hand = formula.by_hand
            taken = tuple(pair for pair in hand.taken if pair != (WEIGHTS, UNCHANGED))
            formula = replace(formula, by_hand=replace(hand, taken=taken))
        formula = kind.turn(formula, one)
    return formula


def divided(formula: Formula) -> Formula:
    """The same formula with a divisor, 1 where it has none."""
    return replace(formula, divisor=formula.divisor or 1.0)
