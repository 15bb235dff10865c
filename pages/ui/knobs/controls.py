"""The row of controls above the maps, and the strip of steps: what the figure component is told to draw, on every page the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attention import Cell, Layer, Trace, explain, find_step
from attention.formula.config import MASKS
from attention.numbers import tables
from attention.pictures.scales import COLORS
from pages.ui.knobs.inputs import DEFAULTS, HELD, MOST, TEMPERATURES, VIEWS, now
from pages.ui.knobs.widgets import in_url, left_open

Control = dict[str, Any]
"""One control as hand.js draws it: name, label, help, value, kind, and what its kind needs."""

WIDTHS = (16, 32, 64, 128)
"""The d_model that are offered; any other can be typed."""


def row(
    layer: Layer | None,
    n_layers: int,
    cell: Cell | None,
    turnable: bool,
    random: bool,
    only: Sequence[str] | None = None,
) -> list[Control]:
    """The controls that a page offers, in their order.

    Args:
        layer: the layer that is shown, one of `n_layers`; None where the knobs give no trace, and must be turned back.
        n_layers: how many there are.
        cell: the chosen cell.
        turnable: whether mask, temperature and scaling are the person's to choose.
        random: whether weights are drawn at random from the person's d_model and seed.
        only: the `NAMES` of those that the page has a use for; None: all.
    """
    drawn: list[Control] = []
    if turnable:
        drawn += [
            _slider("temperature", "Temperature", *TEMPERATURES, "Scores are divided by it before the softmax. Low: the best key takes all. High: every key gets the same."),
            _choice("mask", "Mask", MASKS, "Which keys a query may look at. Causal: only itself and what stands before it. Window: only its neighbours. Prefix: causal, but everybody sees the first ones. Custom: click the cells on the Masks page."),
            _whole("window", "±", "How many positions away a key may be.", only={"mask": ("window", "causal window")}),
            _whole("prefix", "first", "How many first keys every query sees.", only={"mask": ("prefix",)}),
            _switch("scaled", "÷ √d_k", "Without it the scores grow with d_k, and the softmax picks one key and forgets the rest."),
        ]  # fmt: skip
    if n_layers > 1:
        drawn.append(_choice("layer", "Layer", range(n_layers), "Layers count from zero."))
    if layer is not None and cell is not None and layer.n_heads > 1:
        drawn.append(
            {**_choice("head", "Head", range(layer.n_heads), "Heads count from zero."), "value": in_url(cell.head)}
        )
    if random:
        drawn += [
            {**_whole("d_model", "d_model", "How many numbers stand for one token."), "offered": WIDTHS},
            _whole("seed", "Seed", "Another seed draws other random weights; the same seed always the same ones."),
        ]
    if layer is not None and layer.has("weights"):
        drawn.append(_choice("colors", "Colours", COLORS, "Of the weights. Fixed: from 0 to 1, so that maps compare. Stretched: to the largest there is. Log: small weights are told apart too."))  # fmt: skip
    wanted = [names for names in (left_open(), only) if names is not None]
    return [
        control
        for control in drawn
        if all(control["name"] in names or ("mask" in names and control.get("only")) for names in wanted)
    ]


NAMES = ("temperature", "mask", "scaled", "layer", "head", "d_model", "seed", "colors")
"""The controls by name; the size of a mask goes with it."""


def strip(layer: Layer, chosen: str, view: str, overview: tuple[str, ...]) -> list[dict[str, Any]]:
    """The steps of a layer in their order, each with symbol and shape; before them the `overview` of the most important ones, if any."""
    at_once = view == VIEWS[0] and chosen in overview
    drawn: list[dict[str, Any]] = []
    if overview:
        symbols = " ".join(step.symbol for step in layer.steps if step.name in overview)
        step = next((one for one in (chosen, DEFAULTS["step"]) if one in overview), overview[0])
        drawn.append({
            "name": "overview", "symbol": symbols, "shape": "overview", "help": f"{', '.join(overview)} side by side.",
            "chosen": at_once, "view": VIEWS[0], "step": step,
        })  # fmt: skip
    for step in layer.steps:
        drawn.append({
            "name": step.name, "symbol": step.symbol, "shape": "×".join(map(str, layer.shape(step.name))),
            "sums": tables.row_sums(layer.facts(step.name)) if step.kind == "probability" else "",
            "help": f"{step.symbol} = {layer.formula_of(step)}, [{' '.join(step.axes)}]",
            "chosen": step.name == chosen and not at_once,
            **({"view": VIEWS[1]} if overview else {}),
        })  # fmt: skip
    return drawn


def line(trace: Trace, index: int, cell: Cell) -> dict[str, Any]:
    """One cell and its arithmetic, in one line: whose it is, the number, how it was made, and the cells it came from."""
    explanation = explain(trace, cell.step, index, cell.head, cell.row, cell.column)
    rows, columns = trace.layer(index).shape(cell.step)[-2:]
    names = tables.names(trace.layer(index), cell)
    sides = zip(("q", "k"), names, (cell.row, cell.column), (rows, columns), strict=True)
    return {
        "step": cell.step,
        "steps": [step.name for step in trace.layer(index).steps],
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


def defaults() -> dict[str, str]:
    """What the held knobs are where the address does not name them; the page writes it by itself."""
    return {key: in_url(DEFAULTS[key]) for key in HELD}


def with_mask_buttons(controls: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The controls with the usual kinds of masks as buttons: custom where cells have been clicked, and always what is in use."""
    usual = ["none", "causal", "window", "prefix", *(["custom"] if now("cells") else [])]
    buttons = usual if now("mask") in usual else [*usual, now("mask")]
    return [{**one, "buttons": buttons} if one["name"] == "mask" else one for one in controls]


def _control(kind: str, name: str, label: str, help_text: str, **more: Any) -> Control:
    return {"kind": kind, "name": name, "label": label, "help": help_text, "value": in_url(now(name)), **more}


def _slider(name: str, label: str, low: float, high: float, help_text: str) -> Control:
    return _control("slider", name, label, help_text, low=low, high=high)


def _choice(name: str, label: str, options: Any, help_text: str) -> Control:
    return _control("choice", name, label, help_text, options=[in_url(option) for option in options])


def _whole(name: str, label: str, help_text: str, **more: Any) -> Control:
    return _control("whole", name, label, help_text, low=1 if name == "d_model" else 0, high=MOST[name], **more)


def _switch(name: str, label: str, help_text: str) -> Control:
    return _control("switch", name, label, help_text)
