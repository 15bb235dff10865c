"""Pictures over HTTP have the width and style of their address."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import ROOT
from drawings import drawings, rooms
from margins import approx
from starlette.testclient import TestClient
from test_contract import trace_of
from test_deploy import DOCKERFILE
from test_exports import (
    CELL,
    STATE,
    check_files,
    trace,  # noqa: F401  # a fixture
)
from test_heads import trace as trace_of_seeds
from test_paper import shapes, texts
from test_plots import colour_notes, z
from test_plots import trace as typed_trace

from attention import Cell, Trace, metrics, paper
from attention.formula import names
from attention.metrics import aggregates
from attention.paper import page
from attention.paper.marks import colors_of
from attention.pictures import charts, heatmap
from attention.pictures.heatmap import derived_map_json
from attention.pictures.marks import axis, bars, draw, frame
from attention.pictures.message import to_plotly, without_outlines
from attention.pictures.message import to_plotly as as_plotly
from attention.pictures.mosaic import HeadOrder, layers_json
from attention.pictures.scales import _ZERO_COLOR, LEAST_SHARE, LOG_FLOOR, PROBABILITY
from attention.pictures.steps_view import lab_maps
from pages.ui.paper import PANELS


@pytest.mark.long  # draws every picture twice
def test_every_picture_equals_the_library_and_is_reproducible(client: TestClient, trace: Trace) -> None:  # noqa: F811  # a fixture
    single = as_plotly(heatmap.heatmap_json(trace, "weights", 0, 1, CELL, "stretched"))
    all_maps = list(map(as_plotly, lab_maps(trace, CELL, "factors", "stretched")))
    files: dict[str, str | bytes] = {"weights.html": paper.html([single]), "maps.html": paper.html(all_maps)}
    for_paper = paper.figure([(0, 1)], trace)
    files["weights.tex"] = for_paper.latex("weights-L0-H1.pdf")
    for kind in paper.KINDS:
        files |= {f"weights.{kind}": for_paper.picture(kind), f"maps.{kind}": paper.picture(all_maps, kind)}
    check_files(client, files, PANELS.exports)


def test_picture_has_the_width_and_style_of_its_address(client: TestClient, trace: Trace) -> None:  # noqa: F811  # a fixture
    state = STATE | {"width": "8", "titles": "false", "cross": "false"}
    bare = list(map(without_outlines, map(as_plotly, lab_maps(trace, CELL, "factors", "stretched"))))
    answer = client.get("/export/maps.svg", params=state | {"view": "factors", "colors": "stretched"})
    assert answer.content == paper.picture(bare, "svg", 8.0, False)
    answer = client.get("/export/maps.pdf", params=STATE | {"figure": "scores"})
    assert 'filename="scores-L0-H1-q2-k1.pdf"' in answer.headers["content-disposition"]
    refused = client.get("/export/maps.pdf", params=STATE | {"figure": "w_q"})
    assert (refused.status_code, refused.text) == (
        400,
        "figure must be one of scores, weights, output; got “w_q”: choose one, or omit it for all.",
    )


def test_figure_for_a_paper_has_the_heads_of_its_address(client: TestClient, trace: Trace) -> None:  # noqa: F811  # a fixture
    state = STATE | {"panels": "0.1; 0.0", "width": "17.4", "cross": "true"}
    answer = client.get("/export/scores.pdf", params=state)
    assert 'filename="scores-L0-H1-L0-H0-q2-k1.pdf"' in answer.headers["content-disposition"]
    made = paper.figure([(0, 1), (0, 0)], trace, step="scores", width=17.4, cross=(2, 1))
    assert answer.content == made.picture("pdf")
    caption = client.get("/export/scores.tex", params=state).text
    assert caption == made.latex("scores-L0-H1-L0-H0-q2-k1.pdf")
    for panels, words in (
        ("0.7", "heads count from 0 to 1; got 7"),
        ("all", "written as 17.3;18.6, layer and head; got “all”"),
    ):
        refused = client.get("/export/scores.pdf", params=STATE | {"panels": panels})
        assert refused.status_code in (400, 404)
        assert words in refused.text


@pytest.mark.sample(1)
@pytest.mark.parametrize("room", rooms())
def test_every_stored_figure_is_drawn(room: str) -> None:
    """What `draw` makes of marks is drawn: none is left out because a picture does not know it."""
    for name, make in drawings(room).items():
        made = make()
        figures = [
            spec
            for spec in (made if isinstance(made, list | tuple) else [made])
            if isinstance(spec, dict) and "data" in spec
        ]
        if figures and name != "draw":  # a frame without an axis' range
            svg = paper.picture(figures, "svg", 16.0 * len(figures)).decode()
            marks = [mark for spec in figures for mark in spec["data"]]
            for kind, group in (("heatmap", "cells-"), ("bar", "bars-")):
                assert (f'id="{group}' in svg or f"-{group}" in svg) == any(
                    mark["type"] == kind and np.isfinite(np.asarray(mark.get("z", 0.0), dtype=float)).any()
                    for mark in marks
                ), name


def test_lying_bars_and_bars_over_each_other_are_as_long_as_their_numbers() -> None:
    x, y = axis("", (-1, 1)), axis("", (2.5, -0.5), {0: "a", 1: "b"})
    lying = bars([0.5, -0.25], [0, 1], "", orientation="h", text=["0.5", "−0.25"], textposition="auto")
    root = ElementTree.fromstring(paper.picture(draw(frame("t", "f", "a", x, y, bargap=0.25), lying), "svg"))
    boxes, _ = shapes(root, "bars-0")
    (first, second) = sorted(boxes.tolist(), key=lambda box: box[1])
    assert (first[2] - first[0]) / (second[2] - second[0]) == approx(2)
    assert first[0] == approx(second[2])  # both begin at 0
    assert {"0.5", "−0.25"} <= {*texts(root)}
    over = [bars([0, 1], [0.2, 0.4], "", opacity=0.5, width=0.9) for _ in range(2)]
    chart = draw(frame("t", "f", "a", axis("", (-1, 2)), axis("", (0, 1)), barmode="overlay"), *over)
    root = ElementTree.fromstring(paper.picture(chart, "svg"))
    np.testing.assert_array_equal(shapes(root, "bars-0")[0], shapes(root, "bars-1")[0])


def test_cell_outside_a_step_becomes_its_last_cell(client: TestClient, trace: Trace) -> None:  # noqa: F811  # a fixture
    state = STATE | {"heads": "1", "head": "0", "step": "query", "q": "5", "k": "60"}
    answer = client.get("/export/weights.svg", params=state | {"cross": "true"})
    assert 'filename="weights-L0-H0-q5-k5.svg"' in answer.headers["content-disposition"]


def test_heads_figure_is_saved_as_a_picture() -> None:
    sample = trace_of_seeds()
    table = metrics.of(sample)
    mosaic = layers_json(sample, "weights", order=HeadOrder(dict.fromkeys(table.sorted_by("self"), 0.5), "self"))
    chart = charts.head_scatter_json(table, "previous", "self", (0, 1))
    rollout = derived_map_json(sample, aggregates.find_aggregate("rollout"), Cell(2, "weights", 0, 0, 0))
    for figure, words in ((mosaic, ("L0 H0", "L2 H3")), (chart, ("previous", "L2")), (rollout, ("rollout", "owl"))):
        svg = paper.picture([to_plotly(figure)], "svg", 16.0, True).decode()
        assert all(word in svg for word in words)


@pytest.mark.parametrize("draw", [heatmap.heatmap, heatmap.heads])
@pytest.mark.parametrize("knobs", [{}, {"dropout": 0.5}])  # dropout lifts weights over 1
def test_logarithmic_colours_span_powers_of_ten_and_keep_the_numbers(draw, knobs):
    sample, step = typed_trace(temperature=0.3, **knobs), "dropped_weights" if knobs else "weights"
    figure, fixed = draw(sample, step, colors="log"), draw(sample, step)
    np.testing.assert_array_equal(z(figure), z(fixed))
    assert (figure.data[0].zmin, figure.data[0].zmax) == (0, fixed.data[0].zmax)
    assert figure.data[0].hovertemplate == fixed.data[0].hovertemplate
    assert figure.data[0].texttemplate == fixed.data[0].texttemplate
    scale, high = figure.data[0].colorscale, figure.data[0].zmax
    for share in np.linspace(0, 1, 101):
        number = LOG_FLOOR * (high / LOG_FLOOR) ** share
        [expected] = colors_of(np.array([LEAST_SHARE + (1 - LEAST_SHARE) * share]), PROBABILITY, 0, 1)
        [drawn] = colors_of(np.array([number]), scale, 0, high)
        assert max(abs(int(expected[i : i + 2], 16) - int(drawn[i : i + 2], 16)) for i in (1, 3, 5)) <= 1
    small, zero = colors_of(np.array([1e-30, 0.0]), scale, 0, high)
    assert small == scale[1][1]  # values below the floor are drawn as the floor, but 0 is not
    assert zero == _ZERO_COLOR

    bar = figure.data[-1].marker
    assert not figure.data[0].showscale
    assert colour_notes(figure) == ["logarithmic"]
    assert list(bar.colorbar.ticktext) == ["0", "≤10⁻⁴", "10⁻³", "0.01", "0.1", "1"]
    for exponent, level in zip(bar.colorbar.tickvals[1:], (1e-4, 1e-3, 0.01, 0.1, 1), strict=True):
        assert 10**exponent == approx(level)
        bar_colour, map_colour = (
            colors_of(np.array([number]), colors, low, high)[0]
            for number, colors, low, high in (
                (exponent, bar.colorscale, bar.cmin, bar.cmax),
                (10**exponent, scale, 0, high),
            )
        )
        assert max(abs(int(bar_colour[i : i + 2], 16) - int(map_colour[i : i + 2], 16)) for i in (1, 3, 5)) <= 1
    assert "colours logarithmic from 0.0001 to 1" in figure.layout.meta["alt"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", paper.KINDS)
def test_export_of_a_picture_is_a_file_of_its_kind(kind: str) -> None:
    import plotly.graph_objects as go

    from attention.pictures.heatmap import heatmap_json

    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    figure = go.Figure(heatmap_json(trace_of(), names.WEIGHTS), skip_invalid=True)
    assert paper.picture(figure, kind).startswith(begins[kind])


def test_pictures_find_the_fonts_of_the_image() -> None:
    packages = {"fonts-wqy-microhei": "WenQuanYi Micro Hei", "fonts-freefont-ttf": "FreeSerif"}
    assert set(re.findall(r"(fonts-[\w-]+)=", DOCKERFILE)) == set(packages)
    assert page._FONTS[1:3] == tuple(packages.values())
    assert set(packages) == set((ROOT / "packages.txt").read_text().split())  # installed by Streamlit Community Cloud
