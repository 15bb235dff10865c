"""The formula of a layer of which heads are changed: every head that is gets its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from attention.formula.by_hand import UNCHANGED
from attention.formula.formula import Formula
from attention.formula.intervention import Intervention
from attention.formula.mask import Mask
from attention.formula.what_if import WhatIf


def reach(one: Intervention, n_heads: int, n_kv_heads: int) -> set[int]:
    """The heads that a change reaches: all that share the key head of which keys or values are taken."""
    if one.head is None:
        return set(range(n_heads))
    group = n_heads // n_kv_heads if one.take in ("key", "value") else 1
    first = one.head // group * group
    return set(range(first, first + group))


def changed(
    formula: Formula, n_heads: int, n_kv_heads: int, those: Iterable[Intervention], frozen: bool = False
) -> Formula:
    """A layer's formula with what is changed of its heads; `frozen`: the weights of all others are the unchanged model's."""
    base, heads = formula, dict[int, Formula]()
    if frozen:
        base = replace(base, by_hand=base.by_hand.taking("weights", UNCHANGED))
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
    hand = formula.by_hand
    if one.temperature is not None or one.scaled is False or one.mask or one.take in ("query", "key"):
        # Whoever changes a head's weights does not want them frozen.
        hand = replace(hand, taken=tuple(pair for pair in hand.taken if pair != ("weights", UNCHANGED)))
    found = replace(formula, by_hand=hand.with_(one))
    if one.temperature is not None:
        found = replace(found, **found.what_if(WhatIf(temperature=one.temperature)))
    if one.scaled is False:
        found = replace(found, divisor=None if found.divisor is None else 1.0)
    if one.mask:
        real = None if found.mask is None else found.mask.real
        size = {"window": one.window, "causal window": one.window}.get(one.mask, 0)
        hidden = one.hidden if one.mask == "custom" else ""
        found = replace(found, mask=Mask(one.mask, size, one.prefix if one.mask == "prefix" else 0, hidden, real))
    return found


def divided(formula: Formula) -> Formula:
    """The same formula with a divisor, 1 where it has none."""
    return replace(formula, divisor=formula.divisor or 1.0)
