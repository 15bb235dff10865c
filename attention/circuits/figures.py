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
from attention.pictures.charts import HeadQuantity, head_map_json
from attention.pictures.look import LIGHT, shade
from attention.pictures.marks import (
    POINT,
    POINT_COLOR,
    Panel,
    Spec,
    axis,
    bars,
    cells,
    dotted,
    draw,
    frame,
    joined,
    outline,
    points,
    ring,
    rule,
)

if TYPE_CHECKING:
    from torch import Tensor

    from attention.circuits.copying import CopiedTokens, OVSpectrum, QKSpectrum
    from attention.circuits.direct_effects import ScoreTerms
    from attention.circuits.path_patching import PathPatching
    from attention.circuits.sweep import HeadSweep


_LOWERED_COLOR = LIGHT["chance"]
_BAR_HEIGHT = 21  # pixels
_SQUARE = 340  # pixels of a chart whose axes have one scale
_ROW_HEIGHT = 13  # pixels of a row
_MAX_LABELS = 24  # labels along an axis; of more, some are left out


def token_bars_json(copied: CopiedTokens, raised: bool) -> Spec:
    """Returns a bar for each token that a head raises most, or lowers most, when it reads a token."""
    word, items = ("Raised", copied.raised) if raised else ("Lowered", copied.lowered)
    tokens, effects = [label(item.token, 16) for item in items], [item.effect for item in items]
    head, read = f"L{copied.layer} H{copied.head}", label(copied.own.token, 20)
    listed = ", ".join(f"{token} {format_number(effect)}" for token, effect in zip(tokens[:3], effects, strict=False))
    alt = f"Bar chart of the {len(tokens)} tokens that {head} has {word.lower()} most after reading “{read}”: {listed} and so on."
    low, high = min(0.0, *effects), max(0.0, *effects)
    space = 0.06 * ((high - low) or 1.0)
    rows = np.arange(len(tokens))
    return draw(
        frame(
            f"{word} most by “{read}”", f"added to the logit by {head} at weight 1", alt,
            axis("added to the logit", (low - space, high + space), zeroline=True, zerolinecolor=LIGHT["edge"]),
            axis("", (len(tokens) - 0.4, -0.6), dict(enumerate(tokens)), grid=False),
            120 + _BAR_HEIGHT * len(tokens), bargap=0.25, uirevision=f"copied {word}", margin={"l": 118}, meta={"file": ["copied-tokens", word.lower()]},
        ),
        bars(
            np.array(effects), rows, "%{customdata}<br>added to its logit <b>%{x:.4g}</b>", POINT_COLOR if raised else _LOWERED_COLOR, orientation="h",
            text=[format_number(effect) for effect in effects], textposition="auto", customdata=tokens, cliponaxis=False,
        ),
    )  # fmt: skip


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
    alt = f"Scatter chart of the {len(eigenvalues)} eigenvalues of {of} of {head} in the complex plane: {facts}."
    ends, edge = (-limit, limit), LIGHT["edge"]
    return draw(
        frame("Eigenvalues", facts, alt, axis("real part", ends), axis("imaginary part", ends), _SQUARE, uirevision="OV eigenvalues", meta={"file": ["ov-eigenvalues"]}),
        rule((0, 0), ends, edge, dash="dot"),
        rule(ends, (0, 0), edge, dash="dot"),
        points(eigenvalues.real, eigenvalues.imag, "real <b>%{x:.4g}</b><br>imaginary <b>%{y:.4g}</b>", {**POINT, "size": 7}),
    )  # fmt: skip


