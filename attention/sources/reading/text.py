"""A matrix as text: in, what a person pastes or uploads; out, a compact form for a link.

Nothing is evaluated. What is known to stand around numbers is peeled off (`around`), brackets are counted (`brackets`), lines are
split (`lines`, `table`), and every number is matched as a whole before it is read. So a text is read as it was meant, asked about,
or refused with a sentence. No more pieces of it are made than matrices may have rows or columns, so ten megabytes of nonsense are
refused quickly, and in little more memory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from threading import Lock

from cachetools import LRUCache

from attention.errors import MatrixError
from attention.sources.reading.around import peeled
from attention.sources.reading.brackets import bracketed
from attention.sources.reading.latex import latex
from attention.sources.reading.lines import lined
from attention.sources.reading.matrix import MAX_NUMBERS, MAX_SIDE, Matrix, Stack, hides, of_heads, stacks, too_large
from attention.sources.reading.reading import Reading, rounding

MAX_CHARACTERS = 32 * MAX_NUMBERS  # numpy.savetxt writes 25 a number

# Word processors and PDFs turn a hyphen before a digit into one of these; a table in a terminal is drawn with the last ones.
_SIGNS = str.maketrans({"−": "-", "–": "-", "﹣": "-", "－": "-", "∞": "inf", "│": "|", "┃": "|", "║": "|"})
# 1.0e-03 * above the numbers, of MATLAB and torch.
_SCALE = re.compile(r"(?<![\w.])1\.?0*e([+-]\d+)\s*\*\s*(?=[\[\n\r])")
_TUPLE = re.compile(r"\s{0,500}[({]\s*[({\d.+-][^=]*$")  # ((1, 0), (0, 1)); of Mathematica {{1, 0}, {0, 1}}
_HEADS = re.compile(r"\s{0,99}\d{1,9} heads?:")  # what `write` puts before a stack
_BROKEN = re.compile(r"(?<![\w.])[+-]?\d+\.\d*(?![\w.])")


def _size(reading: Reading) -> int:
    numbers = (len(rows) * len(rows[0]) for given in reading.choices.values() for rows in of_heads(given))
    return 1000 + sum(100 + 32 * many for many in numbers)


# What texts said: a page reads its matrices again whenever one of its knobs is turned. The same tuples each time, or
# those of every run would stand in memory until Python collects what runs leave behind.
_READ: LRUCache[bytes, Reading] = LRUCache(2**26, getsizeof=_size)
_LOCK = Lock()


def look(text: str, name: str = "matrix") -> Reading:
    """What a pasted text says: one matrix, or a question with the matrices to choose from.

    CSV, spreadsheet cells, lists, what NumPy, torch, JAX, TensorFlow, pandas and R print, LaTeX, Markdown, and whole cells of a
    notebook with names and prompts. On several lines, `;` and tab separate numbers, which may then have decimal commas. On
    one line, `;` ends a row, as `write` and MATLAB have it: "1,5;2,5" is two rows of two numbers.

    Raises:
        MatrixError: the text is no matrix of finite numbers, or has more than 512 × 1024 of them.
    """
    if len(text) > MAX_CHARACTERS:
        raise too_large(name, f"a text of {len(text):,} characters")
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    key = bytes([hides(name) + 2 * stacks(name)]) + digest
    with _LOCK:
        kept: Reading | None = _READ.get(key)
    if kept is not None:
        return kept
    reading = _look(text, name)
    with _LOCK:
        if _size(reading) <= _READ.maxsize:
            _READ[key] = reading
    return reading


def parse(text: str, name: str = "matrix", pick: str | int | None = None) -> Matrix | Stack:
    """The rows of a pasted matrix, or a matrix for each head; of several that it may be, the one that `pick` names or counts.

    Raises:
        MatrixError: what `look` refuses, or a question that is open.
    """
    return look(text, name).chosen(pick, name)


def write(given: Matrix | Stack | Sequence[Sequence[float]]) -> str:
    """The matrix in a line, "1,0;0,0.5", or "2 heads: 1,0 / 0,1": short enough for a link, and `parse` reads the same back."""
    if len(given) and not isinstance(given[0][0], float | int):
        return f"{len(given)} head{'s' * (len(given) > 1)}: {' / '.join(map(write, given))}"  # type: ignore[arg-type]  # it has looked
    return ";".join(",".join(map(_written, row)) for row in given)  # type: ignore[arg-type]  # as above


def _written(value: float) -> str:
    mantissa, _, exponent = repr(float(value)).partition("e")
    # In a link a plus would be read as a blank.
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa.removesuffix(".0")


def _look(text: str, name: str) -> Reading:
    if not text.isascii():
        text = text.removeprefix("\ufeff").translate(_SIGNS)
    if written := _HEADS.match(text):
        heads = text[written.end() :].split("/", MAX_SIDE + 1)
        if len(heads) > MAX_SIDE:
            raise too_large(name, f"more than {MAX_SIDE:,} matrices")
        return Reading({"": tuple(of_heads(_look(one, name).chosen(None, name))[0] for one in heads)})
    if "\\begin{" in text:
        found = latex(text, name)
    else:
        text = peeled(_scaled(text, name))
        if "[" not in text and _TUPLE.match(text):
            text = text.translate({ord("("): "[", ord(")"): "]", ord("{"): "[", ord("}"): "]"})
        found = bracketed(text.strip(), name) if "[" in text else lined(text, name)
    rounded = rounding(next(iter(found.choices.values())))
    return found.noting(rounded) if rounded else found


def _scaled(text: str, name: str) -> str:
    """The text with `1.0e-03 *` worked into every number below it, digit by digit."""
    scales = list(zip(_SCALE.finditer(text), range(2), strict=False)) if "e" in text and "*" in text else []
    if not scales:
        return text
    if len(scales) > 1:
        raise MatrixError(f"{name} has several scales such as {scales[0][0][0].strip()!r}: paste one matrix at a time.")
    scale = scales[0][0]
    return text[: scale.start()] + _BROKEN.sub(rf"\g<0>e{int(scale[1])}", text[scale.end() :])
