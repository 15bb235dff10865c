"""The row of controls above the maps: what the figure component is told to draw, on every page the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from attention import Cell, Layer
from attention.formula import turned_knobs, what_if
from attention.formula.config import BRING_THEIR_OWN
from attention.formula.knobs import Knob
from attention.formula.names import WEIGHTS
from attention.formula.ranges import Choice, in_url
from attention.pictures.contract import Control, OverrideNote
from attention.pictures.controls import control
from attention.pictures.view import HEAD, LAYER
from attention.sources.knobs import CALLED
from pages.ui.knobs.inputs import held_of_source, its_own, now
from pages.ui.knobs.table import COLORS, HELD, KNOBS, OF_COMPARE, above, offered
from pages.ui.knobs.widgets import here, left_open, standing

NAMES = tuple(
    one.key
    for one in sorted(KNOBS.values(), key=lambda one: one.place)
    if one.held and one.label and not one.when[0] and one.key not in OF_COMPARE
)
"""The controls by name; those that make sense with some values of another, such as the size of a mask, go with it; a page may have more."""


class Stand(NamedTuple):
    """A state that controls show: the name of its source, and the value of each knob by its key."""

    source: str
    value: Callable[[str], Any]


def row(
    layer: Layer | None,
    layers: Sequence[Layer] = (),
    cell: Cell | None = None,
    only: Sequence[str] | None = None,
    more: Sequence[Knob] = (),
    of: Stand | None = None,
) -> list[Control]:
    """The controls that a page offers, in their order.

    Args:
        layer: the layer that is shown, one of these `layers`; None where the knobs give no trace, and must be turned back.
        cell: the chosen cell.
        only: the `NAMES` of those that the page has a use for; None: all.
        more: knobs that only this page has.
        of: whose knobs they are, where it is not the state of the address.
    """
    of = of or Stand(standing("source"), now)
    drawn = [(knob, offered(knob), of.value(knob.key)) for knob in above(of.source)]
    if layer is not None and of.source in BRING_THEIR_OWN:
        still = {one.key for one in what_if.KNOBS if one.name not in layer.turnable}
        drawn = [one for one in drawn if one[0].key not in still]
    if len(layers) > 1:
        names = tuple(one.name.removeprefix("layer ") or str(i) for i, one in enumerate(layers))
        drawn.append((LAYER, Choice(tuple(range(len(layers))), names), of.value(LAYER.key)))
    if layer is not None and cell is not None and layer.n_heads > 1:
        drawn.append((HEAD, Choice(tuple(range(layer.n_heads))), cell.head))
    if layer is not None and layer.has(WEIGHTS):
        drawn.append((COLORS, offered(COLORS), now(COLORS.key)))
    drawn += [(knob, offered(knob), now(knob.key)) for knob in more]
    wanted = [names for names in (left_open(), only) if names is not None]
    return [
        control(knob, within, value, layer)
        for knob, within, value in sorted(drawn, key=lambda one: one[0].place)
        if all((knob.when[0] or knob.key) in names for names in wanted)
    ]


def own(layer: Layer, where: str = "", changed: str = "") -> OverrideNote | None:
    """What is said beside the maps of a source that brings its own formula, and the knobs that lead back to it where one is turned.

    `where` it is turned is said of a source with more than that. What is `changed` inside the model comes first.
    """
    turned = bool(turned_knobs.changed(layer))
    said = (
        turned_knobs.said(layer, f"the {CALLED.get(standing('source'), standing('source'))}'s", where)
        if its_own() and (turned or not changed)
        else ""
    )
    if not (said or changed):
        return None
    back = {one.key: one.default for one in held_of_source() if turned}
    return {"text": f"{changed} {said}".strip(), "reset": back, "changed": bool(changed)}


def defaults(more: Sequence[Knob] = ()) -> dict[str, str]:
    """What the held knobs are where the address does not name them, and those that only this page has; the page writes it by itself."""
    known, chosen = here(), standing("source")
    keys = [key for key in HELD if key not in OF_COMPARE and chosen in (known[key].sources or (chosen,))]
    return {key: in_url(known[key].default) for key in (*keys, *(one.key for one in more))}


def with_buttons(controls: Sequence[Control], name: str, buttons: list[str] | None = None) -> list[Control]:
    """The controls, of which one has all its options, or these, as `buttons` side by side."""
    return [{**one, "buttons": buttons or one["options"]} if one["name"] == name else one for one in controls]


def with_mask_buttons(controls: Sequence[Control]) -> list[Control]:
    """The controls with the usual kinds of masks as buttons: custom where cells have been clicked, and always what is in use."""
    usual = [*[what_if.OWN] * its_own(), "none", "causal", "window", "prefix", *["custom"] * bool(now("cells"))]
    return with_buttons(controls, "mask", usual if now("mask") in usual else [*usual, now("mask")])
