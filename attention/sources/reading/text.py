"""A matrix as text: in, what a person pastes or uploads; out, a compact form for a link.

Nothing is evaluated. Brackets are counted, what stands before and after them is compared with what
NumPy and torch print, and every number is matched as a whole before it is read. So a text is read
as it was meant or refused with a sentence. No more pieces of it are made than a matrix may have
rows or columns, so ten megabytes of nonsense are refused quickly, and in little more memory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import PurePath
from threading import Lock

from cachetools import LRUCache

from attention.errors import MatrixError
from attention.sources.reading.matrix import MAX_NUMBERS, MAX_SIDE, Matrix, check_size, checked, shown, too_large
from attention.sources.reading.npy import read_npy

MAX_CHARACTERS = 32 * MAX_NUMBERS  # numpy.savetxt writes 25 a number
ENDINGS = (".csv", ".tsv", ".txt", ".npy")

# Word processors and PDFs turn a hyphen before a digit into one of these.
_SIGNS = str.maketrans({"−": "-", "–": "-", "﹣": "-", "－": "-", "∞": "inf"})
_DIGITS = r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|nan|inf(?:inity)?)"
# NumPy 2 prints the numbers of a list as np.float64(0.5), torch as tensor(0.5).
_NUMBER = re.compile(
    rf"({_DIGITS})|(?:(?:np\.|numpy\.)?(?:float|u?int)\d+|tensor)\(({_DIGITS})\)", re.ASCII | re.IGNORECASE
)
_LONGEST = 500  # characters before or after the brackets; more would keep their patterns busy
_ENOUGH = MAX_SIDE + 1  # pieces of a text that need to be seen to know that they are too many
_LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")  # what str.splitlines gives, one after the other
_BRACKET = re.compile(r"[\[\]]")
_CALL = r"(?:(?:np|numpy|torch|jnp|jax\.numpy|tf)\.)?(?:as)?(?:array|Array|matrix|tensor|_tensor|(?:Float|Double)?Tensor)\s*\("
_BEFORE = re.compile(
    rf"""[\s(]*
    (?: Parameter\ containing:\s* | [^\W\d][\w.]* (?:\s*[=:]\s*|\s+) )?    # a name: W_Q =
    (?: \(\d+,\s*\d*\)[\s,]* (?={_CALL}|\[\[) )?                           # a printed shape: (3, 3)
    (?: {_CALL} )? \s* \[+""",
    re.VERBOSE,
)
_AFTER = re.compile(
    r"""(?: \s*,\s* (?: \w+\s*=\s* (?: <[^<>]*> | '[^']*' | "[^"]*" | \([^()]*\) | [\w.]+(?:\([^()]*\))? )   # grad_fn=<…>
                      | (?:(?:np|numpy|torch|jnp|tf)\.)? (?:float|double|half|int|long)\d* ) )*               # np.float32
    [\s,;)]*""",
    re.VERBOSE,
)


# What texts said: a page reads its matrices again whenever one of its knobs is turned. The same tuples each time, or
# those of every run would stand in memory until Python collects what runs leave behind.
_PARSED: LRUCache[bytes, Matrix] = LRUCache(2**26, getsizeof=lambda rows: 1000 + 32 * len(rows) * len(rows[0]))
_LOCK = Lock()


def parse(text: str, name: str = "matrix") -> Matrix:
    """The rows of a pasted matrix: CSV, spreadsheet cells, a Python list, what NumPy or torch prints.

    On several lines, `;` and tab separate numbers, which may then have decimal commas. On one line,
    `;` ends a row, as `write` and MATLAB have it: "1,5;2,5" is two rows of two numbers.

    Raises:
        MatrixError: the text is no matrix of finite numbers, or has more than 512 × 1024 of them.
    """
    if len(text) > MAX_CHARACTERS:
        raise too_large(name, f"a text of {len(text):,} characters")
    key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    with _LOCK:
        kept: Matrix | None = _PARSED.get(key)
    if kept is not None:
        return kept
    rows = _parse(text, name, spreadsheet=False)
    with _LOCK:
        _PARSED[key] = rows
    return rows


def read(data: bytes, file_name: str, name: str = "matrix") -> Matrix:
    """The rows of an uploaded .csv, .tsv, .txt or .npy file; a 1-D array is one row.

    Raises:
        MatrixError: another ending, a damaged file, or what `parse` refuses.
    """
    ending = PurePath(file_name).suffix.lower()
    if ending not in ENDINGS:
        raise MatrixError(
            f"{name} is read from a file that ends in .csv, .tsv, .txt or .npy; got {shown(file_name)}: save it as one of these."
        )
    if len(data) > MAX_CHARACTERS:
        raise too_large(name, f"a file of {len(data):,} bytes")
    if ending == ".npy":
        return read_npy(data, name)
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))  # what Excel calls Unicode text
    return _parse(data.decode("utf-16" if wide else "utf-8", errors="replace"), name, ending in (".csv", ".tsv"))


def write(rows: Sequence[Sequence[float]]) -> str:
    """The matrix in a line, "1,0;0,0.5": short enough for a link, and `parse` reads the same numbers back."""
    return ";".join(",".join(map(_written, row)) for row in rows)


def _written(value: float) -> str:
    mantissa, _, exponent = repr(float(value)).partition("e")
    # In a link a plus would be read as a blank.
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa.removesuffix(".0")


def _parse(text: str, name: str, spreadsheet: bool) -> Matrix:
    if len(text) > MAX_CHARACTERS:
        raise too_large(name, f"a text of {len(text):,} characters")
    text = text.removeprefix("\ufeff").translate(_SIGNS)
    if text[:_LONGEST].lstrip().startswith("(") and "[" not in text:
        text = text.translate({ord("("): "[", ord(")"): "]"})  # a tuple of tuples
    if "[" in text:
        rows = _bracketed(text.strip(), name)
    else:
        lines = (line[0] for line in _LINE.finditer(text) if not line[0].isspace())
        rows = list(islice(lines, _ENOUGH))
        if len(rows) == 1 and not spreadsheet:
            rows = _split(rows[0])
    if not rows:
        raise MatrixError(
            f"{name} needs at least one number; got {'only blanks' if text else 'nothing'}: paste rows of numbers, such as 1, 0; 0, 1."
        )
    return _numbers(rows, name)


def _split(rows: str) -> list[str]:
    """The rows between `;`, and after the last one nothing."""
    return rows.rstrip().removesuffix(";").split(";", _ENOUGH)


def _bracketed(text: str, name: str) -> list[str]:
    """The rows of [[1, 0], [0, 1]], [1 0; 0 1], or of one list a line."""
    rows: list[str] = []
    depth = deepest = 0
    inside = False
    start, end = text.index("["), text.rfind("]") + 1 or len(text)
    at = start
    for bracket in _BRACKET.finditer(text, start, end):
        between, at = text[at : bracket.start()], bracket.end()
        opens = bracket[0] == "["
        if inside and not opens:
            rows += _split(between) if depth == 1 else [between]
        elif stray := between.strip(" \t\r\n,;"):
            raise _refused(name, stray, len(rows), 0, "a row in brackets")
        if len(rows) > MAX_SIDE:
            raise too_large(name, f"more than {MAX_SIDE:,} rows")
        if opens and depth == 0 and deepest == 2:
            raise MatrixError(
                f"{name} is one matrix; got a second one after row {len(rows) - 1}: paste one matrix in each field."
            )
        depth += 1 if opens else -1
        deepest = max(deepest, depth)
        if depth > 2:
            raise MatrixError(
                f"{name} has two axes, rows and columns; got a third level of brackets in row {len(rows)}, column 0: paste one matrix of the stack, such as {name}[0]."
            )
        if depth < 0:
            break
        inside = opens
    if depth:
        raise MatrixError(
            f"{name} needs a closing bracket for each opening one; got one too {'many' if depth < 0 else 'few'} at row {len(rows)}, column 0: copy the matrix from its first bracket to its last."
        )
    before, after = text[:start], text[end:]
    for words, fits, where in (
        (before, _BEFORE.fullmatch(before[-_LONGEST:] + "[" * deepest), "before row 0"),
        (after, _AFTER.fullmatch(after[:_LONGEST]), f"after row {len(rows) - 1}"),
    ):
        if not fits or len(words) > _LONGEST:
            raise MatrixError(
                f"{name} has {shown(words.strip())} {where}, where only a name, tensor(…) or array(…) is expected: paste the brackets and what is in them."
            )
    return [" ".join(row.split(None, 4 * _ENOUGH)) for row in rows]  # a number, its comma: more than enough


def _numbers(rows: list[str], name: str) -> Matrix:
    """Each row's cells as numbers; the separator is the same throughout."""
    if len(rows) > MAX_SIDE:
        raise too_large(name, f"more than {MAX_SIDE:,} rows")
    rows = [row.strip(" \xa0") for row in rows]  # not a tab: it stands beside an empty cell
    rows = [row[:-1] if row.endswith((",", ";")) else row for row in rows]
    separator = next((mark for mark in "\t;," if any(mark in row for row in rows)), None)
    comma = separator in ("\t", ";") and any("," in row for row in rows)
    numbers: list[tuple[float, ...]] = []
    for i, row in enumerate(rows):
        cells = row.split(separator, _ENOUGH) or [""]
        if len(cells) > MAX_SIDE:
            raise too_large(name, f"more than {MAX_SIDE:,} numbers in row {i}")
        check_size(len(rows), len(cells), name)
        numbers.append(tuple(_number(cell.strip(), comma, name, i, j) for j, cell in enumerate(cells)))
    return checked(numbers, name)


def _number(cell: str, comma: bool, name: str, row: int, column: int) -> float:
    bare = cell[1:-1] if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell
    if comma and "." in bare and any(map(str.isdigit, bare)):
        # 1,234 beside 5.6 may be a thousand or a bit more than one: nobody can know.
        raise _refused(
            name, cell, row, column, "a decimal comma, as elsewhere in it,", "write all numbers with a point"
        )
    match = _NUMBER.fullmatch(bare.replace(",", ".") if comma else bare)
    if match is None:
        raise _refused(name, cell, row, column, "a number")
    return float(match[1] or match[2])


def _refused(
    name: str,
    cell: str,
    row: int,
    column: int,
    expected: str,
    todo: str = "delete headings and words, and write each number like 1.5",
) -> MatrixError:
    what = shown(cell)
    if not cell:
        what, todo = "nothing", "fill the cell, or delete its row or column"
    elif cell.startswith(("...", "…")):
        todo = (
            "it was printed shortened, so print it again after numpy.set_printoptions(threshold=10**6) "
            'or torch.set_printoptions(profile="full")'
        )
    return MatrixError(f"{name} has {what} in row {row}, column {column}, where {expected} is expected: {todo}.")
