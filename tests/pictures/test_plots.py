import math
import re
import time
from functools import cache

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from margins import approx
from playwright.sync_api import expect

from attention import STEPS, AttentionConfig, Cell, ConfigError, Layer, MissingError, Trace, TypedText, find_step
from attention.base.printed import format_number
from attention.formula.positions import rotate
from attention.pictures import heatmap, message
from attention.pictures.look import LIGHT
from attention.pictures.scales import drawn_span, scale_range
from attention.pictures.steps_view import factor_maps

CAT = "the cat sat on the mat"
NAMES = [step.name for step in STEPS if step.name != "patched_output"]  # exists only for changed heads of models
MAPS = ["scores", "scaled_scores", "masked_scores", "weights"]


def knobs_with(step):
    """The knobs with which a step exists."""
    needs = {
        "rotated_query": {"positions": "rope"},
        "rotated_key": {"positions": "rope"},
        "capped_scores": {"cap": 3.0},
        "biased_scores": {"positions": "relative"},
    }
    return {"positions": "sinusoidal", **needs.get(step, {})}


@cache
def trace(text=CAT, text2="", **knobs):
    return TypedText(text, AttentionConfig(**knobs), text2).trace()


def trace_of(tokens, key_tokens=(), **tensors):
    return Trace(tuple(tokens), (Layer(recorded=tensors),), tuple(key_tokens))


def uniform(n_heads, n_queries, n_keys):
    return torch.full((n_heads, n_queries, n_keys), 1 / n_keys)


def words(n):
    return tuple(f"w{i}" for i in range(n))


def color_range(sample, step, colors="fixed"):
    return scale_range(find_step(step), drawn_span(sample.layers[0], step), colors)


def z(figure):
    return np.asarray(figure.data[0].z)


def text_around(figure):
    """All text of a figure outside its cells."""
    return " | ".join(
        [
            figure.layout.title.text,
            figure.layout.title.subtitle.text,
            *(note.text for note in figure.layout.annotations),
        ]
    )


def panels(figure):
    return [
        (panel["head"], z(figure)[panel["y"] : panel["y"] + panel["rows"], panel["x"] : panel["x"] + panel["columns"]])
        for panel in figure.layout.meta["panels"]
    ]


# -- the numbers are the tensor's, with gaps elsewhere ---------------------------------


@pytest.mark.parametrize("step", NAMES)
@pytest.mark.parametrize("head", [0, 3])
def test_map_shows_the_numbers_of_the_tensor(step, head):
    sample = trace(text2="a dog ran off to", dropout=0.2, mask="causal", d_v=5, **knobs_with(step))
    matrix = sample.layers[0].matrix(step, head).numpy()
    np.testing.assert_array_equal(
        z(heatmap.heatmap(sample, step, head=head)), np.where(np.isinf(matrix), np.nan, matrix)
    )


@pytest.mark.parametrize("step", NAMES)
def test_mosaic_heads_stand_where_their_panels_say(step):
    sample = trace(
        text2="a dog ran off to",
        dropout=0.2,
        mask="causal",
        d_v=5,
        **knobs_with(step),
    )
    figure = heatmap.heads(sample, step)
    n_heads = 4 if step in {s.name for s in STEPS if s.per_head} else 1
    assert [head for head, _ in panels(figure)] == list(range(n_heads))
    for head, drawn in panels(figure):
        matrix = sample.layers[0].matrix(step, head).numpy()
        np.testing.assert_array_equal(drawn, np.where(np.isinf(matrix), np.nan, matrix))


@pytest.mark.parametrize("shape", [(1, 6, 6), (5, 3, 9), (7, 9, 2), (12, 4, 4), (16, 1, 1)])
def test_mosaic_panels_do_not_overlap_and_gaps_fill_the_rest(shape):
    sample = trace_of(words(shape[1]), words(shape[2]), weights=uniform(*shape))
    figure = heatmap.heads(sample, "weights")
    assert np.isfinite(z(figure)).sum() == math.prod(shape)
    assert all(np.isfinite(drawn).all() for _, drawn in panels(figure))
    assert len({(panel["x"], panel["y"]) for panel in figure.layout.meta["panels"]}) == shape[0]


