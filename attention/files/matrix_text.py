"""Matrices as text: what people paste or upload, and the compact form in links.

Nothing is evaluated. Known text around numbers (prompts, comments, names, calls of libraries) is taken away, and LaTeX becomes lists in brackets.
What is left is read as lists in brackets (NumPy, torch, JSON, MATLAB, whole notebook cells), or as lines with names and column headings (tables).
Every number is matched completely before it is converted: a text is read as intended, leads to a question, or is refused with a sentence. It is
never split into more pieces than a matrix may have rows or columns, so that ten megabytes of nonsense are refused quickly and with little memory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from pathlib import PurePath
from typing import NamedTuple

from attention.base.cache import CACHE
from attention.base.errors import MatrixError
from attention.files.archives import format_npy, npy_size
from attention.files.cells import (
    MAX_PIECES,
    Labels,
    as_tokens,
    cell_error,
    counts_from_zero,
    decode,
    find_labels,
    parse_row,
    split,
)
from attention.files.matrix import (
    MAX_NUMBERS,
    MAX_SIDE,
    Matrix,
    ParsedText,
    Stack,
    as_stack,
    batch_reading,
    combine,
    excerpt,
    rounding_note,
    too_large_error,
    uneven_error,
    validate_matrix,
)
from attention.files.reading_cost import ReadingCost, of_text

_NPY_SECONDS, _NPY_BYTES = 3e-6, 200  # of a number
_MAX_CHARACTERS = 32 * MAX_NUMBERS  # numpy.savetxt writes 25 characters per number
# As word processors and PDFs write them, and tables in terminals.
_SIGNS = str.maketrans(
    {
        "−": "-",
        "–": "-",
        "﹣": "-",
        "－": "-",
        "∞": "inf",
        **dict.fromkeys("│┃║", "|"),
        **dict.fromkeys("─━═┌┬┐├┼┤└┴┘┏┳┓┡╇┩┣╋┫┗┻┛╒╤╕╞╪╡╘╧╛", "-"),
    }
)
_HEADS = re.compile(r"\s{0,99}\d{1,9} heads?:")  # the prefix of a stack in `format_matrix`
# A table with an empty corner, or one that the Lab wrote: its other labels may be anything.
_TABLE = re.compile(r'(?:""|Unnamed: 0|index|query_pos|key_pos)?[,;\t](?=[^\n]{0,500}[^\W\d])')
_SPECIAL_TOKEN = re.compile(r"(?<!\w)\[[^\W\d]\w{0,30}\](?!\w)")  # [CLS]
_TUPLE = re.compile(r"\s{0,500}[({]\s*[({\d.+-][^=]*$")  # ((1, 0), (0, 1)), or {{1, 0}, {0, 1}} of C and Mathematica
_OWN = re.compile(r"[0-9.,;e-]+;[0-9.,e-]+")  # more than one row, as `format_matrix` writes them
_AS_LISTS = str.maketrans("(){}", "[][]")
_SCALE = re.compile(r"(?<![\w.])1\.?0*e([+-]\d+)\s*\*\s*(?=[\[\n\r])")  # of MATLAB, and of torch before 1.0
_SCALED = re.compile(
    r"(?<![\w.])[+-]?\d+\.\d*(?![\w.])"
)  # where there is a scale, numbers have a point, and indices have none


def parse_text(text: str, name: str = "matrix") -> ParsedText:
    """The matrix in a pasted text, or a question with the matrices to choose from.

    Reads CSV, spreadsheet cells, lists, the output of NumPy, torch, JAX, TensorFlow and pandas, LaTeX, Markdown, and complete
    notebook cells with names and prompts. In several lines, `;` and tab separate numbers, which may then have decimal commas. In one
    line, `;` ends a row, as in `format_matrix` and MATLAB: "1,5;2,5" is two rows of two numbers.

    Raises:
        MatrixError: the text is not a matrix of finite numbers, or has more than 512 × 1024 of them.
    """
    if len(text) > _MAX_CHARACTERS:
        raise too_large_error(name, f"a text of {len(text):,} characters")

    def read() -> ParsedText | str:
        try:
            return _parse_text(text, name)
        except MatrixError as error:
            return str(error)

    # Refusals are cached, too: a page reads its matrices again at every change of a knob.
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    reading = CACHE.get_or_compute(("text", name, digest), read)
    if isinstance(reading, str):
        raise MatrixError(reading)
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
    return ";".join(map(_format_row, matrix))  # type: ignore[arg-type]  # as above


def _format_row(row: Sequence[float]) -> str:
    text = ",".join(map(repr, map(float, row)))
    if "e" in text:
        return ",".join(map(_format_number, text.split(",")))
    return text.replace(".0,", ",").removesuffix(".0")


def _format_number(text: str) -> str:
    mantissa, _, exponent = text.partition("e")
    # A link decodes a plus as a blank.
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa.removesuffix(".0")


EXTENSIONS = (".csv", ".tsv", ".txt", ".npy")


def file_text(data: bytes, file_name: str, name: str = "matrix") -> str:
    """The content of a .csv, .tsv, .txt or .npy file as text; a .npy file with all digits.

    Raises:
        MatrixError: another extension, too many bytes, or a damaged .npy file.
    """
    ending = PurePath(file_name).suffix.lower()
    if ending not in EXTENSIONS:
        raise MatrixError(
            f"{name} needs a file that ends in .csv, .tsv, .txt or .npy; got {excerpt(file_name)}: save it as one of these."
        )
    if len(data) > _MAX_CHARACTERS:
        raise too_large_error(name, f"a file of {len(data):,} bytes")
    if ending == ".npy":
        return format_npy(data, name)
    text = decode(data)
    if ending != ".txt" and "[" not in text and "\n" not in text.strip():
        return text.replace(";", "\t")  # in a single row, `;` separates numbers
    return text


class ReadText(NamedTuple):
    """A text of matrices: for one matrix as `format_matrix` writes it, otherwise as it is; and what it is."""

    text: str
    reading: ParsedText


def read_text(text: str, name: str = "matrix") -> ReadText:
    """The matrices of a pasted text.

    Raises:
        MatrixError: as for `parse_text`.
    """
    reading = parse_text(text, name)
    return ReadText(text if reading.question else format_matrix(reading.choose(None, name)), reading)


def read_file(content: bytes, file_name: str, name: str = "matrix") -> ReadText:
    """The matrices of a .csv, .tsv, .txt or .npy file.

    Raises:
        MatrixError: as for `file_text` and `parse_text`.
    """
    return read_text(file_text(content, file_name, name), name)


def reading_cost(content: bytes, file_name: str) -> ReadingCost:
    """What `read_file` takes: a .npy becomes a text first, with all digits of each number."""
    if PurePath(file_name).suffix.lower() != ".npy":
        return of_text(content)
    n_numbers = min(npy_size(content), MAX_NUMBERS)
    return ReadingCost(n_numbers * _NPY_SECONDS, n_numbers * _NPY_BYTES)


def _parse_text(text: str, name: str) -> ParsedText:
    if (own := _parse_own(text, name)) is not None:
        return own
    if not text.isascii():
        text = text.removeprefix("\ufeff").translate(_SIGNS)
    if header := _HEADS.match(text):
        heads = text[header.end() :].split("/", MAX_SIDE + 1)
        if len(heads) > MAX_SIDE:
            raise too_large_error(name, f"more than {MAX_SIDE:,} matrices")
        return ParsedText({"": tuple(as_stack(_parse_head(head, name).choose(None, name))[0] for head in heads)})
    reading = _parse_head(text, name)
    note = rounding_note(next(iter(reading.choices.values())))
    return reading.with_notes(note) if note else reading


def _parse_own(text: str, name: str) -> ParsedText | None:
    """One matrix in the form of `format_matrix`, which pages read again and again; None for any other text."""
    if not _OWN.fullmatch(text):
        return None
    rows = text.split(";", MAX_PIECES)
    try:
        numbers = [tuple(map(float, row.split(",", MAX_PIECES))) for row in rows]
    except ValueError:  # such as two commas in a row
        return None
    if len(numbers) > MAX_SIDE or {len(row) for row in numbers} != {len(numbers[0])}:
        return None
    if len(numbers[0]) < 3:  # the comma of two numbers may be a decimal comma
        return None
    reading = batch_reading(numbers, (len(numbers), len(numbers[0])), name, "")
    note = rounding_note(next(iter(reading.choices.values())))
    return reading.with_notes(note) if note else reading


def _parse_head(text: str, name: str) -> ParsedText:
    if _TABLE.match(text):
        return _parse_table(_lines(text, name), name)
    text = _strip_wrappers(_latex_as_lists(text, name) if "\\begin{" in text else _apply_scale(text, name))
    if "[" not in text and _TUPLE.match(text):
        text = text.translate(_AS_LISTS)
    has_brackets = "[" in text and "[" in _SPECIAL_TOKEN.sub("", text)
    return _parse_brackets(text.strip(), name) if has_brackets else _parse_lines(text, name)


def _apply_scale(text: str, name: str) -> str:
    """The text with a scale such as `1.0e-03 *` as the exponent of each number below it, without loss of digits."""
    scales = list(islice(_SCALE.finditer(text), 2)) if "e" in text and "*" in text else []
    if not scales:
        return text
    if len(scales) > 1:
        raise MatrixError(f"{name} has several scales such as {scales[0][0].strip()!r}: paste one matrix at a time.")
    scale = scales[0]
    return text[: scale.start()] + _SCALED.sub(rf"\g<0>e{int(scale[1])}", text[scale.end() :])


# Lists in brackets.

_MAX_DEPTH = 6  # axes
_MAX_ROWS = 16 * MAX_SIDE  # in all matrices of a text
_TOKENS = re.compile(r"(?:\s*(?:'[^'\n]*'|\"[^\"\n]*\")\s*(?:,|$))+\s*")  # a list of tokens
_MAX_WORDS = 2000
_BRACKET = re.compile(r"[\[\]]")
_ROW = re.compile(r"\[([^\[\]]*)\]")


class _BracketList(NamedTuple):
    """A top-level list of the text, with the text and the number of rows before it; the end of the text has no content."""

    before: str
    row: int
    content: str = ""


def _parse_brackets(text: str, name: str) -> ParsedText:
    matrices: list[tuple[str, list[str], tuple[int, ...]]] = []
    ignored: list[str] = []
    is_separate_rows = False  # whether the last matrix consists of separate rows in brackets
    for found in _iter_lists(text, name):
        before, where = found.before, f"after row {found.row - 1}" if matrices else "before row 0"
        if matrices:
            if not before and found.content:
                raise _surroundings_error(name, "[", where)  # an index after a matrix
            same_line, newline, next_lines = _strip_suffix(before).partition("\n")
            if same_line.strip(" \t\r,;)") and (newline or not found.content):
                raise _surroundings_error(name, before, where)
            before = next_lines if newline else same_line
        prefix = _parse_prefix(before if found.content else before + "\n")
        if prefix is None:
            raise _surroundings_error(name, before, where)
        label, ignored_lines = prefix
        ignored += ignored_lines
        if not found.content:
            break
        rows, shape = _rows_of(found, name)
        is_row = shape == ()
        if is_row and _TOKENS.fullmatch(rows[0][:_MAX_WORDS]):
            ignored.append(f"{label} = [{rows[0].strip()}]")
            continue
        if is_row and is_separate_rows and not label:
            matrices[-1][1].extend(rows)
        else:
            matrices.append((label, rows, shape))
        is_separate_rows = is_row
        if len(matrices) > MAX_SIDE or (is_row and len(matrices[-1][1]) > MAX_SIDE):
            raise too_large_error(name, f"more than {MAX_SIDE:,} {'rows' if is_row else 'matrices'}")
    if not matrices:
        raise MatrixError(f"{name} needs at least one number; got only words in brackets: paste rows of numbers.")
    reading = combine([_read(rows, shape or (len(rows),), name, label) for label, rows, shape in matrices], name)
    if not ignored:
        return reading
    more_lines = f" and {len(ignored) - 1} more line{'s' * (len(ignored) > 2)}" if len(ignored) > 1 else ""
    return reading.with_notes(f"The text around the numbers was ignored: {excerpt(ignored[0], 40)}{more_lines}.")


def _iter_lists(text: str, name: str) -> Iterator[_BracketList]:
    """The top-level lists of a text in order, and finally the text after them."""
    depth = row = first_row = start = position = 0
    in_row = False
    for bracket in _BRACKET.finditer(text):
        opens = bracket[0] == "["
        if opens and not depth:
            start, first_row = bracket.start(), row
        row += in_row and not opens
        depth += 1 if opens else -1
        if depth > _MAX_DEPTH:
            raise MatrixError(
                f"{name} needs two axes, rows and columns, optionally in a batch; got more than {_MAX_DEPTH} levels of brackets in row {row}, column 0: paste one matrix."
            )
        if depth < 0:
            raise _unbalanced_error(name, "many", row)
        if row > _MAX_ROWS:
            raise too_large_error(name, f"more than {_MAX_ROWS:,} rows")
        if not depth:
            yield _BracketList(text[position:start], first_row, text[start : bracket.end()])
            position = bracket.end()
        in_row = opens
    if depth:
        raise _unbalanced_error(name, "few", row)
    yield _BracketList(text[position:], row)


def _rows_of(found: _BracketList, name: str) -> tuple[list[str], tuple[int, ...]]:
    """The rows inside a list, and the lengths of its axes but the last; () for a single row."""
    pieces = _ROW.split(found.content)
    rows, outer = pieces[1::2], pieces[::2]
    if len(rows) == 1 and outer == ["", ""]:
        rows = rows[0].rstrip().removesuffix(";").split(";", MAX_PIECES) if ";" in rows[0] else rows  # as in MATLAB
        if len(rows) > MAX_SIDE:
            raise too_large_error(name, f"more than {MAX_SIDE:,} rows")
        return rows, (len(rows),) * (len(rows) > 1)
    for i, between in enumerate(outer):
        for stray in _BRACKET.split(between):
            if (words := stray.strip(" \t\r\n,;")) and (len(stray) > 200 or _strip_suffix(stray)):
                raise cell_error(name, words, found.row + i, 0, "a row in brackets")
    # Each row is a letter; lists of equally many of a letter become the next one, so that a batch of 2 × 3 rows is [[aaa][aaa]], [bb], c.
    letters, shape, letter = "a".join(re.sub(r"[^\[\]]", "", between) for between in outer), list[int](), "a"
    while letters != letter:
        sizes = {len(each) for each in re.findall(rf"\[({letter}*)\]", letters)}
        above = chr(ord(letter) + 1)
        letters = re.sub(rf"\[{letter}*\]", above, letters)
        if len(sizes) > 1 or letter in letters:
            got = f"lists of {' and '.join(map(str, sorted(sizes)[:2]))}" if len(sizes) > 1 else "a row beside a list"
            raise MatrixError(
                f"{name} needs lists of equal size within a list; got {got}: paste one of these matrices."
            )
        shape.insert(0, *sizes)
        letter = above
    return rows, tuple(shape)


def _read(rows: list[str], shape: tuple[int, ...], name: str, label: str) -> ParsedText:
    # At most the pieces that show that a row is too long: a number may be followed by a separate comma.
    rows = [" ".join(row.split(None, 4 * MAX_PIECES)) for row in _strip_rows(rows)]
    rows_of_numbers = _parse_rows(rows, name)
    width = len(rows_of_numbers[0])
    if len(shape) > 1:
        for i, row in enumerate(rows_of_numbers):
            if len(row) != width:
                raise uneven_error(name, i, len(row), width)
    return batch_reading(rows_of_numbers, (*shape, width), name, label)


def _parse_rows(rows: list[str], name: str) -> list[tuple[float, ...]]:
    return _parse_numbers(list(split(rows, rows, name)[0]), name)


def _strip_rows(rows: Sequence[str]) -> list[str]:
    """The rows without surrounding blanks, and without a final comma or semicolon."""
    rows = [row.strip(" \xa0\r\n") for row in rows]  # a tab marks an empty cell and stays
    return [row[:-1] if row.endswith((",", ";")) else row for row in rows]


def _parse_numbers(rows: Sequence[Sequence[str]], name: str) -> list[tuple[float, ...]]:
    """The numbers of cells, which may have decimal commas."""
    total = 0
    for i, row in enumerate(rows):
        total += len(row)
        if len(row) > MAX_SIDE:
            raise too_large_error(name, f"more than {MAX_SIDE:,} numbers in row {i}")
        if total > MAX_NUMBERS:
            raise too_large_error(name, f"{len(rows):,} × {len(row):,}")
    comma = any("," in cell for row in rows for cell in row)
    return [tuple(parse_row(row or [""], comma, name, i)) for i, row in enumerate(rows)]


def _unbalanced_error(name: str, too: str, row: int) -> MatrixError:
    return MatrixError(
        f"{name} needs a closing bracket for each opening one; got one too {too} at row {row}, column 0: copy the matrix from its first to its last bracket."
    )


def _surroundings_error(name: str, words: str, where: str) -> MatrixError:
    return MatrixError(
        f"{name} has {excerpt(words.strip())} {where}, where only a name, tensor(…) or array(…) is expected: arithmetic is not evaluated, so paste only the brackets and their content."
    )


# The text around numbers: prompts, comments, names, what NumPy, torch, JAX and TensorFlow print. Arithmetic, such as `2 *` or `.T`, is refused.

_CALL = (
    r"(?<![\w.])(?:(?:np|numpy|torch(?:\.nn)?|nn|jnp|jax\.numpy|tf|mx\.n[pd]|nd|keras\.ops|ops|d2l|mlx\.core|paddle|cp|cupy)\.)?"
    r"(?:(?:as)?(?:nd)?array|(?:Device)?Array|[Mm]atrix|(?:to_|convert_to_|_)?tensor|(?:Float|Double|Long|Int|Half)?Tensor|EagerTensor|"
    r"constant|Variable|Parameter)\s?"
)
_CALL_OF_LIST = re.compile(rf"{_CALL}\(\s*(?=\[)")
_MOST_CALLS = 3  # nn.Parameter(torch.tensor(np.array([…
_SIZE = r"\(\d+,\s?(?:\d+(?:,\s?\d+)*,?)?\)"
# Stripped before the brackets are counted: (a substring that the text must contain, pattern, replacement).
_WRAPPERS: tuple[tuple[str, re.Pattern[str], str], ...] = tuple(
    (required, re.compile(pattern, re.MULTILINE), replacement)
    for required, pattern, replacement in (
        ("]:", r"^(?:In|Out) ?\[ ?\d* ?\]:", ""),  # Jupyter
        (">>>", r"^\.\.\. (?=.*\S)", ""),  # continuation line of a statement
        # An expression whose output follows.
        (">>>", rf"^>>> ?(?:\w+ ?= ?)?(?!{_CALL}\()[\w.]+ ?\([^\n]*\[[^\n]*$", ""),
        (">>>", r"^>>> ?([^\W\d]\w*)[ \t]*$", r"\1 ="),
        (">>>", r"^>>> ?", ""),
        ("#>", r"^#> ?", ""),  # the prefix of R's output in knitr
        ("#", r"(?<![\w\"'#])#(?!#+\w)[^\n\r]*", ""),  # not ##ing, a subword
        ("←", r"←[^\n\r]*", ""),  # an arrow to the word of a row
        ("torch.Size", r"torch\.Size\(\[[\d, ]*\]\)", ""),
        ("[,1]", r"^[ \t]*+(?:\[,\d+\][ \t]*+)++$", ""),  # R
        ("[1,]", r"^[ \t]*+\[\d+,\](?=[ \t]++[-+.\d])", ""),
        ("[", r"(?<=\w)\[[\w:'\"+*-]{0,40}(?:, ?[\w:'\"+*-]{1,40}){0,5}\]", ""),  # K.shape[1], x[:, 0]
        ("[", r"^\[[\w.]+ (?:of size|rows x) [\w ]{1,60}\]", ""),  # of pandas, and torch before 0.4
        ("[", rf"{_SIZE}[\s,]{{0,40}}(?={_CALL}\(|\[\[)", ""),  # ((3, 3), array(…
    )
)
_UNCOMMENTED = re.compile(r"^[ \t]*[^\s#]", re.MULTILINE)
_COMMENTED = re.compile(r"^[ \t]*#[>']?[ \t]?(?:#[ \t])?", re.MULTILINE)  # output of code in a comment below it
_SUFFIX = re.compile(
    r"""(?: \s*,\s* (?: \w+\s*=\s* (?: <[^<>]*> | '[^']*' | "[^"]*" | \([^()]*\) | [\w.]+(?:\([^()]*\))? )   # grad_fn=<…>
                      | (?:(?:np|numpy|torch|jnp|tf)\.)? (?:float|double|half|int|long)\d* )
          | \s*\) \.(?:float|double|half|detach|clone|cpu|cuda|numpy|to|astype)\([\w.'"]*(?=\))      # keeps the numbers
          | \s*[,;)>}] )* [ \t]*""",
    re.VERBOSE,
)
_ASSIGNMENT = re.compile(r"(?P<name>.*?)(?<![-+*/@%&|^!<>=])\s*(?:[:=≈]|:=|→|->)\s*[(\s]*")
_WORDS = re.compile(r"[(\s]*(?P<name>(?:[^\W\d][\w.]*(?:\s+[\w.]+)*)?)\s*")
_OTHER_CALL = re.compile(r"(?!(?:dict|Matrices)\()\b\w+\([^()]*$")
_OPERATOR_AT_END = re.compile(r"[-+*/@%^|&~(.,]$")
_ONLY_NUMBERS = re.compile(r"[\d\s.,;eE+…-]*")
_NOT_VARIABLES = {"numpy", "Parameter containing", "return", "print"}
_MAX_CONTEXT = 500  # characters beside a bracket that patterns search
_MAX_BETWEEN = 20_000  # characters between two matrices


def _strip_wrappers(text: str) -> str:
    """The text without the prompts, comments, sizes and calls that do not affect the numbers."""
    if "#" in text and not _UNCOMMENTED.search(text):
        text = _COMMENTED.sub("", text)
    for required, pattern, replacement in _WRAPPERS:
        if required in text:
            text = pattern.sub(replacement, text)
    n_calls = int("[" in text and "(" in text)
    for _ in range(_MOST_CALLS * n_calls):
        text = _CALL_OF_LIST.sub("", text)
    return text


def _strip_suffix(between: str) -> str:
    """The rest of the text after a bracket, without dtype=…, grad_fn=… and closing parentheses."""
    match = _SUFFIX.match(between[:_MAX_CONTEXT])
    return between[match.end() :] if match else between


def _parse_prefix(text: str) -> tuple[str, list[str]] | None:
    """The name and the ignored lines in a text before a bracket; None if it has anything else, such as numbers or arithmetic."""
    if len(text) > _MAX_BETWEEN:
        return None
    *above, last_line = text.splitlines() or [""]
    if text.endswith(("\n", "\r")):
        above, last_line = [*above, last_line], ""
    above = [line.strip() for line in above if line.strip(" \t,;)>}")]
    if not all(map(_is_text, above)):
        return None
    if last_line.strip(" \t(,;"):
        label = _label_in(last_line)
        return None if label is None else (label, above)
    if not above:
        return "", []
    *other_lines, nearest_line = above
    label = _label_in(nearest_line) if nearest_line.endswith((":", "=", "→", "≈")) else None
    if label is not None:
        return label, other_lines
    if nearest_line.endswith((":", "=")) or _OPERATOR_AT_END.search(nearest_line):
        return None
    name = re.fullmatch(r"[^\W\d][\w.]*", nearest_line)  # an expression whose output follows
    return (nearest_line, other_lines) if name else ("", above)


def _label_in(line: str) -> str | None:
    """The name in `W_q =`, `Weight matrix W_q:` or `W_q`; None if the line is something else."""
    line = line.strip()[-_MAX_CONTEXT:]
    match = _ASSIGNMENT.fullmatch(line) or _WORDS.fullmatch(line.removeprefix(",").lstrip())
    if match is None or _OTHER_CALL.search(match["name"]):
        return None
    name = re.split(r"[({,=→]|:\s", match["name"])[-1].strip(" \t\"'$*`:[\\")
    return "" if name in _NOT_VARIABLES or name.endswith(("shape", "}")) else name[-40:]


def _is_text(line: str) -> bool:
    """Whether a line has no numbers of a matrix: a statement, a sentence, a printed shape."""
    numbers = _ONLY_NUMBERS.fullmatch(line) and re.search(r"\d|\.\.|…", line)
    return not numbers or re.fullmatch(_SIZE, line) is not None


# LaTeX, such as \begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}, which becomes [1, 2; 3, 4].

_BEGIN = re.compile(r"\\begin\{([bpBvV]?(?:small)?matrix\*?|array|tabular)\}(?:\[\w*\])?(?:\{[|lcrS@{} ]{0,200}\})?")
_ROW_END = re.compile(r"\\\\(?:\[[^\]]{0,20}\])?|\\tabularnewline")
_RULES = re.compile(r"\\(?:hline|toprule|midrule|bottomrule|cline\{[\d-]+\})")
_STYLE = re.compile(r"(?:\\(?:mathbf|mathrm|mathit|textbf|boldsymbol|bm|text)|(?<=_))\{([^{}]{0,40})\}")
_SPACE = re.compile(
    r"\\(?:left|right|[bB]ig+[lr]?)(?:\\?[\[\](){}|.])?|\\(?:q?quad|displaystyle)|\\[,;:! \[\]]|[~$&]|\\\\"
)
_DOTS = re.compile(r"\\[lcvd]?dots[cbmio]?(?![a-zA-Z])")
_N = r"\d+(?:\.\d+)?"
_FRACTION = re.compile(rf"(?<![\d.}}/])(?:\\[dt]?frac\{{([+-]?{_N})\}}\{{({_N})\}}|({_N})\s*/\s*({_N}))(?![\d.{{/])")


def _latex_as_lists(text: str, name: str) -> str:
    """The text with a list in brackets in place of each matrix of LaTeX; of a table, its lines alone."""
    pieces, position, has_matrix = list[str](), 0, False
    for begin in _BEGIN.finditer(text):
        if begin.start() < position:
            continue
        end_command = f"\\end{{{begin[1]}}}"
        end = text.find(end_command, begin.end())
        if end < 0:
            raise MatrixError(
                f"{name} has {begin[0]} without {end_command}: copy the formula from its \\begin to its \\end."
            )
        body = text[begin.end() : end]
        pieces.append(_without_style(text[position : begin.start()]))
        position = end + len(end_command)
        if not re.search(r"\d", body):
            continue  # an environment without numbers, such as arrows beside a matrix
        has_matrix = True
        rows = [row for row in map(_latex_row, _ROW_END.split(body, MAX_PIECES)) if row.strip()]
        if begin[1] == "tabular":
            return "\n".join(rows)
        pieces.append(f"[{';'.join(row.replace('&', ',') for row in rows)}]")
    if not has_matrix:
        raise MatrixError(
            f"{name} has LaTeX without a matrix in it: copy one from \\begin{{bmatrix}} to \\end{{bmatrix}}."
        )
    rest = _without_style(text[position:])
    return "".join((*pieces, rest if rest.strip(" \t\r\n.,;") else ""))


def _latex_row(row: str) -> str:
    """A row of LaTeX with its numbers as Python writes them."""
    row = _STYLE.sub(r"\1", _RULES.sub("", row).replace("{,}", "."))
    row = re.sub(r"(\\[dt]?frac)\s?(\d)\s?(\d)", r"\1{\2}{\3}", row)  # \frac12
    row = _DOTS.sub("...", re.sub(r"\\[,;:! ]|\\q?quad|\\displaystyle|[~$\n\r]", " ", row))
    return _FRACTION.sub(_quotient, row)


def _quotient(fraction: re.Match[str]) -> str:
    top, bottom = float(fraction[1] or fraction[3]), float(fraction[2] or fraction[4])
    return repr(top / bottom) if bottom else fraction[0]


def _without_style(text: str) -> str:
    """The text beside a matrix, without commands that are no arithmetic."""
    return re.sub(r"\\(?=[A-Za-z])", "", _SPACE.sub(" ", _STYLE.sub(r"\1", text)))


# Lines of cells.

_LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")  # a lazy str.splitlines
_RULE = re.compile(r"[\s|+:=-]*[=-][\s|+:=-]*")  # below the heading of a table of Markdown
_LABEL = re.compile(r"\s*+(?=.*[^\W\d])(?:[\w\"'`*$(×].*)?[:=]\s*")
_LABELLED = re.compile(r"\s*+(?!Unnamed: )([^\W\d][\w ]{0,40}?)\s*[:=]\s*(?=[-+.\d])(.*)")
_IGNORED = re.compile(
    r"\s*+(?:(?:print|display) ?\(.*\)|[a-z]\w*\.[\w.]+\([a-zA-Z_][\w., ]*\)|import .*|from .* import .*|<.*>|\(\d+, ?\d*\)|.*\b(?:shape|dtype)\b.*)"
)
_MAX_LABEL_LINE = 300
_BLANK = re.compile(r"\n[ \t]*\n")
_CONTINUED = re.compile(r"\\[ \t]*\n")  # the columns go on below
_MOST_LINES = 16 * MAX_SIDE


def _joined(text: str) -> str:
    """A wide table that pandas printed in parts, one below the other with some columns each, as one table."""
    if not _CONTINUED.search(text):
        return text
    first, *others = (
        [line.rstrip(" \t\\") for line in part.splitlines()] for part in _BLANK.split(text.strip("\n"), MAX_SIDE)
    )
    if any(len(part) != len(first) for part in others):
        return text
    for heading, *rows in others:
        first[0] += "  " + heading.strip()
        first[1:] = [f"{line}  {''.join(row.split(None, 1)[1:])}" for line, row in zip(first[1:], rows, strict=True)]
    return "\n".join(first)


def _parse_lines(text: str, name: str) -> ParsedText:
    lines = _lines(_joined(text), name)
    if not lines:
        raise MatrixError(
            f"{name} needs at least one number; got {'only blanks' if text else 'nothing'}: paste rows of numbers, such as 1, 0; 0, 1."
        )
    blocks = list(
        islice((block for block in _iter_blocks(lines) if not all(map(_RULE.fullmatch, block[1]))), MAX_SIDE + 1)
    )
    if len(blocks) > MAX_SIDE:
        raise too_large_error(name, f"more than {MAX_SIDE:,} matrices")
    if not blocks:
        raise MatrixError(
            f"{name} needs at least one number; got only words, such as {excerpt(lines[0].strip())}: paste rows of numbers, such as 1, 0; 0, 1."
        )
    return combine([_parse_block(label, block, name) for label, block in blocks], name)


def _lines(text: str, name: str) -> list[str]:
    filled = (line[0] for line in _LINE.finditer(text) if not line[0].isspace())
    lines = list(islice(filled, _MOST_LINES + 1))
    if len(lines) > _MOST_LINES:
        raise too_large_error(name, f"more than {MAX_SIDE:,} rows")
    return lines


def _iter_blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The lines of each matrix, with the name above them."""
    label, block = "", list[str]()
    for line in lines:
        labelled = _LABELLED.match(line)
        is_short = len(line) <= _MAX_LABEL_LINE  # as labels are
        is_label = is_short and _LABEL.fullmatch(line)
        if labelled or is_label or (is_short and _IGNORED.fullmatch(line)):
            yield label, block
            label = (_label_in(labelled[1] if labelled else line) or "") if labelled or is_label else ""
            block = [labelled[2]] if labelled else []
        else:
            block.append(line)
    yield label, block


