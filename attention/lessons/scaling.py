"""Why scores are divided by √d_k: one text with every random initialization and every divisor of the scores, and their small maps in one figure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from attention.base.tokens import label
from attention.formula.config import INITS
from attention.formula.formula import Formula
from attention.formula.names import SCORES, WEIGHTS
from attention.formula.steps import find_step
from attention.lessons.softmax import entropy
from attention.pictures import scales
from attention.pictures.charts import empty_chart
from attention.pictures.drawing import make_hidden_trace
from attention.pictures.layout import PLAIN_AXIS, Spec, panel_label, panel_ticks
from attention.pictures.mosaic import filled_canvas, tile_panels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attention.sources.typed_text import TypedText


MAX_TOKENS = 32  # in a small map, so that every cell is visible
_DIVISORS = ("√d_k", "√d_model", "nothing")
_HEIGHT = 118  # pixels of each small map

WHY_SCALE = r"""
A score is a sum of $d_k$ products. If the numbers in $q$ and $k$ are independent with mean 0 and variance 1, then
$\text{Var}(q \cdot k) = d_k$: a typical score has the size $\sqrt{d_k}$. In a wide head the softmax then gives nearly everything to one key,
and almost no gradient remains. Dividing by $\sqrt{d_k}$ restores a variance of 1. The divisor belongs to the head: $\sqrt{d_{model}}$ is a common mistake.
"""
# The effect of each initialization with all settings at their defaults.
EFFECT_OF_INIT = {
    "scaled normal": "the spread of the scores grows like √d_k. Divided by √d_k it is near 1 for every d_k: some "
    "keys get more than others, and none takes all. √d_model divides too much: the weights are nearly flat. No division leaves too large a spread.",
    "uniform": "all entries of W are positive, so a query or key is little more than the sum of its token's row: every query picks "
    "the key with the largest or the smallest sum, which gives stripes.",
    "normal": "the spread grows like d_model · √d_k. No divisor here is large enough: each query picks one key at random.",
    "linear": "the default of nn.Linear is small. The divided scores hardly differ, and every key gets nearly the same weight.",
    "identity": "X Xᵀ without projections: a token matches itself best, and a repeated word matches its other occurrence. There is one head as wide "
    "as the model, so here √d_k equals √d_model.",
}


@dataclass(frozen=True, eq=False)
class Scaling:
    """The weights of head 0 for one text, for every initialization and every divisor of the scores.

    Attributes:
        tokens: the queries; `key_tokens` the keys.
        inits: the initialization of each row of `weights`.
        weights: [init divisor query_pos key_pos], float32; rows sum to 1.
        entropy: the mean over the rows with a visible key, in nats, [init divisor].
        spread: the standard deviation of the divided scores, [init divisor].
        visible: boolean [query_pos key_pos], True = may attend.
    """

    tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    inits: tuple[str, ...]
    weights: NDArray[np.float32]
    entropy: NDArray[np.float64]
    spread: NDArray[np.float64]
    visible: NDArray[np.bool_]
    notes: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        return self.weights.nbytes + self.entropy.nbytes + self.spread.nbytes + self.visible.nbytes

    def frame(self) -> pd.DataFrame:
        """The mean entropy of a row and the spread of the scores, one row per initialization."""
        table = pd.DataFrame({"random weights": self.inits})
        for name, numbers in (("entropy", self.entropy), ("spread", self.spread)):
            for i, divisor in enumerate(_DIVISORS):
                table[f"{name}, ÷ {divisor}"] = numbers[:, i]
        return table


def measure(source: TypedText) -> Scaling:
    """The same text with all five initializations and three divisors; √d_model is included because it is a common mistake.

    All other settings are those of the source. A long text is cut to `MAX_TOKENS`.

    Raises:
        AttentionError: the source cannot make a trace.
    """
    weights, entropies, spreads = [], [], []
    short = replace(source, max_tokens=min(source.max_tokens, MAX_TOKENS))
    for init in INITS:
        sizes: dict[str, Any] = {"d_k": None, "d_v": None} if init == "identity" else {}
        variant = replace(short, config=replace(source.config, init=init, **sizes))
        trace = variant.trace()
        layer = trace.layers[0]
        scores, d_k, d_model = layer.matrix(SCORES), layer.sizes["d_k"], source.config.d_model
        divisors = (math.sqrt(d_k), math.sqrt(d_model), 1.0)
        formula = layer.formula or Formula()
        divided = [replace(layer, formula=replace(formula, divisor=divisor)) for divisor in divisors]
        maps = [variant_layer.matrix(WEIGHTS).numpy() for variant_layer in divided]
        weights.append(maps)
        entropies.append([_mean_entropy(matrix) for matrix in maps])
        spreads.append([float(scores.double().std(correction=0)) / divisor for divisor in divisors])
    visible = layer["mask"].numpy()
    return Scaling(
        trace.tokens,
        trace.key_tokens,
        INITS,
        np.array(weights),
        np.array(entropies),
        np.array(spreads),
        visible,
        trace.notes,
    )


def _mean_entropy(weights: NDArray[Any]) -> float:
    nonzero = weights.sum(axis=-1) > 0
    return float(entropy(weights[nonzero]).mean()) if nonzero.any() else 0.0


def scaling_maps(lesson: Scaling) -> Spec:
    """The weights for five initializations (down) and three divisors (across), in one figure with one scale; each map shows its entropy."""
    n_inits, n_divisors, rows, columns = lesson.weights.shape
    gutters = max(1, round(rows * 0.22)), max(1, round(columns * 0.08))
    panels = tile_panels(n_inits * n_divisors, n_divisors, rows, columns, gutters)
    weights, hidden = (filled_canvas(panels, np.float32(np.nan)) for _ in range(2))
    for panel, matrix in zip(panels, lesson.weights.reshape(-1, rows, columns), strict=True):
        weights[panel.area], hidden[panel.area] = matrix, np.where(lesson.visible, np.nan, 1)
    figure = empty_chart(
        "weights of head 0",
        f"H: mean entropy of a row, from 0 to ln {columns} = {math.log(columns):.2f}",
        "Heatmap of the weights of head 0 (query (attends from) by key (attends to)) for five random initializations and three divisors. "
        "Mean entropy of a row: "
        + "; ".join(
            f"{init}: " + ", ".join(f"{lesson.entropy[i, j]:.2f} divided by {d}" for j, d in enumerate(_DIVISORS))
            for i, init in enumerate(lesson.inits)
        )
        + ".",
    )
    hover = "%{y}<br>%{x}<br>"
    heat, _ = scales.color_keys(find_step(WEIGHTS), 0, 1, "fixed")
    heat["colorbar"] |= {"len": 0.4, "y": 0, "yanchor": "top", "ypad": 10}
    template = f"{hover}<b>%{{z:.9g}}</b><extra></extra>"
    figure["data"].append({"type": "heatmap", "z": weights, **heat, "hoverongaps": False, "hovertemplate": template})
    if not lesson.visible.all():
        figure["data"].append(make_hidden_trace(hover, "0") | {"z": hidden})
    notes = [
        panel_label(f"H {entropy:.2f}", panel) for panel, entropy in zip(panels, lesson.entropy.flatten(), strict=True)
    ]
    across, down = panels[:n_divisors], panels[::n_divisors]
    x = _axis(
        [(panel.x, columns, f"÷ {d}") for panel, d in zip(across, _DIVISORS, strict=True)], lesson.key_tokens, "key"
    )
    y = _axis([(panel.y, rows, init) for panel, init in zip(down, lesson.inits, strict=True)], lesson.tokens, "query")
    y["ticktext"] = [init.replace(" ", "<br>") for init in lesson.inits]
    x |= {"range": [-0.5, weights.shape[1] - 0.5], "side": "top", "ticklabelstandoff": 18}
    y |= {"range": [weights.shape[0] - 0.5, -0.5]}
    height, margin = 140 + _HEIGHT * n_inits, {"l": 70, "r": 12, "t": 104, "b": 40}
    figure["layout"]["title"]["y"] = 1 - 30 / height
    figure["layout"] |= {"xaxis": x, "yaxis": y, "height": height, "margin": margin, "annotations": notes}
    return figure


def _axis(spans: Sequence[tuple[int, int, str]], tokens: tuple[str, ...], title: str) -> dict[str, Any]:
    """The axis of the panels: a tick in the middle of each, and the hover label of every position."""
    aliases = {
        str(start + index): f"{title} {index} {label(tokens[index], 40)} · {name}"
        for start, size, name in spans
        for index in range(size)
    }
    return {**PLAIN_AXIS, **panel_ticks(spans), "labelalias": aliases, "tickfont": {"size": 13}}
