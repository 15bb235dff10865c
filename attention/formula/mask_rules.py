"""Mask rules: which keys a query may attend to, as functions of positions that copied programs contain too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.tensor_types import Visible


@dataclass(frozen=True)
class Rule:
    """One mask rule.

    Attributes:
        visible: the visible cells, from `query_pos` as a column, `key_pos` as a row, and the sizes.
        size: the field of `attention.formula.mask.Mask` that holds the size; empty for a rule without size.
        right: the field that holds the size after the query, if that may be another one.
        shifts: whether the queries may stand further back in the sequence than their numbers say (`Mask.query_offset`).
        in_knob: whether the Mask knob offers the rule; otherwise it is only for interventions.
        of_patches: the visible cells by the places of patches, which are hidden beside those of `visible`: from the places of the queries
            [query_pos 1 3], those of the keys [1 key_pos 3], and the size. None: the rule needs no patches.
    """

    visible: Callable[..., Visible]
    size: str = ""
    right: str = ""
    shifts: bool = True
    in_knob: bool = True
    of_patches: Callable[[Tensor, Tensor, int], Visible] | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of `attention.formula.mask.Mask` on which the visible cells depend."""
        return tuple(name for name in (self.size, self.right, "query_offset" * self.shifts) if name)


def causal(query_pos: Tensor, key_pos: Tensor, size: int = 0) -> Visible:
    """The keys up to the query's own position."""
    return key_pos <= query_pos


def window(query_pos: Tensor, key_pos: Tensor, size: int, right: int) -> Visible:
    """The keys at most `size` positions before the query, and at most `right` after it."""
    # The difference of the positions would take 8 bytes per cell.
    return (key_pos >= query_pos - size) & (key_pos <= query_pos + right)


def causal_window(query_pos: Tensor, key_pos: Tensor, size: int) -> Visible:
    """The keys at most `size` positions before the query, and its own."""
    return (key_pos <= query_pos) & (key_pos >= query_pos - size)


def prefix(query_pos: Tensor, key_pos: Tensor, size: int) -> Visible:
    """Causal, and the first `size` keys for every query."""
    return (key_pos <= query_pos) | (key_pos < size)


def first(query_pos: Tensor, key_pos: Tensor, size: int = 0) -> Visible:
    """Only the first key."""
    return (key_pos < 1).expand(len(query_pos), -1)


def every(query_pos: Tensor, key_pos: Tensor, size: int = 0) -> Visible:
    """All keys."""
    return (key_pos >= 0).expand(len(query_pos), -1)


def patch_window(query_places: Tensor, key_places: Tensor, size: int) -> Visible:
    """The patches of the same picture at most `size` rows and `size` columns away; between other tokens, and between them and patches, every key.

    The places are picture, row and column, −1 for a token that is no patch.
    """
    is_pair = (query_places[..., 0] >= 0) & (key_places[..., 0] >= 0)
    is_near = ((query_places - key_places).abs()[..., 1:] <= size).all(-1)
    return ~is_pair | (is_near & (query_places[..., 0] == key_places[..., 0]))


RULES: dict[str, Rule] = {
    "causal": Rule(causal),
    "window": Rule(window, "window", "window_right"),
    "causal window": Rule(causal_window, "window"),
    "prefix": Rule(prefix, "prefix"),
    "first": Rule(first, shifts=False, in_knob=False),
    "patch window": Rule(every, "window", shifts=False, in_knob=False, of_patches=patch_window),
    "causal patch window": Rule(causal, "window", shifts=False, in_knob=False, of_patches=patch_window),
}
"""Every rule, by the kind of mask."""

SIZES = tuple(dict.fromkeys(name for rule in RULES.values() for name in rule.fields))
"""The fields of a mask that are numbers, each of them a knob of its name."""

KNOB_RULES = tuple(kind for kind, rule in RULES.items() if rule.in_knob)
