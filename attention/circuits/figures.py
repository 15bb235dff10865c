"""Figures of circuits: what a head copies and matches, paths into a target, the relevance of tokens and heads, the terms of a score, and which heads matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attention.base.errors import ConfigError
from attention.base.printed import format_number
from attention.base.tokens import isolated, label
from attention.circuits.copying import count_positive
from attention.pictures import scales
from attention.pictures.charts import (
    DOTTED,
    POINT,
    POINT_COLOR,
    RING,
    empty_chart,
    head_map_json,
    set_axes,
    signed_heatmap,
)
from attention.pictures.layout import CHOSEN_COLOR, Panel, Spec, outline
from attention.pictures.look import LIGHT, TYPE, shade

if TYPE_CHECKING:
    from torch import Tensor

    from attention.circuits.copying import CopiedTokens, OVSpectrum, QKSpectrum
    from attention.circuits.direct_effects import ScoreTerms
    from attention.circuits.path_patching import PathPatching
    from attention.circuits.sweep import HeadSweep


_LOWERED_COLOR = LIGHT["chance"]
_BAR_HEIGHT = 21  # pixels
_SQUARE = 340  # pixels of a chart whose axes have one scale
_LINE = {"color": LIGHT["edge"], "width": 1, "dash": "dot"}
_ROW_HEIGHT = 13  # pixels of a row
_MAX_LABELS = 24  # labels along an axis; of more, some are left out


def token_bars_json(copied: CopiedTokens, raised: bool) -> Spec:
    """Returns a bar for each token that a head raises most, or lowers most, when it reads a token."""
    word, items = ("Raised", copied.raised) if raised else ("Lowered", copied.lowered)
    tokens, effects = [label(item.token, 16) for item in items], [item.effect for item in items]
    head, read = f"L{copied.layer} H{copied.head}", label(copied.own.token, 20)
    listed = ", ".join(f"{token} {format_number(effect)}" for token, effect in zip(tokens[:3], effects, strict=False))
    figure = empty_chart(
        f"{word} most by “{read}”",
        f"added to the logit by {head} at weight 1",
        f"Bar chart of the {len(tokens)} tokens that {head} has {word.lower()} most after reading “{read}”: {listed} and so on.",
        height=120 + _BAR_HEIGHT * len(tokens),
    )
    rows = np.arange(len(tokens))
    figure["data"] = [{
        "type": "bar", "orientation": "h", "x": np.array(effects), "y": rows, "text": [format_number(effect) for effect in effects],
        "textposition": "auto", "marker": {"color": POINT_COLOR if raised else _LOWERED_COLOR}, "customdata": tokens,
        "hovertemplate": "%{customdata}<br>added to its logit <b>%{x:.4g}</b><extra></extra>", "showlegend": False, "cliponaxis": False,
    }]  # fmt: skip
    figure["layout"] |= {"bargap": 0.25, "uirevision": f"copied {word}"}
    figure["layout"]["meta"]["file"] = ["copied-tokens", word.lower()]
    figure["layout"]["margin"]["l"] = 118
    low, high = min(0.0, *effects), max(0.0, *effects)
    space = 0.06 * ((high - low) or 1.0)
    set_axes(
        figure, "added to the logit", "",
        {"range": [low - space, high + space], "zeroline": True, "zerolinecolor": LIGHT["edge"]},
        {"tickvals": rows, "ticktext": tokens, "range": [len(tokens) - 0.4, -0.6], "showgrid": False},
    )  # fmt: skip
    return figure


def eigenvalues_json(spectrum: OVSpectrum) -> Spec:
    """Returns the eigenvalues of a head's OV circuit as points of the complex plane, on the right if the head copies."""
    found, of = spectrum.token_eigenvalues, "W_E W_V W_O W_U"
    if found is None:
        found, of = spectrum.eigenvalues, "W_V W_O"
    head, score, eigenvalues = f"L{spectrum.layer} H{spectrum.head}", spectrum.copying_score, found.numpy()
    limit = float(np.abs(eigenvalues).max(initial=0.0)) * 1.08 or 1.0
    facts = f"{of}; {count_positive(found)} of {len(eigenvalues)} to the right of 0" + (
        "" if score is None else f"; Σλ/Σ|λ| = {format_number(score)}"
    )
    figure = empty_chart(
        "Eigenvalues", facts,
        f"Scatter chart of the {len(eigenvalues)} eigenvalues of {of} of {head} in the complex plane: {facts}.", height=_SQUARE,
    )  # fmt: skip
    figure["data"] = [{
        "type": "scatter", "mode": "markers", "x": eigenvalues.real, "y": eigenvalues.imag, "showlegend": False, "cliponaxis": False,
        "marker": {"size": 7, "color": POINT_COLOR, "line": {"width": 0.5, "color": "rgba(128,128,140,0.8)"}},
        "hovertemplate": "real <b>%{x:.4g}</b><br>imaginary <b>%{y:.4g}</b><extra></extra>",
    }]  # fmt: skip
    figure["layout"]["shapes"] = [
        {"type": "line", "x0": 0, "x1": 0, "y0": -limit, "y1": limit, "line": _LINE},
        {"type": "line", "x0": -limit, "x1": limit, "y0": 0, "y1": 0, "line": _LINE},
    ]
    figure["layout"] |= {"hovermode": "closest", "uirevision": "OV eigenvalues"}
    figure["layout"]["meta"]["file"] = ["ov-eigenvalues"]
    set_axes(figure, "real part", "imaginary part", {"range": [-limit, limit]}, {"range": [-limit, limit]})
    return figure


