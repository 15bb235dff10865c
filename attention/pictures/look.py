"""How everything looks: sizes of type and colours, in one place for the pages' styles, the scripts that draw, and figures in Python.

A script reads them as the CSS variables ``--lab-…`` of `variables`; a colour stands for one role everywhere: query, key, value, weight.
"""

from __future__ import annotations

TYPE = {"axis": 12, "label": 14, "text": 16, "word": 20, "headline": 28}
"""The five sizes of type, in pixels."""
PROJECTED = {"axis": 24, "label": 24, "text": 26, "word": 34, "headline": 46}
"""The same for a projector."""

COLORS = {
    "ground": ("#ffffff", "#15151b"),
    "panel": ("#f7f6f9", "#1e2027"),
    "zero": ("#f6f4f7", "#20222a"),
    "line": ("#e2dfe8", "#343742"),
    "edge": ("#8b8796", "#7d8190"),
    "ink": ("#1d1b24", "#f2f1f5"),
    "soft": ("#5b5866", "#b3b2be"),
    "dot": ("#c9c5d2", "#4b4e5b"),
    "weight": ("#b5127f", "#f262b5"),
    "on-weight": ("#ffffff", "#1a0511"),
    "query": ("#0b5fb8", "#98bfff"),
    "key": ("#994b00", "#ffab66"),
    "value": ("#074f2b", "#5fd9a9"),
    "most-negative": ("#2166ac", "#86c1f7"),
    "negative": ("#8ec1de", "#3a6a99"),
    "positive": ("#f0a582", "#93473c"),
    "most-positive": ("#b2182b", "#ff8d78"),
    "point": ("#2f7fc1", "#6fb3ee"),
    "other-point": ("#b04a8c", "#e08cc4"),
    "chance": ("#c05f00", "#ffab4d"),
    "yes": ("#2a9d8f", "#3fb5a6"),
    "no": ("#b8661a", "#e79a4a"),
}
"""Each colour by its role, on a light and on a dark ground. A weight grows from `zero` to `weight`; signed numbers diverge from `zero`.

The points of a chart are heads, `other-point` those of the other state; `chance` is what would be without a reason; `yes` is an allowed cell, and a
right answer.
"""
LIGHT = {role: light for role, (light, _) in COLORS.items()}
"""The colours of figures, which Python makes for a light ground; on a dark page the scripts draw each in its other colour (figure/screen_look.js)."""


_LIGHT_TEXT = 0.72  # from this share of a full colour on, text has the colour of the page


def shade(share: float, full: str = "weight") -> str:
    """The CSS of a text on the colour of a `share` from 0 to 1 between `zero` and the colour of the role `full`."""
    text = "ground" if share >= _LIGHT_TEXT else "ink"
    return f"background: color-mix(in srgb, var(--lab-{full}) {share:.1%}, var(--lab-zero)); color: var(--lab-{text})"


def variables() -> str:
    """The sizes and colours as CSS variables; a page that is dark sets `color-scheme`."""
    sizes = "".join(f"--lab-{name}-size: {pixels}px; " for name, pixels in TYPE.items())
    colors = "".join(f"--lab-{name}: light-dark({light}, {dark}); " for name, (light, dark) in COLORS.items())
    projected = "".join(f"--lab-{name}-size: {pixels}px; " for name, pixels in PROJECTED.items())
    return f":root {{ {sizes}{colors}}}\n.projected {{ {projected}}}\n"
