"""The figures of the page Train: learning curves, the maps and answers of a model at one step, and the maps of many seeds; and its film as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.base.errors import AttentionError
from attention.base.tokens import label
from attention.explanation import tables
from attention.export.packing import ArrayPool, source_and_trace
from attention.formula.names import MASKED_SCORES, WEIGHTS, Cell
from attention.formula.steps import find_step
from attention.pictures import scales
from attention.pictures.heatmap import heatmap_json
from attention.pictures.layout import HEIGHT, PLAIN_AXIS, panel_ticks
from attention.pictures.look import LIGHT, TYPE
from attention.pictures.marks import (
    CHOSEN_COLOR,
    POINT_COLOR,
    Spec,
    axis,
    cells,
    draw,
    frame,
    joined,
    outline,
    panel_label,
)
from attention.pictures.message import pack
from attention.pictures.mosaic import filled_canvas, tile_panels
from attention.pictures.over_picture import MapLine, over_picture_json
from attention.training.jobs import get_film
from attention.training.trained import Trained

if TYPE_CHECKING:
    from attention.export.states import State
    from attention.trace.layer import Layer
    from attention.trace.trace import Trace
    from attention.training.learning import Snapshot
    from attention.training.task import Example
    from attention.training.tasks import Plan

N_SEEDS = 20
_ACROSS = 5
_HEIGHT = 400  # pixels, for curves beside maps
_LINES = (
    ("accuracy", POINT_COLOR, "right answers"),
    ("score", LIGHT["weight"], "weight on the cells that matter"),
)
_LOSS = LIGHT["edge"]


def answers(plan: Plan, snapshot: Snapshot, example: Example) -> list[tuple[str, bool]]:
    """The model's answer at each position of an example where the task asks for one, and whether it is right."""
    import torch

    from attention.training.network import forward

    batch = plan.task.posed(example.ids, plan.design)
    with torch.no_grad():
        best = forward(snapshot.parameters, plan.design, batch)[0][0].softmax(-1).argmax(-1)
    pairs = zip(best.tolist(), batch.answers[0].tolist(), strict=True)
    return [(example.answers[answer], answer == truth) for answer, truth in pairs if truth >= 0]


def asked_queries(plan: Plan, example: Example) -> tuple[int, ...]:
    """The queries that have an answer."""
    return tuple(plan.task.posed(example.ids, plan.design).answers[0].ge(0).nonzero()[:, 0].tolist())


def maps(
    plan: Plan, snapshot: Snapshot, example: Example, name: str = "", moves: bool = False, query: int | None = None
) -> list[Spec]:
    """The weights of each layer, its first head in front; the cells that the task's rule makes relevant are outlined in the last layer.

    Args:
        name: a heading that distinguishes these maps from others beside them.
        moves: whether this is a frame of a film: then only the numbers change, and the page repaints the cells alone.
        query: the query whose row of the last layer is drawn over the picture, before the maps; None: no picture is drawn.
    """
    from attention.training.trained_trace import build_trace

    trace = build_trace(plan, snapshot, example)
    figures = [heatmap_json(trace, WEIGHTS, number) for number in range(len(trace.layers))]
    gold = plan.task.posed(example.ids, plan.design).gold[0]
    over = [] if query is None else [_over_picture(trace, query, gold[query].nonzero()[:, 0].tolist(), name, moves)]
    shapes = [{**outline(column, row, 1, 1, 1), "opacity": 0.8} for row, column in gold.nonzero().tolist()]
    for spec, layer in zip(figures, trace.layers, strict=True):
        subtitle = [f"{name}: {layer.name}" if name else layer.name]
        if layer is trace.layers[-1]:
            spec["layout"]["shapes"] = shapes
            subtitle.append("outlined: the cells that matter by the rule")
        if not moves:
            subtitle.append(f"step {snapshot.step}")
        spec["layout"]["title"]["subtitle"]["text"] = " · ".join(subtitle)
        spec["layout"]["uirevision"] = f"{name} {layer.name} {spec['layout']['uirevision']}"
        file = "-".join([*name.split(), *layer.name.split(), f"step{snapshot.step}"])
        spec["layout"]["meta"]["file"] = [WEIGHTS, file]
        # The sums of the rows are dropped: each is 1.
        spec["layout"]["annotations"] = [note for note in spec["layout"].get("annotations", []) if note.get("name")]
        spec["layout"]["margin"]["r"] = 12
        spec["data"][0].pop("texttemplate", None)
    return over + figures


