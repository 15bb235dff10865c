"""The strip of steps above the maps."""

from __future__ import annotations

from attention.formula.layer import Layer
from attention.formula.names import WEIGHTS
from attention.numbers import norms, tables
from attention.numbers.norms import NORMS
from attention.pictures.contract import Tab
from attention.pictures.view import STEP, VIEWS


def step_strip(layer: Layer, chosen: str, view: str, overview: tuple[str, ...]) -> list[Tab]:
    """The steps of a layer in their order, each with symbol and shape; before them the `overview` of the most important ones, if any."""
    at_once = view == VIEWS[0] and chosen in overview
    weighed = bool(overview) and view == VIEWS[2] and chosen == WEIGHTS and norms.has(layer)
    drawn: list[Tab] = []
    if overview:
        symbols = " ".join(step.symbol for step in layer.steps if step.name in overview)
        step = next((one for one in (chosen, STEP.default) if one in overview), overview[0])
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
            "chosen": weighed, "view": VIEWS[2], "step": WEIGHTS,
        })  # fmt: skip
    return drawn