def _parse_block(label: str, block: list[str], name: str) -> ParsedText:
    rules = [_RULE.fullmatch(line) is not None for line in block]
    lines = [line for line, is_rule in zip(block, rules, strict=True) if not is_rule]
    if len(lines) > 1:
        n_above = accumulate(not is_rule for is_rule in rules)
        inside = {n for n, is_rule in zip(n_above, rules, strict=True) if is_rule} - {0, len(lines)}
        return _parse_table(lines, name, label, ruled=inside == {1})
    # In a single line `;` ends a row, as in `format_matrix` and MATLAB.
    lines = lines[0].rstrip().removesuffix(";").split(";", MAX_PIECES)
    if len(lines) > MAX_SIDE:
        raise too_large_error(name, f"more than {MAX_SIDE:,} rows")
    lines = _strip_rows(lines)
    matrix = validate_matrix(_parse_rows(lines, name), name)
    column = _decimal_column(lines)
    shape = len(matrix), len(matrix[0])
    if column and any(re.search(r",0\d", row) for row in lines):  # a column of 05 beside one of 0 makes no sense
        choices = {"one column, with decimal commas": column[0], "two columns": matrix}
        return ParsedText(choices, _IS_DECIMAL, (), label, shape)
    may_be_decimals = column is not None and all(row.lstrip("+-").startswith("0,") for row in lines)
    return ParsedText({label: matrix}, "", (_SEPARATORS,) * may_be_decimals, label, shape)


