"""Overriding the mask of a head."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from attention.core.edit_kinds.edit import Checks, InterventionFields, InterventionKind, LayerSize
from attention.core.mask import Mask
from attention.core.mask_rules import RULES
from attention.params.ranges import Integer

if TYPE_CHECKING:
    from attention.core.formula import Formula

MASKS = ("none", *RULES, "custom")
_SIZES = {kind: rule.size for kind, rule in RULES.items() if rule.size} | {"custom": "hidden"}
_CHECKS: Checks = {
    "mask": (lambda value: value in ("", *MASKS), f"one of {', '.join(MASKS)}, or empty"),
    **dict.fromkeys(("window", "prefix"), (Integer(0, 10**6).accepts, "a whole number from 0 on")),
    "hidden": (lambda value: isinstance(value, str), "a text that encodes a custom mask"),
}


@dataclass(frozen=True)
class MaskOverride(InterventionKind):
    """Another mask instead of the model's; padding stays hidden."""

    name: str = "Override the mask"
    term: str = "attention mask"
    fields: tuple[str, ...] = ("mask", "window", "prefix", "hidden")
    pattern: str = r"(nomask|causal-patch-window|patch-window|causal-window|causal|window|prefix|first|custom)([\w.-]*)"
    examples: tuple[str, ...] = ("nomask", "causal", "window1", "causal-window1", "prefix2", "first", "patch-window1")
    checks: Checks = field(default_factory=lambda: _CHECKS, compare=False)

    def parse(self, match: re.Match[str]) -> dict[str, Any]:
        """The mask, and its size if it has one."""
        kind, size = match[1].replace("-", " ").replace("nomask", "none"), match[2]
        name = _SIZES.get(kind)
        if (name is None) == bool(size):
            raise ValueError(size)
        return {"mask": kind} | ({name: size if name == "hidden" else int(size)} if name else {})

    def format(self, change: InterventionFields) -> str:
        """The code, such as nomask or causal-window2."""
        size = getattr(change, _SIZES[change.mask]) if change.mask in _SIZES else ""
        return f"{'nomask' if change.mask == 'none' else change.mask.replace(' ', '-')}{size}"

    def words(self, change: InterventionFields) -> str:
        """The name and size of the mask."""
        if change.mask in ("first", "none"):
            return "every query attends to the first token alone" if change.mask == "first" else "no mask"
        if RULES[change.mask].of_patches if change.mask in RULES else None:
            causal = "causal, and " if "causal" in change.mask else ""
            return f"another mask: {causal}patches see patches at most {change.window} rows and columns away"
        size = f" {getattr(change, _SIZES[change.mask])}" if change.mask in _SIZES and change.mask != "custom" else ""
        return f"another mask, {change.mask}{size}"

    def changes_weights(self, change: InterventionFields) -> bool:
        """True: the weights change."""
        return True

    def check(self, change: InterventionFields, layer: LayerSize) -> None:
        """Check that a custom mask can be decoded."""
        _ = Mask("custom", cells=change.hidden).build(1, 1)

    def edit_formula(self, formula: Formula, change: InterventionFields) -> Formula:
        """The formula with the mask; only the size that its kind needs is set."""
        mask = Mask(
            change.mask,
            change.window if _SIZES.get(change.mask) == "window" else 0,
            change.prefix if _SIZES.get(change.mask) == "prefix" else 0,
            change.hidden if change.mask == "custom" else "",
            None if formula.mask is None else formula.mask.real,
        )
        return replace(formula, mask=mask)
