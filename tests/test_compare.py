import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention import AttentionConfig, Cell, Layer, MissingError, ShapeError, Trace, TypedText
from attention.export import paper
from attention.numbers import changes, tables
from attention.numbers.alignment import aligned
from attention.numbers.compare import Place, compare
from attention.numbers.limit import limit
from attention.pictures import compared
from attention.pictures.changed import drawn

TEXT = "the cat sat on it"
A = TypedText(TEXT).trace()
COLD = TypedText(TEXT, AttentionConfig(temperature=0.3)).trace()
OTHER = TypedText("the dog sat on the it", AttentionConfig(temperature=0.3)).trace()
NAN = float("nan")


def given_weights(tokens, weights):
    """A trace that has these weights of one head, and nothing else."""
    return Trace(tuple(tokens), (Layer(recorded={"weights": weights[None]}),))


@pytest.mark.parametrize("step", ["query", "key", "scores", "masked_scores", "weights", "head_output", "output"])
def test_of_equal_tokens_each_number_of_b_less_that_of_a(step):
    for head, other in ((0, 0), (1, 3)):
        found = compare(A, COLD, step, Place(0, head), Place(0, other))
        expected = COLD.layers[0].matrix(step, other) - A.layers[0].matrix(step, head)
        assert torch.equal(found.matrix, expected)
        assert torch.equal(compare(COLD, A, step, Place(0, other), Place(0, head)).matrix, -expected)
        assert found.largest == float(expected.abs().max())
    same = compare(A, A, step)
    assert same.largest == 0
    assert same.said == "identical to rounding (largest difference 0)"
    assert not same.changes()


def test_what_differs_by_rounding_alone_is_said_to_be_identical():
    weights = torch.full((2, 2), 0.5)
    noise = weights + torch.tensor([[1e-7, 0.0], [0.0, 0.0]])
    found = compare(given_weights("ab", weights), given_weights("ab", noise))
    assert 0 < found.largest < 2e-7
    assert found.said == "identical to rounding (largest difference 1e-7)"
    assert not compare(given_weights("ab", weights), given_weights("ab", weights + 1e-4)).identical


def test_pieces_are_summed_over_keys_and_averaged_over_queries_and_the_rest_has_no_number():
    pieces = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.2, 0.2], [0.3, 0.3, 0.2, 0.2], [0.25, 0.25, 0.25, 0.25]])
    whole = torch.tensor([[0.5, 0.5], [0.1, 0.9]])
    found = compare(given_weights(["[CLS]", "un", "##do", "it"], pieces), given_weights(["undo", "it"], whole))
    assert torch.allclose(found.a[1:, 1:], torch.tensor([[(0.3 + 0.5) / 2, 0.2], [0.5, 0.25]]))
    expected = torch.tensor([[NAN, NAN, NAN], [NAN, 0.5 - 0.4, 0.5 - 0.2], [NAN, 0.1 - 0.5, 0.9 - 0.25]])
    assert torch.allclose(found.matrix, expected, equal_nan=True)
    assert changes.alone(found.rows, ("[CLS]", "un", "##do", "it"), ("undo", "it")) == (["0 [CLS]"], [])


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(0, 2**16))
def test_the_sums_over_keys_stay_what_they_were_however_words_are_cut(sizes, seed):
    words = ["abc"[:size] + str(i) for i, size in enumerate(sizes)]
    pieces = [letter if i == 0 else f"##{letter}" for word in words for i, letter in enumerate(word)]
    random = torch.rand(len(pieces), len(pieces), generator=torch.Generator().manual_seed(seed))
    a = given_weights(pieces, random / random.sum(dim=1, keepdim=True))
    b = given_weights(words, torch.eye(len(words)))
    there, back = compare(a, b), compare(b, a)
    assert torch.allclose(there.a.sum(dim=1), torch.ones(len(words)))
    assert torch.equal(there.matrix, -back.matrix)
    assert torch.equal(compare(a, a).matrix, torch.zeros_like(random))


def test_scores_are_never_added_up_and_rows_of_other_texts_have_no_number():
    pieces = Trace(("un", "##do", "it"), (Layer(recorded={"scores": torch.ones(1, 3, 3)}),))
    whole = Trace(("undo", "it"), (Layer(recorded={"scores": torch.ones(1, 2, 2)}),))
    found = compare(pieces, whole, "scores")
    assert torch.allclose(found.matrix, torch.tensor([[NAN, 0.0], [NAN, 0.0]]), equal_nan=True)
    lone = [i for i, one in enumerate(aligned(A.tokens, OTHER.tokens).groups) if not one.partners]
    weights = compare(A, OTHER).matrix
    assert bool(weights[lone].isnan().all())
    assert bool(weights[:, lone].isnan().all())
    assert int(weights.isfinite().sum()) == (len(weights) - len(lone)) ** 2


def test_a_hidden_score_has_no_difference_and_a_hidden_weight_only_where_both_are():
    causal = TypedText(TEXT, AttentionConfig(mask="causal")).trace()
    hidden = ~causal.layers[0]["mask"]
    for one, other in ((causal, causal), (A, causal), (causal, A)):
        both = one is other
        assert torch.equal(compare(one, other, "masked_scores").matrix.isnan(), hidden)
        assert torch.equal(compare(one, other, "weights").matrix.isnan(), hidden & torch.tensor(both))


