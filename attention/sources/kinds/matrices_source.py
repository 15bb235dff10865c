"""How the source "matrices" is read: its knobs, and the source that they describe."""

from __future__ import annotations

from attention.core.names import KEY, MEMORY, QUERY, SCORES, VALUE
from attention.errors import MatrixError
from attention.io.text.matrix import as_stack
from attention.params.knob import Knob
from attention.params.ranges import Choice, Integer, Real, Text
from attention.sources.kinds.source_kind import SourceKind
from attention.sources.layer_knobs import read_config
from attention.sources.matrices import Matrices
from attention.sources.reader import ParameterReader
from attention.sources.split_heads import SYMBOLS

NAME = "matrices"
MATRIX_FIELDS = {
    "X and weights": ("x", "w_q", "w_k", "w_v", "w_o"),
    "Q, K and V": (QUERY, KEY, VALUE, "w_o"),
    "X alone": ("x", "w_o"),
    "scores and V": (SCORES, VALUE, "w_o"),
}
"""The kinds of matrices that users can enter, and the fields of each kind. W_O may be empty."""
OPTIONAL_MATRIX_FIELDS = {
    "X and weights": (MEMORY, "b_q", "b_k", "b_v", "b_o", "bias", "dropout_mask"),
    "Q, K and V": ("b_o", "bias", "dropout_mask"),
    "X alone": (MEMORY, "b_o", "bias", "dropout_mask"),
    "scores and V": ("b_o", "bias", "dropout_mask"),
}
"""The optional fields of each kind; all of them may be empty."""
UPLOADED = "uploaded"
"""Link key: the matrices that are too long for a link, with their sizes, such as x:512x64,w_q:64x64."""

# The integer matrices of the numpy notebook: small enough to compute by hand.
_MATRICES = {
    "x": "1,0,0;0,1,0;1,1,0;0,0,1",
    "w_q": "2,0,2;2,0,0;2,1,2",
    "w_k": "2,2,2;0,2,1;0,1,1",
    "w_v": "1,1,0;0,1,1;0,0,0",
    "w_o": "",
    QUERY: "2,0,2;2,0,0;4,0,2;2,1,2",
    KEY: "2,2,2;0,2,1;2,4,3;0,1,1",
    VALUE: "1,1,0;0,1,1;1,2,1;0,0,0",
    SCORES: "8,2,10,2;4,0,4,0;12,2,14,2;10,4,14,3",
    **dict.fromkeys((MEMORY, "b_q", "b_k", "b_v", "b_o", "bias", "dropout_mask"), ""),
}
MAX_MATRIX_CHARACTERS = 20_000  # characters; a longer text makes the text field slow

_PASTE = (
    "In any published form: CSV, spreadsheet cells, a list such as [[1, 0], [0, 1]], the output of NumPy, torch, TensorFlow, "
    "pandas or R, LaTeX, a Markdown table, or a complete notebook cell."
)
# fmt: off
MATRIX_KIND = Knob(
    "matrix_kind", "X and weights", Choice(tuple(MATRIX_FIELDS)), "You have",
    "The input and its projections; queries, keys and values; one matrix for all three; or the scores.",
    (NAME,))
MATRIX_HEADS = Knob(
    "given_heads", 1, Integer(1, limit="heads"), "Heads",
    "The columns of your matrices, and the rows of W_O, are split into this many heads, as nn.MultiheadAttention does.",
    (NAME,), section="More knobs", order=10)
DIVISOR = Knob(
    "divisor", None, Real(1e-6, 1e6, optional=True), "Divisor", "Divides the scores instead of √d_k.",
    (NAME,), section="More knobs", order=20, placeholder="√d_k")
VALID_KEYS = Knob(
    "valid_keys", None, Integer(1, limit="tokens", optional=True), "Valid keys",
    "The number of real keys; the keys after them are padding, hidden from every query.",
    (NAME,), section="More knobs", order=30, placeholder="all")
LABELS = Knob("labels", "", Text(2000), "Names of the tokens", "Separated by spaces. Empty: x0, x1, …", (NAME,))
MATRICES = tuple(
    Knob(name, text, Text(MAX_MATRIX_CHARACTERS, lines=4), f"Paste {SYMBOLS[name]}", _PASTE, (NAME,)) for name, text in _MATRICES.items())
# fmt: on


def read(reader: ParameterReader) -> Matrices:
    """The user's matrices with their config."""
    kind = reader.knob(MATRIX_KIND)
    labels = reader.knob(LABELS)
    config = read_config(reader, NAME)
    n_heads, divisor, valid = (reader.knob(knob) for knob in (MATRIX_HEADS, DIVISOR, VALID_KEYS))
    matrices = reader.matrices((*MATRIX_FIELDS[kind], *OPTIONAL_MATRIX_FIELDS[kind]))
    stack_size = max((len(as_stack(matrix)) for matrix in matrices.values() if matrix), default=1)
    if stack_size > reader.limits.heads:
        raise MatrixError(
            f"This server allows at most {reader.limits.heads} heads; got a stack of {stack_size}: provide fewer matrices."
        )
    return Matrices(
        **matrices,
        tokens=tuple(labels.split()),
        config=config,
        max_bytes=reader.limits.trace_bytes,
        n_heads=n_heads,
        divisor=divisor,
        valid=valid,
    )


KIND = SourceKind(NAME, read)


def uploaded_sizes(uploaded: str) -> dict[str, str]:
    """The sizes of the matrices that are too long for a link, by name, from the value of `uploaded`."""
    entries = (entry.partition(":") for entry in uploaded.split(","))
    return {name: size[:20] for name, _, size in entries if name in SYMBOLS}


def matrix_too_long_error(name: str, size: str) -> MatrixError:
    """The error for a matrix of which a link has only the size."""
    return MatrixError(
        f"{SYMBOLS[name]} ({size.replace('x', ' × ')}) is too long for a link, and this server does not have it: "
        "upload it again, or open a state file that holds it."
    )
