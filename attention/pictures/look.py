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
    "weight": ("#b5127f", "#ff74c4"),
    "on-weight": ("#ffffff", "#1a0511"),
    "query": ("#0b5fb8", "#79b8ff"),
    "key": ("#a84300", "#ffab66"),
    "value": ("#0a6b4c", "#5fd9a9"),
    "most-negative": ("#2166ac", "#86c1f7"),
    "negative": ("#8ec1de", "#3a6a99"),
    "positive": ("#f0a582", "#93473c"),
    "most-positive": ("#b2182b", "#ff8d78"),
}
"""Each colour by its role, on a light and on a dark ground. A weight grows from `zero` to `weight`; signed numbers diverge from `zero`."""


def variables() -> str:
    """The sizes and colours as CSS variables; a page that is dark sets `color-scheme`."""
    sizes = "".join(f"--lab-{name}-size: {pixels}px; " for name, pixels in TYPE.items())
    colors = "".join(f"--lab-{name}: light-dark({light}, {dark}); " for name, (light, dark) in COLORS.items())
    projected = "".join(f"--lab-{name}-size: {pixels}px; " for name, pixels in PROJECTED.items())
    return f":root {{ {sizes}{colors}}}\n.projected {{ {projected}}}\n"
