"""What a hand has turned of a layer whose source brings its own formula, in words."""

from __future__ import annotations

from attention.formula.layer import Layer
from attention.formula.mask import Mask


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
    return f"{whose[0].upper()}{whose[1:]} own numbers." if layer.turnable else ""


def _mask(mask: Mask) -> str:
    sizes = {"window": f" ± {mask.window}", "causal window": f" ± {mask.window}", "prefix": f" {mask.prefix}"}
    return "no mask" if mask.kind == "none" else f"mask {mask.kind}{sizes.get(mask.kind, '')}"
