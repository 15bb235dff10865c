"""Long texts: one head kept, scores kept while later knobs turn, and maps cut for a screen."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import ROOT
from streamlit.testing.v1 import AppTest

from attention import AttentionConfig, Cell, Matrices, Notebook, TypedText, WhatIf
from attention.formula import making
from attention.formula.steps import MAP_AXES, STEPS
from attention.pictures import heatmap
from attention.pictures.mosaic import heads_json
from attention.pictures.screen import MAX_SENT_BLOCKS, pool_for_screen
from attention.sources import Turnable
from attention.sources.typed_text import WHOLE_UP_TO
from pages.ui.server.traces import trace_of

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


def alone(source):
    """The source whose heads are made one by one, since all together would be too much."""
    return source if source.config.sizes.n_heads == 1 else replace(source, max_bytes=source.needs - 1)


@pytest.mark.slow
@pytest.mark.parametrize("knobs", KNOBS)
def test_a_head_made_alone_has_the_numbers_that_it_has_among_all(knobs):
    source = long_text(**knobs)
    whole, single = source.trace().layers[0], alone(source).trace().layers[0]
    assert whole.whole
    assert single.whole == (whole.n_heads == 1)
    for head in range(whole.n_heads):
        for step in whole.steps:
            close = 1e-5 if step.name in ("head_output", "output") else 0
            torch.testing.assert_close(
                single.matrix(step.name, head), whole.matrix(step.name, head), rtol=0, atol=close, msg=step.name
            )


@pytest.mark.parametrize("knobs", KNOBS)
def test_colours_and_sums_are_the_same_for_every_head_made_alone_or_not(knobs):
    source = long_text(**knobs)
    whole, single = source.trace(), alone(source).trace()
    for step in whole.layers[0].steps:
        assert single.layers[0].ends(step.name) == pytest.approx(whole.layers[0].ends(step.name), rel=1e-4), step
        if step.axes == MAP_AXES:
            mine, theirs = (trace.layers[0].facts(step.name) for trace in (single, whole))
            assert mine[:2] == theirs[:2]
            assert mine.empty == theirs.empty
            assert (mine.least is None) == (theirs.least is None)
            assert heatmap.color_range(single, step.name) == heatmap.color_range(whole, step.name)


def test_the_whole_tensor_is_there_for_who_asks():
    source = long_text(mask="causal")
    assert torch.equal(alone(source).trace().layers[0].weights, source.trace().layers[0].weights)


def test_heads_are_made_one_by_one_above_1024_tokens_or_where_all_are_too_large():
    short, long = TypedText("w " * WHOLE_UP_TO), TypedText("w " * (WHOLE_UP_TO + 1), max_tokens=2048)
    crossed = TypedText("a b", text2="w " * (WHOLE_UP_TO + 1), max_tokens=2048)
    wholes = [one.trace().layers[0].whole for one in (replace(short, max_tokens=2048), long, crossed)]
    assert wholes == [True, False, False]
    needs = TypedText("w w w").needs
    assert TypedText("w w w", max_bytes=needs).trace().layers[0].whole
    assert not TypedText("w w w", max_bytes=needs - 1).trace().layers[0].whole


@pytest.mark.slow
@pytest.mark.parametrize("knobs", KNOBS)
def test_a_base_that_is_turned_is_the_source(knobs):
    config = {name: value for name, value in knobs.items() if name not in ("dropout", "init")}
    matrices = Matrices(query=((1.0, 2.0),), key=((3.0, 4.0),), value=((5.0, 6.0),), config=AttentionConfig(**config))
    for source in (long_text(**knobs), matrices):
        assert isinstance(source, Turnable)
        one, other = source.trace(), source.base.trace().turned(source.config)
        assert one.notes == other.notes
        assert one.layers[0].formula == other.layers[0].formula
        for (step, mine), (same_step, kept) in zip(one.layers[0], other.layers[0], strict=True):
            assert (step, mine.tolist()) == (same_step, kept.tolist())


def test_a_turn_of_temperature_mask_or_scaling_takes_the_scores_there_are():
    text = "this text is asked for once only"
    traces = [
        trace_of(TypedText(text, AttentionConfig(**knobs)))
        for knobs in ({}, {"temperature": 2.0}, {"mask": "causal"}, {"scaled": False})
    ]
    assert len({trace.layers[0].scores.data_ptr() for trace in traces}) == 1
    assert trace_of(TypedText(text, AttentionConfig(seed=1))).layers[0].scores is not traces[0].layers[0].scores
    book = [trace_of(Notebook("numpy", config=WhatIf(temperature=number))) for number in (1.0, 0.5)]
    assert book[0].layers[0].scores.data_ptr() == book[1].layers[0].scores.data_ptr()


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
    """Row and column of every number on the screen, from the blocks and the places in them."""
    blocks, at = spec["layout"]["meta"]["blocks"], spec["layout"]["meta"]["offsets"].astype(int)
    rows, columns = np.indices(at.shape)
    return (
        blocks["top"] + rows * blocks["down"] + at // blocks["across"],
        blocks["left"] + columns * blocks["across"] + at % blocks["across"],
    )


def test_up_to_256_rows_and_columns_a_screen_draws_every_cell():
    spec, _ = map_of(256, 256)
    assert pool_for_screen(spec) is spec


@pytest.mark.parametrize(("rows", "columns"), [(257, 40), (40, 300), (600, 513)])
def test_more_are_drawn_as_the_largest_of_each_block_which_says_where_it_stands(rows, columns):
    spec, matrix = map_of(rows, columns)
    seen = pool_for_screen(spec)
    z, blocks = seen["data"][0]["z"], seen["layout"]["meta"]["blocks"]
    assert max(z.shape) <= 256
    assert z.size <= MAX_SENT_BLOCKS or rows <= 256
    assert np.array_equal(z, matrix[places_of(seen)])
    for row, column in ((0, 0), (z.shape[0] - 1, z.shape[1] - 1)):
        block = matrix[row * blocks["down"] :, column * blocks["across"] :][: blocks["down"], : blocks["across"]]
        assert abs(z[row, column]) == np.abs(block).max()
    assert (
        f"each cell the largest of {blocks['down']} × {blocks['across']}" in seen["layout"]["title"]["subtitle"]["text"]
    )
    heat = seen["data"][0]
    assert (heat["x0"], heat["dx"]) == ((blocks["across"] - 1) / 2, blocks["across"])
    assert (heat["y0"], heat["dy"]) == ((blocks["down"] - 1) / 2, blocks["down"])


def test_a_window_is_cut_anew_until_cells_are_exact():
    spec, matrix = map_of(600, 513)
    seen = pool_for_screen(spec, [100, 190, 40, 120])
    assert np.array_equal(seen["data"][0]["z"], matrix[100:190, 40:120])
    assert seen["layout"]["meta"]["blocks"]["window"] == [100, 190, 40, 120]
    assert (seen["data"][0]["x0"], seen["data"][0]["y0"]) == (40, 100)


@pytest.mark.parametrize("window", [[0, 0, 0, 0], [50, 10, 0, 5], [900, 950, 0, 5], [-40, 10_000, -3, 10_000]])
def test_a_window_that_is_none_is_the_whole_map(window):
    spec, _ = map_of(600, 40)
    assert pool_for_screen(spec, window)["layout"]["meta"]["blocks"]["window"] == [0, 600, 0, 40]


def test_a_block_is_hidden_where_all_of_it_is():
    spec, matrix = map_of(600, 600, hidden=True)
    seen = pool_for_screen(spec)
    z, ground = (trace["z"] for trace in seen["data"])
    assert np.array_equal(np.isnan(z), ground == 1)
    rows, columns = places_of(seen)
    there = ~np.isnan(z)
    assert np.array_equal(z[there], matrix[rows[there], columns[there]])


def test_a_click_on_a_block_of_a_mosaic_is_its_largest_number():
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


def test_all_heads_of_a_long_text_are_drawn_though_made_one_by_one():
    source = long_text(mask="causal")
    whole, single = (
        heads_json(one.trace(), "scores", chosen=Cell(0, "scores", 0, 3, 3)) for one in (source, alone(source))
    )
    assert np.array_equal(whole["data"][0]["z"], single["data"][0]["z"], equal_nan=True)
    assert whole["data"][0]["zmax"] == pytest.approx(single["data"][0]["zmax"])


@pytest.mark.parametrize(
    ("seed", "page"),
    [*enumerate(["app.py", "pages/heads.py", "pages/masks.py", "pages/compare.py", "pages/reference.py"])],
)
def test_no_page_makes_a_map_of_all_heads_where_they_are_too_much_together(seed, page, monkeypatch):
    asked = []

    def seen(layer, name, head):
        asked.append((layer.whole, name, head))
        return made(layer, name, head)

    made = making.made
    monkeypatch.setattr(making, "made", seen)
    app = AppTest.from_file(ROOT / page, default_timeout=60)
    app.query_params.update(text=" ".join(f"word{i}" for i in range(1100)), heads="4", mask="causal", seed=str(seed))
    app.run()
    assert not app.exception
    assert any(not whole and head is not None for whole, _, head in asked), "some head was made by itself"
    maps = {step.name for step in STEPS if step.axes == MAP_AXES}
    assert not [name for whole, name, head in asked if not whole and head is None and name in maps]
