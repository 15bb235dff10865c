"""Long texts: one cached head, cached scores while later knobs change, and maps pooled for the screen."""

from dataclasses import replace
from urllib.parse import parse_qsl

import numpy as np
import pytest
import torch
from conftest import ROOT
from margins import approx
from streamlit.testing.v1 import AppTest

from attention import AttentionConfig, Cell, Matrices, TypedText
from attention.formula.steps import MAP_AXES, STEPS
from attention.pictures import heatmap
from attention.pictures.downsample import MAX_SENT_BLOCKS, pool_for_screen
from attention.pictures.mosaic import heads_json
from attention.pictures.scales import drawn_span
from attention.sources.typed_text import _MAX_TOKENS_ALL_HEADS
from attention.trace import compute

pytestmark = pytest.mark.quick

WORDS = " ".join(f"w{i % 190}" for i in range(300))
KNOBS = [
    {},
    {"mask": "causal", "temperature": 0.05},
    {"mask": "window", "window": 3, "scaled": False},
    {"mask": "padding", "dropout": 0.3},
    {"init": "identity", "mask": "prefix", "prefix": 4, "temperature": 10.0},
]
MAPS = ("scores", "scaled_scores", "masked_scores", "weights")


def long_text(**knobs):
    return TypedText(f"a b c\n{WORDS}", AttentionConfig(**knobs), sequence=1)


def head_by_head(source):
    """The source with a limit that forces its heads to be computed singly."""
    return source if source.config.sizes.n_heads == 1 else replace(source, max_bytes=source.memory_bytes() - 1)


@pytest.mark.slow
@pytest.mark.parametrize("knobs", KNOBS)
def test_head_computed_alone_equals_the_same_head_computed_with_all(knobs):
    source = long_text(**knobs)
    complete, single = source.trace().layers[0], head_by_head(source).trace().layers[0]
    assert complete.materialize_all_heads
    assert single.materialize_all_heads == (complete.n_heads == 1)
    for head in range(complete.n_heads):
        for step in complete.steps:
            terms = 1024 if step.name in ("head_output", "output") else 0
            assert single.matrix(step.name, head) == approx(complete.matrix(step.name, head), terms=terms), step.name


@pytest.mark.parametrize("knobs", KNOBS)
def test_colours_and_sums_equal_for_heads_computed_singly(knobs):
    source = long_text(**knobs)
    complete, single = source.trace(), head_by_head(source).trace()
    for step in complete.layers[0].steps:
        assert single.layers[0].finite_range(step.name) == approx(complete.layers[0].finite_range(step.name)), step
        if step.axes == MAP_AXES:
            facts, expected = (trace.layers[0].stats(step.name) for trace in (single, complete))
            assert facts[:2] == expected[:2]
            assert facts.zero_rows == expected.zero_rows
            assert (facts.min_row_sum is None) == (expected.min_row_sum is None)
            assert drawn_span(single.layers[0], step.name) == drawn_span(complete.layers[0], step.name)


def test_whole_tensor_is_available_on_request():
    source = long_text(mask="causal")
    assert torch.equal(head_by_head(source).trace().layers[0].weights, source.trace().layers[0].weights)


def test_heads_are_computed_singly_above_1024_tokens_or_memory_limits():
    short, long = (
        TypedText("w " * _MAX_TOKENS_ALL_HEADS),
        TypedText("w " * (_MAX_TOKENS_ALL_HEADS + 1), max_tokens=2048),
    )
    crossed = TypedText("a b", text2="w " * (_MAX_TOKENS_ALL_HEADS + 1), max_tokens=2048)
    all_heads = [
        source.trace().layers[0].materialize_all_heads for source in (replace(short, max_tokens=2048), long, crossed)
    ]
    assert all_heads == [True, False, False]
    needs = TypedText("w w w").memory_bytes()
    assert TypedText("w w w", max_bytes=needs).trace().layers[0].materialize_all_heads
    assert not TypedText("w w w", max_bytes=needs - 1).trace().layers[0].materialize_all_heads


@pytest.mark.slow
@pytest.mark.parametrize("knobs", KNOBS)
def test_changing_the_base_of_an_override_equals_changing_the_source(knobs):
    config = {name: value for name, value in knobs.items() if name not in ("dropout", "init")}
    matrices = Matrices(query=((1.0, 2.0),), key=((3.0, 4.0),), value=((5.0, 6.0),), config=AttentionConfig(**config))
    for source in (long_text(**knobs), matrices):
        direct, overridden = source.trace(), source.base.trace().with_config(source.config)
        assert direct.notes == overridden.notes
        assert direct.layers[0].formula == overridden.layers[0].formula
        for (step, tensor), (same_step, same_tensor) in zip(direct.layers[0], overridden.layers[0], strict=True):
            assert (step, tensor.tolist()) == (same_step, same_tensor.tolist())


def map_of(rows, columns, hidden=False):
    matrices = Matrices(
        query=tuple(map(tuple, np.random.default_rng(0).normal(size=(rows, 3)).tolist())),
        key=tuple(map(tuple, np.random.default_rng(1).normal(size=(columns, 3)).tolist())),
        value=((1.0,),) * columns,
        config=AttentionConfig(mask="causal" if hidden else "none"),
    )
    trace = matrices.trace()
    return heatmap.heatmap_json(trace, "masked_scores"), trace.layers[0].matrix("masked_scores").numpy()