# Tables with headings (CSV, spreadsheet cells, Markdown, what pandas prints), and the questions that they leave open.

_DECIMAL = re.compile(r"([+-]?\d+),(\d+)", re.ASCII)
_IS_DECIMAL = "Are its commas decimal commas?"
_SEPARATORS = "Its commas are read as column separators; write decimals with a point."


def _parse_table(lines: Sequence[str], name: str, label: str = "", ruled: bool = False) -> ParsedText:
    """The numbers of a table, which may be ruled below its first row. Whether a first row or column of 0, 1, 2, … is an index or belongs to the matrix may be a question."""
    if len(lines) > MAX_SIDE:
        raise too_large_error(name, f"more than {MAX_SIDE:,} rows")
    lines = _strip_rows(lines)
    is_markdown = all("|" in line for line in lines)
    if is_markdown:
        lines = [line.strip().strip("|") for line in lines]
    cells, separator = split(lines, lines, name)
    rows = [[cell.strip(" *`$") for cell in row] if is_markdown else row for row in cells]
    labels = find_labels(rows)
    body = rows[labels.has_heading :]
    names = tuple(row[0] for row in body) if labels.has_names else ()
    body = [row[labels.numbers] for row in body]
    comma = any("," in cell for row in body for cell in row)
    matrix = validate_matrix(_parse_numbers(body, name), name)
    notes = [f"The first row, {_format_cells(rows[0])}, is read as a heading."] if labels.has_heading else []
    notes += [f"The first column, {_format_cells(names)}, is read as names of the rows."] if labels.has_names else []
    notes += ["Its commas are read as decimal commas."] if comma else []
    choices, question, more_notes = _open_choices(body, matrix, separator, ruled, labels)
    labelled = {", ".join(filter(None, (label, key))): matrix for key, matrix in choices.items()}
    tokens, columns = as_tokens(names), as_tokens(labels.columns)
    return ParsedText(labelled, question, (*notes, *more_notes), label, (len(matrix), len(matrix[0])), tokens, columns)


