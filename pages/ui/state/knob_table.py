"""Every knob shared by all pages, in one table: those of the sources, of their layers, and of the display.

Keys are public because links contain them. Defaults never change.
"""

from __future__ import annotations

from functools import cache

from attention.base.knobs import Choice, Knob, Switch
from attention.pictures import scales, view
from attention.sources import layer_knobs as declared
from attention.sources import registry
from attention.sources.reader import SourceKind
from attention.sources.state import SECOND

COLORS = Knob(
    "colors", "stretched", Choice(scales.COLORS, ("0 to 1", "largest", "log")), "Colours",
    "The full colour is 1, or the largest number that is drawn.",
    inline=True, order=80,
)  # fmt: skip
EDITING = Knob(
    "editing", "B", Choice(("A", "B", "both")), "editing", "Which of the two states the knobs change.", inline=True, order=-10
)  # fmt: skip
AUTOSCALE = Knob(
    "autoscale", False, Switch(), "Fit", "The colours of B − A reach up to the largest difference in this map. Off: one colour scale for all layers and heads.",
    inline=True, order=90,
)  # fmt: skip
SIDE = Knob(
    "side",
    "difference",
    Choice(("A", "B", "difference")),
    help="Which of the two states the first screen shows, or their difference.",
    inline=True,
)
COMPARING = (SECOND, EDITING, AUTOSCALE, SIDE)
"""The knobs that only a comparison of two states has."""
COMPARE_KEYS = tuple(knob.key for knob in COMPARING)
"""Their keys."""

KNOBS = {
    knob.key: knob
    for knob in (
        *registry.all_knobs(),
        *(view.LAYER, view.HEAD, view.STEP, view.QUERY, view.KEY, view.COLUMN, view.VIEW, view.SHOW),
        *(COLORS, view.OVER, view.HEAT, view.PAIR, *COMPARING),
    )
}
"""All knobs by key."""

DEFAULTS = {key: knob.default for key, knob in KNOBS.items()}
"""Defaults by key; those of the layer's knobs depend on the source, see `knobs_of`."""

INLINE_KEYS = tuple(key for key, knob in KNOBS.items() if knob.inline)
"""Keys of inline knobs, which have no Streamlit widget: the figure's controls, step strip and cells set them."""


def knobs_of(source: str) -> dict[str, Knob]:
    """Every knob by key, with the ranges and defaults of a source; an unknown name means the default source."""
    return _knobs_of_kind(_kind(source))


def layer_knobs(source: str) -> tuple[Knob, ...]:
    """The knobs of the source's layer."""
    return declared.layer_knobs(_kind(source))


def knobs_above_maps(source: str) -> tuple[Knob, ...]:
    """The knobs of the source that are drawn above the maps."""
    return declared.inline_knobs(_kind(source))


def _kind(source: str) -> SourceKind:
    return registry.source_kinds().get(source) or registry.source_kinds()[DEFAULTS["source"]]


@cache
def _knobs_of_kind(kind: SourceKind) -> dict[str, Knob]:
    return KNOBS | {knob.key: knob for knob in declared.layer_knobs(kind)}