def test_mosaic_finds_the_head_of_every_position():
    figure = heatmap.heads(trace(), "weights")
    heads = np.asarray(figure.data[0].customdata)
    for panel in figure.layout.meta["panels"]:
        assert (
            heads[panel["y"] : panel["y"] + panel["rows"], panel["x"] : panel["x"] + panel["columns"]] == panel["head"]
        ).all()
    assert "weights L0 H2<br>" in heatmap.heatmap(trace(), "weights", head=2).data[0].hovertemplate


def test_more_than_255_heads_can_be_drawn():
    figure = heatmap.heads(trace_of("ab", weights=uniform(300, 2, 2)), "weights")
    assert np.asarray(figure.data[0].customdata).max() == 299


def test_heads_are_never_averaged_silently():
    sample = trace()
    average = sample.layers[0].weights.mean(dim=0).numpy()
    assert all(z(heatmap.heatmap(sample, "weights", head=head)) != approx(average) for head in range(4))
    with pytest.raises(MissingError):
        heatmap.heatmap(sample, "weights", head=4)


def test_one_token_and_unequal_lengths_are_drawn():
    assert z(heatmap.heatmap(trace("cat"), "weights")).tolist() == [[1]]
    assert z(heatmap.heatmap(trace("the cat", text2="a dog ran off"), "weights")).shape == (2, 4)
    assert z(heatmap.heatmap(trace("a dog ran off", text2="the cat"), "weights")).shape == (4, 2)


# -- axes: repeated words, markup, numbers ------------------------------------------------------


def test_the_cat_sat_on_the_mat_is_six_by_six():
    figure = heatmap.heatmap(trace(mask="causal"), "weights")
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        assert list(axis.tickvals) == approx(range(6))
        assert list(axis.ticktext) == ["the", "cat", "sat", "on", "the", "mat"]
    assert z(figure).shape == (6, 6)
    assert (z(figure)[np.triu_indices(6, 1)] == 0).all()


@pytest.mark.parametrize("step", NAMES)
@pytest.mark.parametrize("draw", [heatmap.heatmap, heatmap.heads])
def test_axes_are_numbers_never_strings(draw, step):
    figure = draw(trace("2024 2024-01-15 3 <s>", text2="1 1 2", dropout=0.2, **knobs_with(step)), step)
    for data in figure.data:
        assert data.x is None
        assert data.y is None
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        assert axis.type in (None, "linear")
        assert axis.tickmode == "array"
        assert all(isinstance(place, int | float) for place in axis.tickvals)
        assert all(isinstance(text, str) for text in axis.ticktext)
        assert len(axis.tickvals) == len(axis.ticktext)


def test_labels_follow_the_order_of_the_sentence():
    axis = heatmap.heatmap(trace("zebras eat apples"), "scores").layout.yaxis
    assert list(axis.ticktext) == ["zebras", "eat", "apples"]


def test_rows_are_queries_downwards_and_columns_are_keys():
    figure = heatmap.heatmap(trace("the cat", text2="a dog ran"), "scores")
    assert list(figure.layout.yaxis.ticktext) == ["the", "cat"]
    assert list(figure.layout.xaxis.ticktext) == ["a", "dog", "ran"]
    assert (figure.layout.yaxis.title.text, figure.layout.xaxis.title.text) == (
        "query (attends from)",
        "key (attends to)",
    )
    assert tuple(figure.layout.yaxis.range) == (1.5, -0.5)
    assert tuple(figure.layout.xaxis.range) == (-0.5, 2.5)


