import re
import subprocess
import sys
import time
import tracemalloc
from io import BytesIO

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.lib import format as npy

from attention import AttentionError, MatrixError
from attention.base.cache import CACHE
from attention.files import matrix_text
from attention.files.matrix_text import file_text, format_matrix, parse_matrix, parse_text

pytestmark = pytest.mark.quick


def read_file(data: bytes, file_name: str, name: str = "matrix") -> tuple[tuple[float, ...], ...]:
    return parse_matrix(file_text(data, file_name, name), name)


SQUARE = ((1.0, 0.0), (0.0, 1.0))
ONE_ROW = ((1.0, 2.0, 3.0),)
FRACTIONS = ((1.5, -2.5), (0.00125, 4.0))

READ_AS = {
    "CSV": ("1,0\n0,1\n", SQUARE),
    "CSV of Windows, with a byte order mark": ("\ufeff1, 0\r\n0, 1\r\n", SQUARE),
    "CSV in quotes": ('"1","0"\n"0","1"', SQUARE),
    "commas at the ends of the lines": ("1, 0,\n0, 1,", SQUARE),
    "semicolons": ("1;0\n0;1", SQUARE),
    "semicolons at the ends of the lines": ("1, 0;\n0, 1;", SQUARE),
    "semicolons and decimal commas": ("1,5;-2,5\n0,00125;4", FRACTIONS),
    "decimal commas in quotes": ('"1,5";"-2,5"\n"0,00125";"4"', FRACTIONS),
    "tabs": ("1\t0\n0\t1", SQUARE),
    "tabs, decimal commas, another minus": ("1,5\t−2,5\n1,25E-03\t4", FRACTIONS),
    "tabs and points": ("1.5\t-2.5\n.00125\t4.", FRACTIONS),
    "blanks, blank lines": ("  1 0\n\n  0 1 \n", SQUARE),
    "a link": ("1,0;0,1", SQUARE),
    "a link to one column": ("1;2", ((1.0,), (2.0,))),
    "a link with a newline": ("1,0;0,1\n", SQUARE),
    "NumPy's print": ("[[1 0]\n [0 1]]", SQUARE),
    "NumPy's print of floats": ("[[ 1.5    -2.5    ]\n [ 0.00125  4.     ]]", FRACTIONS),
    "NumPy's repr": ("array([[1., 0.],\n       [0., 1.]], dtype=float32)", SQUARE),
    "a row broken by NumPy": ("[[1 2\n  3]]", ONE_ROW),
    "a Python list": ("[[1, 0], [0, 1]]", SQUARE),
    "a comma at the end of a list": ("[\n  [1, 0,],\n  [0, 1,],\n]", SQUARE),
    "a tuple": ("((1, 0), (0, 1))", SQUARE),
    "a tensor": ("tensor([[1., 0.],\n        [0., 1.]], grad_fn=<MmBackward0>)", SQUARE),
    "a tensor with all its words": (
        "tensor([[1., -0.]], device='cuda:0', dtype=torch.float64, requires_grad=True)",
        ((1.0, -0.0),),
    ),
    "scientific notation": ("tensor([[ 1.5000e+00, -2.5000e+00],\n        [ 1.2500e-03,  4.0000e+00]])", FRACTIONS),
    "a parameter": ("Parameter containing:\ntensor([[1., 0.],\n        [0., 1.]], requires_grad=True)", SQUARE),
    "Python code": ("W_Q = torch.tensor([[1, 0], [0, 1]], dtype=torch.float32)", SQUARE),
    "more Python code": ("w = np.array([[1, 0], [0, 1]], np.float32)", SQUARE),
    "print('W_Q', W_Q.shape, W_Q)": ("W_Q (2, 2) [[1 0]\n [0 1]]", SQUARE),
    "shape and array": ("((2, 2),\n array([[1, 0],\n        [0, 1]]))", SQUARE),
    "shape and array of one row": ("((3,), array([1, 2, 3]))", ONE_ROW),
    "NumPy's scalars": ("[[np.float64(1.0), np.float64(0.0)], [np.int64(0), tensor(1)]]", SQUARE),
    "MATLAB": ("[1 0; 0 1]", SQUARE),
    "rows in brackets of their own": ("[1 0]\n[0 1]", SQUARE),
    "one row of blanks": ("1 2 3", ONE_ROW),
    "one row of commas": ("1, 2, 3", ONE_ROW),
    "one row of tabs": ("1\t2\t3", ONE_ROW),
    "one list": ("[1., 2., 3.]", ONE_ROW),
    "one number": ("+1e0", ((1.0,),)),
    "decimal commas between blanks": ("1,5 -2,5\n0,00125 4", FRACTIONS),
    "a heading": ("d0,d1\n1,0\n0,1", SQUARE),
    "a list of Mathematica": ("{{1, 0}, {0, 1}}", SQUARE),
    "JSON with a name": ('{"W_Q": [[1, 0], [0, 1]]}', SQUARE),
    "a list of arrays": ("[array([1, 0]), array([0, 1])]", SQUARE),
    "calls in calls": ("W = nn.Parameter(torch.tensor([[1, 0], [0, 1]]), requires_grad=False)", SQUARE),
    "of the same numbers": ("torch.tensor([[1, 0], [0, 1]]).float().to(device)", SQUARE),
    "TensorFlow's repr": (
        "<tf.Tensor: shape=(2, 2), dtype=float32, numpy=\narray([[1., 0.],\n       [0., 1.]], dtype=float32)>",
        SQUARE,
    ),
    "truth values": ("tensor([[ True, False],\n        [False,  True]])", SQUARE),
    "JAX": ("Array([[1., 0.],\n       [0., 1.]], dtype=float32)", SQUARE),
    "MXNet": ("[[1. 0.]\n [0. 1.]]\n<NDArray 2x2 @cpu(0)>", SQUARE),
    "Jupyter": ("In [5]:\nW_Q\n\nOut[5]: tensor([[1., 0.],\n        [0., 1.]])", SQUARE),
    "a prompt": (">>> W_Q\ntensor([[1., 0.],\n        [0., 1.]])", SQUARE),
    "a prompt and its second line": (">>> x = torch.tensor([[1., 0.],\n...                   [0., 1.]])", SQUARE),
    "a print above it": ("print(W_Q)\n[[1 0]\n [0 1]]", SQUARE),
    "a sentence above it": ("Weight matrix W_q:\n[[1 0]\n [0 1]]", SQUARE),
    "a sentence above lines": ("Weight matrix W_q:\n1 0\n0 1", SQUARE),
    "a name before a line": ("W_q = 1,0;0,1", SQUARE),
    "a comment a row": ("[[1, 0],  # the\n [0, 1]]  # cat", SQUARE),
    "a row that is a comment": ("[[1, 0],\n # [2, 2],\n [0, 1]]", SQUARE),
    "comments only": ("# [[1 0]\n#  [0 1]]", SQUARE),
    "numpy.savetxt with a heading": ("# W\n1.0 0.0\n0.0 1.0", SQUARE),
    "an index in code": ("d = K.shape[1]\nW = [[1, 0], [0, 1]]", SQUARE),
    "words in a list": ("tokens = ['the', 'cat']\nW = [[1, 0], [0, 1]]", SQUARE),
    "torch 0.3": ("\n 1  0\n 0  1\n[torch.FloatTensor of size 2x2]\n", SQUARE),
    "torch 0.4 with a scale": (
        "tensor(1.00000e-02 *\n       [[ 150.0, -250.0],\n        [ 0.125,  400.0]])",
        FRACTIONS,
    ),
    "MATLAB's print with a scale": ("W =\n   1.0e+03 *\n\n    0.0015   -0.0025\n    0.00000125    0.0040", FRACTIONS),
    "a table of a terminal": ("┌───┬───┐\n│ 1 │ 0 │\n│ 0 │ 1 │\n└───┴───┘", SQUARE),
    "pandas in parts": ("   0  1  \\\n0  1  2   \n\n   2  \n0  3  ", ONE_ROW),
    "a table of rich": ("┏━━━┳━━━┓\n┃ a ┃ b ┃\n┡━━━╇━━━┩\n│ 1 │ 0 │\n│ 0 │ 1 │\n└───┴───┘", SQUARE),
    "MATLAB's print": ("W =\n\n     1     0\n     0     1\n", SQUARE),
    "Julia": ("2×2 Matrix{Float64}:\n 1.0  0.0\n 0.0  1.0", SQUARE),
    "R": ("     [,1] [,2]\n[1,]    1    0\n[2,]    0    1", SQUARE),
    "pandas": ("   0  1\n0  1  0\n1  0  1", SQUARE),
    "pandas with tokens": ("     the  cat\nthe  1.0  0.0\ncat  0.0  1.0", SQUARE),
    "pandas.to_csv": (",0,1\n0,1.0,0.0\n1,0.0,1.0", SQUARE),
    "tokens before the numbers": ("the 1 0\n##ing 0 1", SQUARE),
    "Markdown": ("| token | d0 | d1 |\n|---|---|---|\n| the | **1** | 0 |\n| cat | 0 | 1 |", SQUARE),
    "LaTeX": (r"W_Q = \begin{bmatrix} 1 & 0 \\ 0 & 1 \end{bmatrix}", SQUARE),
    "LaTeX with fractions": (
        r"$$\begin{pmatrix} \frac{3}{2} & -\dfrac52 \\[4pt] 1/800 & \mathbf{4} \end{pmatrix}.$$",
        FRACTIONS,
    ),
    "LaTeX, an array": (r"\left[\begin{array}{cc} 1 & 0 \\ 0 & 1 \\ \end{array}\right]", SQUARE),
    "LaTeX, decimal commas": (r"\begin{matrix} 1{,}5 & -2{,}5 \\ 0{,}00125 & 4 \end{matrix}", FRACTIONS),
    "LaTeX, a table": (
        r"\begin{tabular}{l|rr} & a & b \\ \hline the & 1 & 0 \\ cat & 0 & 1 \\ \hline \end{tabular}",
        SQUARE,
    ),
}


