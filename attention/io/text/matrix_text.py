"""Matrices as text: the reader of pasted or uploaded text, and the compact form in links.

Nothing is evaluated. Known text around numbers is stripped (`printed_formats`), brackets are counted (`brackets`), lines are split (`lines`,
`headed_table`), and every number is matched completely before it is converted. A text is therefore read as intended, leads to a question,
or is refused with a sentence. A text is never split into more pieces than a matrix may have rows or columns, so that ten megabytes
of nonsense are refused quickly and with little memory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from threading import Lock

from cachetools import LRUCache

from attention.errors import MatrixError
from attention.io.text.brackets import parse_brackets
from attention.io.text.latex import parse_latex
from attention.io.text.lines import parse_lines
from attention.io.text.matrix import (
    MAX_NUMBERS,
    MAX_SIDE,
    Matrix,
    Stack,
    allows_minus_inf,
    allows_stack,
    as_stack,
    too_large_error,
)
from attention.io.text.parsed import ParsedText, rounding_note
from attention.io.text.printed_formats import strip_wrappers

MAX_CHARACTERS = 32 * MAX_NUMBERS  # numpy.savetxt writes 25 characters per number

# Word processors and PDFs replace a hyphen before a digit by one of these; terminals draw tables with the last three.
_SIGNS = str.maketrans({"−": "-", "–": "-", "﹣": "-", "－": "-", "∞": "inf", "│": "|", "┃": "|", "║": "|"})
# 1.0e-03 * above the numbers, in MATLAB and torch output.
_SCALE = re.compile(r"(?<![\w.])1\.?0*e([+-]\d+)\s*\*\s*(?=[\[\n\r])")
_TUPLE = re.compile(r"\s{0,500}[({]\s*[({\d.+-][^=]*$")  # ((1, 0), (0, 1)), or {{1, 0}, {0, 1}} in Mathematica
_HEADS = re.compile(r"\s{0,99}\d{1,9} heads?:")  # the prefix of a stack in `format_matrix`
_BROKEN = re.compile(r"(?<![\w.])[+-]?\d+\.\d*(?![\w.])")


def _size(reading: ParsedText) -> int:
    counts = (len(rows) * len(rows[0]) for matrix in reading.choices.values() for rows in as_stack(matrix))
    return 1000 + sum(100 + 32 * count for count in counts)


# Cached readings: a page reads its matrices again at every change of a knob. The same tuples are returned each time;
# otherwise the tuples of every run would stay in memory until the next garbage collection.
_CACHE: LRUCache[bytes, ParsedText] = LRUCache(2**26, getsizeof=_size)
_LOCK = Lock()


def parse_text(text: str, name: str = "matrix") -> ParsedText:
    """The matrix in a pasted text, or a question with the matrices to choose from.

    Reads CSV, spreadsheet cells, lists, the output of NumPy, torch, JAX, TensorFlow, pandas and R, LaTeX, Markdown, and complete
    notebook cells with names and prompts. In several lines, `;` and tab separate numbers, which may then have decimal commas. In one
    line, `;` ends a row, as in `format_matrix` and MATLAB: "1,5;2,5" is two rows of two numbers.

    Raises:
        MatrixError: the text is not a matrix of finite numbers, or has more than 512 × 1024 of them.
    """
    if len(text) > MAX_CHARACTERS:
        raise too_large_error(name, f"a text of {len(text):,} characters")
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    key = bytes([allows_minus_inf(name) + 2 * allows_stack(name)]) + digest
    with _LOCK:
        cached: ParsedText | None = _CACHE.get(key)
    if cached is not None:
        return cached
    reading = _parse_text(text, name)
    with _LOCK:
        if _size(reading) <= _CACHE.maxsize:
            _CACHE[key] = reading
    return reading


def parse_matrix(text: str, name: str = "matrix", pick: str | int | None = None) -> Matrix | Stack:
    """The rows of a pasted matrix, or a matrix for each head; `pick` selects one of several by label or index.

    Raises:
        MatrixError: `parse_text` refuses the text, or it is ambiguous.
    """
    return parse_text(text, name).choose(pick, name)


def format_matrix(matrix: Matrix | Stack | Sequence[Sequence[float]]) -> str:
    """The matrix in one line, "1,0;0,0.5", or "2 heads: 1,0 / 0,1": short enough for a link. `parse_matrix` restores it exactly."""
    if len(matrix) and not isinstance(matrix[0][0], float | int):
        return f"{len(matrix)} head{'s' * (len(matrix) > 1)}: {' / '.join(map(format_matrix, matrix))}"  # type: ignore[arg-type]  # checked above
    return ";".join(",".join(map(_format_number, row)) for row in matrix)  # type: ignore[arg-type]  # as above


def _format_number(value: float) -> str:
    mantissa, _, exponent = repr(float(value)).partition("e")
    # A link decodes a plus as a blank.
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa.removesuffix(".0")


def _parse_text(text: str, name: str) -> ParsedText:
    if not text.isascii():
        text = text.removeprefix("\ufeff").translate(_SIGNS)
    if header := _HEADS.match(text):
        heads = text[header.end() :].split("/", MAX_SIDE + 1)
        if len(heads) > MAX_SIDE:
            raise too_large_error(name, f"more than {MAX_SIDE:,} matrices")
        return ParsedText(
            {"": tuple(as_stack(_parse_text(head_text, name).choose(None, name))[0] for head_text in heads)}
        )
    if "\\begin{" in text:
        reading = parse_latex(text, name)
    else:
        text = strip_wrappers(_apply_scale(text, name))
        if "[" not in text and _TUPLE.match(text):
            text = text.translate({ord("("): "[", ord(")"): "]", ord("{"): "[", ord("}"): "]"})
        reading = parse_brackets(text.strip(), name) if "[" in text else parse_lines(text, name)
    note = rounding_note(next(iter(reading.choices.values())))
    return reading.with_notes(note) if note else reading


def _apply_scale(text: str, name: str) -> str:
    """The text with a scale such as `1.0e-03 *` applied to every number below it, without loss of digits."""
    scales = list(zip(_SCALE.finditer(text), range(2), strict=False)) if "e" in text and "*" in text else []
    if not scales:
        return text
    if len(scales) > 1:
        raise MatrixError(f"{name} has several scales such as {scales[0][0][0].strip()!r}: paste one matrix at a time.")
    scale = scales[0][0]
    return text[: scale.start()] + _BROKEN.sub(rf"\g<0>e{int(scale[1])}", text[scale.end() :])