def qk_by_offset_json(spectra: Sequence[QKSpectrum]) -> list[Spec]:
    """Returns the QK spectrum of a head by relative position: the matching score as a line, and the singular values as a map [offset d_k]."""
    head = f"L{spectra[0].layer} H{spectra[0].head}"
    offsets, scores = [each.offset for each in spectra], [each.matching_score for each in spectra]
    singular_values = np.array([each.singular_values.tolist() for each in spectra])
    names, best = [str(offset) for offset in offsets], int(np.argmax(scores))
    places, words = dict(enumerate(names)), "offset, query − key"
    alt = (
        f"Line chart of Σλ/Σ|λ| of the QK eigenvalues of {head} by offset: from {format_number(min(scores))} to {format_number(max(scores))}, "
        f"largest at offset {offsets[best]}."
    )
    x, y = axis(words, (-0.4, len(offsets) - 0.6), places, grid=False), axis("Σλ/Σ|λ|", (-1.05, 1.05))
    matching = draw(
        frame(
            "Does it match tokens like itself?", "Σλ/Σ|λ| of W_Q R W_Kᵀ by the offset of the key", alt, x, y, _SQUARE,
            uirevision="QK by offset", meta={"file": ["qk-matching-by-offset"]},
        ),
        joined(
            [*places], np.array(scores), "offset %{customdata}<br>score <b>%{y:.4g}</b>",
            mode="lines+markers", marker={"size": 7, "color": POINT_COLOR}, customdata=names,
        ),
    )  # fmt: skip
    largest = float(singular_values.max(initial=0.0)) or 1.0
    n_values = singular_values.shape[1]
    alt = f"Heatmap of the {n_values} singular values of the QK circuit of {head} at {len(offsets)} offsets; the largest is {format_number(largest)}."
    x, y = (
        axis("number of the singular value", (-0.5, n_values - 0.5), grid=False),
        axis(words, (len(offsets) - 0.5, -0.5), places, grid=False),
    )
    strength = draw(
        frame(
            "How strongly can it match?", "singular values of W_Q R W_Kᵀ, largest first, by the offset of the key", alt, x, y, _SQUARE,
            uirevision="QK singular values", meta={"file": ["qk-singular-values-by-offset"]},
        ),
        cells(
            singular_values, "offset %{customdata}<br>σ %{x} <b>%{z:.4g}</b>", scales.between(0.0, largest, scales.PROBABILITY, scales.color_bar()),
            ygap=1, customdata=[[name] * n_values for name in names],
        ),
    )  # fmt: skip
    return [matching, strength]


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
    step = max(1, columns // 16)
    ticks = {head: heads[head] for head in range(0, columns - 1, step)} | {columns - 1: "MLP"}
    return _path_map(
        result, numbers, hover, (f"into {_receiver_words(result)}", "layer and head"),
        frame_keys={
            "x": axis("head, and the MLP of the layer", (-0.5, columns - 0.5), ticks, grid=False),
            "y": axis("layer", (rows - 0.5, -0.5), grid=False, dtick=1 if rows <= 16 else 5),
        },
        chosen=chosen,
    )  # fmt: skip


def _all_targets(result: PathPatching) -> Spec:
    sources, targets = ([end.name for end in ends] for ends in (result.sources, result.targets))
    hover = np.array([[f"{source} → {target}" for target in targets] for source in sources])
    return _path_map(
        result, result.values, hover, (f"into the {result.receiver} of heads", "source and target"),
        frame_keys={
            "x": axis(f"target: the {result.receiver} of a head", (-0.5, len(targets) - 0.5), _path_labels(targets), grid=False),
            "y": axis("source", (len(sources) - 0.5, -0.5), _path_labels(sources), grid=False),
            "margin": {"l": 96, "b": 84},
        },
    )  # fmt: skip


def _path_map(
    result: PathPatching,
    numbers: NDArray[np.float64],
    hover: NDArray[Any],
    words: tuple[str, str],
    frame_keys: dict[str, Any],
    chosen: tuple[int, int] | None = None,
) -> Spec:
    """A map of numbers [row column] with the names of its cells; `words` are where the paths lead, and what its axes are."""
    title, axes = words
    rows, columns = numbers.shape
    limit = result.limit or 1.0
    ends = f"−{format_number(limit)}", format_number(limit)
    largest = "".join(f"; largest: {result.describe(*pair)}" for pair in result.largest(1)).rstrip(".")
    description = f"change of the {result.quantity}"
    alt = f"Heatmap of the {description} along each path {title}, by {axes}, from {ends[0]} to {ends[1]}{largest}."
    height = _within(150 + _ROW_HEIGHT * rows, 300, 640)
    meta = {
        "step": "paths",
        "panels": [asdict(Panel(0, 0, 0, rows, columns))],
        "axes": ["row", "column"],
        "file": ["paths", result.receiver],
    }
    return draw(
        frame(f"Paths {title}", description, alt, height=height, meta=meta, uirevision=f"paths {result.receiver} {len(result.targets)}", **frame_keys),
        cells(numbers, "%{text}<br>change <b>%{z:.4g}</b>", scales.up_to(limit), 1, text=hover.tolist()),
        outline(chosen[1], chosen[0], 1, 1, 3) if chosen else None,
    )  # fmt: skip


def _receiver_words(result: PathPatching) -> str:
    name = result.targets[0].name
    return f"the {name}" if result.receiver == "logits" else f"the {result.receiver} of {name}"


def _path_labels(names: list[str]) -> dict[float, str]:
    """The labels of an axis; of many names, some are left out."""
    return {i: names[i] for i in range(0, len(names), -(-len(names) // _MAX_LABELS))}


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
    figure = head_map_json(numbers, HeadQuantity("Heads", "relevance", description, "relevance-of-heads"), chosen)
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
    meta = {
        "step": _STEP,
        "panels": [asdict(Panel(0, 0, 0, rows, columns))],
        "axes": ["query part", "key part"],
        "file": [_STEP, "score"],
    }
    # A tick for every name: Plotly takes the names under the pointer from them, too.
    keys, queries = (dict(enumerate(names)) for names in (terms.key_parts, terms.query_parts))
    return draw(
        frame(
            title, description, alt,
            axis(f"who wrote the key {label(terms.key_token, 20)}", (-0.5, columns - 0.5), keys, grid=False, tickangle=-90),
            axis(f"who wrote the query {label(terms.query_token, 20)}", (rows - 0.5, -0.5), queries, grid=False),
            height, meta=meta, uirevision=f"{_STEP} {rows} {columns}", margin={"l": 86, "b": 92},
        ),
        cells(values, "query: %{y}<br>key: %{x}<br>term <b>%{z:.4g}</b>", scales.up_to(limit), 1),
    )  # fmt: skip


def head_effect_map_json(sweep: HeadSweep, chosen: tuple[int, int], number: str = "change") -> Spec:
    """Returns a map [layer head] of one number of a sweep, in a symmetric range.

    Args:
        chosen: the outlined head, as (layer, head).
        number: "change", "estimate" (of the change, by attribution patching), or "direct" (effect on the logit).
    """
    numbers = {"change": sweep.change, "estimate": sweep.estimate, "direct": sweep.direct}[number]
    quantity = {
        "change": HeadQuantity(sweep.title, "change", f"change of the {sweep.quantity}"),
        "estimate": HeadQuantity("Estimated by attribution patching", "estimate", f"estimated change of the {sweep.quantity}"),
        "direct": HeadQuantity("Direct effect", "direct effect", "what each head adds directly to the logit"),
    }[number]  # fmt: skip
    return head_map_json(numbers, quantity, chosen)


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
    ends = (-limit, limit)
    at = [i for i, head in enumerate(before.heads) if head == chosen]
    return draw(
        frame(
            "Which heads step in", subtitle, alt,
            axis("change in the original model", ends), axis(f"change with {after.interventions_words}", ends), 380,
        ),
        dotted(ends, ends),
        points(x, y, "%{text}<br>original <b>%{x:.4g}</b><br>changed <b>%{y:.4g}</b>", text=names),
        ring(x[at], y[at]) if at else None,
    )  # fmt: skip
