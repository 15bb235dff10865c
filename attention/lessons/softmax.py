"""The chapters on softmax and scaling: the softmax of a row of numbers, the overflow of exp, why scores are divided by √d_k, and charts of all.

Every softmax here is that of `attend`, except `Overflow.naive`, which demonstrates the mistake.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import regex

from attention.base.errors import NumbersError
from attention.base.tokens import label
from attention.formula.config import INITS
from attention.formula.formula import Formula
from attention.formula.names import SCORES, WEIGHTS
from attention.formula.steps import find_step
from attention.pictures import scales
from attention.pictures.layout import PLAIN_AXIS, panel_ticks
from attention.pictures.look import LIGHT
from attention.pictures.marks import (
    HIDDEN_COLOR,
    POINT_COLOR,
    Spec,
    axis,
    bars,
    cells,
    draw,
    frame,
    ground,
    joined,
    note,
    panel_label,
    points,
    rule,
)
from attention.pictures.mosaic import filled_canvas, tile_panels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attention.sources.typed_text import TypedText


Row = tuple[float, ...]

_TEMPERATURES = (0.125, 0.5, 1.0, 2.0, 8.0)
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 10.0  # the ends of the curves; beyond them little changes
FACTORS = (1, 2, 5, 8, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
MAX_NUMBERS = 32
_MAX_ABSOLUTE = 10_000
_MAX_TOKENS = 32  # in a small map, so that every cell is visible
_DIVISORS = ("√d_k", "√d_model", "nothing")
_HEIGHT = 118  # pixels of each small map

_LEGEND = {
    "orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yref": "container", "yanchor": "bottom", "title": {"text": "temperature "},
}  # fmt: skip
_COLD_TO_HOT = tuple(
    LIGHT[role] for role in ("most-negative", "negative", "edge", "positive", "most-positive")
)  # a colour for each temperature

WHY_SOFTMAX = """
- Every share is **positive**, and the shares sum to **1**: a query's output is a weighted average of values.
- The order is preserved, and only **differences** matter: a number larger by 1 gets *e* ≈ 2.72 times the share; adding 5 to all numbers changes nothing.
- It is **smooth**: unlike "the largest takes all", it can be learned in small steps.
"""
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


def parse_row(text: str) -> Row:
    """The numbers of a typed row, such as "0.1, -0.2" or "[0.1 -0.2]".

    Raises:
        NumbersError: a part is no number, is not finite or too large, or there are too few or too many numbers.
    """
    expected = f"A row is 2 to {MAX_NUMBERS} numbers from −{_MAX_ABSOLUTE:,} to {_MAX_ABSOLUTE:,}"
    advice = "type them separated by commas, such as 0.1, -0.2, -0.3, 0.5."
    parts = [part for part in regex.split(r"[\s,;\[\]()]+", text.replace("−", "-")) if part]
    if len(parts) > MAX_NUMBERS:
        raise NumbersError(f"{expected}; got {len(parts):,}: {advice}")
    numbers = []
    for part in parts:
        try:
            number = float(part)
        except ValueError:
            number = math.nan
        if not abs(number) <= _MAX_ABSOLUTE:  # also rejects nan
            raise NumbersError(f"{expected}; got “{label(part, 40, escape=False)}”: {advice}")
        numbers.append(number)
    if len(numbers) < 2:
        raise NumbersError(f"{expected}; got {f'only one, {parts[0]}' if parts else 'nothing'}: {advice}")
    return tuple(numbers)


def curve() -> pd.DataFrame:
    """The softmax over np.arange(-5, 5, 0.1), in double precision: it grows exponentially and sums to 1."""
    x = np.arange(-5, 5, 0.1)
    return pd.DataFrame({"number": x, "share": _softmax(x)})


@dataclass(frozen=True, eq=False)
class _Spread:
    """One row of numbers and its softmax at several temperatures.

    Attributes:
        shares: the softmax of row / temperature by temperature, for `_TEMPERATURES`; each sums to 1.
        temperatures: a fine grid for the next two, which includes `_TEMPERATURES`.
        variance: the variance of the shares at each grid point, with n − 1 in the denominator like torch's ``var``.
        entropy: the entropy of the shares at each grid point, in nats: 0 if one number takes all, ln n if
            all are equal.
    """

    row: Row
    shares: dict[float, NDArray[np.float64]]
    temperatures: NDArray[np.float64]
    variance: NDArray[np.float64]
    entropy: NDArray[np.float64]

    def frame(self) -> pd.DataFrame:
        """The shares of every number at each temperature, and their variance and entropy."""
        marked = [int(np.flatnonzero(self.temperatures == t)[0]) for t in _TEMPERATURES]
        names = [f"{i}: {number:g}" for i, number in enumerate(self.row)]
        table = pd.DataFrame(list(self.shares.values()), columns=names)
        table.insert(0, "temperature", _TEMPERATURES)
        table["variance"], table["entropy"] = self.variance[marked], self.entropy[marked]
        return table


def spread(row: Row) -> _Spread:
    """The softmax of a row at several temperatures, in double precision."""
    x = np.array(row)
    fine = np.unique(np.concatenate([np.geomspace(MIN_TEMPERATURE, MAX_TEMPERATURE, 101), _TEMPERATURES]))
    shares = {t: _softmax(x / t) for t in fine.tolist()}
    variances = np.array([share.var(ddof=1) for share in shares.values()])
    entropies = np.array([float(_entropy(share)) for share in shares.values()])
    return _Spread(row, {t: shares[t] for t in _TEMPERATURES}, fine, variances, entropies)


@dataclass(frozen=True)
class _Overflow:
    """One row of large numbers through two softmaxes in single precision.

    Attributes:
        numbers: the row times the factor, rounded to float32.
        powers: exp(x).
        naive: exp(x) / Σ exp(x); nan where undefined.
        shifted: exp(x − max).
        stable: exp(x − max) / Σ exp(x − max).
        failed: whether the naive shares are wrong.
        words: the outcome, in one or two sentences.
    """

    numbers: Row
    powers: Row
    naive: Row
    shifted: Row
    stable: Row
    failed: bool
    words: str

    def frame(self) -> pd.DataFrame:
        """Both computations side by side, with inf and nan spelled out."""
        names = ("x", "exp(x)", "naive share", "exp(x − max)", "stable share")
        columns = (self.numbers, self.powers, self.naive, self.shifted, self.stable)
        return pd.DataFrame({name: list(map(_format, row)) for name, row in zip(names, columns, strict=True)})


def overflow(row: Row, factor: float) -> _Overflow:
    """The naive softmax beside the stable one for row · factor in float32."""
    import torch

    from attention.formula.normalizers import NORMALIZERS

    x = torch.tensor(row, dtype=torch.float32) * factor
    exps = torch.exp(x)
    shares, right = exps / exps.sum(), NORMALIZERS["softmax"].weights(x)
    rows = (x, exps, shares, torch.exp(x - x.max()), right)
    numbers, powers, naive, shifted, stable = (tuple(each.tolist()) for each in rows)
    failed = not bool(torch.allclose(shares, right, atol=1e-6))
    words = _why(max(numbers), powers, float(exps.sum()), naive)
    return _Overflow(numbers, powers, naive, shifted, stable, failed, words)


def _why(highest: float, powers: Row, total: float, naive: Row) -> str:
    limit = "3.4 · 10³⁸, the largest float32 number"
    remedy = "With the maximum subtracted first, the largest power is exp(0) = 1, and nothing can overflow."
    if math.isinf(max(powers)):
        n_nan = sum(map(math.isnan, naive))
        return (
            f"The naive softmax overflows: exp({highest:.4g}) is beyond {limit}, and becomes inf (infinity). The sum is inf too, "
            f"and inf / inf is nan, not a number, in {n_nan} of {len(powers)} shares; every other number divided by inf is 0. {remedy}"
        )
    if math.isinf(total):
        return (
            f"The naive softmax overflows: each exp(x) still fits, but their sum is beyond {limit}, and becomes inf (infinity). "
            f"Every share is then a number divided by inf, which is 0. {remedy}"
        )
    if total == 0:
        return (
            f"The naive softmax underflows: even exp({highest:.4g}) is too small for float32 and becomes 0. The sum is 0, and 0 / 0 is "
            "nan, not a number. With the maximum subtracted first, the largest power is exp(0) = 1, and the sum cannot be 0."
        )
    return (
        f"Both ways agree: the largest power is exp({highest:.4g}) = {_format(max(powers))}, which fits into float32. "
        "exp(x) fits up to x = 88.7; larger numbers or a larger factor overflow."
    )


def _format(value: float) -> str:
    if math.isnan(value):
        return "nan (not a number)"
    if math.isinf(value):
        return "inf (infinity)" if value > 0 else "−inf (infinity)"
    return f"{value:.4g}"


def _softmax(x: NDArray[np.float64]) -> NDArray[np.float64]:
    import torch

    from attention.formula.normalizers import NORMALIZERS

    share: NDArray[np.float64] = NORMALIZERS["softmax"].weights(torch.from_numpy(x)).numpy()
    return share


def _entropy(shares: NDArray[Any]) -> NDArray[np.float64]:
    """The entropy −Σ p ln p over the last axis, in nats; a share of 0 contributes 0."""
    p = shares.astype(np.float64)
    return np.asarray(-(p * np.log(np.where(p > 0, p, 1))).sum(axis=-1) + 0.0)


def softmax_curve(curve: pd.DataFrame) -> Spec:
    """The softmax curve over evenly spaced numbers."""
    x, shares = curve["number"].to_numpy(), curve["share"].to_numpy()
    low, high, top = float(x[0]), float(x[-1]), float(shares[-1])
    facts = f"{len(x)} numbers from {low:.1f} to {high:.1f}; the shares sum to 1"
    alt = (
        f"Line chart of the softmax of {len(x)} numbers from {low:.1f} to {high:.1f}: the share grows exponentially with "
        f"the number, up to {top:.4f}."
    )
    return draw(
        frame("softmax", facts, alt, axis("number", (low, high)), axis("its share", (0, 1.05 * top))),
        joined(x, shares, "number %{x:.1f}<br>share <b>%{y:.9g}</b>", width=3),
    )


def shares_by_temperature(lesson: _Spread) -> Spec:
    """The shares of a row as bars: one group per number, one colour per temperature."""
    alt = (
        f"Bar chart of the softmax of {len(lesson.row)} numbers at the temperatures {', '.join(map(_format_temperature, _TEMPERATURES))}: the largest "
        f"number, {max(lesson.row):g}, gets "
        + ", ".join(f"{max(lesson.shares[t]):.4f} at {_format_temperature(t)}" for t in _TEMPERATURES)
        + "."
    )
    names = {i: f"{number:g}" for i, number in enumerate(lesson.row)}
    groups = [
        bars(
            np.arange(len(names)), shares, f"x = %{{x}}<br>temperature {_format_temperature(temperature)}<br>share <b>%{{y:.9g}}</b>", color,
            name=_legend_entry(temperature), showlegend=True,
        )
        for color, (temperature, shares) in zip(_COLD_TO_HOT, lesson.shares.items(), strict=True)
    ]  # fmt: skip
    return draw(
        frame(
            "softmax(x / temperature)", "at five temperatures; the bars of one colour sum to 1", alt,
            axis("number of the row", (-0.6, len(names) - 0.4), names, grid=False), axis("its share", (0, 1.02)),
            bargap=0.25, bargroupgap=0.05, legend=_LEGEND, margin={"b": 92},
        ),
        *groups,
    )  # fmt: skip


def variance_by_temperature(lesson: _Spread) -> Spec:
    """The variance of the shares against temperature, with the five temperatures marked."""
    return _against_temperature(
        lesson, lesson.variance, "variance", f"of the shares: from 0 (all equal) to {1 / len(lesson.row):.3g}", 1 / len(lesson.row), "one number takes all"
    )  # fmt: skip


def entropy_by_temperature(lesson: _Spread) -> Spec:
    """The entropy of the shares against temperature, with the five temperatures marked."""
    limit = math.log(len(lesson.row))
    facts = f"of the shares, in nats: from 0 (one number takes all) to {limit:.3f}"
    return _against_temperature(lesson, lesson.entropy, "entropy", facts, limit, f"ln {len(lesson.row)}: all equal")


def _against_temperature(lesson: _Spread, numbers: Any, name: str, facts: str, limit: float, limit_label: str) -> Spec:
    marked = [int(np.flatnonzero(lesson.temperatures == t)[0]) for t in _TEMPERATURES]
    values = ", ".join(
        f"{numbers[i]:.4f} at {_format_temperature(t)}" for i, t in zip(marked, _TEMPERATURES, strict=True)
    )
    alt = f"Line chart of the {name} of the shares against temperature: {values}."
    hover = f"temperature %{{x:.4g}}<br>{name} <b>%{{y:.9g}}</b>"
    rising = numbers[-1] > numbers[0]
    side = {"x": 0.01, "xanchor": "left"} if rising else {"x": 0.99, "xanchor": "right"}  # away from the curve
    ticks = {t: _format_temperature(t) for t in (MIN_TEMPERATURE, *_TEMPERATURES)}
    ends = math.log10(MIN_TEMPERATURE), math.log10(MAX_TEMPERATURE)
    return draw(
        frame(name, facts, alt, axis("temperature", ends, ticks, type="log"), axis(name, (0, limit * 1.14))),
        rule((0, 1), (limit, limit), HIDDEN_COLOR, dash="dot", xref="x domain"),
        joined(lesson.temperatures, numbers, hover, width=3),
        points([*_TEMPERATURES], numbers[marked], hover, {"color": _COLD_TO_HOT, "size": 12, "line": {"color": POINT_COLOR, "width": 1}}),
        note(limit_label, xref="paper", y=limit, yanchor="bottom", **side),
    )  # fmt: skip


def _format_temperature(temperature: float) -> str:
    return "1/8" if temperature == 0.125 else f"{temperature:g}"


def _legend_entry(temperature: float) -> str:
    """A temperature with its factor: dividing by 1/8 is multiplying by 8."""
    if temperature == 1:
        return "1"
    return f"{_format_temperature(temperature)} (x · {1 / temperature:g})" if temperature < 1 else f"{_format_temperature(temperature)} (x / {temperature:g})"  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Scaling:
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


def measure(source: TypedText) -> _Scaling:
    """The same text with all five initializations and three divisors; √d_model is included because it is a common mistake.

    All other settings are those of the source. A long text is cut to `_MAX_TOKENS`.

    Raises:
        AttentionError: the source cannot make a trace.
    """
    weights, entropies, spreads = [], [], []
    short = replace(source, max_tokens=min(source.max_tokens, _MAX_TOKENS))
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
    arrays = np.array(weights), np.array(entropies), np.array(spreads)
    return _Scaling(trace.tokens, trace.key_tokens, INITS, *arrays, visible, trace.notes)


def _mean_entropy(weights: NDArray[Any]) -> float:
    nonzero = weights.sum(axis=-1) > 0
    return float(_entropy(weights[nonzero]).mean()) if nonzero.any() else 0.0


def scaling_maps(lesson: _Scaling) -> Spec:
    """The weights for five initializations (down) and three divisors (across), in one figure with one scale; each map shows its entropy."""
    n_inits, n_divisors, rows, columns = lesson.weights.shape
    gutters = max(1, round(rows * 0.22)), max(1, round(columns * 0.08))
    panels = tile_panels(n_inits * n_divisors, n_divisors, rows, columns, gutters)
    weights, visible = filled_canvas(panels, np.float32(np.nan)), filled_canvas(panels, np.bool_(True))
    for panel, matrix in zip(panels, lesson.weights.reshape(-1, rows, columns), strict=True):
        weights[panel.area], visible[panel.area] = matrix, lesson.visible
    alt = (
        "Heatmap of the weights of head 0 (query (attends from) by key (attends to)) for five random initializations and three divisors. "
        "Mean entropy of a row: "
        + "; ".join(
            f"{init}: " + ", ".join(f"{lesson.entropy[i, j]:.2f} divided by {d}" for j, d in enumerate(_DIVISORS))
            for i, init in enumerate(lesson.inits)
        )
        + "."
    )
    heat, _ = scales.color_keys(find_step(WEIGHTS), 0, 1, "fixed")
    heat["colorbar"] |= {"len": 0.4, "y": 0, "yanchor": "top", "ypad": 10}
    across, down = panels[:n_divisors], panels[::n_divisors]
    x = _axis(
        [(panel.x, columns, f"÷ {d}") for panel, d in zip(across, _DIVISORS, strict=True)], lesson.key_tokens, "key"
    )
    y = _axis([(panel.y, rows, init) for panel, init in zip(down, lesson.inits, strict=True)], lesson.tokens, "query")
    y["ticktext"] = [init.replace(" ", "<br>") for init in lesson.inits]
    x |= {"range": [-0.5, weights.shape[1] - 0.5], "side": "top", "ticklabelstandoff": 18}
    y |= {"range": [weights.shape[0] - 0.5, -0.5]}
    facts = f"H: mean entropy of a row, from 0 to ln {columns} = {math.log(columns):.2f}"
    return draw(
        frame(
            "weights of head 0", facts, alt, x, y, 140 + _HEIGHT * n_inits, margin={"l": 70, "r": 12, "t": 104, "b": 40}
        ),
        cells(weights, "%{y}<br>%{x}<br><b>%{z:.9g}</b>", heat),
        None if visible.all() else ground(~visible, "%{y}<br>%{x}<br><b>0</b>, hidden by the mask"),
        *(
            panel_label(f"H {entropy:.2f}", panel)
            for panel, entropy in zip(panels, lesson.entropy.flatten(), strict=True)
        ),
    )


def _axis(spans: Sequence[tuple[int, int, str]], tokens: tuple[str, ...], title: str) -> dict[str, Any]:
    """The axis of the panels: a tick in the middle of each, and the hover label of every position."""
    aliases = {
        str(start + index): f"{title} {index} {label(tokens[index], 40)} · {name}"
        for start, size, name in spans
        for index in range(size)
    }
    return {**PLAIN_AXIS, **panel_ticks(spans), "labelalias": aliases, "tickfont": {"size": 13}}
