"""Figures as one self-contained HTML file: it includes Plotly's script, and a content security policy blocks all other loading."""

from __future__ import annotations

import hashlib
import html as escaping
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from attention.paper.markup import plain, screen_width, specs_of
from attention.pictures.look import LIGHT
from attention.pictures.marks import Spec

if TYPE_CHECKING:
    from attention.paper.markup import Figures

_CONFIG = {
    "displaylogo": False, "responsive": True, "showSendToCloud": False, "scrollZoom": False,
    "typesetMath": False,  # "$" is an ordinary character
    "modeBarButtonsToRemove": ["select2d", "lasso2d"],
}  # fmt: skip
_OFFSET = 2e-4  # relative to the length of the axis

# Numbers appear only in cells large enough to read them, as in the app; on touch screens a drag scrolls instead of zooming.
_DRAW = """
const {figures, config} = JSON.parse(document.getElementById("content").textContent);
figures.forEach(({data, layout}, i) => {
  const element = document.querySelectorAll("[role=figure]")[i];
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
  // White or near-black, whichever has more contrast with the cell; Plotly uses another rule.
  function write() {
    const {colorscale, zmin, zmax} = data[0];
    const luminance = (color) => color.reduce((sum, part, i) => sum + [0.2126, 0.7152, 0.0722][i] * (part <= 10.3 ? part / 3294.6 : ((part / 255 + 0.055) / 1.055) ** 2.4), 0.05);
    const stops = colorscale.map(([at, color]) => [at, [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16))]);
    for (const text of element.querySelectorAll(".heatmap-label text")) {
      const at = Math.min(1, Math.max(0, (text.__data__.z - zmin) / (zmax - zmin))), above = Math.max(1, stops.findIndex(([stop]) => stop >= at));
      const [[low, from], [high, to]] = [stops[above - 1], stops[above]], share = (at - low) / (high - low);
      const ground = luminance(from.map((part, i) => part + share * (to[i] - part)));
      text.style.fill = 1.05 / ground >= ground / luminance([17, 17, 17]) ? "#ffffff" : "#111111";
    }
  }
  Plotly.newPlot(element, data, layout, config).then(() => {
    if (numbers) { element.on("plotly_afterplot", () => { fit(); write(); }); fit(); write(); }
  });
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
  body {{ margin: 12px; background: #fff; color: {ink}; font-family: system-ui, sans-serif; }}
  main {{ display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 280px), 1fr)); }}
  main > div {{ width: 100%; min-width: 0; }}
</style>
</head>
<body>
<main>{places}</main>
<noscript>This page draws its picture with JavaScript, which is disabled here. {alt}</noscript>
<script type="application/json" id="content">{content}</script>
<script>{plotly}</script>
<script>{draw}</script>
</body>
</html>
"""


def html(figures: Figures) -> str:
    """A figure, or several side by side, as one HTML file of about 5 MB with zoom and hover.

    The page makes no requests: its content security policy forbids them, and allows no scripts except the page's own two,
    so that markup in a token remains text.
    """
    from plotly.io.json import to_json_plotly
    from plotly.offline import get_plotlyjs

    specs, plotly = specs_of(figures), get_plotlyjs()
    titles = [_title(spec) for spec in specs]
    alts = [escaping.escape(spec["layout"]["meta"]["alt"]) for spec in specs]
    places = "".join(
        f'<div id="figure{f"-{i}" if i else ""}" role="figure" aria-label="{alt}" '
        f'style="max-width: {round(1.4 * screen_width(spec))}px; height: {spec["layout"]["height"]}px"></div>'
        for i, (spec, alt) in enumerate(zip(specs, alts, strict=True))
    )
    return _PAGE.format(
        ink=LIGHT["ink"],
        hashes=f"{_hash(plotly)} {_hash(_DRAW)}",
        title=escaping.escape(" · ".join(titles)),
        places=places,
        alt=" ".join(alts),
        content=to_json_plotly({"figures": list(map(_content, specs)), "config": _CONFIG}),  # < is \u003c in it
        plotly=plotly,
        draw=_DRAW,
    )


def _title(spec: Spec) -> str:
    title = spec["layout"]["title"]
    return " · ".join(filter(None, [plain(title["text"]), plain(title["subtitle"]["text"])]))


def _content(spec: Spec) -> Spec:
    look = {"hoverlabel": {"align": "left"}, "paper_bgcolor": LIGHT["ground"]}
    look["font"] = {**spec["layout"]["font"], "family": "system-ui, sans-serif", "color": LIGHT["ink"]}
    axes = {name: _shift_ticks(spec["layout"][name]) for name in ("xaxis", "yaxis")}
    return {"data": spec["data"], "layout": spec["layout"] | look | axes}


def _shift_ticks(axis: dict[str, Any]) -> dict[str, Any]:
    """An axis with slightly shifted ticks, so that the hover shows the full token instead of the tick's text."""
    values, ends = axis.get("tickvals"), axis.get("range")
    if not axis.get("labelalias") or values is None or ends is None:
        return axis
    return {**axis, "tickvals": [value + _OFFSET * abs(ends[1] - ends[0]) for value in values]}


def _hash(script: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
