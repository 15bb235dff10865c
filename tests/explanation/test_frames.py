import csv
import io
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from margins import approx

from attention import AttentionConfig, Cell, Layer, MissingError, Trace, TypedText, find_step
from attention.explanation import tables
from attention.trace.stats import StepStats

pytestmark = pytest.mark.quick

CAT = "the cat sat on the mat"


@cache
def trace(text=CAT, text2="", **knobs):
    return TypedText(text, AttentionConfig(**knobs), text2).trace()


def frames_csv(*place, **options):
    return "".join(tables.csv(*place, **options))


def parsed(text):
    return list(csv.reader(io.StringIO(text)))


@pytest.mark.parametrize("step", [step.name for step in trace().layers[0].steps])
def test_every_step_is_a_table_of_its_numbers(step):
    sample = trace(text2="a dog ran off", positions="sinusoidal", mask="causal", dropout=0.2)
    matrix = sample.layers[0].matrix(step, 1).numpy()
    table = tables.frame(sample, step, head=1).drop(columns="Σ row", errors="ignore")
    np.testing.assert_array_equal(table.to_numpy(), matrix)


def test_positions_keep_repeated_words_apart():
    table = tables.frame(trace(), "scores")
    assert list(table.index) == list(table.columns) == ["0 the", "1 cat", "2 sat", "3 on", "4 the", "5 mat"]
    assert table.index.name == "query_pos"


def test_table_rows_are_queries_and_columns_are_keys():
    table = tables.frame(trace("the cat", text2="a dog ran"), "scores")
    assert list(table.index) == ["0 the", "1 cat"]
    assert list(table.columns) == ["0 a", "1 dog", "2 ran"]


def test_axis_without_tokens_is_numbered():
    assert list(tables.frame(trace(), "query").columns) == [str(i) for i in range(16)]


def test_only_weights_get_a_row_sum_column():
    sample = trace("a b c d e", text2="x y", mask="window", window=1)
    assert tables.frame(sample, "weights")["Σ row"].tolist() == approx([1, 1, 1, 0, 0])
    assert "Σ row" not in tables.frame(sample, "masked_scores")


def test_hidden_score_is_minus_infinity_in_the_table():
    table = tables.frame(trace(mask="causal"), "masked_scores")
    assert table.loc["0 the", "1 cat"] == -math.inf


def test_table_tokens_are_literal_but_never_invisible():
    sample = Trace(("<s>", "", "a,b", '"', "\n"), (Layer(recorded={"weights": torch.eye(5)[None]}),))
    assert list(tables.frame(sample, "weights").index) == ["0 <s>", "1 ∅", "2 a,b", '3 "', "4 ⏎"]
    assert [row[0] for row in parsed(frames_csv(sample, "weights"))] == [
        "query_pos",
        "0 <s>",
        "1 ∅",
        "2 a,b",
        '3 "',
        "4 ⏎",
    ]


def test_csv_roundtrips_every_float_to_the_bit():
    sample = trace(mask="causal")
    for step in ("scores", "masked_scores", "weights", "output"):
        rows = parsed(frames_csv(sample, step, head=2))[1:]
        matrix = sample.layers[0].matrix(step, 2).numpy()
        assert np.array_equal(np.array([row[1 : matrix.shape[1] + 1] for row in rows]).astype(np.float32), matrix)


def test_csv_escapes_formulas_for_spreadsheets():
    sample = Trace(("=1+1", "@x"), (Layer(recorded={"weights": torch.eye(2)[None]}),))
    assert all(field[:1] not in tuple("=+@") for row in parsed(frames_csv(sample, "weights")) for field in row)


def test_writing_into_a_table_does_not_change_the_trace():
    sample = trace()
    weights = sample.layers[0].weights.clone()
    table = tables.frame(sample, "weights")
    table.iloc[:, :] = 9
    assert torch.equal(sample.layers[0].weights, weights)


def test_missing_head_step_or_layer_is_refused():
    sample = trace()
    for place in ({"head": 4}, {"layer": 1}):
        with pytest.raises(MissingError):
            tables.frame(sample, "weights", **place)
    with pytest.raises(MissingError, match="this source has no memory"):
        tables.frame(sample, "memory")


def test_word_repeated_five_times_gives_unique_columns():
    assert tables.frame(trace("the " * 5), "weights").columns.is_unique


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([[0.5, 0.5], [1, 0]], "Σ = 1 ✓"),
        ([[0.5, 0.5], [0, 0]], "Σ = 1, 0 in 1 row"),
        ([[1, 0], [0, 0], [0, 0]], "Σ = 1, 0 in 2 rows"),
        ([[0.5, 0.32], [1, 0]], "Σ = 0.82 … 1.00"),
        ([[0, 0]], "Σ = 0"),
    ],
)
def test_row_sums_are_shown_as_they_are(rows, text):
    assert tables.row_sums(StepStats.of(find_step("weights"), torch.tensor([rows]))) == text


def test_cell_is_named_by_its_tokens_and_positions():
    assert tables.cell_names(trace().layers[0], Cell(0, "weights", 0, 4, 1)) == (("query", "the"), ("key", "cat"))
    assert tables.cell_names(trace().layers[0], Cell(0, "query", 0, 2, 3)) == (("query", "sat"), ("d_k", ""))


def test_long_table_lists_every_number_once_with_its_position() -> None:
    trace = TypedText("the cat sat", AttentionConfig(n_heads=2, d_model=8)).trace()
    table = tables.long_frame(trace, ["weights"], heads=range(2))
    assert list(table) == ["head", "query", "key", "weights"]
    assert len(table) == 2 * 3 * 3
    weights = trace.layers[0].weights
    for i, (head, query, key) in enumerate((h, q, k) for h in range(2) for q in range(3) for k in range(3)):
        expected = (
            head,
            f"{query} {trace.tokens[query]}",
            f"{key} {trace.tokens[key]}",
            weights[head, query, key].item(),
        )
        assert tuple(table.iloc[i]) == expected
    for stop in (1, 4, 9, 10, 17, 18, 100):
        for start in (0, 1, 8, 9, 17):
            if start < stop:
                piece = tables.long_frame(trace, ["weights"], heads=range(2), start=start, stop=stop)
                assert piece.equals(table[start:stop].reset_index(drop=True))
    table_of_both = tables.long_frame(trace, ["masked_scores", "weights"], heads=[1])
    assert list(table_of_both) == ["head", "query", "key", "masked_scores", "weights"]
    assert list(tables.long_frame(trace, ["output"])) == ["query", "d_model", "output"]


def test_long_table_of_a_long_text_computes_uncached_heads() -> None:
    config = AttentionConfig(n_heads=2, d_model=8)
    source = TypedText("a b c d", config)
    source, single = (
        replace(source, max_bytes=max_bytes).trace() for max_bytes in (source.max_bytes, source.memory_bytes() - 1)
    )
    assert not single.layers[0].materialize_all_heads
    frames = [tables.long_frame(trace, ["weights"], heads=range(2)) for trace in (source, single)]
    assert frames[0]["weights"].to_numpy() == approx(frames[1]["weights"].to_numpy())
