"""Another mask for a head."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from attention.formula.mask import Mask
from attention.formula.mask_rules import RULES
from attention.formula.patching.kind import Change, Checks, Extent, Kind
from attention.formula.ranges import Whole

if TYPE_CHECKING:
    from attention.formula.formula import Formula

MASKS = ("none", *RULES, "custom")
_SIZES = {kind: rule.size for kind, rule in RULES.items() if rule.size} | {"custom": "hidden"}
_CHECKS: Checks = {
    "mask": (lambda one: one in ("", *MASKS), f"one of {', '.join(MASKS)}, or empty"),
    **dict.fromkeys(("window", "prefix"), (Whole(0, 10**6).takes, "a whole number from 0 on")),
    "hidden": (lambda one: isinstance(one, str), "a text that holds a custom mask"),
}


@dataclass(frozen=True)
class OtherMask(Kind):
    """Another mask instead of the model's own; padding stays hidden."""

    name: str = "Another mask"
    term: str = "attention mask"
    fields: tuple[str, ...] = ("mask", "window", "prefix", "hidden")
    pattern: str = r"(nomask|causal-window|causal|window|prefix|first|custom)([\w.-]*)"
    examples: tuple[str, ...] = ("nomask", "causal", "window1", "causal-window1", "prefix2", "first")
    checks: Checks = field(default_factory=lambda: _CHECKS, compare=False)

    def read(self, found: re.Match[str]) -> dict[str, Any]:
        """The mask, and its size where it has one."""
        kind, size = found[1].replace("-", " ").replace("nomask", "none"), found[2]
        name = _SIZES.get(kind)
        if (name is None) == bool(size):
            raise ValueError(size)
        return {"mask": kind} | ({name: size if name == "hidden" else int(size)} if name else {})

    def write(self, one: Change) -> str:
        """nomask, causal-window2."""
        size = getattr(one, _SIZES[one.mask]) if one.mask in _SIZES else ""
        return f"{'nomask' if one.mask == 'none' else one.mask.replace(' ', '-')}{size}"

    def words(self, one: Change) -> str:
        """Which one."""
        if one.mask in ("first", "none"):
            return "every query attends to the first token alone" if one.mask == "first" else "no mask"
        size = f" {getattr(one, _SIZES[one.mask])}" if one.mask in _SIZES and one.mask != "custom" else ""
        return f"another mask, {one.mask}{size}"

    def unfreezes(self, one: Change) -> bool:
        """It changes the weights."""
        return True

    def check(self, one: Change, layer: Extent) -> None:
        """Looks whether a custom mask can be read."""
        _ = Mask("custom", cells=one.hidden).build(1, 1)

    def turn(self, formula: Formula, one: Change) -> Formula:
        """With what the mask needs alone."""
        mask = Mask(
            one.mask,
            one.window if _SIZES.get(one.mask) == "window" else 0,
            one.prefix if _SIZES.get(one.mask) == "prefix" else 0,
            one.hidden if one.mask == "custom" else "",
            None if formula.mask is None else formula.mask.real,
        )
        return replace(formula, mask=mask)