def qk_by_offset_json(spectra: Sequence[QKSpectrum]) -> list[Spec]:
    """Returns the QK spectrum of a head by relative position: the matching score as a line, and the singular values as a map [offset d_k]."""
    head = f"L{spectra[0].layer} H{spectra[0].head}"
    offsets, scores = [each.offset for each in spectra], [each.matching_score for each in spectra]
    singular_values = np.array([each.singular_values.tolist() for each in spectra])
    places, names = np.arange(len(offsets)), [str(offset) for offset in offsets]
    best = int(np.argmax(scores))
    line = empty_chart(
        "Does it match tokens like itself?",
        "Σλ/Σ|λ| of W_Q R W_Kᵀ by the offset of the key",
        f"Line chart of Σλ/Σ|λ| of the QK eigenvalues of {head} by offset: from {format_number(min(scores))} to {format_number(max(scores))}, largest "
        f"at offset {offsets[best]}.",
        height=_SQUARE,
    )
    line["data"] = [{
        "type": "scatter", "mode": "lines+markers", "x": places, "y": np.array(scores), "customdata": names, "showlegend": False,
        "line": {"color": POINT_COLOR, "width": 2}, "marker": {"size": 7, "color": POINT_COLOR},
        "hovertemplate": "offset %{customdata}<br>score <b>%{y:.4g}</b><extra></extra>",
    }]  # fmt: skip
    ticks: dict[str, Any] = {"tickvals": places, "ticktext": names, "showgrid": False}
    line["layout"] |= {"hovermode": "closest", "uirevision": "QK by offset"}
    line["layout"]["meta"]["file"] = ["qk-matching-by-offset"]
    set_axes(
        line, "offset, query − key", "Σλ/Σ|λ|", {**ticks, "range": [-0.4, len(offsets) - 0.6]}, {"range": [-1.05, 1.05]}
    )
    largest = float(singular_values.max(initial=0.0)) or 1.0
    heat = empty_chart(
        "How strongly can it match?",
        "singular values of W_Q R W_Kᵀ, largest first, by the offset of the key",
        f"Heatmap of the {singular_values.shape[1]} singular values of the QK circuit of {head} at {len(offsets)} offsets; the largest is {format_number(largest)}.",
        height=_SQUARE,
    )
    heat["data"] = [{
        "type": "heatmap", "z": singular_values, "zmin": 0.0, "zmax": largest, "colorscale": scales.PROBABILITY, "xgap": 0, "ygap": 1,
        "colorbar": {"thickness": 8, "outlinewidth": 0, "tickfont": {"size": TYPE["axis"]}}, "customdata": [[name] * singular_values.shape[1] for name in names],
        "hovertemplate": "offset %{customdata}<br>σ %{x} <b>%{z:.4g}</b><extra></extra>",
    }]  # fmt: skip
    heat["layout"]["uirevision"] = "QK singular values"
    heat["layout"]["meta"]["file"] = ["qk-singular-values-by-offset"]
    set_axes(
        heat, "number of the singular value", "offset, query − key", {"showgrid": False}, {**ticks, "range": [len(offsets) - 0.5, -0.5]}
    )  # fmt: skip
    return [line, heat]


