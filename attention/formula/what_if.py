"""What a hand may turn of a formula that a source brings along: the knobs after the scores, each at the source's own until then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from attention.formula import config
from attention.formula.knobs import knobs_of
from attention.formula.mask import Mask
from attention.formula.ranges import Choice

if TYPE_CHECKING:
    from attention.formula.formula import Formula
    from attention.formula.layer import Layer

OWN = "own"
"""The mask as the source has it."""


def _again(name: str, **other: Any) -> Any:
    """A knob of `AttentionConfig` once more, with what is `other` about it where a source brings its own."""
    declared = next(one for one in config.KNOBS if one.name == name)
    knob = replace(declared, name="", sources=config.BRING_THEIR_OWN, **other)
    return field(default=knob.default, metadata={"knob": knob})


@dataclass(frozen=True)
class WhatIf:
    """Other knobs after the scores than a source has by itself; with the defaults every number is the source's own.

    Cap, bias, share, sinks and what is dropped stay the source's.

    Attributes:
        mask: "own", or which keys a query may attend to instead, one of `attention.formula.config.MASKS` but padding, which
            every mask hides.
        window: for the two window masks: how many positions away a key may be.
        prefix: for the prefix mask: how many first keys every query sees.
        cells: for the custom mask: which cells are hidden, as `attention.formula.masks.encode` writes it.
        temperature: what the scores are divided by beside the source's own divisor.
        scaled: whether they are divided by that.

    Raises:
        ConfigError: a value is out of range.
    """

    mask: str = _again("mask", default=OWN, range=Choice((OWN, *(mask for mask in config.MASKS if mask != "padding"))))
    window: int = _again("window")
    prefix: int = _again("prefix")
    cells: str = _again("cells")
    temperature: float = _again("temperature")
    scaled: bool = _again("scaled")

    def __post_init__(self) -> None:
        for one in KNOBS:
            one.check(getattr(self, one.name))

    @property
    def hiding(self) -> Mask:
        """The mask as a value, only with what its kind needs; one that hides nothing where it is the source's own."""
        return Mask(
            "none" if self.mask == OWN else self.mask,
            self.window if "window" in self.mask else 0,
            self.prefix if self.mask == "prefix" else 0,
            self.cells if self.mask == "custom" else "",
        )

    def only(self, names: Iterable[str]) -> WhatIf:
        """Those of its knobs alone that something has, the others at their defaults."""
        return WhatIf(**{name: getattr(self, name) for name in names})

    def of(self, formula: Formula) -> dict[str, Any]:
        """The fields of a source's formula that become others; padding stays padding."""
        changed: dict[str, Any] = {}
        if self.mask != OWN:
            changed["mask"] = replace(self.hiding, real=None if formula.mask is None else formula.mask.real)
        if formula.divisor is not None:
            changed["temperature"] = float(formula.temperature * self.temperature)
            changed["divisor"] = formula.divisor if self.scaled else 1.0
        elif self.temperature != 1:  # what divides by nothing (T5, OPT) divides by the temperature alone
            changed |= {"temperature": float(self.temperature), "divisor": 1.0}
        return changed


KNOBS = knobs_of(WhatIf)
"""The fields of `WhatIf` as knobs, in their order."""


def turns(layer: Layer) -> tuple[str, ...]:
    """The knobs of a `WhatIf`, by name, that change something in a layer; none where its maps were recorded, or nothing made them."""
    layer = layer.inner
    formula = layer.own or layer.formula
    if formula is None or not layer.has("scores") or any(name in layer.recorded for name in _AFTER):
        return ()
    # Scores that were given, and that nothing is divided by, stay as they are.
    divides = formula.divisor or (formula.share and layer.has("query"))
    divided = ("temperature", *(["scaled"] if formula.divisor not in (None, 1) else [])) if divides else ()
    hides = ("mask", "window", "prefix", "cells") if formula.share else ()
    return tuple(one.name for one in fields(WhatIf) if one.name in (*divided, *hides))


def own_mask(layer: Layer) -> str:
    """The kind of mask that a layer has by itself, in a word."""
    layer = layer.inner
    formula = layer.own or layer.formula
    if "mask" in layer.recorded:
        return "recorded"
    return formula.mask.kind if formula and formula.mask and formula.mask.hides else "none"


def changed(layer: Layer) -> tuple[str, ...]:
    """What was turned of a layer, in words; nothing where its numbers are the source's own."""
    layer = layer.inner
    own, now = layer.own, layer.formula
    if own is None or now is None:
        return ()
    found = []
    if now.temperature != own.temperature:
        found.append(f"temperature {now.temperature / own.temperature if own.temperature else 0:g}")
    if own.divisor is not None and now.divisor != own.divisor:
        found.append(f"scores not divided by {own.divisor:.4g}")
    if now.mask != own.mask and now.mask and (now.mask.hides or own_mask(layer) != "none"):
        found.append(_mask(now.mask))
    return tuple(found)


def said(layer: Layer, whose: str, where: str = "") -> str:
    """What was turned of a layer, in one line, and `whose` numbers it has where nothing was; empty where nothing can be.

    `where` it was turned, such as in this head only, is said where the source has more than that.
    """
    *first, last = changed(layer) or ("",)
    if last:
        turned = f"{', '.join(first)} and {last}" if first else last
        return f"What if{where and f', {where}'}: {turned} instead of {whose} own."
    return f"{whose[0].upper()}{whose[1:]} own numbers." if turns(layer) else ""


def _mask(mask: Mask) -> str:
    sizes = {"window": f" ± {mask.window}", "causal window": f" ± {mask.window}", "prefix": f" {mask.prefix}"}
    return "no mask" if mask.kind == "none" else f"mask {mask.kind}{sizes.get(mask.kind, '')}"


_AFTER = ("scaled_scores", "capped_scores", "biased_scores", "masked_scores", "weights", "dropped_weights")
