"""The row of controls above the maps, which the figure component draws on every page."""

from __future__ import annotations

from collections.abc import Sequence

from attention import Cell, Layer
from attention.base.knobs import Choice, Knob, to_text
from attention.formula import override
from attention.formula.names import WEIGHTS
from attention.pictures import view
from attention.pictures.message_contract import Control, OverrideNote
from attention.pictures.view import HEAD, HEAT, LAYER, OVER, PAIR, describe_control, has_patches
from attention.sources.registry import has_formula, has_knob, source_kinds
from attention.sources.state import State
from pages.ui.server.limits import LIMITS
from pages.ui.state.knob_state import current_value, open_knobs, standing
from pages.ui.state.knob_table import COLORS, COMPARE_KEYS, INLINE_KEYS, KNOBS, knobs_above_maps, knobs_of, layer_knobs
from pages.ui.state.session import session

CONTROL_NAMES = tuple(
    knob.key
    for knob in sorted(KNOBS.values(), key=lambda knob: knob.order)
    if knob.inline and knob.label and not knob.applies_with[0] and knob.key not in COMPARE_KEYS
)
"""The names of the controls. A control that depends on another one, such as the size of a mask, belongs to that name. Pages may add more."""


def control_row(
    layer: Layer | None,
    layers: Sequence[Layer] = (),
    cell: Cell | None = None,
    only: Sequence[str] | None = None,
    more: Sequence[Knob] = (),
    of: State | None = None,
    pair: bool = False,
) -> list[Control]:
    """The controls of a page, in order.

    Args:
        layer: the shown layer; None if the knobs describe no trace and the user must change them.
        only: the `CONTROL_NAMES` of the controls that the page uses; None for all.
        more: knobs that only this page has.
        of: the state to show, if it is not that of the address.
        pair: whether the maps are those of a pair of texts, of which the page can show a part.
    """
    source = (of.texts if of else session().state.texts).get("source", "")
    fields = {} if of else session().fields  # of heads, the divisors of d_model, and the one that is used
    drawn = [
        (knob, fields[knob.key].within, fields[knob.key].value)
        if knob.key in fields
        else (knob, knob.on_pages(LIMITS), current_value(knob.key, of))
        for knob in knobs_above_maps(source)
    ]
    if layer is not None and has_formula(source):
        fixed = {knob.key for knob in override.KNOBS if knob.name not in layer.overridable_knobs}
        drawn = [entry for entry in drawn if entry[0].key not in fixed]
    if len(layers) > 1:
        shown = [i for i, each in enumerate(layers) if each.has_attention]
        names = tuple(layers[i].name.removeprefix("layer ") or str(i) for i in shown)
        drawn.append((LAYER, Choice(tuple(shown), names), current_value(LAYER.key, of)))
    if layer is not None and cell is not None and layer.n_heads > 1:
        drawn.append((HEAD, Choice(tuple(range(layer.n_heads))), cell.head))
    if layer is not None and layer.has(WEIGHTS):
        drawn.append((COLORS, COLORS.on_pages(LIMITS), current_value(COLORS.key)))
    over_picture = (OVER, HEAT) if layer is not None and has_patches(layer) else ()
    of_maps = (*over_picture, *([PAIR] if pair else []), *more)
    drawn += [(knob, knob.on_pages(LIMITS), current_value(knob.key)) for knob in of_maps]
    allowed = [names for names in (open_knobs(), only) if names is not None]
    row = [
        describe_control(knob, within, value, layer)
        for knob, within, value in sorted(drawn, key=lambda entry: entry[0].order)
        if all((knob.applies_with[0] or knob.key) in names for names in allowed)
    ]
    return with_buttons(with_buttons(row, COLORS.key), PAIR.key)


def override_line(layer: Layer, where: str = "", changed: str = "") -> OverrideNote | None:
    """The line beside the maps about overridden knobs and interventions, with the knob values that undo the overrides.

    Args:
        layer: the shown layer.
        where: the part of the source in which the knobs act, such as "this head only"; empty for all of it.
        changed: the sentence about interventions inside the model, which comes first.
    """
    is_overridden = bool(view.override_words(layer))
    sentence = (
        view.override_line(layer, f"the {source_kinds()[current_value('source')].label}'s", where)
        if has_formula(standing("source")) and (is_overridden or not changed)
        else ""
    )
    if not (sentence or changed):
        return None
    defaults = {knob.key: knob.default for knob in layer_knobs(standing("source")) if knob.inline and is_overridden}
    return {"text": f"{changed} {sentence}".strip(), "reset": defaults, "changed": bool(changed)}


def defaults(more: Sequence[Knob] = ()) -> dict[str, str]:
    """The URL defaults of the inline knobs and of `more`; the page itself writes their changes into the address."""
    known, chosen = knobs_of(standing("source")), current_value("source")
    keys = [key for key in INLINE_KEYS if key not in COMPARE_KEYS and has_knob(chosen, known[key])]
    return {key: to_text(known[key].default) for key in (*keys, *(knob.key for knob in more))}


def with_buttons(controls: Sequence[Control], name: str, buttons: list[str] | None = None) -> list[Control]:
    """The controls; the one called `name` shows its options, or only these `buttons`, as buttons side by side."""
    return [
        {**control, "buttons": buttons or control["options"]} if control["name"] == name else control
        for control in controls
    ]


def with_mask_buttons(controls: Sequence[Control]) -> list[Control]:
    """The controls with the usual masks as buttons; custom only if cells were clicked, and always the current mask."""
    usual = [
        *[override.SOURCE_MASK] * (has_formula(standing("source"))),
        "none",
        "causal",
        "window",
        "prefix",
        *["custom"] * bool(current_value("cells")),
    ]
    return with_buttons(controls, "mask", usual if current_value("mask") in usual else [*usual, current_value("mask")])
