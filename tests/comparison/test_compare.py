import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from margins import approx

from attention import AttentionConfig, Cell, Layer, MissingError, ShapeError, Trace, TypedText, paper
from attention.comparison import figures
from attention.comparison.comparison import (
    HeadIndex,
    color_limit,
    compare,
    describe_change,
    explain_difference,
)
from attention.explanation import tables
from attention.explanation.alignment import align
from attention.pictures.look import LIGHT
from attention.pictures.message import to_plotly

pytestmark = pytest.mark.quick

TEXT = "the cat sat on it"
A = TypedText(TEXT).trace()
COLD = TypedText(TEXT, AttentionConfig(temperature=0.3)).trace()
OTHER = TypedText("the dog sat on the it", AttentionConfig(temperature=0.3)).trace()
NAN = float("nan")


def given_weights(tokens, weights):
    """A trace with only these weights of one head."""
    return Trace(tuple(tokens), (Layer(recorded={"weights": weights[None]}),))


@pytest.mark.parametrize("step", ["query", "key", "scores", "masked_scores", "weights", "head_output", "output"])
def test_difference_of_equal_tokens_is_b_minus_a(step):
    for head, other in ((0, 0), (1, 3)):
        comparison = compare(A, COLD, step, HeadIndex(0, head), HeadIndex(0, other))
        expected = COLD.layers[0].matrix(step, other) - A.layers[0].matrix(step, head)
        assert torch.equal(comparison.matrix, expected)
        assert torch.equal(compare(COLD, A, step, HeadIndex(0, other), HeadIndex(0, head)).matrix, -expected)
        assert comparison.largest == float(expected.abs().max())
    identity = compare(A, A, step)
    assert identity.largest == 0
    assert identity.identity_words == "identical to rounding (largest difference 0)"
    assert not identity.largest_changes()


def test_rounding_differences_count_as_identical():
    weights = torch.full((2, 2), 0.5)
    noise = weights + torch.tensor([[1e-7, 0.0], [0.0, 0.0]])
    comparison = compare(given_weights("ab", weights), given_weights("ab", noise))
    assert comparison.largest > 0
    assert comparison.largest == approx(0, scale=1)
    assert comparison.identity_words == "identical to rounding (largest difference 1e-7)"
    assert not compare(given_weights("ab", weights), given_weights("ab", weights + 1e-4)).is_identical


def test_pieces_sum_over_keys_average_over_queries_and_leave_gaps():
    pieces = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.2, 0.2], [0.3, 0.3, 0.2, 0.2], [0.25, 0.25, 0.25, 0.25]])
    words = torch.tensor([[0.5, 0.5], [0.1, 0.9]])
    comparison = compare(given_weights(["[CLS]", "un", "##do", "it"], pieces), given_weights(["undo", "it"], words))
    assert comparison.a[1:, 1:] == approx(torch.tensor([[(0.3 + 0.5) / 2, 0.2], [0.5, 0.25]]))
    expected = torch.tensor([[NAN, NAN, NAN], [NAN, 0.5 - 0.4, 0.5 - 0.2], [NAN, 0.1 - 0.5, 0.9 - 0.25]])
    assert comparison.matrix == approx(expected, nan=True)
    (notes,) = comparison.notes
    assert notes.endswith("Without a partner: 0 [CLS] in A.")


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(0, 2**16))
def test_key_sums_do_not_depend_on_how_words_are_split(sizes, seed):
    words = ["abc"[:size] + str(i) for i, size in enumerate(sizes)]
    pieces = [letter if i == 0 else f"##{letter}" for word in words for i, letter in enumerate(word)]
    random = torch.rand(len(pieces), len(pieces), generator=torch.Generator().manual_seed(seed))
    a = given_weights(pieces, random / random.sum(dim=1, keepdim=True))
    b = given_weights(words, torch.eye(len(words)))
    forward, backward = compare(a, b), compare(b, a)
    assert forward.a.sum(dim=1) == approx(torch.ones(len(words)))
    assert torch.equal(forward.matrix, -backward.matrix)
    assert torch.equal(compare(a, a).matrix, torch.zeros_like(random))


def test_scores_are_never_summed_and_unmatched_rows_stay_empty():
    pieces = Trace(("un", "##do", "it"), (Layer(recorded={"scores": torch.ones(1, 3, 3)}),))
    words = Trace(("undo", "it"), (Layer(recorded={"scores": torch.ones(1, 2, 2)}),))
    comparison = compare(pieces, words, "scores")
    assert comparison.matrix == approx(torch.tensor([[NAN, 0.0], [NAN, 0.0]]), nan=True, scale=1)
    lone = [i for i, group in enumerate(align(A.tokens, OTHER.tokens).groups) if not group.has_partners]
    weights = compare(A, OTHER).matrix
    assert bool(weights[lone].isnan().all())
    assert bool(weights[:, lone].isnan().all())
    assert int(weights.isfinite().sum()) == (len(weights) - len(lone)) ** 2


def test_hidden_scores_and_half_hidden_weights_have_no_difference():
    causal = TypedText(TEXT, AttentionConfig(mask="causal")).trace()
    hidden = ~causal.layers[0]["mask"]
    for first, second in ((causal, causal), (A, causal), (causal, A)):
        same_mask = first is second
        assert torch.equal(compare(first, second, "masked_scores").matrix.isnan(), hidden)
        assert torch.equal(compare(first, second, "weights").matrix.isnan(), hidden & torch.tensor(same_mask))