def test_columns_of_other_sizes_and_missing_steps_say_why_there_is_no_difference():
    small = TypedText(TEXT, AttentionConfig(d_model=32)).trace()
    with pytest.raises(ShapeError, match=r"query has 16 columns \(d_k\) in A and 8 in B.*Choose the same size"):
        compare(A, small, "query")
    assert compare(A, small, "weights").matrix.shape == (5, 5)
    long = [TypedText(" ".join(f"{name}{i}" for i in range(1500)), max_tokens=1500).trace() for name in "ab"]
    with pytest.raises(ShapeError, match="at most 8,388,608 cells, with the tokens of both; got 9,000,000"):
        compare(*long)
    with pytest.raises(MissingError, match="B has no output, so there is no difference"):
        compare(A, given_weights("ab", torch.eye(2)), "output")


def test_the_limit_is_that_of_all_layers_and_heads():
    heads = (COLD.layers[0].weights - A.layers[0].weights).abs()
    most = int(heads.amax(dim=(1, 2)).argmax())
    assert limit(A, COLD, "weights", Place(), Place()) == (float(heads.max()), True, Place(0, most))
    assert (
        limit(A, COLD, "weights", Place(0, 1), Place(0, 2))[0]
        == compare(A, COLD, "weights", Place(0, 1), Place(0, 2)).largest
    )
    two = [Trace(one.tokens, (one.layers[0], other.layers[0])) for one, other in ((A, A), (A, COLD))]
    assert limit(*two, "weights", Place(), Place()).at == Place(1, most)
    assert limit(*two, "output", Place(), Place()).at.layer == 1
    maps, _, _ = compared.compared_maps(*two, Cell(0, "weights", 0, 0, 0), Place())
    assert maps[2]["data"][0]["zmax"] == float(heads.max()), "nothing differs in this layer, and it stays white"
    assert "identical to rounding (largest difference 0)" in maps[2]["layout"]["title"]["subtitle"]["text"]
    merged = compare(A, OTHER, "weights", Place(0, 2)).largest
    assert limit(A, OTHER, "weights", Place(), Place())[0] >= merged


def test_the_largest_cells_in_words_with_places_only_where_a_token_is_there_twice():
    a = given_weights(["it", "animal"], torch.tensor([[0.5, 0.5], [0.5, 0.5]]))
    b = given_weights(["it", "animal"], torch.tensor([[0.3, 0.71], [0.5, 0.5]]))
    found = compare(a, b)
    assert [changes.words(found, a.layers[0], b.layers[0], one) for one in found.changes()] == [
        "`it` → `animal` +0.21",
        "`it` → `it` −0.20",
    ]
    twice = compare(A, OTHER)
    said = changes.words(twice, A.layers[0], OTHER.layers[0], twice.changes()[0])
    assert said.startswith("`")
    assert " → `" in said
    query = compare(A, TypedText(TEXT, AttentionConfig(seed=1)).trace(), "query")
    assert " → d_k " in changes.words(query, A.layers[0], A.layers[0], query.changes()[0])


def test_the_three_maps_share_what_they_must_and_can_be_clicked_saved_and_read():
    cell = Cell(0, "weights", 1, 2, 4)
    maps, found, why = compared.compared_maps(A, OTHER, cell, Place(0, 1), fit=True)
    assert not why
    one, two, less = (spec["data"][0] for spec in maps)
    assert (one["zmin"], one["zmax"]) == (two["zmin"], two["zmax"])
    assert (less["zmin"], less["zmax"]) == (-found.largest, found.largest)
    assert dict(map(tuple, less["colorscale"]))[0.5] == "#ffffff"
    ground = maps[2]["data"][1]
    assert "no partner" in ground["hovertemplate"]
    assert bool((torch.tensor(ground["z"]).isnan() == found.matrix.isfinite()).all())
    assert {shape["type"] for shape in maps[2]["layout"]["shapes"]} == {"line", "rect"}
    assert "rows and" in maps[2]["layout"]["title"]["subtitle"]["text"]
    # Where a click leads, on each of the maps.
    row, column = found.rows.place("a", 2), found.columns.place("a", 4)
    assert compared.clicked(found, cell, "weights", 2, 4) == cell
    there = compared.cell_of_b(found, cell, Place(0, 1))
    assert OTHER.tokens[there.row] == "sat"
    assert compared.clicked(found, cell, compared.b_map_name("weights"), there.row, there.column) == cell
    assert compared.clicked(found, cell, maps[2]["layout"]["meta"]["step"], row, column) == cell
    dog = OTHER.tokens.index("dog")
    assert compared.clicked(found, cell, compared.b_map_name("weights"), dog, 0) is None
    assert compared.cell_of_b(found, Cell(0, "weights", 1, A.tokens.index("cat"), 0), Place()) is None
    # The arithmetic, the table and the picture say the same number.
    told = changes.told(found, cell)
    assert told.value == float(found.matrix[row, column])
    assert math.isclose(told.result, told.value, abs_tol=1e-7)
    assert changes.told(found, Cell(0, "weights", 1, A.tokens.index("cat"), 0)) is None
    frame = tables.difference(found, A.layers[0], OTHER.layers[0])
    assert frame.to_numpy()[row, column] == told.value
    assert (
        len("".join(tables.difference_csv(found, A.layers[0], OTHER.layers[0])).splitlines())
        == len(found.rows.groups) + 1
    )
    assert paper.picture([drawn(one) for one in maps], "svg", 20, True).count(b"cells-") > 3
