"""The strip of steps above the maps."""

from __future__ import annotations

from attention.analysis import norms, tables
from attention.analysis.norms import NORMS
from attention.core.layer import Layer
from attention.core.names import WEIGHTS
from attention.pictures.message_contract import StepTab
from attention.pictures.view import STEP, VIEWS


def step_strip(layer: Layer, chosen: str, view: str, overview: tuple[str, ...]) -> list[StepTab]:
    """Returns a tab for each step of a layer with its symbol and shape, after a tab for the `overview` of the most important steps, if any."""
    is_overview = view == VIEWS[0] and chosen in overview
    is_norms = bool(overview) and view == VIEWS[2] and chosen == WEIGHTS and norms.is_available(layer)
    tabs: list[StepTab] = []
    if overview:
        symbols = " ".join(step.symbol for step in layer.steps if step.name in overview)
        step = next((name for name in (chosen, STEP.default) if name in overview), overview[0])
        tabs.append({
            "name": "overview", "symbol": symbols, "shape": "overview", "help": "side by side",
            "chosen": is_overview, "view": VIEWS[0], "step": step,
        })  # fmt: skip
    for step in layer.steps:
        tab: StepTab = {
            "name": step.name, "symbol": step.symbol, "shape": "×".join(map(str, layer.shape(step.name))),
            "help": f"{step.symbol} = {layer.formula_of(step)}, [{' '.join(step.axes)}]",
            "chosen": step.name == chosen and not is_overview and not is_norms,
        }  # fmt: skip
        if step.kind == "probability":
            tab["sums"] = tables.row_sums(layer.stats(step.name))
        tabs.append({**tab, "view": VIEWS[1]} if overview else tab)
    if overview and norms.is_available(layer):  # not a step of the formula, therefore last
        tabs.append({
            "name": NORMS.name, "symbol": NORMS.step.symbol, "shape": "lengths", "help": "A ‖f(x)‖",
            "chosen": is_norms, "view": VIEWS[2], "step": WEIGHTS,
        })  # fmt: skip
    return tabs
