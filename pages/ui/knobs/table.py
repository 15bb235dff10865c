"""Every knob that all pages share, in one table: those of the sources and of their layer, and what is shown of it.

The keys are public, links depend on them, and a default never changes.
"""

from __future__ import annotations

from functools import cache

from attention.formula.knobs import Knob
from attention.formula.ranges import Choice, Range, Switch
from attention.pictures import scales, view
from attention.sources import knobs
from attention.sources.link import Limits, on_pages
from attention.sources.second import SECOND
from pages.ui.server.limits import MAX_CHARACTERS, MAX_D_MODEL, MAX_HEADS, MAX_TOKENS, MAX_TRACE_MB

LIMITS = Limits(MAX_TOKENS, MAX_CHARACTERS, MAX_D_MODEL, MAX_HEADS, MAX_TRACE_MB)

LAYER, HEAD, STEP, QUERY, KEY, VIEW = view.LAYER, view.HEAD, view.STEP, view.QUERY, view.KEY, view.VIEW
COLORS = Knob(
    "colors", "fixed", Choice(scales.COLORS), "Colours",
    "Fixed: 0 to 1. Stretched: to the largest. Log: tells small ones apart.",
    held=True, place=80,
)  # fmt: skip
TURN = Knob(
    "editing", "B", Choice(("A", "B", "both")), "turn", "Which of the two a knob turns.", held=True, place=-10
)  # fmt: skip
FIT = Knob(
    "autoscale", False, Switch(), "Fit", "B − A in colours up to its own largest number. Off: the same for all layers and heads.",
    held=True, place=90,
)  # fmt: skip
OF_COMPARE = (SECOND.key, TURN.key, FIT.key)
"""Those that only a comparison has."""

KNOBS = {one.key: one for one in (*knobs.KNOBS, LAYER, HEAD, STEP, QUERY, KEY, VIEW, COLORS, SECOND, TURN, FIT)}
"""By key."""

DEFAULTS = {key: one.default for key, one in KNOBS.items()}
"""By key; what the layer's own knobs are by default depends on the source, see `of`."""

HELD = tuple(key for key, one in KNOBS.items() if one.held)
"""Those without a Streamlit widget: the figure's own controls, its strip of steps and its cells turn them."""


def of(source: str) -> dict[str, Knob]:
    """Every knob by key, as the source of that name has it; where there is none of that name, as the default one has it."""
    return _of(_known(source))


def layer_of(source: str) -> tuple[Knob, ...]:
    """The knobs of the layer that the source of that name has."""
    return knobs.layer_of(_known(source))


def above(source: str) -> tuple[Knob, ...]:
    """The knobs above the maps that the source of that name has."""
    return knobs.above(_known(source))


def _known(source: str) -> str:
    return source if source in knobs.SOURCES else str(DEFAULTS["source"])


@cache
def _of(source: str) -> dict[str, Knob]:
    return KNOBS | {one.key: one for one in knobs.layer_of(source)}


def offered(knob: Knob) -> Range:
    """What a knob may be here, where an operator may have allowed less."""
    return on_pages(knob, LIMITS)