def is_map(spec: Spec) -> bool:
    """Whether a figure is a map of all cells, rather than one row over a picture."""
    return "grid" not in spec["layout"]["meta"]


def _over_picture(trace: Trace, query: int, gold: Sequence[int], name: str, moves: bool) -> Spec:
    """The row of a query in the last layer over the picture of its keys; the first gold patch is outlined."""
    line = MapLine.of(trace, WEIGHTS, len(trace.layers) - 1, query=query)
    spec = over_picture_json(line, chosen=next(iter(gold), None), exact=False)
    layout = spec["layout"]
    layout["height"] = HEIGHT  # level with the maps beside it
    layout["uirevision"] = f"{name} {layout['uirevision']}"
    if moves:
        layout["title"]["subtitle"]["text"] = f"query {query} {label(trace.tokens[query])}"
        layout["meta"]["alt"] = f"weights over the picture, query {query} {trace.tokens[query]}."
    if name:
        layout["title"]["subtitle"]["text"] = f"{name} · {layout['title']['subtitle']['text']}"
    return spec


def curves(runs: Mapping[str, Sequence[Snapshot]], steps: int, at: int) -> Spec:
    """Accuracy and the weight on gold cells by step, up to the step `at`, and the loss relative to its initial value.

    Args:
        runs: the snapshots by the name of the model; all after the first are drawn thin.
    """
    from attention.training.learning import PROBES

    drawn, summaries = [], []
    for number, (name, snapshots) in enumerate(runs.items()):
        visible = [snapshot for snapshot in snapshots if snapshot.step <= at]
        if not visible:
            continue
        at_steps = [snapshot.step for snapshot in visible]
        style: dict[str, Any] = {
            "width": 1.5 if number else 3,
            "dash": "dot" if number else "solid",
            "showlegend": number == 0,
        }
        suffix = f" · {name}" if number else ""
        for field, color, words in _LINES:
            ys, hover = (
                [getattr(snapshot, field) for snapshot in visible],
                f"step %{{x}}<br>{words}{suffix} <b>%{{y:.3f}}</b>",
            )
            drawn.append(joined(at_steps, ys, hover, color, name=words, **style))
        hover = f"step %{{x}}<br>loss{suffix} <b>%{{customdata:.4g}}</b> nats"
        losses = [snapshot.loss for snapshot in visible]
        relative = [loss / snapshots[0].loss for loss in losses]
        drawn.append(
            joined(at_steps, relative, hover, _LOSS, customdata=losses, name="loss, relative to its start", **style)
        )
        last = visible[-1]
        summaries.append(f"{name}: loss {last.loss:.3g}, accuracy {last.accuracy:.2f}, on gold cells {last.score:.2f}")
    alt = f"Line chart of the learning progress up to step {at} of {steps}: {'; '.join(summaries)}."
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yref": "container", "yanchor": "bottom"}
    return draw(
        frame(
            "learning", f"on {PROBES} sequences that are never trained on", alt, axis("step", (0, steps)), axis("", (-0.02, 1.05)), _HEIGHT,
            legend=legend, margin={"l": 48, "b": 112}, meta={"alt": alt},
        ),
        *drawn,
    )  # fmt: skip


