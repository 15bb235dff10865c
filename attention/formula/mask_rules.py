"""Which keys a query may attend to by a rule: one entry for each, a function of positions that a copied program has too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.axes import Visible


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        visible: which cells are, of `query_pos` as a column, `key_pos` as a row and the size.
        size: the field of a `attention.formula.mask.Mask` that is its size; empty where it has none.
        offered: whether a knob offers it; otherwise a head inside a model may have it.
    """

    visible: Callable[[Tensor, Tensor, int], Visible]
    size: str = ""
    offered: bool = True


def causal(query_pos: Tensor, key_pos: Tensor, size: int = 0) -> Visible:
    """The keys up to the query's own position."""
    return key_pos <= query_pos


def window(query_pos: Tensor, key_pos: Tensor, size: int) -> Visible:
    """The keys at most `size` positions away, on both sides."""
    # Not by their difference, which would be a number of 8 bytes for every cell.
    return (key_pos >= query_pos - size) & (key_pos <= query_pos + size)


def causal_window(query_pos: Tensor, key_pos: Tensor, size: int) -> Visible:
    """The keys at most `size` positions before the query, and its own."""
    return (key_pos <= query_pos) & (key_pos >= query_pos - size)


def prefix(query_pos: Tensor, key_pos: Tensor, size: int) -> Visible:
    """Causal, and the first `size` keys for every query."""
    return (key_pos <= query_pos) | (key_pos < size)


def first(query_pos: Tensor, key_pos: Tensor, size: int = 0) -> Visible:
    """The first key alone."""
    return (key_pos < 1).expand(len(query_pos), -1)


RULES: dict[str, Rule] = {
    "causal": Rule(causal),
    "window": Rule(window, "window"),
    "causal window": Rule(causal_window, "window"),
    "prefix": Rule(prefix, "prefix"),
    "first": Rule(first, offered=False),
}
"""Every rule, by the kind of a mask."""

OFFERED = tuple(kind for kind, rule in RULES.items() if rule.offered)
