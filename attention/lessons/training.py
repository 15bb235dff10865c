"""What the page about training shows: curves, the maps of a model at one step, what it answers, and many seeds side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attention.formula.names import WEIGHTS
from attention.formula.steps import find_step
from attention.pictures import scales
from attention.pictures.charts import GRID, INK
from attention.pictures.heatmap import heatmap_json
from attention.pictures.layout import CHOSEN, NO_TEMPLATE, PLAIN, Spec, middles, named, outline
from attention.pictures.mosaic import blank, tiles
from attention.sources.trained_trace import shown

if TYPE_CHECKING:
    from attention.training.learning import Snapshot
    from attention.training.plan import Plan
    from attention.training.tasks.task import Example

SEEDS = 20
_ACROSS = 5
_HEIGHT = 400  # pixels, of curves beside maps
_LINES = (
    ("accuracy", INK, "solid", "answers that are right"),
    ("score", CHOSEN, "solid", "weight on the cells that matter"),
)
_LOSS = "#9a9da6"


class Answer(NamedTuple):
    """What a model says at one place, whether it is right, and how sure it is; `right` is None where nothing is asked."""

    token: str
    said: str
    right: bool | None
    probability: float


def answers(plan: Plan, snapshot: Snapshot, example: Example) -> tuple[Answer, ...]:
    """What the model says of an example, place by place."""
    import torch

    from attention.training.network import forward

    batch = plan.task.posed(example.ids, plan.design)
    with torch.no_grad():
        sure, best = forward(snapshot.parameters, plan.design, batch)[0][0].softmax(-1).max(-1)
    found = zip(example.tokens, best.tolist(), batch.answers[0].tolist(), sure.tolist(), strict=True)
    return tuple(
        Answer(token, example.answers[said], None if right < 0 else said == right, chance)
        for token, said, right, chance in found
    )


def maps(plan: Plan, snapshot: Snapshot, example: Example, name: str = "", moves: bool = False) -> list[Spec]:
    """The weights of each layer, all heads of it the first; in the last layer the cells that the rule says matter are outlined.

    Args:
        plan: what is trained.
        snapshot: the model at one step.
        example: what it reads.
        name: what is said above the maps where there are others beside them.
        moves: whether the next comes at once: then nothing but the numbers differs, and the page paints the cells alone.
    """
    trace = shown(plan, snapshot, example)
    drawn = [heatmap_json(trace, WEIGHTS, number) for number in range(len(trace.layers))]
    gold = plan.task.posed(example.ids, plan.design).gold[0]
    shapes = [{**outline(column, row, 1, 1, 1), "opacity": 0.8} for row, column in gold.nonzero().tolist()]
    for spec, layer in zip(drawn, trace.layers, strict=True):
        told = [f"{name}: {layer.name}" if name else layer.name]
        if layer is trace.layers[-1]:
            spec["layout"]["shapes"] = shapes
            told.append("outlined: what the rule says matters")
        if not moves:
            told.append(f"step {snapshot.step}")
        spec["layout"]["title"]["subtitle"]["text"] = " · ".join(told)
        spec["layout"]["uirevision"] = f"{name} {layer.name} {spec['layout']['uirevision']}"
        spec["layout"]["meta"]["file"] = [
            WEIGHTS,
            "-".join([*name.split(), *layer.name.split(), f"step{snapshot.step}"]),
        ]
        # A sum of 1 beside each row is nothing to see while it learns.
        spec["layout"]["annotations"] = [one for one in spec["layout"].get("annotations", []) if one.get("name")]
        spec["layout"]["margin"]["r"] = 12
        spec["data"][0].pop("texttemplate", None)
    return drawn


def curves(runs: Mapping[str, Sequence[Snapshot]], steps: int, at: int) -> Spec:
    """Accuracy and the weight on gold cells by step, up to the step `at`, and the loss in the scale of its own beginning.

    Args:
        runs: the snapshots by the name of the model; those after the first are drawn thin.
        steps: how many there will be.
        at: the last step that is shown.
    """
    data: list[dict[str, Any]] = []
    told = []
    for number, (name, snapshots) in enumerate(runs.items()):
        seen = [one for one in snapshots if one.step <= at]
        if not seen:
            continue
        there = {"type": "scatter", "mode": "lines", "x": [one.step for one in seen], "showlegend": number == 0}
        width, end = (1.5, f" · {name}") if number else (3, "")
        for field, color, dash, words in _LINES:
            line = {"color": color, "width": width, "dash": "dot" if number else dash}
            ys = [getattr(one, field) for one in seen]
            hover = f"step %{{x}}<br>{words}{end} <b>%{{y:.3f}}</b><extra></extra>"
            data.append({**there, "y": ys, "line": line, "name": words, "hovertemplate": hover})
        loss = [one.loss / snapshots[0].loss for one in seen]
        hover = f"step %{{x}}<br>loss{end} <b>%{{customdata:.4g}}</b> nats<extra></extra>"
        line = {"color": _LOSS, "width": width, "dash": "dot" if number else "solid"}
        data.append({**there, "y": loss, "customdata": [one.loss for one in seen], "line": line, "name": "loss, from its first", "hovertemplate": hover})  # fmt: skip
        last = seen[-1]
        told.append(f"{name}: loss {last.loss:.3g}, accuracy {last.accuracy:.2f}, on gold cells {last.score:.2f}")
    meta = {
        "alt": f"Line chart of what was learned by step {at} of {steps}: {'; '.join(told)}.",
        "step": "",
        "panels": [],
    }
    plain = {"gridcolor": GRID, "zeroline": False, "showline": False, "ticks": ""}
    return {
        "data": data,
        "layout": {
            "title": {
                "text": "<b>learning</b>", "font": {"size": 15}, "x": 0, "xref": "container", "pad": {"l": 6},
                "y": 1 - 30 / _HEIGHT, "yref": "container", "yanchor": "bottom",
                "subtitle": {"text": f"on {_probes()} sequences it never learns from", "font": {"size": 11}},
            },
            "template": NO_TEMPLATE, "font": {"size": 11}, "height": _HEIGHT, "margin": {"l": 48, "r": 16, "t": 70, "b": 112},
            "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "uirevision": "learning", "meta": meta,
            "xaxis": {**plain, "title": {"text": "step", "standoff": 8}, "range": [0, steps]},
            "yaxis": {**plain, "range": [-0.02, 1.05]},
            "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yref": "container", "yanchor": "bottom"},
            "hovermode": "closest",
        },
    }  # fmt: skip


def seeds(plans: Sequence[Plan], lasts: Sequence[Snapshot], example: Example) -> Spec:
    """The weights of the last layer of many seeds, in one map with one scale, and what each has reached."""
    matrices = [
        shown(plan, last, example).layers[-1].matrix(WEIGHTS).numpy() for plan, last in zip(plans, lasts, strict=True)
    ]
    rows, columns = matrices[0].shape
    panels = tiles(SEEDS, _ACROSS, rows, columns, (max(2, round(rows * 0.24)), max(1, round(columns * 0.1))))
    weights = blank(panels, np.float32(np.nan))
    for panel, matrix in zip(panels, matrices, strict=False):
        weights[panel.place] = matrix
    heat = {**scales.painted(find_step(WEIGHTS), 0, 1, "fixed")[0], "showscale": False}  # as above it
    there = panels[: len(matrices)]
    reached = [
        f"seed {plan.seed} · {last.accuracy:.2f} · {last.score:.2f}" for plan, last in zip(plans, lasts, strict=True)
    ]
    meta = {"alt": f"Heatmap of the weights of the last layer, query (attends from) by key (attends to), of {len(there)} seeds; "
            f"accuracy and weight on gold cells: {'; '.join(reached)}.", "step": "", "panels": []}  # fmt: skip
    high, wide = weights.shape
    height = round(90 + 620 * min(1.3, max(0.6, high / wide)))
    layout = {
        "title": {
            "text": "<b>every seed</b>", "font": {"size": 15}, "x": 0, "xref": "container", "pad": {"l": 6},
            "y": 1 - 30 / height, "yref": "container", "yanchor": "bottom",
            "subtitle": {"text": "weights of the last layer; seed · accuracy · weight on gold cells", "font": {"size": 11}},
        },
        "template": NO_TEMPLATE, "font": {"size": 11}, "height": height, "margin": {"l": 12, "r": 12, "t": 90, "b": 12},
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "uirevision": "seeds", "meta": meta,
        "xaxis": {**PLAIN, **middles(()), "range": [-0.5, wide - 0.5]}, "yaxis": {**PLAIN, **middles(()), "range": [high - 0.5, -0.5]},
        "annotations": [named(text, panel, borderpad=0, font={"size": 10}) for text, panel in zip(reached, there, strict=True)],
    }  # fmt: skip
    return {
        "data": [{"type": "heatmap", "z": weights, **heat, "hoverongaps": False, "hoverinfo": "none"}],
        "layout": layout,
    }


def _probes() -> int:
    from attention.training.learning import PROBES

    return PROBES