def path_map_json(result: PathPatching, chosen: tuple[int, int] | None) -> Spec:
    """Returns a map of the changes along all paths, in a symmetric range.

    For one target it is a map [layer head], whose last column is the MLP of the layer; for several, a map [source target]. `chosen`
    is the outlined head.
    """
    return _one_target(result, chosen) if len(result.targets) == 1 else _all_targets(result)


def ends_at(result: PathPatching, x: int, y: int) -> tuple[int, int] | None:
    """The head (layer, head) that a click on a cell of the map opens: its source; None if that is no head."""
    if len(result.targets) == 1:
        return (y, x) if y < len(result.n_heads) and x < result.n_heads[y] else None
    source = result.sources[y] if y < len(result.sources) else None
    return None if source is None or source.layer is None or not source.heads else (source.layer, source.heads[0])


def _one_target(result: PathPatching, chosen: tuple[int, int] | None) -> Spec:
    numbers = result.layer_map()
    rows, columns = numbers.shape
    heads = [str(head) for head in range(columns - 1)]
    hover = np.array([[f"L{y} {'MLP' if x == columns - 1 else f'H{x}'}" for x in range(columns)] for y in range(rows)])
    figure = _path_map(result, numbers, hover, f"into {_receiver_words(result)}", "layer and head")
    step = max(1, columns // 16)
    set_axes(
        figure, "head, and the MLP of the layer", "layer",
        {"range": [-0.5, columns - 0.5], "tickvals": [*range(0, columns - 1, step), columns - 1], "ticktext": [*heads[::step], "MLP"], "showgrid": False},
        {"range": [rows - 0.5, -0.5], "dtick": 1 if rows <= 16 else 5, "showgrid": False},
    )  # fmt: skip
    if chosen is not None:
        line = {"width": 3, "color": CHOSEN_COLOR}
        figure["layout"]["shapes"] = [{**outline(chosen[1], chosen[0], 1, 1, 3), "line": line}]
    return figure


def _all_targets(result: PathPatching) -> Spec:
    sources, targets = ([end.name for end in ends] for ends in (result.sources, result.targets))
    hover = np.array([[f"{source} → {target}" for target in targets] for source in sources])
    figure = _path_map(result, result.values, hover, f"into the {result.receiver} of heads", "source and target")
    set_axes(
        figure, f"target: the {result.receiver} of a head", "source",
        {"range": [-0.5, len(targets) - 0.5], **_path_labels(targets), "showgrid": False},
        {"range": [len(sources) - 0.5, -0.5], **_path_labels(sources), "showgrid": False},
    )  # fmt: skip
    figure["layout"]["margin"] |= {"l": 96, "b": 84}
    return figure


def _path_map(result: PathPatching, numbers: NDArray[np.float64], hover: NDArray[Any], title: str, axes: str) -> Spec:
    """A map of numbers [row column] with the names of its cells, without its axes."""
    rows, columns = numbers.shape
    limit = result.limit or 1.0
    ends = f"−{format_number(limit)}", format_number(limit)
    largest = "".join(f"; largest: {result.describe(*pair)}" for pair in result.largest(1)).rstrip(".")
    description = f"change of the {result.quantity}"
    alt = f"Heatmap of the {description} along each path {title}, by {axes}, from {ends[0]} to {ends[1]}{largest}."
    height = _within(150 + _ROW_HEIGHT * rows, 300, 640)
    figure = empty_chart(f"Paths {title}", description, alt, height=height)
    hover_keys = {"hoverongaps": False, "hovertemplate": "%{text}<br>change <b>%{z:.4g}</b><extra></extra>"}
    figure["data"] = [signed_heatmap(numbers, limit, text=hover.tolist(), **hover_keys)]
    panel = asdict(Panel(0, 0, 0, rows, columns))
    figure["layout"]["meta"] |= {"step": "paths", "panels": [panel], "axes": ["row", "column"], "file": ["paths", result.receiver]}  # fmt: skip
    figure["layout"]["uirevision"] = f"paths {result.receiver} {len(result.targets)}"
    return figure


def _receiver_words(result: PathPatching) -> str:
    name = result.targets[0].name
    return f"the {name}" if result.receiver == "logits" else f"the {result.receiver} of {name}"


def _path_labels(names: list[str]) -> dict[str, Any]:
    """The labels of an axis; of many names, some are left out."""
    step = -(-len(names) // _MAX_LABELS)
    return {"tickvals": [*range(0, len(names), step)], "ticktext": names[::step]}


def token_row_html(tokens: Sequence[str], values: Sequence[float], position: int | None = None) -> str:
    """Returns the tokens as HTML, each on a shade of the signed scale and with its number in a tooltip.

    The range is symmetric, up to the largest absolute value. The token at `position` is outlined: there the model predicts.
    """
    limit = max((abs(value) for value in values), default=0.0) or 1.0
    pieces = []
    for i, (token, value) in enumerate(zip(tokens, values, strict=True)):
        outlined = " class='at'" if i == position else ""
        title = escape(f"{isolated(label(token, escape=False))} ({i}): {format_number(value)}")
        pieces.append(f"<span{outlined} style='{_shade(value / limit)}' title='{title}'>{label(token)}</span>")
    lowest = [f"<i style='{_shade(-1)}'></i> −{format_number(limit)} lowers the logit &nbsp; "] * (
        min(values, default=0) < 0
    )
    scale = f"{''.join(lowest)}<i style='{_shade(0)}'></i> 0 &nbsp; <i style='{_shade(1)}'></i> {format_number(limit)} raises it"
    return f"<p class='shaded-tokens'>{' '.join(pieces)}</p><p class='shades'>{scale}</p>"


def head_relevance_json(heads: Sequence[Tensor], target: str, chosen: tuple[int, int]) -> Spec:
    """Returns a map [layer head] of the relevance of each head's output, with the chosen head outlined.

    `heads` has the relevance [head] of each layer.
    """
    numbers = np.full((len(heads), max(map(len, heads))), np.nan)
    for layer, row in enumerate(heads):
        numbers[layer, : len(row)] = row.numpy()
    description = f"relevance of each head's output for the logit of {label(target, escape=False)}"
    figure = head_map_json(numbers, "Heads", "relevance", description, chosen, name="relevance-of-heads")
    meta = figure["layout"]["meta"]
    meta["alt"] = meta["alt"].replace("Heatmap of ", "Heatmap of the ", 1)
    meta |= {"step": "relevance", "file": ["relevance-of-heads"]}
    figure["layout"]["height"] = _within(130 + _ROW_HEIGHT * len(heads), 260, 520)
    return figure


def _within(pixels: int, lowest: int, highest: int) -> int:
    return min(highest, max(lowest, pixels))


def _shade(share: float) -> str:
    """The CSS of a number from −1 to 1."""
    return shade(min(1.0, abs(share)), "most-negative" if share < 0 else "most-positive")


_STEP = "score-terms"
"""The name of the map, for clicks."""


def score_terms_map_json(terms: ScoreTerms, title: str) -> Spec:
    """Returns the map [query_part key_part] of the terms of a score, in a symmetric range."""
    values = terms.values.numpy()
    rows, columns = values.shape
    limit = float(abs(values).max(initial=0.0)) or 1.0
    query, key, largest = terms.largest(1)[0]
    description = f"the score {format_number(terms.score)} as a sum of {rows} × {columns} terms"
    alt = (
        f"Heatmap of {description}: the part that wrote the query by the part that wrote the key, from −{format_number(limit)} to "
        f"{format_number(limit)}; largest: {query.name} by {key.name} with {format_number(largest)}."
    )
    height = _within(150 + (_ROW_HEIGHT + 1) * rows, 340, 760)
    figure = empty_chart(title, description, alt, height=height)
    hover = "query: %{y}<br>key: %{x}<br>term <b>%{z:.4g}</b><extra></extra>"
    figure["data"] = [signed_heatmap(values, limit, hovertemplate=hover)]
    figure["layout"]["meta"] |= {
        "step": _STEP, "panels": [asdict(Panel(0, 0, 0, rows, columns))], "axes": ["query part", "key part"], "file": [_STEP, "score"]
    }  # fmt: skip
    figure["layout"]["uirevision"] = f"{_STEP} {rows} {columns}"
    figure["layout"]["margin"] = {"l": 86, "r": 16, "t": 70, "b": 92}
    set_axes(
        figure, f"who wrote the key {label(terms.key_token, 20)}", f"who wrote the query {label(terms.query_token, 20)}",
        {"range": [-0.5, columns - 0.5], "showgrid": False, "tickangle": -90, **_part_ticks(terms.key_parts)},
        {"range": [rows - 0.5, -0.5], "showgrid": False, **_part_ticks(terms.query_parts)},
    )  # fmt: skip
    return figure


def _part_ticks(names: Sequence[str]) -> dict[str, Any]:
    """A tick for every name: Plotly takes the names under the pointer from them, too."""
    return {
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "tickfont": {"size": TYPE["axis"]},
    }


def head_effect_map_json(sweep: HeadSweep, chosen: tuple[int, int], number: str = "change") -> Spec:
    """Returns a map [layer head] of one number of a sweep, in a symmetric range.

    Args:
        chosen: the outlined head, as (layer, head).
        number: "change", "estimate" (of the change, by attribution patching), or "direct" (effect on the logit).
    """
    numbers = {"change": sweep.change, "estimate": sweep.estimate, "direct": sweep.direct}[number]
    title, quantity, description = {
        "change": (sweep.title, "change", f"change of the {sweep.quantity}"),
        "estimate": ("Estimated by attribution patching", "estimate", f"estimated change of the {sweep.quantity}"),
        "direct": ("Direct effect", "direct effect", "what each head adds directly to the logit"),
    }[number]
    return head_map_json(numbers, title, quantity, description, chosen)


def head_effect_scatter_json(before: HeadSweep, after: HeadSweep, chosen: tuple[int, int]) -> Spec:
    """Returns a scatter chart of the heads: the change when each is ablated (x), and the same in the model with `after.changes` (y); unaffected heads lie on the diagonal.

    Raises:
        ConfigError: the two sweeps belong to models with different heads.
    """
    if before.n_heads != after.n_heads:
        raise ConfigError(
            "Both sweeps must cover the same heads; got sweeps of two different models: choose one model."
        )
    names = [f"L{layer} H{head}" for layer, head in before.heads]
    x, y = (np.array([sweep.change[head] for head in before.heads]) for sweep in (before, after))
    limit = 1.06 * (max(before.limit, after.limit) or 1.0)
    farthest = int(np.abs(y - x).argmax())
    subtitle = f"change of the {before.quantity}; heads on the line are unaffected"
    alt = f"Scatter chart of the heads: the change when each is ablated, in the original model and with {after.interventions_words}. Farthest from the line: {names[farthest]}, {format_number(float(x[farthest]))} and {format_number(float(y[farthest]))}."
    figure = empty_chart("Which heads step in", subtitle, alt, height=380)
    line = {"type": "scatter", "mode": "lines", "x": [-limit, limit], "y": [-limit, limit], "line": DOTTED, "hoverinfo": "skip", "showlegend": False}  # fmt: skip
    points: dict[str, Any] = {
        "type": "scatter", "mode": "markers", "x": x, "y": y, "text": names, "showlegend": False, "cliponaxis": False,
        "marker": POINT,
        "hovertemplate": "%{text}<br>original <b>%{x:.4g}</b><br>changed <b>%{y:.4g}</b><extra></extra>",
    }  # fmt: skip
    figure["data"], figure["layout"]["hovermode"] = [line, points], "closest"
    if chosen in before.heads:
        i = [before.heads.index(chosen)]
        figure["data"].append({**points, "x": x[i], "y": y[i], "marker": RING, "hoverinfo": "skip"})
    set_axes(figure, "change in the original model", f"change with {after.interventions_words}", {"range": [-limit, limit]}, {"range": [-limit, limit]})  # fmt: skip
    return figure