def test_rows_of_keys_and_values_use_the_key_tokens():
    figure = heatmap.heatmap(trace("the cat", text2="a dog ran"), "value")
    assert list(figure.layout.yaxis.ticktext) == ["a", "dog", "ran"]
    assert figure.layout.yaxis.title.text == "key (attends to)"
    assert "d_v" in figure.layout.xaxis.title.text


@pytest.mark.parametrize("token", ["<s>", "</s>", "<unk>", "<b>", "&lt;"])
@pytest.mark.parametrize("draw", [heatmap.heatmap, heatmap.heads])
def test_tokens_like_markup_are_escaped_in_ticks_and_hover(token, draw):
    escaped = token.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    axis = draw(trace_of([token, "a"], weights=uniform(1, 2, 2)), "weights").layout.yaxis
    assert axis.ticktext[0] == escaped
    assert axis.labelalias["0"].endswith(escaped)
    assert "<" not in axis.labelalias["0"]


def test_invisible_tokens_get_a_symbol():
    axis = heatmap.heatmap(trace_of(["", " ", "\n", "\u200b"], weights=uniform(1, 4, 4)), "weights").layout.yaxis
    assert list(axis.ticktext) == ["∅", "·", "⏎", "U+200B"]


@pytest.mark.parametrize("draw", [heatmap.heatmap, heatmap.heads])
def test_hover_knows_position_and_token_of_every_row(draw):
    sample = trace_of(words(100), weights=uniform(1, 100, 100))
    figure = draw(sample, "weights")
    assert len(figure.layout.yaxis.tickvals) < 100
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        assert all(re.fullmatch(rf"{i}\W+w{i}", axis.labelalias[str(i)]) for i in range(100))
        assert axis.hoverformat == "d"  # positions are looked up as "12", not as "12.0"


def test_mosaic_hover_counts_positions_from_zero_in_every_panel():
    figure = heatmap.heads(trace(), "weights")
    for panel in figure.layout.meta["panels"]:
        assert re.fullmatch(r"4\W+the", figure.layout.xaxis.labelalias[str(panel["x"] + 4)])
        assert re.fullmatch(r"5\W+mat", figure.layout.yaxis.labelalias[str(panel["y"] + 5)])


def test_hover_gives_the_value_to_full_precision():
    assert (
        "%{z:.9g}" in heatmap.heatmap(trace(), "weights").data[0].hovertemplate
    )  # 9 digits distinguish any two float32 numbers


def test_long_tokens_are_shortened_on_the_axis():
    ticks = heatmap.heatmap(trace("a" * 10_000), "weights").layout.xaxis.ticktext
    assert len(ticks[0]) <= 20
    assert ticks[0].endswith("…")


def test_many_tokens_get_few_ticks_with_positions():
    axis = heatmap.heatmap(trace_of(words(100), weights=uniform(1, 100, 100)), "weights").layout.xaxis
    assert len(axis.tickvals) <= 32
    assert all(text == f"{place:.0f} w{place:.0f}" for place, text in zip(axis.tickvals, axis.ticktext, strict=True))


@pytest.mark.parametrize("n_heads", [1, 4, 300])
def test_mosaic_ticks_name_the_rows_beside_them(n_heads):
    tokens = words(60)
    figure = heatmap.heads(trace_of(tokens, weights=uniform(n_heads, 60, 60)), "weights")
    rows = {
        panel["y"] + i: tokens[i * panel["block"]]
        for panel in figure.layout.meta["panels"]
        for i in range(panel["rows"])
    }
    axis = figure.layout.yaxis
    assert len(axis.ticktext)
    assert all(text.split()[-1] == rows[round(place)] for place, text in zip(axis.tickvals, axis.ticktext, strict=True))


# -- colours follow the kind of number ----------------------------------------------------------

SHADES = [LIGHT["zero"], LIGHT["weight"]]


