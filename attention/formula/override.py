"""Overrides of a source's formula: the knobs after the scores, which default to the source's values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from attention.base.knobs import Choice, knobs_of
from attention.formula import config
from attention.formula.mask import RULES, Mask

SOURCE_MASK = "own"
"""The value of `mask` that stands for the source's mask."""


def _knob_of_config(name: str, **changes: Any) -> Any:
    """A field that repeats a knob of `AttentionConfig` for the sources with their own formula, with `changes`."""
    declaration = next(knob for knob in config.KNOBS if knob.name == name)
    knob = replace(declaration, name="", **changes)
    return field(default=knob.default, metadata={"knob": knob})


@dataclass(frozen=True)
class Override:
    """Overrides of a source's knobs after the scores (what if); with the defaults every number is the source's.

    Cap, bias, normalizer, sinks and dropout cannot be overridden.

    Attributes:
        mask: "own" for the source's mask, or another one of `attention.formula.config.MASKS` except padding, which every
            mask hides.
        window: for the two window masks: the largest distance of a visible key, in positions.
        prefix: for the prefix mask: the number of leading keys that every query sees.
        window_right: for the window mask: the largest distance of a visible key after the query; None: as before it.
        query_offset: for masks by position: how many keys are before the first query.
        cells: for the custom mask: the hidden cells, in the format of `attention.formula.mask_tensor.encode`.
        temperature: divides the scores, in addition to the source's divisor.
        scaled: whether the scores are divided by the source's divisor.

    Raises:
        ConfigError: a value is out of range.
    """

    mask: str = _knob_of_config(
        "mask", default=SOURCE_MASK, range=Choice((SOURCE_MASK, *(mask for mask in config.MASKS if mask != "padding")))
    )
    window: int = _knob_of_config("window")
    prefix: int = _knob_of_config("prefix")
    cells: str = _knob_of_config("cells")
    temperature: float = _knob_of_config("temperature")
    scaled: bool = _knob_of_config("scaled")
    window_right: int | None = _knob_of_config("window_right")
    query_offset: int = _knob_of_config("query_offset")

    def __post_init__(self) -> None:
        for knob in KNOBS:
            knob.check(getattr(self, knob.name))

    @property
    def mask_rule(self) -> Mask:
        """The mask with the sizes that its kind needs; "none" for the source's mask."""
        sizes = {name: getattr(self, name) for name in RULES[self.mask].fields} if self.mask in RULES else {}
        cells = self.cells if self.mask == "custom" else ""
        return Mask("none" if self.mask == SOURCE_MASK else self.mask, cells=cells, **sizes)

    @property
    def up_to_scores(self) -> Override:
        """The default: every knob here is after the scores."""
        return Override()

    def restricted_to(self, names: Iterable[str]) -> Override:
        """The overrides of some knobs, the other knobs at their defaults."""
        return Override(**{name: getattr(self, name) for name in names})


KNOBS = knobs_of(Override)
"""The knobs of `Override`, in the order of its fields."""
