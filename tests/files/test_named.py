"""One text that holds several matrices by their names, and tables whose rows have names."""

import pytest

from attention.files.matrix_text import parse_text
from attention.sources.matrix_fields import field_of_label, fields_of_kind, kind_of_fields, matrices_by_field

pytestmark = pytest.mark.quick

TWO = "[[1, 0], [0, 1]]"


@pytest.mark.parametrize(
    ("label", "field"),
    [
        ("Q", "query"), ("queries", "query"), ("self.W_query", "w_q"), ("Wq", "w_q"), ("MW_Q", ""), ("M_Q", "w_q"), ("inputs", "x"),
        ("attn_scores", "scores"), ("b_v", "b_v"), ("W_out", "w_o"), ("attn_weights", ""), ("", ""), ("Q[0]", ""),
    ],
)  # fmt: skip
def test_matrix_name_means_one_field_or_none(label: str, field: str) -> None:
    assert field_of_label(label) == field


@pytest.mark.parametrize(
    ("text", "current", "gives", "fields"),
    [
        (f"Q = {TWO}\nK = {TWO}\nV = {TWO}", "X and weights", "Q, K and V", ["query", "key", "value"]),
        ("Q:\n1 2\n3 4\nK:\n1 2\n3 4\nV:\n5 6\n7 8", "scores and V", "Q, K and V", ["query", "key", "value"]),
        (f"x = {TWO}\nWq = {TWO}\nWk = {TWO}\nWv = {TWO}\nqueries = {TWO}\nkeys = {TWO}\nvalues = {TWO}\nweights = {TWO}",
         "Q, K and V", "X and weights", ["x", "w_q", "w_k", "w_v"]),
        (f"W_q = {TWO}\nW_k = {TWO}", "X and weights", "X and weights", ["w_q", "w_k"]),
        (f"W_q = {TWO}\nW_k = {TWO}", "scores and V", "", []),
        (f"scores = {TWO}\nV = {TWO}\nbias = {TWO}", "X alone", "scores and V", ["scores", "value", "bias"]),
    ],
)  # fmt: skip
def test_named_matrices_fill_their_fields(text: str, current: str, gives: str, fields: list[str]) -> None:
    matrices = matrices_by_field(parse_text(text, "X"))
    assert kind_of_fields(matrices, current) == gives
    assert list(fields_of_kind(matrices, gives) if gives else {}) == fields


@pytest.mark.parametrize(
    "text",
    [
        f"Q = {TWO}",
        f"A = {TWO}\nB = [[2]]",
        f"Q = {TWO}\nQ = [[2]]\nK = {TWO}",  # which of the two?
        f"Q = [{TWO}, {TWO}]\nK = {TWO}",  # heads, or a batch?
    ],
)
def test_unclear_matrix_names_stay_a_question(text: str) -> None:
    assert matrices_by_field(parse_text(text, "Q")) == {}


def test_table_keeps_the_names_of_its_rows() -> None:
    assert parse_text("token,a,b\nthe,1,2\ncat sat,3,4", "X").names == ("the", "cat sat")
    assert parse_text("the,1,2\ncat,3,4", "X").names == ("the", "cat")
    assert parse_text("   0  1\n0  1  2\n1  3  4", "X").names == ()