def places_of(spec):
    """Row and column of every number on the screen, from the blocks and the positions in them."""
    blocks, at = spec["layout"]["meta"]["blocks"], spec["layout"]["meta"]["offsets"].astype(int)
    rows, columns = np.indices(at.shape)
    return (
        blocks["top"] + rows * blocks["down"] + at // blocks["across"],
        blocks["left"] + columns * blocks["across"] + at % blocks["across"],
    )


def test_maps_up_to_256_by_256_draw_every_cell():
    spec, _ = map_of(256, 256)
    assert pool_for_screen(spec) is spec


@pytest.mark.parametrize(("rows", "columns"), [(257, 40), (40, 300), (600, 513)])
def test_larger_maps_draw_block_maxima_with_their_positions(rows, columns):
    spec, matrix = map_of(rows, columns)
    pooled = pool_for_screen(spec)
    z, blocks = pooled["data"][0]["z"], pooled["layout"]["meta"]["blocks"]
    assert max(z.shape) <= 256
    assert z.size <= MAX_SENT_BLOCKS or rows <= 256
    assert np.array_equal(z, matrix[places_of(pooled)])
    for row, column in ((0, 0), (z.shape[0] - 1, z.shape[1] - 1)):
        block = matrix[row * blocks["down"] :, column * blocks["across"] :][: blocks["down"], : blocks["across"]]
        assert abs(z[row, column]) == np.abs(block).max()
    assert (
        f"each cell the largest of {blocks['down']} × {blocks['across']}"
        in pooled["layout"]["title"]["subtitle"]["text"]
    )
    heat = pooled["data"][0]
    assert (heat["x0"], heat["dx"]) == ((blocks["across"] - 1) / 2, blocks["across"])
    assert (heat["y0"], heat["dy"]) == ((blocks["down"] - 1) / 2, blocks["down"])


def test_zoom_window_is_recut_until_cells_are_exact():
    spec, matrix = map_of(600, 513)
    pooled = pool_for_screen(spec, [100, 190, 40, 120])
    assert np.array_equal(pooled["data"][0]["z"], matrix[100:190, 40:120])
    assert pooled["layout"]["meta"]["blocks"]["window"] == [100, 190, 40, 120]
    assert (pooled["data"][0]["x0"], pooled["data"][0]["y0"]) == (40, 100)


@pytest.mark.parametrize("window", [[0, 0, 0, 0], [50, 10, 0, 5], [900, 950, 0, 5], [-40, 10_000, -3, 10_000]])
def test_invalid_zoom_window_shows_the_whole_map(window):
    spec, _ = map_of(600, 40)
    assert pool_for_screen(spec, window)["layout"]["meta"]["blocks"]["window"] == [0, 600, 0, 40]


def test_block_is_hidden_where_all_its_cells_are():
    spec, matrix = map_of(600, 600, hidden=True)
    pooled = pool_for_screen(spec)
    z, ground = (trace["z"] for trace in pooled["data"])
    assert np.array_equal(np.isnan(z), ground == 1)
    rows, columns = places_of(pooled)
    shown = ~np.isnan(z)
    assert np.array_equal(z[shown], matrix[rows[shown], columns[shown]])


def test_click_on_a_mosaic_block_selects_its_largest_number():
    trace = long_text().trace()
    figure = heads_json(trace, "weights", cells=256 * 256)
    z, panel = figure["data"][0]["z"], figure["layout"]["meta"]["panels"][2]
    assert z.size <= 1.3 * 256 * 256
    assert panel["block"] > 1
    cell = heatmap.cell_at(figure, panel["x"] + 5, panel["y"] + 7)
    assert cell.head == panel["head"]
    assert trace.layers[0].weights[cell.head, cell.row, cell.column] == z[panel["y"] + 7, panel["x"] + 5]
    names = figure["layout"]["meta"]["columns"]["labelalias"]
    assert names[str(cell.column)] == f"{cell.column} {trace.tokens[cell.column]}"


def test_all_heads_of_a_long_text_draw_although_computed_singly():
    source = long_text(mask="causal")
    complete, single = (
        heads_json(item.trace(), "scores", chosen=Cell(0, "scores", 0, 3, 3)) for item in (source, head_by_head(source))
    )
    assert np.array_equal(complete["data"][0]["z"], single["data"][0]["z"], equal_nan=True)
    assert complete["data"][0]["zmax"] == approx(single["data"][0]["zmax"])


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "page"),
    [*enumerate(("app.py", "pages/heads.py", "app.py?explore_mask=true", "app.py?compare=1", "pages/reference.py"))],
)
def test_no_page_computes_all_heads_when_they_exceed_the_limit(seed, page, monkeypatch):
    calls = []

    def record(layer, name, head):
        calls.append((layer.materialize_all_heads, name, head))
        return original(layer, name, head)

    original = compute.compute_step
    monkeypatch.setattr(compute, "compute_step", record)
    path, _, query = page.partition("?")
    app = AppTest.from_file(ROOT / path, default_timeout=60)
    app.query_params.update(
        **dict(parse_qsl(query)),
        text=" ".join(f"word{i}" for i in range(1100)),
        heads="4",
        mask="causal",
        seed=str(seed),
    )
    app.run()
    assert not app.exception
    assert any(not whole and head is not None for whole, _, head in calls), "some head was computed alone"
    maps = {step.name for step in STEPS if step.axes == MAP_AXES}
    assert not [name for whole, name, head in calls if not whole and head is None and name in maps]
