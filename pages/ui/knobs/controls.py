"""The row of controls above the maps, and the strip of steps: what the figure component is told to draw, on every page the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from attention import Cell, Explanation, Layer, Trace, explain, find_step
from attention.formula import turned_knobs, what_if
from attention.formula.config import BRING_THEIR_OWN
from attention.formula.knobs import Knob
from attention.formula.ranges import Choice, Range, Real, Switch, Whole, in_url
from attention.numbers import norms, tables
from attention.numbers.norms import NORMS
from attention.pictures.contract import Control, Line, Own, Tab
from attention.sources.knobs import CALLED
from pages.ui.knobs.inputs import held_of_source, its_own, now
from pages.ui.knobs.table import COLORS, DEFAULTS, HEAD, HELD, KNOBS, LAYER, OF_COMPARE, VIEWS, above, offered
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
    if layer is not None and layer.has("weights"):
        drawn.append((COLORS, offered(COLORS), now(COLORS.key)))
    drawn += [(knob, offered(knob), now(knob.key)) for knob in more]
    wanted = [names for names in (left_open(), only) if names is not None]
    return [
        _control(knob, within, value, layer)
        for knob, within, value in sorted(drawn, key=lambda one: one[0].place)
        if all((knob.when[0] or knob.key) in names for names in wanted)
    ]


def _names(within: Choice, layer: Layer | None) -> dict[str, str]:
    """What options are called where it is not what they are: the names of layers, what the source's own mask is."""
    if within.names:
        return dict(zip(map(in_url, within.options), within.names, strict=True))
    if layer is None or what_if.OWN not in within.options:
        return {}
    return {what_if.OWN: f"{what_if.OWN} ({turned_knobs.own_mask(layer)})"}


def own(layer: Layer, where: str = "", changed: str = "") -> Own | None:
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
    return {"said": f"{changed} {said}".strip(), "back": back, "changed": bool(changed)}


def _control(knob: Knob, within: Range, value: Any, layer: Layer | None) -> Control:
    """A control as hand.js draws it, with what its kind needs."""
    control: Control = {
        "kind": "switch", "name": knob.key, "label": knob.label, "help": knob.help, "value": in_url(value),
    }  # fmt: skip
    if knob.when[0]:
        control["only"] = dict([knob.when])
    match within:
        case Choice():
            control |= {"kind": "choice", "options": [in_url(option) for option in within.options]}
            if names := _names(within, layer):
                control["names"] = names
        case Whole() | Real():
            control |= {
                "kind": "whole" if isinstance(within, Whole) else "slider",
                "low": within.low,
                "high": within.high,
            }
            if knob.usual:
                control["offered"] = knob.usual
        case Switch():
            pass
        case _:
            raise TypeError(within)
    return control


def strip(layer: Layer, chosen: str, view: str, overview: tuple[str, ...]) -> list[Tab]:
    """The steps of a layer in their order, each with symbol and shape; before them the `overview` of the most important ones, if any."""
    at_once = view == VIEWS[0] and chosen in overview
    weighed = bool(overview) and view == VIEWS[2] and chosen == "weights" and norms.has(layer)
    drawn: list[Tab] = []
    if overview:
        symbols = " ".join(step.symbol for step in layer.steps if step.name in overview)
        step = next((one for one in (chosen, DEFAULTS["step"]) if one in overview), overview[0])
        drawn.append({
            "name": "overview", "symbol": symbols, "shape": "overview", "help": "side by side",
            "chosen": at_once, "view": VIEWS[0], "step": step,
        })  # fmt: skip
    for step in layer.steps:
        tab: Tab = {
            "name": step.name, "symbol": step.symbol, "shape": "×".join(map(str, layer.shape(step.name))),
            "help": f"{step.symbol} = {layer.formula_of(step)}, [{' '.join(step.axes)}]",
            "chosen": step.name == chosen and not at_once and not weighed,
        }  # fmt: skip
        if step.kind == "probability":
            tab["sums"] = tables.row_sums(layer.facts(step.name))
        drawn.append({**tab, "view": VIEWS[1]} if overview else tab)
    if overview and norms.has(layer):  # no step of the formula, and last of all
        drawn.append({
            "name": NORMS.name, "symbol": NORMS.step.symbol, "shape": "lengths", "help": "A ‖f(x)‖",
            "chosen": weighed, "view": VIEWS[2], "step": "weights",
        })  # fmt: skip
    return drawn


def line(trace: Trace, cell: Cell, explanation: Explanation | None = None) -> Line:
    """One cell and its arithmetic, in one line: whose it is, the number, how it was made, and the cells it came from.

    An `explanation` is given for a number at the same place that is none of the cell's step.
    """
    explanation = explanation or explain(trace, cell.step, cell.layer, cell.head, cell.row, cell.column)
    rows, columns = trace.layer(cell.layer).shape(cell.step)[-2:]
    names = tables.names(trace.layer(cell.layer), cell)
    sides = zip(("q", "k"), names, (cell.row, cell.column), (rows, columns), strict=True)
    return {
        "step": explanation.cell.step,
        "steps": [step.name for step in trace.layer(cell.layer).steps],
        "at": {"step": cell.step, "row": cell.row, "column": cell.column},
        "sides": [{"name": key, "axis": axis, "token": token, "value": at, "high": size - 1} for key, (axis, token), at, size in sides],
        "shown": explanation.shown, "sign": explanation.sign, "short": explanation.short,
        "from": [_back(one, cell) for one in explanation.came_from],
    }  # fmt: skip


def _back(to: Cell, cell: Cell) -> dict[str, Any]:
    """A cell that another came from: its name, and what to turn to see it. What all heads share leaves the chosen head."""
    of_head, from_head = (find_step(one.step).per_head for one in (to, cell))
    name = f"{to.step} [{to.row}, {to.column}]"
    return {
        "turn": {"view": VIEWS[1], "step": to.step, **({"head": to.head} if of_head else {}), "q": to.row, "k": to.column},
        "label": f"{name} of head {to.head}" if of_head and not from_head else name,
    }  # fmt: skip


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
