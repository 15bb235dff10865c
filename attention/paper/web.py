"""A figure as one HTML file that needs no network: Plotly's script is in it, and the browser is told to load nothing else."""

from __future__ import annotations

import hashlib
import html as escaping
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from attention.paper import screen
from attention.paper.markup import plain

if TYPE_CHECKING:
    import plotly.graph_objects as go

_CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "showSendToCloud": False,
    "scrollZoom": False,
    "typesetMath": False,  # a $ is a $
    "modeBarButtonsToRemove": ["select2d", "lasso2d"],
}
_BESIDE = 2e-4  # of the axis

# Numbers in the cells only where a cell is large enough to read them, as in the app; a finger scrolls, it does not zoom.
_DRAW = """
const {data, layout, config} = JSON.parse(document.getElementById("content").textContent);
const element = document.getElementById("figure");
const numbers = data[0].texttemplate;
if (matchMedia("(pointer: coarse)").matches) {
  layout.dragmode = false;
  for (const axis of [layout.xaxis, layout.yaxis]) axis.fixedrange = true;
}
function fit() {
  const {xaxis, yaxis} = element._fullLayout;
  const pixels = (axis) => axis._length / Math.abs(axis.range[1] - axis.range[0]);
  const wanted = pixels(xaxis) >= 23 && pixels(yaxis) >= 13 ? numbers : "";
  if ((element.data[0].texttemplate ?? "") !== wanted) Plotly.restyle(element, {texttemplate: wanted}, [0]);
}
Plotly.newPlot(element, data, layout, config).then(() => {
  if (numbers) { element.on("plotly_afterplot", fit); fit(); }
});
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
  :root {{ color-scheme: light; }}
  body {{ margin: 12px; background: #fff; color: #222; font-family: system-ui, sans-serif; }}
  #figure {{ width: 100%; max-width: {width}px; height: {height}px; }}
</style>
</head>
<body>
<main><div id="figure" role="figure" aria-label="{alt}"></div></main>
<noscript>This page draws its picture with JavaScript, which is switched off here. {alt}</noscript>
<script type="application/json" id="content">{content}</script>
<script>{plotly}</script>
<script>{draw}</script>
</body>
</html>
"""


def html(figure: go.Figure) -> str:
    """The figure as a whole web page to zoom and hover in, in one file of about 5 MB.

    It loads nothing and calls nobody: a content security policy inside forbids it and lets no script run but the two of
    the page, so that markup in a token stays text.
    """
    from plotly.io.json import to_json_plotly
    from plotly.offline import get_plotlyjs

    drawn = figure.to_plotly_json()
    layout = drawn["layout"]
    layout["font"] = {**layout.get("font", {}), "family": "system-ui, sans-serif", "color": "#222222"}
    layout["hoverlabel"] = {"align": "left"}
    layout["paper_bgcolor"] = "#ffffff"
    for name in ("xaxis", "yaxis"):
        layout[name] = _aside(layout.get(name, {}))
    plotly = get_plotlyjs()
    title = plain(figure.layout.title.text)
    facts = plain(figure.layout.title.subtitle.text)
    return _PAGE.format(
        hashes=f"{_hash(plotly)} {_hash(_DRAW)}",
        title=escaping.escape(" · ".join(filter(None, [title, facts]))),
        width=round(1.4 * screen.width(figure)),
        height=figure.layout.height or 450,
        alt=escaping.escape((figure.layout.meta or {}).get("alt", title)),
        content=to_json_plotly({"data": drawn["data"], "layout": layout, "config": _CONFIG}),  # < is \u003c in it
        plotly=plotly,
        draw=_DRAW,
    )


def _aside(axis: dict[str, Any]) -> dict[str, Any]:
    """An axis with its ticks a hair beside their places, so that the hover finds the whole token and not the tick's text."""
    places, ends = axis.get("tickvals"), axis.get("range")
    if not axis.get("labelalias") or places is None or ends is None:
        return axis
    return {**axis, "tickvals": [place + _BESIDE * abs(ends[1] - ends[0]) for place in places]}


def _hash(script: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