def _open_choices(
    rows: Sequence[Sequence[str]], matrix: Matrix, separator: str | None, ruled: bool, labels: Labels
) -> tuple[dict[str, Matrix], str, list[str]]:
    """The matrices that the numbers may mean, the question that chooses one, and notes on what is not asked."""
    first_row, first_column = rows[0], [row[0] for row in rows]
    has_points = any("." in cell for row in rows[1:] for cell in row[1:] or row)
    may_be_heading = not labels.has_heading and (ruled or counts_from_zero(first_row))
    may_be_index = not labels.has_names and separator is not None and len(first_row) > 1 < len(rows)
    choices, candidates, notes = dict[str, Matrix](), list[str](), list[str]()
    if separator == "," and not labels.has_heading and not labels.has_names:
        if (column := _decimal_column([",".join(row) for row in rows])) and column[1]:
            choices["one column, with decimal commas"] = column[0]
        elif column:
            notes.append(_SEPARATORS)
    if may_be_heading and len(rows) > 1 and (separator is not None or (len(first_row) == 1 and has_points)):
        if ruled or has_points or len(first_row) > 2:
            choices["the first row is a heading"] = matrix[1:]
            candidates.append(f"the first row, {_format_cells(first_row)}, a heading")
            if may_be_index and len(rows) > 2 and counts_from_zero(first_column[1:]):
                choices["the first row and column are headings"] = tuple(row[1:] for row in matrix[1:])
        else:
            notes.append(f"Its first row, {_format_cells(first_row)}, is read as numbers, not as a heading.")
    if may_be_index and counts_from_zero(first_column):
        if has_points or len(rows) > 2:
            choices["the first column numbers the rows"] = tuple(row[1:] for row in matrix)
            candidates.append(f"the first column, {_format_cells(first_column)}, a numbering")
        else:
            notes.append(
                f"Its first column, {_format_cells(first_column)}, is read as numbers, not as names of the rows."
            )
    if not choices:
        return {"": matrix}, "", notes
    choices["all are numbers of the matrix" if candidates else "two columns"] = matrix
    question = f"Is {' or '.join(candidates)}, or are these numbers of the matrix?" if candidates else _IS_DECIMAL
    return choices, question, notes


def _decimal_column(rows: Sequence[str]) -> tuple[Matrix, bool] | None:
    """Rows such as 0,12 as one column of decimals, and whether that is likely; None if the rows have another form."""
    pieces = [_DECIMAL.fullmatch(row.strip()) for row in rows]
    if len(rows) < 2 or not all(pieces):
        return None
    integers, decimals = zip(*(piece.groups() for piece in pieces if piece), strict=True)
    is_likely = any(len(digits) > 1 for digits in decimals) or all(digits.lstrip("+-") == "0" for digits in integers)
    return tuple((float(row.strip().replace(",", ".")),) for row in rows), is_likely


def _format_cells(values: Sequence[str]) -> str:
    values = [excerpt(cell)[1:-1] for cell in values if cell]
    return ", ".join(values[:3]) + (", …" if len(values) > 3 else "")
