import numpy as np
import plotly.graph_objects as go
import plotly.io as pio
import pytest

from attention import AttentionConfig, TypedText
from attention.lessons import softmax
from attention.lessons.softmax import _DIVISORS, _TEMPERATURES, measure, scaling_maps

pytestmark = pytest.mark.quick

SPREAD = softmax.spread((0.1, -0.2, -0.3, 0.5))
SCALING = measure(TypedText("the owl <b>asked</b> the owl", AttentionConfig(mask="causal")))
# Plotly raises an error for an unknown key or value.
FIGURES = {
    "curve": go.Figure(softmax.softmax_curve(softmax.curve())),
    "shares": go.Figure(softmax.shares_by_temperature(SPREAD)),
    "variance": go.Figure(softmax.variance_by_temperature(SPREAD)),
    "entropy": go.Figure(softmax.entropy_by_temperature(SPREAD)),
    "scaling": go.Figure(scaling_maps(SCALING)),
}


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_charts_fit_both_themes_ignore_clicks_and_have_alt_texts(figure: go.Figure) -> None:
    layout = figure.layout
    assert layout.paper_bgcolor == layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert layout.template == pio.templates["none"]
    assert layout.height
    assert layout.meta["panels"] == []
    assert layout.meta["alt"].endswith("The table has the numbers.")
    for trace in figure.data:
        parts = (
            (trace,)
            if trace.type == "heatmap"
            else (trace.marker,)
            if trace.type == "bar"
            else (trace.line, trace.marker)
        )
        assert any(part.colorscale if trace.type == "heatmap" else part.color for part in parts)


def test_bars_are_the_weights_in_one_colour_per_temperature() -> None:
    bars = FIGURES["shares"].data
    assert len(bars) == len(_TEMPERATURES) == len({bar.marker.color for bar in bars})
    for bar, temperature in zip(bars, _TEMPERATURES, strict=True):
        np.testing.assert_array_equal(bar.y, SPREAD.shares[temperature])
        np.testing.assert_array_equal(bar.x, range(4))
    assert list(FIGURES["shares"].layout.xaxis.ticktext) == ["0.1", "-0.2", "-0.3", "0.5"]


def test_equal_numbers_are_separate_bars() -> None:
    figure = softmax.shares_by_temperature(softmax.spread((1, 1, 1)))
    assert list(figure["data"][0]["x"]) == [0, 1, 2]


def test_entropy_lines_mark_the_five_temperatures() -> None:
    line, marks = FIGURES["variance"].data
    np.testing.assert_array_equal(marks.x, _TEMPERATURES)
    assert round(marks.y[2], 4) == 0.0091
    assert round(marks.y[0], 4) == 0.2218
    assert set(_TEMPERATURES) <= set(line.x)


def test_small_maps_lie_where_the_hover_says() -> None:
    figure = FIGURES["scaling"]
    maps, hidden = figure.data
    n = len(SCALING.tokens)
    names = figure.layout.xaxis.labelalias
    places = sorted(map(int, names))
    assert len(places) == len(_DIVISORS) * n
    starts_x, starts_y = places[::n], sorted(map(int, figure.layout.yaxis.labelalias))[::n]
    for i, y in enumerate(starts_y):
        for j, x in enumerate(starts_x):
            np.testing.assert_array_equal(maps.z[y : y + n, x : x + n], SCALING.weights[i, j])
            np.testing.assert_array_equal(hidden.z[y : y + n, x : x + n] == 1, ~SCALING.visible)
            assert names[str(x)] == f"key 0 the · ÷ {_DIVISORS[j]}"
    assert (maps.zmin, maps.zmax) == (0, 1)
    assert np.isnan(maps.z).any()
    assert all("<b>" not in name for name in names.values())


def test_entropy_is_above_each_map() -> None:
    texts = [note.text for note in FIGURES["scaling"].layout.annotations]
    assert texts == [f"H {entropy:.2f}" for entropy in SCALING.entropy.flatten()]
