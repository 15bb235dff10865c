"""Tables have the place of a patch beside its name, and the sentence of an explanation names the patch."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from tiny_pictures import WITH_TEXT, TinyPictureModels, noise, two_pictures

from attention import Model, Trace, TypedText, explain
from attention.base.tokens import Patch
from attention.explanation import tables

TEXT = "the owl asked the moon"


def trace_of(picture_models: TinyPictureModels, family: str) -> Trace:
    return Model(picture_models(family), TEXT if family in WITH_TEXT else "", image=Image.fromarray(noise())).trace()


def check_places(table: pd.DataFrame, prefix: str, tokens: list[str]) -> None:
    """Check that each row has the place of its token, or none if the token is no patch."""
    for name in ("picture", "row", "column"):
        expected = [getattr(token, name) if isinstance(token, Patch) else None for token in tokens]
        actual = [None if pd.isna(value) else int(value) for value in table[f"{prefix}{name}"]]
        assert actual == expected, name


def test_table_of_a_map_has_the_places_of_its_rows(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "LLaVA")
    layer = trace.layers[-1]
    table = tables.frame(trace, "weights", len(trace.layers) - 1, 1)
    assert list(table.columns[:3]) == ["picture", "row", "column"]
    assert table.columns[3] == "0 patch row 0, column 0"
    assert table.columns[-1] == "Σ row"
    check_places(table, "", list(layer.tokens))
    np.testing.assert_array_equal(table.iloc[:, 3:-1].to_numpy(), layer.matrix("weights", 1).numpy())
    # Read again, the CSV has the same.
    read = pd.read_csv(StringIO("".join(tables.csv(trace, "weights", len(trace.layers) - 1, 1))), index_col=0)
    check_places(read, "", list(layer.tokens))


def test_long_table_has_the_places_of_both_axes(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "LLaVA")
    index, layer = len(trace.layers) - 1, trace.layers[-1]
    n = len(layer.tokens)
    table = tables.long_frame(trace, ["scores", "weights"], index, (1, 2), start=5)
    rows = [(query, key) for _ in range(2) for query in range(n) for key in range(n)][5:]
    check_places(table, "query_", [layer.tokens[query] for query, _ in rows])
    check_places(table, "key_", [layer.tokens[key] for _, key in rows])
    assert table["query"].iloc[0] == "0 patch row 0, column 0"
    assert table["weights"].iloc[7] == layer.matrix("weights", 1)[rows[7]]
    values = tables.long_frame(trace, ["value"], index, (0,))
    assert [name for name in values.columns if "_" in name and name != "d_v"] == [
        "key_picture",
        "key_row",
        "key_column",
    ]


@pytest.mark.quick
def test_pictures_are_told_apart_and_texts_unchanged() -> None:
    table = tables.frame(two_pictures(), "weights", 2)
    assert table["picture"].dropna().tolist() == [1] * 6 + [0] * 6
    assert "picture" not in tables.frame(TypedText("a b").trace(), "weights").columns
    assert "query_row" not in tables.long_frame(TypedText("a b").trace(), ["weights"]).columns


@pytest.mark.sample(1)
@pytest.mark.parametrize("step", ["weights", "scores", "masked_scores", "head_output"])
def test_explanation_names_the_patches(picture_models: TinyPictureModels, step: str) -> None:
    words = explain(trace_of(picture_models, "ViT"), step, 1, 2, 5, 2).words
    assert "query 5 (patch row 1, column 1)" in words
    of_key = step in ("weights", "scores", "masked_scores")
    assert ("key 2 (patch row 0, column 1)" in words) == of_key
    assert words.count("patch") == 1 + of_key


def test_explanation_of_other_tokens_is_unchanged(picture_models: TinyPictureModels) -> None:
    words = explain(trace_of(picture_models, "ViT"), "weights", 1, 2, 0, 0).words
    assert words == "The share of key 0 in everything query 0 can see (7 keys)."
    weights = explain(two_pictures(), "weights", 2, 0, 1, 7)  # recorded
    assert "patch" not in weights.words
