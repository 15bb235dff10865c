"""Colours: readable, told apart by every eye, the same in Python, on the pages and in Streamlit's theme, and named in one place."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attention.pictures.look import _COLORS, _contrast, mix
from attention.pictures.scales import PROBABILITY, SIGNED

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
THEMES = {"light": 0, "dark": 1}
ROLES = ("query", "key", "value", "weight")
OTHERS = {
    # White or near-black text, whichever reads on a cell of any colour.
    "cells.js": {"#ffffff", "#111111"},
    "marks.py": {"#ffffff", "#111111", "#eeeeee", "#aabbcc", "#abc"},
    "web.py": {"#ffffff", "#111111", "#fff"},
    "figure.css": {"#fff", "#111"},  # an outline on cells of any colour
    "lesson.css": {"#ffffffcc", "#111"},  # and a text on a picture
    "over_picture.py": {"#111111"},
    "lesson_tables.js": {"#00000000"},
    "loader.js": {"#111418", "#ffffff"},  # the page of a notebook that says nothing
    "screen.css": {"#0003"},  # shadows
    "share_buttons.css": {"#0008"},
}
# Machado, Oliveira and Fernandes 2009, severity 1.
EYES = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(color: str, eyes: str) -> Any:
    """CIELAB, under D65, of what these eyes see."""
    channels = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    to_xyz = [[0.41246, 0.35758, 0.18044], [0.21267, 0.71515, 0.07217], [0.01933, 0.11919, 0.95030]]
    x, y, z = to_xyz @ np.clip(EYES[eyes] @ linear, 0, 1) / [0.95047, 1, 1.08883]
    a, b, c = (np.cbrt(t) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return np.array([116 * b - 16, 500 * (a - b), 200 * (b - c)])


@pytest.mark.parametrize("theme", THEMES)
def test_text_reads_and_lines_are_seen(theme: str) -> None:
    color = {role: pair[THEMES[theme]] for role, pair in _COLORS.items()}
    for ground in ("ground", "panel"):
        for role in ("ink", "soft", *ROLES):
            assert _contrast(color[role], color[ground]) >= 4.5, role
        for role in ("edge", "point", "other-point", "chance", "yes", "no"):
            assert _contrast(color[role], color[ground]) >= 3, role
    assert _contrast(color["on-weight"], color["weight"]) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
def test_the_chosen_cell_is_seen_on_every_color(theme: str) -> None:
    color = {role: pair[THEMES[theme]] for role, pair in _COLORS.items()}
    ends = ("zero", "weight"), *itertools.pairwise(("most-negative", "negative", "zero", "positive", "most-positive"))
    for first, second in ends:
        for share in np.linspace(0, 1, 21):
            cell = mix(color[first], color[second], share)
            # One of the two lines of its outline stands out.
            assert max(_contrast(color[line], cell) for line in ("ink", "ground")) >= 3, (first, second, share)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("eyes", EYES)
def test_roles_are_told_apart_by_every_eye(theme: str, eyes: str) -> None:
    for one, other in itertools.combinations(ROLES, 2):
        here = [lab(_COLORS[role][THEMES[theme]], eyes) for role in (one, other)]
        assert np.linalg.norm(here[0] - here[1]) >= 20, (one, other)


def test_theme_of_streamlit_has_our_colors() -> None:
    theme = tomllib.loads((ROOT / ".streamlit/config.toml").read_text(encoding="utf-8"))["theme"]
    roles = {"primaryColor": "weight", "backgroundColor": "ground", "secondaryBackgroundColor": "panel", "textColor": "ink", "borderColor": "line"}  # fmt: skip
    for name, i in THEMES.items():
        assert {key: value for key, value in theme[name].items() if key in roles} == {
            key: _COLORS[role][i] for key, role in roles.items()
        }


def test_colors_are_named_in_one_place() -> None:
    for folder, ending in itertools.product(("attention", "pages"), ("py", "js", "css")):
        for file in (ROOT / folder).rglob(f"*.{ending}"):
            if file.name == "look.py" or "vendor" in file.parts:
                continue
            found = re.findall(
                r"#(?:[0-9a-f]{8}|[0-9a-f]{6}|[0-9a-f]{3,4})\b(?=[\"'`;, )}])", file.read_text(encoding="utf-8")
            )
            assert set(found) <= OTHERS.get(file.name, set()), file.name


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("step", ["weights", "scores"])
def test_maps_have_the_colors_of_the_page(theme: str, step: str, open_page: Any, server: str) -> None:
    page = open_page(f"{server}/?source=typed+text&text=the+cat+sat&mask=causal&step={step}", color_scheme=theme)
    plot = page.locator(".figures .js-plotly-plot").nth(int(step == "weights"))  # beside the scores
    drawn = plot.evaluate("({ data, layout }) => [data.map(({ colorscale }) => colorscale), layout.shapes.map(({ line }) => line.color)]")  # fmt: skip
    i = THEMES[theme]
    here = {pair[0]: pair[i] for pair in _COLORS.values()}
    scale = [[place, here[color]] for place, color in (PROBABILITY if step == "weights" else SIGNED)]
    assert drawn[0][0] == scale
    assert drawn[1]
    assert set(drawn[1]) == {_COLORS["ink"][i]}, "the chosen cell is outlined in ink"
    outlined = "([plot, ink]) => plot.layout.shapes.every(({ line }) => line.color === ink)"
    other = [*THEMES][1 - i]
    page.emulate_media(color_scheme=other)
    page.wait_for_function(outlined, arg=[plot.element_handle(), _COLORS["ink"][1 - i]])
    page.emulate_media(media="print", color_scheme="dark")
    page.wait_for_function(outlined, arg=[plot.element_handle(), _COLORS["ink"][0]])
    page.emulate_media(media="screen", color_scheme=theme)
