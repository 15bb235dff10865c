"""What a hand may turn of a formula that a source brings along: the knobs after the scores, each at the source's own until then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from attention.formula import config
from attention.formula.knobs import knobs_of
from attention.formula.mask import Mask
from attention.formula.ranges import Choice

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


KNOBS = knobs_of(WhatIf)
"""The fields of `WhatIf` as knobs, in their order."""
