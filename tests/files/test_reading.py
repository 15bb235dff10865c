"""An ambiguous text becomes a question with choices; assumptions about a clear text become notes."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from margins import approx

from attention import AttentionError, MatrixError
from attention.files.matrix import _rounded_decimals
from attention.files.matrix_text import file_text, format_matrix, parse_matrix, parse_text

pytestmark = pytest.mark.quick

ROWS = ((0.5, 0.25), (0.125, 4.0))
FRAME = pd.DataFrame(ROWS)
HEADING, NUMBERS = "the first row is a heading", "all are numbers of the matrix"
FIRST_COLUMN, BOTH = "the first column numbers the rows", "the first row and column are headings"
DECIMALS = "one column, with decimal commas"

AMBIGUOUS = {
    "a heading that pandas writes": (
        FRAME.to_csv(index=False),
        "Is the first row, 0, 1, a heading, or are these numbers of the matrix?",
        {HEADING: ROWS, NUMBERS: ((0, 1), *ROWS)},
    ),
    "between tabs": (FRAME.to_csv(index=False, sep="\t"), "Is the first row", {HEADING: ROWS, NUMBERS: ((0, 1), *ROWS)}),
    "whole numbers under it": (
        "0;1;2\n5;6;7",
        "Is the first row, 0, 1, 2, a heading",
        {HEADING: ((5, 6, 7),), NUMBERS: ((0, 1, 2), (5, 6, 7))},
    ),
    "one column under it": ("0\n0.5\n0.25", "Is the first row, 0, a heading", {HEADING: ((0.5,), (0.25,)), NUMBERS: ((0,), (0.5,), (0.25,))}),
    "an index that pandas writes": (
        FRAME.to_csv(header=False),
        "Is the first column, 0, 1, a numbering, or are these numbers of the matrix?",
        {FIRST_COLUMN: ROWS, NUMBERS: ((0, *ROWS[0]), (1, *ROWS[1]))},
    ),
    "both": (
        "0,1\n0,0.5\n1,0.25",
        "Is the first row, 0, 1, a heading",
        {HEADING: ((0, 0.5), (1, 0.25)), BOTH: ((0.5,), (0.25,)), NUMBERS: ((0, 1), (0, 0.5), (1, 0.25))},
    ),
    "an index with a name": ("id,d0\n0,0.5\n1,0.25", "Is the first column, 0, 1, a numbering", {FIRST_COLUMN: ((0.5,), (0.25,)), NUMBERS: ((0, 0.5), (1, 0.25))}),
    "Markdown's first row": ("| 1 | 2 |\n|---|---|\n| 3 | 4 |", "Is the first row, 1, 2, a heading", {HEADING: ((3, 4),), NUMBERS: ((1, 2), (3, 4))}),
    "a column of decimals": ("0,12\n0,25\n0,5", "Are its commas decimal commas?", {DECIMALS: ((0.12,), (0.25,), (0.5,)), "two columns": ((0, 12), (0, 25), (0, 5))}),
    "decimals on one line": ("0,05;0,2", "Are its commas decimal commas?", {DECIMALS: ((0.05,), (0.2,)), "two columns": ((0, 5), (0, 2))}),
    "a batch": ("tensor([[[1., 2.]], [[3., 4.]]])", "Which of the 2 matrices in this batch (2 × 1 × 2)?", {"[0]": ((1, 2),), "[1]": ((3, 4),)}),
    "a batch of batches": (
        "x = [[[[1]], [[2]]], [[[3]], [[4]]]]",
        "Which of the 4 matrices in this batch (2 × 2 × 1 × 1)?",
        {"x[0][0]": ((1,),), "x[0][1]": ((2,),), "x[1][0]": ((3,),), "x[1][1]": ((4,),)},
    ),
    "names": ("W_Q = [[1, 2]]\nW_K = [[3], [4]]", "Which of these matrices is it?", {"W_Q": ((1, 2),), "W_K": ((3,), (4,))}),
    "names above lines": ("Weight matrix W_q:\n1 2\n3 4\nWeight matrix W_k:\n5 6\n7 8", "Which of these", {"Weight matrix W_q": ((1, 2), (3, 4)), "Weight matrix W_k": ((5, 6), (7, 8))}),
    "named rows": ("the = np.array([1, 2])\ncat = np.array([3, 4])", "Which of these", {"all 2 as rows": ((1, 2), (3, 4)), "the": ((1, 2),), "cat": ((3, 4),)}),
    "no names": ("[[1], [2]]\n\n[[3, 4]]", "Which of these", {"matrix 0": ((1,), (2,)), "matrix 1": ((3, 4),)}),
    "one name for two": ("x = [[1], [2]]\nx = [[3, 4]]", "Which of these", {"x": ((1,), (2,)), "x, matrix 1": ((3, 4),)}),
    "a dictionary": ("{'W_Q': [[1], [2]], 'W_K': [[3, 4]]}", "Which of these", {"W_Q": ((1,), (2,)), "W_K": ((3, 4),)}),
    "LaTeX": (r"Q = \begin{bmatrix} 1 \end{bmatrix}, \quad K = \begin{bmatrix} 2 & 3 \end{bmatrix}", "Which of these", {"Q": ((1,),), "K": ((2, 3),)}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "question", "choices"), AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_ambiguous_text_is_asked_about(text, question, choices) -> None:
    reading = parse_text(text, "X")
    assert reading.question.startswith(question)
    assert dict(reading.choices) == choices
    for i, (choice, rows) in enumerate(choices.items()):
        assert parse_matrix(text, "X", pick=choice) == parse_matrix(text, "X", pick=i) == rows
        settled = parse_text(format_matrix(rows))
        assert not settled.question, "an answer is written in short form, which is unambiguous"
        assert parse_matrix(format_matrix(rows)) == rows
    with pytest.raises(MatrixError, match=r"^X needs an answer to “.*”; none was chosen: choose one of '.*\.$"):
        parse_matrix(text, "X")
    with pytest.raises(MatrixError, match="got 'another': choose one of"):
        parse_matrix(text, "X", pick="another")


NOTES = {
    "a batch of one": ("array([[[1., 2.]]])", "It was written as 1 × 1 × 2, a batch of one matrix; that matrix is used."),
    "a heading": ("d0,d1\n1,2", "The first row, d0, d1, is read as a heading."),
    "names of the rows": ("the 1 2\ncat 3 4", "The first column, the, cat, is read as names of the rows."),
    "pandas": (FRAME.to_csv(), "The first column, 0, 1, is read as names of the rows."),
    "decimal commas": ("0,5;1,5\n2,5;3,5", "Its commas are read as decimal commas."),
    "two columns": ("1,0\n0,1", "Its commas are read as column separators; write decimals with a point."),
    "two columns on one line": ("0,1;0,2", "Its commas are read as column separators; write decimals with a point."),
    "two small numbers above": ("0;1\n1;0", "Its first row, 0, 1, is read as numbers, not as a heading."),
    "two small numbers beside": ("0;5\n1;6", "Its first column, 0, 1, is read as numbers, not as names of the rows."),
    "code": ("X = [[1, 2]]\nX = softmax(X)", "The text around the numbers was ignored: 'X = softmax(X)'."),
    "torch": (
        "tensor([[0.1921, 0.1646], [0.2041, 0.1659]])",
        "The numbers have 4 digits after the point, as torch prints them: if they were rounded, the last digits of later steps may differ.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "note"), NOTES.values(), ids=NOTES)
def test_assumptions_of_the_reader_are_noted(text: str, note: str) -> None:
    reading = parse_text(text)
    assert not reading.question
    assert note in reading.notes


def test_shape_and_name_are_kept_as_written() -> None:
    assert (parse_text("W_q = [[1, 2]]").label, parse_text("W_q = [[1, 2]]").shape) == ("W_q", (1, 2))
    assert parse_text("[[[1, 2]], [[3, 4]]]").shape == (2, 1, 2)
    assert parse_text("1,2;3,4") == parse_text("1,2;3,4")


def test_printed_numbers_are_recognized_as_rounded() -> None:
    exact = np.random.default_rng(0).standard_normal((6, 6))
    for digits in (3, 4, 8):
        printed = parse_matrix(format_matrix(exact.round(digits).tolist()))
        assert _rounded_decimals(printed) == digits
    assert _rounded_decimals(parse_matrix(format_matrix(exact.tolist()))) is None
    assert _rounded_decimals(parse_matrix("0.43 0.15 0.89\n0.55 0.87 0.66")) is None, "two digits are chosen by hand"
    assert _rounded_decimals(parse_matrix("1 0\n0 1")) is None


def test_batch_in_a_file_is_asked_about_like_pasted_text(tmp_path) -> None:
    array = np.random.default_rng(0).standard_normal((2, 3, 4))
    np.save(tmp_path / "x.npy", array)
    reading = parse_text(file_text((tmp_path / "x.npy").read_bytes(), "x.npy"))
    assert list(reading.choices) == ["[0]", "[1]"]
    np.testing.assert_array_equal(reading.choices["[1]"], array[1])
    assert reading.shape == (2, 3, 4)


@pytest.mark.slow
def test_batch_is_bounded_like_a_matrix() -> None:
    for text in (
        "[" + "[[1]]," * 1025 + "]",
        "[" + ("[" + "[1]," * 1000 + "],") * 17 + "]",
        "x = [[1], [2]]\n" * 1025,
        "[[" + "1," * 1025 + "]]",
        "[" + ("[" + ("[" + "1," * 1000 + "],") * 100 + "],") * 6 + "]",
    ):
        with pytest.raises(MatrixError, match="may have at most 512 × 1024 numbers"):
            parse_text(text)


TOKENS = ["the", "cat", "sat", "on", "##ing", "mat"]
FORMS = {
    "print": str,
    "repr": repr,
    "list": lambda array: repr(array.tolist()),
    "torch": lambda array: repr(torch.tensor(array)),
    "a parameter": lambda array: repr(torch.nn.Parameter(torch.tensor(array))),
    "a name": lambda array: f"Weight matrix W_q:\n{array}\n",
    "code": lambda array: f"import numpy as np\nW_q = np.{array!r}  # the first\nprint(W_q.shape[0])\n",
    "a prompt": lambda array: f">>> W_q\n{torch.tensor(array)}",
    "commented": lambda array: "\n".join(f"# {line}" for line in repr(array).splitlines()),
    "pandas": lambda array: pd.DataFrame(array).to_string(),
    "pandas with tokens": lambda array: pd.DataFrame(array, TOKENS[: len(array)]).to_string(),
    "to_csv": lambda array: pd.DataFrame(array).to_csv(),
    "to_csv without an index": lambda array: pd.DataFrame(array).to_csv(index=False),
    "to_csv without a heading": lambda array: pd.DataFrame(array).to_csv(header=False),
    "to_csv of a German": lambda array: pd.DataFrame(array).to_csv(sep=";", decimal=","),
    "names in a csv": lambda array: pd.DataFrame(array).add_prefix("d").to_csv(index=False),
    "Markdown": lambda array: markdown(pd.DataFrame(array).add_prefix("d")),
    "LaTeX": lambda array: (
        r"W_q = \begin{bmatrix} " + r" \\ ".join(" & ".join(map(str, row)) for row in array) + r" \end{bmatrix}"
    ),
    "a batch of one": lambda array: repr(torch.tensor(array)[None]),
}


def markdown(frame: pd.DataFrame) -> str:
    rows = [list(frame.columns), ["---"] * len(frame.columns), *frame.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("written", FORMS.values(), ids=FORMS)
@given(st.integers(1, 6), st.integers(1, 7), st.integers(0, 2**16), st.sampled_from([0, 1, 2, 4]))
@settings(max_examples=30, deadline=None)
def test_printed_arrays_are_read_exactly_or_asked_about(written, rows, columns, seed, digits) -> None:
    # A single line has the form of a link, about which no question is asked.
    rows = rows + 1 if written is FORMS["to_csv without a heading"] else rows
    array = np.random.default_rng(seed).standard_normal((rows, columns)).round(digits)
    reading = parse_text(written(array))
    close = [np.shape(rows) == array.shape and rows == approx(array, scale=1) for rows in reading.choices.values()]
    assert any(close)
    assert len(close) == 1 or reading.question


PIECES = st.sampled_from(
    ["[", "]", "[[", "]]", "(", ")", "1", "0", "2.5", "-3", "1,5", ",", ";", "|", "#", "&", "$", "{", "}", "=", ":", "→", "\\", "...", "the", "W_q", "=", "W_q:\n", "In[1]:", "tensor(", "array(", ")\n", "0,1\n", "1,0\n", "²", "٣", "inf", " ", "\n", "\t", "|---|\n", ">>> ", "In [1]:", "# c\n", ", dtype=float32)", "\\begin{bmatrix}", "\\end{bmatrix}", "\\\\", "\\frac{1}{0}", "'a'", "Columns 1 to 2\n", "1.0e-03 *\n", "(0 ,.,.) = \n", "[,1]", "[1,]", "K.shape[1]", "^T", "\u2028", "\\begin{tabular}{ll}", "\\end{tabular}", "print(x)\n", " of size ", "\\dots", "Unnamed: 0", "\x00", ".T"]
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(PIECES, max_size=25).map("".join))
@settings(max_examples=500, deadline=None)
def test_pieces_of_published_text_give_a_reading_or_sentence(text: str) -> None:
    sentence = ""
    try:
        reading = parse_text(text, "W_Q")
    except AttentionError as error:
        sentence = str(error)
    if sentence:
        assert sentence.startswith("W_Q ")
        assert sentence.endswith(".")
        assert "\n" not in sentence
        return
    assert bool(reading.question) == (len(reading.choices) > 1)
    for rows in reading.choices.values():
        assert len({len(row) for row in rows}) == 1
        assert parse_matrix(format_matrix(rows)) == rows