@pytest.mark.parametrize(("text", "rows"), READ_AS.values(), ids=READ_AS)
def test_pasted_matrix_is_read_as_intended(text: str, rows: object) -> None:
    assert repr(parse_matrix(text)) == repr(rows)  # repr tells −0 from 0


REFUSED = {
    "nothing": ("", "W_Q needs at least one number; got nothing: paste"),
    "blanks": (" \n\t ", "got only blanks"),
    "empty list": ("[[]]", "has nothing in row 0, column 0, where a number is expected: fill the cell"),
    "seven axes": ("[[[[[[[1]]]]]]]", "got more than 6 levels of brackets in row 0, column 0: paste one matrix"),
    "a batch that is ragged": ("[[[1, 2]], [[3, 4], [5, 6]]]", "got lists of 1 and 2: paste one of these matrices"),
    "shortened": (
        "[[1, 2, ..., 4]]",
        "'...' in row 0, column 2, where a number is expected: the printed output is abbreviated and lacks numbers",
    ),
    "rows left out": (
        "[[1 2]\n ...\n [3 4]]",
        "'...' in row 1, column 0, where a row in brackets is expected: the printed output is abbreviated",
    ),
    "ragged": ("1 2 3 4\n1 2 3 4\n1 2 3", "row 2 has 3 numbers, row 0 has 4: add"),
    "ragged list": ("[[1, 2], [3]]", "row 1 has 1 number, row 0 has 2: add"),
    "a heading in the middle": (
        "1,2\nd0,d1",
        "W_Q has 'd0' in row 1, column 0, where a number is expected: delete headings",
    ),
    "half a heading": ("1,d1\n1,2", "W_Q has 'd1' in row 0, column 1, where a number is expected: delete headings"),
    "word": ("1 2\n3 x", "W_Q has 'x' in row 1, column 1"),
    "NaN": ("[[1, nan]]", "has nan in row 0, column 1, where a finite number is expected"),
    "infinity": ("1 2\n-inf 0", "has -inf in row 1, column 0"),
    "infinity sign": ("1 −∞", "has -inf in row 0, column 1"),
    "overflow": ("1 1e999", "has inf in row 0, column 1"),
    "empty cell": ("1,,2", "has nothing in row 0, column 1"),
    "empty cell at the end": ("\t5\n3\t", "has nothing in row 0, column 0"),
    "empty row": ("1,0;;0,1", "has nothing in row 1, column 0"),
    "thousands or decimals": (
        "1,234\t5.5",
        "'5.5' in row 0, column 1, where a decimal comma, as in the other cells, is expected: write all numbers with a point",
    ),
    "comma and blank": ("[1 0, 2]", "'1 0' in row 0, column 0"),
    "decimal commas between blanks, on one line": ("1,5 2,5", "'5 2' in row 0, column 1"),
    "a transpose": ("np.array([[1, 2]]).T", "').T' after row 0"),
    "a factor": ("2 * [[1, 2]]", "'2 *' before row 0"),
    "a minus": ("-[[1, 2]]", "'-' before row 0"),
    "a function": ("exp([[1, 2]])", "'exp(' before row 0"),
    "a root": ("sqrt(2)", "'sqrt(2)' in row 0, column 0"),
    "a row that is no list": ("[1, 2], (3, 4)", "', (3, 4)' after row 0"),
    "a row that is no list, first": ("((1, 2), [3, 4])", "'((1, 2),' before row 0"),
    "a number beside a row": ("[[1, 2], 3]", "'3' in row 1, column 0, where a row in brackets"),
    "two matrices": (
        "[[1, 2]]\n[[3, 4]]",
        "needs an answer to “Which of these matrices is it?”; none was chosen: choose one of",
    ),
    "first bracket lost": ("[1 0]\n [0 1]]", "closing bracket for each opening one; got one too many"),
    "last bracket lost": ("[[1 0]\n [0 1]", "closing bracket for each opening one; got one too few"),
    "an index": ("[[1, 2], [3, 4]][0]", "'[' after row 1"),
    "an operation on its own line": ("K = 2 *\n[[1, 2]]", "'K = 2 *' before row 0"),
    "an argument": ("F.softmax(input=[[1, 2]], dim=1)", "'F.softmax(input=' before row 0"),
    "an increment": ("X += [[1, 2]]", "'X +=' before row 0"),
    "numbers between two matrices": ("[[1, 2]]\n3 4\n[[5, 6]]", "'3 4' after row 0"),
    "words alone": ("W_Q:\nW_K:\n", "got only words, such as 'W_Q:'"),
    "words in brackets alone": ("['the', 'cat']", "got only words in brackets"),
    "names that may be numbers": ("sqrt(2) 1\nsqrt(3) 2", "'sqrt(2)' in row 0, column 0"),
    "a number that is missing": ("the,1\nNaN,2", "'the' in row 0, column 0"),
    "a table that pandas shortened": (
        "     0  ...    9\n0  0.1  ...  0.2\n\n[1 rows x 10 columns]",
        "'...' in row 0, column 1, where a number is expected: the printed output is abbreviated",
    ),
    "two scales": ("A =\n1.0e-03 *\n1.0\nB =\n1.0e+03 *\n1.0", "several scales such as '1.0e-03 *'"),
    "torch 0.3 in parts": ("Columns 0 to 1 \n 1 2\n\nColumns 2 to 2 \n 3\n", "has 'Columns' in row 0, column 0"),
    "a row beside a list": ("[[1, 2], [[3, 4]]]", "got a row beside a list"),
    "LaTeX without an end": (r"\begin{bmatrix} 1 & 2", r"has \begin{bmatrix} without \end{bmatrix}"),
    "LaTeX without a matrix": (r"\begin{align} 1 \end{align}", "LaTeX without a matrix in it"),
    "LaTeX, transposed": (r"\begin{bmatrix} 1 & 2 \end{bmatrix}^T", "'^T' after row 0"),
    "LaTeX, a factor": (
        r"X = \frac{1}{2} \begin{bmatrix} 1 & 2 \end{bmatrix}",
        "'X = frac{1}{2}' before row 0, where only a name",
    ),
    "LaTeX, a product": (r"\begin{bmatrix} 1 \cdot 2 & 2 \end{bmatrix}", r"'1 \\cdot 2' in row 0, column 0"),
    "LaTeX, dots": (
        r"\begin{bmatrix} 1 & \cdots & 2 \end{bmatrix}",
        "'...' in row 0, column 1, where a number is expected: the printed output is abbreviated",
    ),
    "complex": ("[1+2j]", "'1+2j' in row 0"),
    "underscores": ("1_000", "'1_000' in row 0"),
    "other digits": ("١ ٢", "'١' in row 0"),
    "code": ("__import__('os').system('true')", "W_Q has \"__import__('os').system…\" in row 0, column 0"),
    "code in a list": ("[[__import__('os')]]", "has \"__import__('os')\" in row 0"),
    "NUL bytes": ("1\x00 2", r"'1\x00' in row 0, column 0"),
    "half a character": ("1 \ud800", r"'\ud800' in row 0, column 1"),
}