def seeds(plans: Sequence[Plan], lasts: Sequence[Snapshot], example: Example) -> Spec:
    """The weights of the last layer for many seeds, in one figure with one scale, with the scores of each."""
    from attention.training.trained_trace import build_trace

    matrices = [
        build_trace(plan, last, example).layers[-1].matrix(WEIGHTS).numpy()
        for plan, last in zip(plans, lasts, strict=True)
    ]
    rows, columns = matrices[0].shape
    panels = tile_panels(N_SEEDS, _ACROSS, rows, columns, (max(2, round(rows * 0.24)), max(1, round(columns * 0.1))))
    weights = filled_canvas(panels, np.float32(np.nan))
    for panel, matrix in zip(panels, matrices, strict=False):
        weights[panel.area] = matrix
    heat = scales.color_keys(find_step(WEIGHTS), 0, 1, "fixed")[0] | {"showscale": False}  # the maps above show it
    used_panels = panels[: len(matrices)]
    captions = [
        f"seed {plan.seed} · {last.accuracy:.2f} · {last.score:.2f}" for plan, last in zip(plans, lasts, strict=True)
    ]
    alt = (
        f"Heatmap of the weights of the last layer, query (attends from) by key (attends to), of {len(used_panels)} seeds; "
        f"accuracy and weight on gold cells: {'; '.join(captions)}."
    )
    n_rows, n_columns = weights.shape
    height = round(90 + 620 * min(1.3, max(0.6, n_rows / n_columns)))
    bare = PLAIN_AXIS | panel_ticks(())
    small = {"borderpad": 0, "font": {"size": TYPE["axis"]}}
    return draw(
        frame(
            "every seed", "weights of the last layer; seed · accuracy · weight on gold cells", alt,
            {**bare, "range": [-0.5, n_columns - 0.5]}, {**bare, "range": [n_rows - 0.5, -0.5]}, height, uirevision="seeds",
            margin={"l": 12, "r": 12, "t": 90, "b": 12}, meta={"alt": alt},
        ),
        cells(weights, "", heat),
        *(panel_label(text, panel, **small) for text, panel in zip(captions, used_panels, strict=True)),
    )  # fmt: skip


def pack_film(state: State) -> bytes:
    """The training of a state's model, frame by frame.

    Raises:
        AttentionError: the state's link is invalid, or its model is not trained here.
    """
    from attention.training.trained_trace import build_trace

    source, trace = source_and_trace(state)
    if not isinstance(source, Trained):
        raise AttentionError(
            f"A film shows a trained model; “{state.title}” has source {state.link.get('source')!r}: leave film out."
        )
    plan, example, pool = source.plan, source.example, ArrayPool()
    snapshots = get_film(plan).wait()
    frames = []
    for index, snapshot in enumerate(snapshots):
        figures = maps(plan, snapshot, example, moves=True)
        layers = build_trace(plan, snapshot, example).layers
        for figure, layer in zip(figures, layers, strict=True):
            figure["layout"]["meta"]["step"] = _weights_name(layer)
        learning = curves({state.title: snapshots[: index + 1]}, plan.steps, snapshot.step)
        frames.append({
            "step": snapshot.step,
            "message": pool.header(pack([*figures, learning])),
            "answers": [[*answer] for answer in answers(plan, snapshot, example)],
            "numbers": {_weights_name(layer): {name: pool.add(_with_gaps(layer, name)) for name in (MASKED_SCORES, WEIGHTS)} for layer in layers},
        })  # fmt: skip
    sides = [
        {"axis": names[0], "tokens": []} for names in tables.cell_names(trace.layers[0], Cell(0, WEIGHTS, 0, 0, 0))
    ]
    for side, tokens in zip(sides, (example.tokens, example.memory or example.tokens), strict=True):
        side["tokens"] = [*tokens]
    header = {
        "film": frames, "sides": sides, "link": dict(state.link), "outline": CHOSEN_COLOR,
        "about": " ".join(example.notes), "layers": [_weights_name(layer) for layer in trace.layers],
        "initial": {"at": str(plan.steps), "step": _weights_name(trace.layers[-1]), "q": str(state.q), "k": str(state.k)},
    }  # fmt: skip
    return pool.pack(header)


def _weights_name(layer: Layer) -> str:
    """The name of a layer's weights, by which the page distinguishes clicks."""
    return f"weights of {layer.name}"


def _with_gaps(layer: Layer, name: str) -> Any:
    matrix = layer.matrix(name, 0).numpy()
    return np.where(np.isfinite(matrix), matrix, np.nan).astype(matrix.dtype)