def test_missing_differences_report_sizes_or_steps_that_differ():
    small = TypedText(TEXT, AttentionConfig(d_model=32)).trace()
    with pytest.raises(ShapeError, match=r"query has 16 columns \(d_k\) in A and 8 in B.*Choose the same size"):
        compare(A, small, "query")
    assert compare(A, small, "weights").matrix.shape == (5, 5)
    long = [TypedText(" ".join(f"{name}{i}" for i in range(1500)), max_tokens=1500).trace() for name in "ab"]
    with pytest.raises(ShapeError, match="at most 8,388,608 cells, counting the tokens of both; got 9,000,000"):
        compare(*long)
    with pytest.raises(MissingError, match="B has no output, so there is no difference"):
        compare(A, given_weights("ab", torch.eye(2)), "output")


def test_difference_limit_covers_all_layers_and_heads():
    heads = (COLD.layers[0].weights - A.layers[0].weights).abs()
    largest_head = int(heads.amax(dim=(1, 2)).argmax())
    assert color_limit(A, COLD, "weights", HeadIndex(), HeadIndex()) == (
        float(heads.max()),
        True,
        HeadIndex(0, largest_head),
    )
    assert (
        color_limit(A, COLD, "weights", HeadIndex(0, 1), HeadIndex(0, 2))[0]
        == compare(A, COLD, "weights", HeadIndex(0, 1), HeadIndex(0, 2)).largest
    )
    two = [Trace(first.tokens, (first.layers[0], second.layers[0])) for first, second in ((A, A), (A, COLD))]
    assert color_limit(*two, "weights", HeadIndex(), HeadIndex()).at == HeadIndex(1, largest_head)
    assert color_limit(*two, "output", HeadIndex(), HeadIndex()).at.layer == 1
    maps, _, _ = figures.comparison_maps(*two, Cell(0, "weights", 0, 0, 0), HeadIndex())
    assert maps[2]["data"][0]["zmax"] == float(heads.max()), "a layer without differences stays white"
    assert "identical to rounding (largest difference 0)" in maps[2]["layout"]["title"]["subtitle"]["text"]
    merged = compare(A, OTHER, "weights", HeadIndex(0, 2)).largest
    assert color_limit(A, OTHER, "weights", HeadIndex(), HeadIndex())[0] >= merged


def test_largest_cells_are_words_with_positions_only_for_repeated_tokens():
    a = given_weights(["it", "animal"], torch.tensor([[0.5, 0.5], [0.5, 0.5]]))
    b = given_weights(["it", "animal"], torch.tensor([[0.3, 0.71], [0.5, 0.5]]))
    comparison = compare(a, b)
    words = [describe_change(comparison, change) for change in comparison.largest_changes()]
    assert words == ["`it` → `animal` +0.21", "`it` → `it` −0.20"]
    twice = compare(A, OTHER)
    repeated = describe_change(twice, twice.largest_changes()[0])
    assert repeated.startswith("`")
    assert " → `" in repeated
    query = compare(A, TypedText(TEXT, AttentionConfig(seed=1)).trace(), "query")
    assert " → d_k " in describe_change(query, query.largest_changes()[0])


@pytest.mark.slow
def test_comparison_maps_share_scales_clicks_files_and_alt_texts():
    cell = Cell(0, "weights", 1, 2, 4)
    maps, comparison, reason = figures.comparison_maps(A, OTHER, cell, HeadIndex(0, 1), fit=True)
    assert not reason
    first, second, difference = (spec["data"][0] for spec in maps)
    assert (first["zmin"], first["zmax"]) == (second["zmin"], second["zmax"])
    assert (difference["zmin"], difference["zmax"]) == (-comparison.largest, comparison.largest)
    assert dict(map(tuple, difference["colorscale"]))[0.5] == LIGHT["zero"]
    ground = maps[2]["data"][1]
    assert "no partner" in ground["hovertemplate"]
    assert bool((torch.tensor(ground["z"]).isnan() == comparison.matrix.isfinite()).all())
    assert {shape["type"] for shape in maps[2]["layout"]["shapes"]} == {"line", "rect"}
    assert "rows and" in maps[2]["layout"]["title"]["subtitle"]["text"]
    # The target of a click on each of the maps.
    row, column = comparison.rows.group_index("a", 2), comparison.columns.group_index("a", 4)
    assert figures.cell_of_click(comparison, cell, "weights", 2, 4) == cell
    cell_b = figures.aligned_cell_of_b(comparison, cell)
    assert OTHER.tokens[cell_b.row] == "sat"
    assert figures.cell_of_click(comparison, cell, figures._b_map_name("weights"), cell_b.row, cell_b.column) == cell
    assert figures.cell_of_click(comparison, cell, maps[2]["layout"]["meta"]["step"], row, column) == cell
    dog = OTHER.tokens.index("dog")
    assert figures.cell_of_click(comparison, cell, figures._b_map_name("weights"), dog, 0) is None
    assert figures.aligned_cell_of_b(comparison, Cell(0, "weights", 1, A.tokens.index("cat"), 0)) is None
    # The arithmetic, the table and the picture show the same number.
    explanation = explain_difference(comparison, cell)
    assert explanation.value == float(comparison.matrix[row, column])
    assert explanation.result == approx(explanation.value)
    assert explain_difference(comparison, Cell(0, "weights", 1, A.tokens.index("cat"), 0)) is None
    frame = comparison.frame()
    assert frame.to_numpy()[row, column] == explanation.value
    assert len("".join(tables.csv_chunks(frame)).splitlines()) == len(comparison.rows.groups) + 1
    assert paper.picture([to_plotly(heatmap) for heatmap in maps], "svg", 20, True).count(b"cells-") > 3


def test_difference_is_a_table_of_pandas() -> None:
    difference = compare(TypedText("the cat sat on the mat").trace(), TypedText("the cat sat on the rug").trace())
    frame = difference.frame()
    assert (frame.index.name, frame.columns.name) == ("query_pos", "key_pos")
    assert frame.shape == tuple(difference.matrix.shape)
