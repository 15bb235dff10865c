"""The film of a training run as bytes: a message for each frame, with the numbers for the line of each weight."""

from __future__ import annotations

from typing import Any

import numpy as np

from attention.base.errors import AttentionError
from attention.explanation import tables
from attention.export.packing import ArrayPool, source_and_trace
from attention.export.states import State
from attention.formula.names import MASKED_SCORES, WEIGHTS, Cell
from attention.pictures.layout import CHOSEN_COLOR
from attention.pictures.message import pack
from attention.trace.layer import Layer
from attention.training import training_views
from attention.training.jobs import get_film
from attention.training.trained import Trained
from attention.training.trained_trace import build_trace


def pack_film(state: State) -> bytes:
    """The training of a state's model, frame by frame.

    Raises:
        AttentionError: the state's link is invalid, or its model is not trained here.
    """
    source, trace = source_and_trace(state)
    if not isinstance(source, Trained):
        raise AttentionError(
            f"A film shows a trained model; “{state.title}” has source {state.link.get('source')!r}: leave film out."
        )
    plan, example, pool = source.plan, source.example, ArrayPool()
    snapshots = get_film(plan).wait()
    frames = []
    for index, snapshot in enumerate(snapshots):
        maps = training_views.maps(plan, snapshot, example, moves=True)
        layers = build_trace(plan, snapshot, example).layers
        for figure, layer in zip(maps, layers, strict=True):
            figure["layout"]["meta"]["step"] = _weights_name(layer)
        curves = training_views.curves({state.title: snapshots[: index + 1]}, plan.steps, snapshot.step)
        answers = [answer for answer in training_views.answers(plan, snapshot, example) if answer.right is not None]
        frames.append({
            "step": snapshot.step,
            "message": pool.header(pack([*maps, curves])),
            "answers": [[answer.answer, bool(answer.right)] for answer in answers],
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