@pytest.mark.parametrize("draw", [heatmap.heatmap, heatmap.heads])
def test_probabilities_grow_from_the_page_to_one_hue(draw):
    for sample in (trace(), trace(temperature=0.05), trace(init="linear")):
        data = draw(sample, "weights").data[0]
        assert (data.zmin, data.zmax) == (0, 1)
        assert [color for _, color in data.colorscale] == SHADES
        assert not data.reversescale


@pytest.mark.parametrize("step", [name for name in NAMES if find_step(name).kind == "signed"])
@pytest.mark.parametrize("draw", [heatmap.heatmap, heatmap.heads])
def test_signed_numbers_are_symmetric_about_a_neutral_zero(draw, step):
    sample = trace(text2="a dog", mask="causal", init="uniform", **knobs_with(step))
    tensor = sample.layers[0][step]
    data = draw(sample, step).data[0]
    assert data.zmin == -data.zmax
    assert data.zmax == float(tensor[tensor.isfinite()].abs().max())
    assert len(data.colorscale) % 2 == 1
    assert data.colorscale[len(data.colorscale) // 2][0] == 0.5
    assert [color for _, color in data.colorscale] != SHADES


@pytest.mark.parametrize("step", [*MAPS, "query", "head_output"])
def test_colours_mean_the_same_in_every_head(step):
    sample = trace(mask="causal")
    ranges = {
        (data.zmin, data.zmax)
        for data in (
            *(heatmap.heatmap(sample, step, head=head).data[0] for head in range(4)),
            heatmap.heads(sample, step).data[0],
        )
    }
    assert ranges == {color_range(sample, step)}


def test_map_of_zeros_has_colours():
    low, high = color_range(trace_of("ab", scores=torch.zeros(1, 2, 2)), "scores")
    assert low < 0 < high


def colour_notes(figure):
    return [note.text for note in figure.layout.annotations if note.name == "colors"]


@pytest.mark.parametrize("draw", [heatmap.heatmap, heatmap.heads])
def test_stretched_colours_end_at_the_brightest_with_a_note(draw):
    sample = trace(init="linear")
    weights = sample.layers[0].weights
    largest = float(weights[0].max() if draw is heatmap.heatmap else weights.max())
    assert weights[0].max() < weights.max()
    figure = draw(sample, "weights", colors="stretched")
    assert figure.data[0].zmax == largest
    assert colour_notes(figure) == [f"full colour = {largest:.3g}"]
    assert figure.data[0].colorbar.ticktext[-1] == f"{largest:.3g}"
    assert f"colours stretched to 0 … {largest:.3g}" in figure.layout.meta["alt"]
    assert colour_notes(draw(sample, "weights")) == []
    assert "colours" not in draw(sample, "weights").layout.meta["alt"]


@pytest.mark.parametrize("colors", heatmap.COLORS)
def test_colour_range_is_a_choice_for_probabilities_only(colors):
    assert color_range(trace(), "scores", colors) == color_range(trace(), "scores")
    assert heatmap.heatmap(trace(), "scores", colors=colors) == heatmap.heatmap(trace(), "scores")


def test_unknown_colour_range_is_refused_in_one_sentence():
    with pytest.raises(ConfigError, match=r"Colours are fixed, stretched or log; got 'loud': choose one of these\."):
        heatmap.heatmap(trace(), "weights", colors="loud")


# -- hidden cells -------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", [heatmap.heatmap, heatmap.heads])
def test_masked_scores_are_gaps_never_huge_numbers(draw):
    sample = trace(mask="causal")
    figure = draw(sample, "masked_scores")
    for _, drawn in panels(figure):
        assert np.array_equal(np.isnan(drawn), ~sample.layers[0].mask.numpy())
    assert np.nanmin(z(figure)) > -100
    assert figure.data[0].zmin > -100


@pytest.mark.parametrize("draw", [heatmap.heatmap, heatmap.heads])
@pytest.mark.parametrize("step", ["masked_scores", "weights"])
def test_hidden_cells_lie_on_a_neutral_colour_outside_both_scales(draw, step):
    sample = trace(mask="causal")
    figure = draw(sample, step)
    ground = figure.data[1]
    for panel in figure.layout.meta["panels"]:
        covered = np.isfinite(
            np.asarray(ground.z)[panel["y"] : panel["y"] + panel["rows"], panel["x"] : panel["x"] + panel["columns"]]
        )
        assert np.array_equal(covered, ~sample.layers[0].mask.numpy())
    assert np.isfinite(np.asarray(ground.z)).sum() == 15 * len(figure.layout.meta["panels"])  # nothing in the gutters
    assert len({color for _, color in ground.colorscale}) == 1
    assert ground.colorscale[0][1] not in {color for _, color in figure.data[0].colorscale}
    assert not ground.showscale


@pytest.mark.parametrize("step", ["scores", "scaled_scores", "head_output"])
def test_steps_before_and_after_the_mask_hide_nothing(step):
    figure = heatmap.heatmap(trace(mask="causal"), step)
    assert len(figure.data) == 1
    assert np.isfinite(z(figure)).all()


def test_mask_without_hidden_cells_draws_no_ground():
    assert len(heatmap.heatmap(trace(), "masked_scores").data) == 1


def test_fully_masked_row_is_zeros_and_labelled_no_key():
    figure = heatmap.heatmap(trace("a b c d e", text2="x y", mask="window", window=1), "weights")
    assert (z(figure)[3:] == 0).all()
    row_notes = {note.y: note.text for note in figure.layout.annotations}
    assert [row_notes[row] for row in range(5)] == ["1.00", "1.00", "1.00", "no key", "no key"]
    assert "2 queries see no key" in text_around(figure)
    assert "2 rows see no key" in figure.layout.meta["alt"]
    assert "every row sums to 1" not in figure.layout.meta["alt"]


def test_map_with_every_score_hidden_is_drawn():
    hidden = trace_of("ab", masked_scores=torch.full((1, 2, 2), -math.inf), mask=torch.zeros(2, 2, dtype=torch.bool))
    figure = heatmap.heatmap(hidden, "masked_scores")
    assert np.isnan(z(figure)).all()
    assert "every number hidden" in figure.layout.meta["alt"]


def test_rows_that_do_not_sum_to_one_are_labelled():
    partial = trace_of("ab", weights=torch.tensor([[[0.5, 0.2], [1.0, 0.0]]]))
    figure = heatmap.heatmap(partial, "weights")
    assert {note.y: note.text for note in figure.layout.annotations}[0] == "0.70"
    assert "every row sums to 1" not in figure.layout.meta["alt"]


# -- text and numbers on the picture -----------------------------------------------------------


@pytest.mark.parametrize(("n_tokens", "written"), [(1, True), (24, True), (25, False)])
def test_numbers_are_written_in_cells_up_to_24_tokens(n_tokens, written):
    figure = heatmap.heatmap(trace_of(words(n_tokens), weights=uniform(1, n_tokens, n_tokens)), "weights")
    assert bool(figure.data[0].texttemplate) == written


def test_numbers_are_omitted_when_either_side_exceeds_24():
    for n_queries, n_keys in ((2, 25), (25, 2)):
        assert (
            not heatmap.heatmap(
                trace_of(words(n_queries), words(n_keys), weights=uniform(1, n_queries, n_keys)), "weights"
            )
            .data[0]
            .texttemplate
        )
    assert not heatmap.heads(trace(), "weights").data[0].texttemplate


@pytest.mark.parametrize("step", NAMES)
@pytest.mark.parametrize("draw", [heatmap.heatmap, heatmap.heads])
def test_map_title_is_its_step_and_formula(draw, step):
    declared = next(s for s in STEPS if s.name == step)
    sample = trace(text2="a dog", dropout=0.2, **knobs_with(step))
    figure = draw(sample, step)
    assert re.sub("<.*?>", "", figure.layout.title.text).split() == [declared.symbol, step]
    assert sample.layers[0].formula_of(declared) in figure.layout.title.subtitle.text
    assert "Attention Weights" not in text_around(figure)
    assert figure.layout.meta["step"] == step


def test_map_names_layer_head_and_shape_counted_from_zero():
    assert "L0 H2" in text_around(heatmap.heatmap(trace(), "query", head=2))
    assert "6 × 16" in text_around(heatmap.heatmap(trace(), "query", head=2))
    assert "H0" not in text_around(heatmap.heatmap(trace(), "input"))
    mosaic = [note.text for note in heatmap.heads(trace(), "weights").layout.annotations]
    assert mosaic == ["L0 H0", "L0 H1", "L0 H2", "L0 H3"]


@pytest.mark.parametrize("draw", [heatmap.heatmap, heatmap.heads])
def test_alt_text_describes_the_map(draw):
    alt = draw(trace(text2="a dog ran"), "weights").layout.meta["alt"]
    for part in (
        "Heatmap of weights",
        "softmax",
        "L0",
        "6 × 3",
        "query (attends from)",
        "key (attends to)",
        "every row sums to 1",
    ):
        assert part in alt
    assert "table" not in alt  # some pages have no table
    scores = trace().layers[0].scores
    if draw is heatmap.heads:
        assert (
            f"from {format_number(float(scores.min()))} to {format_number(float(scores.max()))}"
            in draw(trace(), "scores").layout.meta["alt"]
        )


# -- the chosen cell ----------------------------------------------------------------------------


def boxes(figure):
    return {
        (shape.x0 + 0.5, shape.y0 + 0.5, shape.x1 - shape.x0, shape.y1 - shape.y0) for shape in figure.layout.shapes
    }


def test_chosen_cell_its_row_and_its_column_are_outlined():
    assert boxes(heatmap.heatmap(trace(), "weights", chosen=Cell(0, "weights", 0, 2, 4))) == {
        (4, 2, 1, 1),
        (0, 2, 6, 1),
        (4, 0, 1, 6),
    }


def test_other_maps_mark_the_same_query_and_key():
    chosen = Cell(0, "weights", 0, 2, 4)
    assert boxes(heatmap.heatmap(trace(), "scores", chosen=chosen)) == {(4, 2, 1, 1), (0, 2, 6, 1), (4, 0, 1, 6)}
    assert boxes(heatmap.heatmap(trace(), "query", chosen=chosen)) == {(0, 2, 16, 1)}
    assert boxes(heatmap.heatmap(trace(), "value", chosen=chosen)) == {(0, 4, 16, 1)}
    assert boxes(heatmap.heatmap(trace(), "weights", chosen=Cell(0, "query", 0, 2, 4))) == {(0, 2, 6, 1)}
    assert boxes(heatmap.heatmap(trace(), "output", chosen=Cell(0, "embedding", 0, 2, 4))) == {(0, 2, 64, 1)}


@pytest.mark.parametrize("column", [3, 11])
def test_rotated_maps_outline_both_source_columns(column):
    [query, _] = factor_maps(trace(positions="rope"), Cell(0, "rotated_query", 1, 4, column))
    source_columns = (
        rotate(torch.eye(16)[:, None].expand(-1, 5, -1), 10_000.0)[:, 4, column].nonzero().flatten().tolist()
    )
    assert boxes(message.to_plotly(query)) == {
        (0, 4, 16, 1),
        *((index, 0, 1, 6) for index in source_columns),
        *((index, 4, 1, 1) for index in source_columns),
    }
    assert len(source_columns) == 2
    assert query["layout"]["meta"]["chosen"] == [4, column]


def test_nothing_is_outlined_without_a_chosen_cell():
    assert boxes(heatmap.heatmap(trace(), "weights")) == boxes(heatmap.heads(trace(), "weights")) == set()


def test_mosaic_outlines_the_chosen_head_and_its_cell_everywhere():
    figure = heatmap.heads(trace(), "weights", chosen=Cell(0, "weights", 2, 1, 3))
    corners = [(panel["x"], panel["y"]) for panel in figure.layout.meta["panels"]]
    assert boxes(figure) == {(*corners[2], 6, 6), *((x + 3, y + 1, 1, 1) for x, y in corners)}


def test_map_position_gives_the_cell_drawn_there():
    sample = trace(text2="a dog ran")
    assert heatmap.cell_at(heatmap.heatmap(sample, "weights", head=3), 2, 5) == Cell(0, "weights", 3, 5, 2)
    figure = heatmap.heads(sample, "weights")
    for panel in figure.layout.meta["panels"]:
        x, y = panel["x"] + 2, panel["y"] + 5
        assert heatmap.cell_at(figure, x, y) == Cell(0, "weights", panel["head"], 5, 2)
        assert z(figure)[y, x] == sample.layers[0].weights[panel["head"], 5, 2]


def test_mosaic_gap_has_no_cell():
    figure = heatmap.heads(trace(), "weights")
    gutters = np.argwhere(np.isnan(z(figure)))
    assert len(gutters)
    assert all(heatmap.cell_at(figure, int(x), int(y)) is None for y, x in gutters)
    assert not any(data.hoverongaps for data in figure.data if data.hoverongaps is not None)
    assert figure.data[0].hoverongaps is False


# -- large maps ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large():
    return trace(" ".join(words(512)), mask="causal")


def test_million_numbers_draw_block_maxima_with_a_note(large):
    figure = heatmap.heads(large, "scores")
    assert "each cell the largest of 2 × 2" in text_around(figure)
    for head, drawn in panels(figure):
        blocks = large.layers[0].scores[head].unflatten(0, (256, 2)).unflatten(2, (256, 2)).transpose(1, 2).flatten(2)
        assert np.array_equal(drawn, blocks.gather(-1, blocks.abs().argmax(dim=-1, keepdim=True))[..., 0].numpy())


def test_only_fully_hidden_blocks_are_gaps(large):
    figure = heatmap.heads(large, "masked_scores")
    hidden = np.triu(np.ones((256, 256), dtype=bool), 1)
    assert np.array_equal(np.isnan(panels(figure)[0][1]), hidden)
    assert np.array_equal(np.isfinite(figure.data[1].z[:256, :256]), hidden)


def test_block_hover_names_the_positions_it_covers(large):
    axis = heatmap.heads(large, "scores").layout.yaxis
    assert axis.labelalias["3"] == "6…7 w6"


def test_edge_blocks_keep_their_numbers_and_gaps():
    mask = torch.zeros(1001, 1001, dtype=torch.bool)
    mask[1000, 1000] = True
    tensor = torch.where(mask, -5.0, -math.inf)[None]
    drawn = panels(heatmap.heads(trace_of(words(1001), masked_scores=tensor, mask=mask), "masked_scores"))[0][1]
    assert drawn.shape == (501, 501)
    assert drawn[-1, -1] == -5
    assert np.isnan(drawn).sum() == 501 * 501 - 1


def test_144_heads_are_one_small_map():
    sample = trace_of(words(64), weights=uniform(144, 64, 64))
    start = time.thread_time()  # processor time, which other processes do not affect
    figure = heatmap.heads(sample, "weights", chosen=Cell(0, "weights", 0, 1, 2))
    assert time.thread_time() - start < 10  # a tenth of a second here
    assert len(figure.data) == 1


@pytest.mark.parametrize("step", NAMES)
def test_plotly_accepts_every_key_of_every_figure(step):
    trace = TypedText(
        "a b c",
        AttentionConfig(mask="causal", dropout=0.5, **knobs_with(step)),
        "d e",
    ).trace()
    chosen = Cell(0, step, 0, 0, 0)
    for figure in (
        heatmap.heatmap(trace, step, chosen=chosen),
        heatmap.heads(trace, step, chosen=chosen),
        heatmap.mask_map(trace, chosen=chosen),
    ):
        go.Figure(figure.to_dict())  # raises an error for a key or a value unknown to Plotly


def test_drawing_leaves_the_trace_unchanged():
    sample = trace(mask="causal")
    originals = [tensor.clone() for _, tensor in sample.layers[0]]
    for step, _ in sample.layers[0]:
        heatmap.heatmap(sample, step.name).data[0].z[:] = 9
        heatmap.heads(sample, step.name).data[0].z[:] = 9
    assert all(torch.equal(old, tensor) for old, (_, tensor) in zip(originals, sample.layers[0], strict=True))


# -- in a browser -----------------------------------------------------------------

PLACE = """([x, y]) => {
    const map = document.getElementById("map"), {xaxis, yaxis} = map._fullLayout, box = map.getBoundingClientRect();
    return [box.left + xaxis._offset + xaxis.d2p(x), box.top + yaxis._offset + yaxis.d2p(y)];
}"""


@pytest.mark.browser
def test_plotly_paints_tokens_as_text_and_nothing_between_panels(tmp_path, browser):
    sample = trace_of(
        ["<s>", "2024", "the", "the", "</s>", "2024-01-15"],
        weights=uniform(4, 6, 6),
        mask=torch.ones(6, 6, dtype=torch.bool).tril(),
    )
    page = browser.new_page()

    hover_text = page.locator(".hoverlayer")

    def hover(x, y):
        page.mouse.move(*page.evaluate(PLACE, [x, y]))

    def show(figure):
        figure.write_html(tmp_path / "map.html", div_id="map")
        page.goto((tmp_path / "map.html").as_uri())
        page.wait_for_selector("#map .nsewdrag")

    show(heatmap.heatmap(sample, "weights").update_layout(width=900))
    assert page.locator("#map .xtick text").all_text_contents() == list(sample.tokens)
    assert page.locator("#map .ytick text").all_text_contents() == list(sample.tokens)
    hover(0, 4)
    expect(hover_text).to_contain_text("0.166666672")
    hover(4, 0)
    expect(hover_text).to_contain_text("hidden")
    figure = heatmap.heads(sample, "weights").update_layout(width=900)
    show(figure)
    second = figure.layout.meta["panels"][1]
    hover(second["x"], second["y"] + 2)
    expect(hover_text).to_contain_text("L0 H1")
    hover(second["x"] - 1, second["y"] + 2)
    expect(hover_text).to_have_text("")
    page.close()


def test_minus_zero_prints_as_zero():
    cold = TypedText("the cat sat", AttentionConfig(temperature=math.inf)).trace()
    assert "numbers from 0 to 0." in heatmap.heatmap(cold, "scaled_scores").layout.meta["alt"]


def test_scale_leaves_out_queries_of_few_keys_and_outlier_features():
    tokens = tuple(f"w{i}" for i in range(60))
    causal = TypedText(" ".join(tokens), AttentionConfig(mask="causal")).trace()
    weights = causal.layers[0].weights
    figure = heatmap.heatmap(causal, "weights", colors="stretched")
    assert figure.data[0].zmax == float(weights[0, 7:].max()) < float(weights[0].max()) == 1
    assert colour_notes(figure) == [f"full colour = {figure.data[0].zmax:.3g} or more"]
    output = torch.randn(60, 64, generator=torch.Generator().manual_seed(0))
    ordinary = float(output.abs().max())
    output[:, 5] *= 100
    outlier = trace_of(tokens, output=output, weights=torch.full((1, 60, 60), 1 / 60))
    figure = heatmap.heatmap(outlier, "output")
    assert 0 < figure.data[0].zmax < ordinary
    assert colour_notes(figure) == [f"cut at {figure.data[0].zmax:.3g}, largest {float(output.abs().max()):.3g}"]
