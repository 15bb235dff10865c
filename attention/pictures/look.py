"""How everything looks: sizes of type and colours, in one place for the pages' styles, the scripts that draw, and figures in Python.

A script reads them as the CSS variables ``--lab-…`` of `variables`; a colour stands for one role everywhere: query, key, value, weight.
"""

from __future__ import annotations

TYPE = {"axis": 12, "label": 14, "text": 16, "word": 20, "headline": 28}
"""The five sizes of type, in pixels."""
PROJECTED = {"axis": 24, "label": 24, "text": 26, "word": 34, "headline": 46}
"""The same for a projector."""

_COLORS = {
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
LIGHT = {role: light for role, (light, _) in _COLORS.items()}
"""The colours of figures, which Python makes for a light ground; on a dark page the scripts draw each in its other colour (figure/screen_look.js)."""


def shade(share: float, full: str = "weight") -> str:
    """The CSS of a text on the colour of a `share` from 0 to 1 between `zero` and the colour of the role `full`."""
    ends = zip(_COLORS["zero"], _COLORS[full], strict=True)
    light, dark = (text_color_on(mix(*pair, share)) for pair in ends)
    return f"background: color-mix(in srgb, var(--lab-{full}) {share:.1%}, var(--lab-zero)); color: light-dark({light}, {dark})"


def mix(first: str, second: str, share: float) -> str:
    """The colour #rrggbb at a `share` from 0 to 1 of the way from one to another."""
    channels = ((int(first[i : i + 2], 16), int(second[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(low + (high - low) * share):02x}" for low, high in channels)


def text_color_on(background: str) -> str:
    """White or near-black, whichever has more contrast with a background #rrggbb: at least 4.3 : 1."""
    return max("#ffffff", "#111111", key=lambda ink: _contrast(ink, background))


def _contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours #rrggbb, 1 … 21, by WCAG."""
    dark, light = sorted(_luminance(color) for color in (first, second))
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    parts = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def variables() -> str:
    """The sizes and colours as CSS variables; a page that is dark sets `color-scheme`."""
    sizes = "".join(f"--lab-{name}-size: {pixels}px; " for name, pixels in TYPE.items())
    colors = "".join(f"--lab-{name}: light-dark({light}, {dark}); " for name, (light, dark) in _COLORS.items())
    projected = "".join(f"--lab-{name}-size: {pixels}px; " for name, pixels in PROJECTED.items())
    roles = f"--lab-roles: {' '.join(_COLORS)}; "  # which the scripts read, too
    paper = "@media print { :root, .stApp { color-scheme: light !important; } }\n"
    return f":root {{ {sizes}{roles}{colors}}}\n.projected {{ {projected}}}\n{paper}"
