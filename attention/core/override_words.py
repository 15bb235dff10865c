"""Descriptions of the overrides (what if) of a layer whose source brings its own formula."""

from __future__ import annotations

from attention.core.layer import Layer
from attention.core.mask import Mask


def source_mask(layer: Layer) -> str:
    """The kind of mask of the source, in a word."""
    layer = layer.wrapped
    formula = layer.base_formula or layer.formula
    if "mask" in layer.recorded:
        return "recorded"
    return formula.mask.kind if formula and formula.mask and formula.mask.may_hide else "none"


def override_words(layer: Layer) -> tuple[str, ...]:
    """Descriptions of the overridden knobs of a layer; empty if its numbers are the source's."""
    layer = layer.wrapped
    base, formula = layer.base_formula, layer.formula
    if base is None or formula is None:
        return ()
    overrides = []
    if formula.temperature != base.temperature:
        overrides.append(f"temperature {formula.temperature / base.temperature if base.temperature else 0:g}")
    if base.divisor is not None and formula.divisor != base.divisor:
        overrides.append(f"scores not divided by {base.divisor:.4g}")
    if formula.mask != base.mask and formula.mask and (formula.mask.may_hide or source_mask(layer) != "none"):
        overrides.append(_mask_words(formula.mask))
    return tuple(overrides)


def override_line(layer: Layer, owner: str, where: str = "") -> str:
    """One line about the overrides of a layer; empty if it has no knob to override.

    Args:
        layer: any layer.
        owner: the owner of the numbers without overrides, such as "the model's".
        where: the part that is overridden, such as "in this head only"; empty: everything.
    """
    *first, last = override_words(layer) or ("",)
    if last:
        overrides = f"{', '.join(first)} and {last}" if first else last
        return f"What if{where and f', {where}'}: {overrides} instead of {owner} own."
    return f"{owner[0].upper()}{owner[1:]} own numbers." if layer.overridable_knobs else ""


def _mask_words(mask: Mask) -> str:
    sizes = {"window": f" ± {mask.window}", "causal window": f" ± {mask.window}", "prefix": f" {mask.prefix}"}
    return "no mask" if mask.kind == "none" else f"mask {mask.kind}{sizes.get(mask.kind, '')}"