@pytest.mark.parametrize(("text", "sentence"), REFUSED.values(), ids=REFUSED)
def test_anything_else_is_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(MatrixError) as caught:
        parse_matrix(text, "W_Q")
    message = str(caught.value)
    assert sentence in message
    assert message.startswith("W_Q ")
    assert message.endswith(".")
    assert "\n" not in message


MANY, SOME = 10_000_000, 300_000  # a quadratic pattern takes minutes of either
HOSTILE = {
    "opening brackets": "[" * MANY,
    "closing brackets": "]" * MANY,
    "deep nesting": "[" * (MANY // 2) + "]" * (MANY // 2),
    "empty lists": "[]" * (MANY // 2),
    "short lists": "[1]" * (MANY // 3),
    "parentheses": "(" * MANY,
    "half tuples": "(1" * (MANY // 2),
    "words before": "a" * MANY + "[1]",
    "words after": "[1]" + ",a=<" * (MANY // 4),
    "calls": "tensor(" * (MANY // 7) + "[1]",
    "code": "__import__('os')" * (MANY // 16),
    "NUL bytes": "\x00" * MANY,
    "semicolons": ";" * MANY,
    "semicolons in brackets": "[" + ";" * MANY + "]",
    "commas": "," * MANY,
    "newlines": "\n" * MANY,
    "tabs": "\t1" * (MANY // 2),
    "quotes": '"' * MANY,
    "digits": "1" * MANY,
    "digits and a letter": "1" * MANY + "x",
    "exponents": "1e" * (MANY // 2),
    "one long row": "1," * (MANY // 2),
    "one long column": "1\n" * (MANY // 2),
    "more than a matrix": "1" * (2 * MANY),
    "comments": "#" * SOME,
    "comments and lists": "#[1]\n" * (SOME // 5),
    "prompts": ">>> a(" * (SOME // 6),
    "prompts and lists": ">>> a([1])\n" * (SOME // 11),
    "arrays": "array([" * (SOME // 7),
    "arrays in one list": "[" + "array([1])," * (SOME // 11) + "]",
    "names": "a = " * (SOME // 4) + "[1]",
    "named lists": "a = [1]\n" * (SOME // 8),
    "named rows": "a: 1\n" * (SOME // 5),
    "names alone": "a:\n" * (SOME // 3),
    "colons": ":" * SOME,
    "quoted words": "[" + "'a'," * (SOME // 4) + "]",
    "a quote in a list": "['" + "a" * SOME + "]",
    "shapes": "(1, 2), " * (SOME // 8) + "[[1]]",
    "sizes": "torch.Size([1, " * (SOME // 15),
    "blanks before parts": "1" + " " * SOME + "x\\\n",
    "scales": "1.0e-01 *\n" * (SOME // 10),
    "columns": "Columns 1 to 2\n1\n" * (SOME // 17),
    "parts": "1 \\\n\n" * (SOME // 5),
    "pipes": "|" * SOME,
    "ruled lines": "|-|\n" * (SOME // 4),
    "tables": "| 1 |\n|---|\n" * (SOME // 12),
    "LaTeX that begins": "\\begin{bmatrix}" * (SOME // 15),
    "LaTeX that is empty": "\\begin{bmatrix}\\end{bmatrix}" * (SOME // 28),
    "many LaTeX": "\\begin{bmatrix}1\\end{bmatrix}" * (SOME // 29),
    "one long LaTeX": "\\begin{bmatrix}" + "1 & " * (SOME // 4) + "\\end{bmatrix}",
    "one high LaTeX": "\\begin{bmatrix}" + "1 \\\\ " * (SOME // 5) + "\\end{bmatrix}",
    "a long column spec": "\\begin{array}{" + "c" * SOME,
    "fractions": "\\begin{bmatrix}" + "\\frac{" * (SOME // 6) + "\\end{bmatrix}",
    "braces": "{" * SOME,
    "a deep batch": "[[[[[[1]" + ",[1]" * (SOME // 4) + "]]]]]",
    "blanks in a call": "array(" + " " * SOME + "[1",
    "minus signs": "-" * SOME,
    "letters with numbers": "a1 " * (SOME // 3),
    "calls of nothing": "a.b(" * (SOME // 4),
}


@pytest.mark.sample(10)
@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_ten_megabytes_of_nonsense_are_refused_quickly(text: str) -> None:
    started = time.thread_time()
    with pytest.raises(MatrixError) as caught:
        parse_matrix(text)
    assert time.thread_time() - started < 60  # a fraction of a second here
    assert len(str(caught.value)) < 400


@pytest.mark.slow
@pytest.mark.parametrize("text", ["12\n", "12;", "12,", "12 ", "[12 ", "[12, ", "12\u2028", "12\t"])
def test_text_size_is_checked_before_parsing(text: str) -> None:
    text = (text[:-3] + text[-3:] * 2**18) + "]" * text.startswith("[")
    tracemalloc.start()
    try:
        with pytest.raises(MatrixError, match="more than 1,024"):
            parse_matrix(text)
        assert tracemalloc.get_traced_memory()[1] < 8 * sys.getsizeof(text)  # its pieces are 20 times as much
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@given(st.text(st.sampled_from("[]()1.5,; \t\n-e=…xnp'\"<"), max_size=40))
@settings(max_examples=500)
def test_any_pasted_text_gives_a_matrix_or_a_sentence(text: str) -> None:
    try:
        rows = parse_matrix(text)
    except AttentionError:
        return
    assert len({len(row) for row in rows}) == 1
    assert parse_matrix(format_matrix(rows)) == rows


def matrices(numbers: st.SearchStrategy[float]) -> st.SearchStrategy[tuple[tuple[float, ...], ...]]:
    def rows(width: int) -> st.SearchStrategy[list[tuple[float, ...]]]:
        return st.lists(st.tuples(*[numbers] * width), min_size=1, max_size=5)

    return st.integers(1, 5).flatmap(rows).map(tuple)


DOUBLE = st.floats(allow_nan=False, allow_infinity=False)
SINGLE = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(matrices(DOUBLE) | matrices(SINGLE))
def test_matrix_roundtrips_through_a_link(rows: tuple[tuple[float, ...], ...]) -> None:
    text = format_matrix(rows)
    assert not set(text) & set("+ \n")
    assert repr(parse_matrix(text)) == repr(rows)


def test_matrix_link_is_short() -> None:
    assert format_matrix(((1.0, -0.0), (0.1, 1e-7))) == "1,-0;0.1,1e-7"
    assert format_matrix(((1e22,),)) == "1e22"


@pytest.mark.slow
@given(matrices(SINGLE))
@example(((0.004310000687837601,),))  # nine digits after the point are not enough for it
def test_output_of_numpy_and_torch_is_read_back(rows: tuple[tuple[float, ...], ...]) -> None:
    array = np.array(rows, dtype=np.float32)
    with np.printoptions(floatmode="unique"):
        for text in (str(array), repr(array)):
            np.testing.assert_array_equal(np.array(parse_matrix(text), dtype=np.float32), array)
    np.testing.assert_array_equal(parse_matrix(str(array.tolist())), array)
    assert np.array(parse_matrix(repr(torch.tensor(array)))).shape == array.shape


# -- files ------------------------------------------------------------------------------------


def npy_bytes(array: np.ndarray) -> bytes:
    stream = BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def false_npy(shape: tuple[int, ...], descr: str = "<f8", version: tuple[int, int] = (1, 0)) -> bytes:
    stream = BytesIO()
    header = {"shape": shape, "fortran_order": False, "descr": descr}
    (npy.write_array_header_1_0 if version == (1, 0) else npy.write_array_header_2_0)(stream, header)
    return stream.getvalue() + bytes(8)


FILES = {
    "csv": (b"1,0\n0,1\n", "a.csv"),
    "semicolons": (b"1,0;0\n0;1,0\n", "a.CSV"),
    "tsv": (b"1\t0\r\n0\t1\r\n", "a.tsv"),
    "txt": (b"[[1 0]\n [0 1]]", "a.txt"),
    "a link": (b"1,0;0,1", "a.txt"),
    "byte order mark": (b"\xef\xbb\xbf1,0\n0,1", "a.csv"),
    "Excel's Unicode text": ("1,0\t0\r\n0\t1\r\n".encode("utf-16"), "a.txt"),
    "doubles": (npy_bytes(np.eye(2)), "a.npy"),
    "singles": (npy_bytes(np.eye(2, dtype=np.float32)), "a.npy"),
    "integers": (npy_bytes(np.eye(2, dtype=np.int8)), "a.npy"),
    "column by column": (npy_bytes(np.asfortranarray([[1.0, 0.0], [0.0, 1.0]])), "a.npy"),
    "other byte order": (npy_bytes(np.eye(2, dtype=">f4")), "a.npy"),
}


@pytest.mark.parametrize(("data", "file_name"), FILES.values(), ids=FILES)
def test_matrix_file_is_read(data: bytes, file_name: str) -> None:
    assert read_file(data, file_name) == SQUARE


def test_one_dimension_or_spreadsheet_line_is_one_row() -> None:
    assert read_file(npy_bytes(np.array([1, 2, 3])), "a.npy") == ONE_ROW
    assert read_file(b"1;2;3\n", "a.csv") == ONE_ROW
    assert read_file(b"1,5;2,5", "a.csv") == ((1.5, 2.5),)


def test_matrix_file_keeps_rows_and_columns() -> None:
    array = np.random.default_rng(0).standard_normal((3, 5))
    stream = BytesIO()
    np.savetxt(stream, array)
    assert read_file(npy_bytes(np.asfortranarray(array)), "a.npy") == parse_matrix(stream.getvalue().decode())
    np.testing.assert_array_equal(read_file(stream.getvalue(), "a.txt"), array)


BAD_FILES = {
    "another ending": (b"", "a.xlsx", "ends in .csv, .tsv, .txt or .npy; got 'a.xlsx'"),
    "no ending": (b"", "", "got ''"),
    "empty": (b"", "a.csv", "got nothing"),
    "no text": (b"\x80\x81", "a.txt", "in row 0, column 0"),
    "too long": (bytes(17 * 2**20), "a.csv", "at most 512 × 1024 numbers"),
    "no npy": (b"1,0\n0,1", "a.npy", "header that cannot be read"),
    "empty npy": (b"", "a.npy", "header that cannot be read"),
    "another version": (b"\x93NUMPY\x09\x00" + bytes(99), "a.npy", "header that cannot be read"),
    "zipped": (b"PK\x03\x04" + bytes(99), "a.npy", "header that cannot be read"),
    "cut": (npy_bytes(np.eye(9))[:-8], "a.npy", "9 × 9 by its header; got only 80 of 81 numbers"),
    "lying": (false_npy((10**6, 10**6)), "a.npy", "at most 512 × 1024 numbers"),
    "lying in one dimension": (false_npy((10**12,), version=(2, 0)), "a.npy", "at most 512 × 1024 numbers"),
    "lying a little": (false_npy((512, 1024)), "a.npy", "got only 1 of 524,288 numbers"),
    "negative": (false_npy((-1, -1)), "a.npy", "header that cannot be read"),
    "objects": (npy_bytes(np.array([[1, "x"]], dtype=object)), "a.npy", "got an array of 'object'"),
    "words": (npy_bytes(np.array([["x"]])), "a.npy", "got an array of '<U1'"),
    "booleans": (npy_bytes(np.eye(2, dtype=bool)), "a.npy", "got an array of 'bool'"),
    "complex": (npy_bytes(np.eye(2) * 1j), "a.npy", "got an array of 'complex128'"),
    "records": (npy_bytes(np.zeros(2, dtype="f4,f4")), "a.npy", "got an array of"),
    "a stack": (
        npy_bytes(np.zeros((2, 2, 2))),
        "a.npy",
        "“Are these 2 matrices (2 × 2 × 2) the heads, or is one of them meant?”",
    ),
    "seven axes": (npy_bytes(np.zeros((1,) * 7)), "a.npy", "got 1 × 1 × 1 × 1 × 1 × 1 × …"),
    "a number": (npy_bytes(np.array(1.0)), "a.npy", "got no axis"),
    "nothing in it": (npy_bytes(np.zeros((0, 3))), "a.npy", "got 0 × 3"),
    "NaN": (npy_bytes(np.array([[1, np.nan]])), "a.npy", "has nan in row 0, column 1"),
}


@pytest.mark.parametrize(("data", "file_name", "sentence"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_matrix_file_gets_one_sentence(data: bytes, file_name: str, sentence: str) -> None:
    with pytest.raises(MatrixError) as caught:
        read_file(data, file_name, "W_Q")
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("W_Q ")


@given(st.data())
def test_damaged_file_gives_a_matrix_or_a_sentence(data: st.DataObject) -> None:
    content = bytearray(npy_bytes(np.eye(2)))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, 80))] = data.draw(st.integers(0, 255))
    try:
        rows = read_file(bytes(content), "a.npy")
    except MatrixError:
        return
    assert len({len(row) for row in rows}) == 1


@pytest.mark.slow
def test_matrix_has_at_most_the_documented_size() -> None:
    row = " ".join(["1"] * 1024)
    rows = parse_matrix("\n".join([row] * 512))
    assert (len(rows), len(rows[0])) == (512, 1024)
    for text, reported in (
        ("\n".join([row] * 513), "513 × 1,024"),
        (f"{row} 1", "more than 1,024 numbers in row 0"),
        ("1\n" * 1025, "more than 1,024 rows"),
    ):
        with pytest.raises(MatrixError, match=f"may have at most 512 × 1024 numbers.*got {reported}"):
            parse_matrix(text)


@pytest.mark.slow
def test_importing_the_package_does_not_import_torch() -> None:
    code = "import attention, attention.files.matrix_text, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_text_is_parsed_once_in_a_cache_bounded_by_bytes(monkeypatch):
    text = format_matrix([[i + j / 7 for j in range(40)] for i in range(50)])
    first = parse_matrix(text, "X")
    with pytest.raises(MatrixError, match=r"X needs .* row 1 has 1") as refused:
        parse_matrix("1 2\n3", "X")
    monkeypatch.setattr(matrix_text, "_parse_text", lambda *_: pytest.fail("the text must not be read again"))
    assert parse_matrix(text, "X") is first
    with pytest.raises(MatrixError, match=re.escape(str(refused.value))):
        parse_matrix("1 2\n3", "X")
    keys = [key for key in CACHE.cache if isinstance(key, tuple) and key[0] == "text"]
    assert max(len(repr(key)) for key in keys) < 200  # a name and a digest, not the text
    assert parse_text(text, "X").nbytes > 32 * 40 * 50


@pytest.mark.parametrize(
    "text",
    [
        " " * 200_000 + "-" * 200_000,
        "[,1]" * 50_000 + "\n" * 200_000,
        "\n" * 200_000 + "[1,] x",
        "(\n[,1]" * 30_000,
        "xtensor([" * 30_000,
        "1 heads: " * 50_000,
        "1 2\n" + "dtype=1\u2028" * 16_000,
        "\n".join(["0 shape" + " " * 290] * 10_000),
    ],
)
def test_hostile_texts_end_in_a_sentence(text: str) -> None:
    # With patterns that backtrack, each took minutes: a page read it again at every change of a knob.
    with pytest.raises(MatrixError):
        parse_matrix(text, "Q")
