"""Matrices as text: the reader of pasted or uploaded text, and the compact form in links.

Nothing is evaluated. LaTeX is read by itself. From other text `_strip_wrappers` takes known text
around numbers; then it is read as lists in brackets (NumPy, torch, MATLAB, whole notebook cells) or as lines with
names, scales and column headings (MATLAB, Julia, R, old torch, tables). Every number is matched completely before it
is converted. A text is therefore read as intended, leads to a question, or is refused with a sentence. A text is
never split into more pieces than a matrix may have rows or columns, so that ten megabytes of nonsense are refused
quickly and with little memory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePath
from threading import Lock
from typing import NamedTuple

import regex
from cachetools import LRUCache

from attention.base.errors import MatrixError
from attention.files.archives import format_npy
from attention.files.cells import (
    MAX_PIECES,
    Labels,
    as_tokens,
    cell_error,
    counts_from_zero,
    find_labels,
    parse_number,
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

_MAX_CHARACTERS = 32 * MAX_NUMBERS  # numpy.savetxt writes 25 characters per number

# Word processors and PDFs replace a hyphen before a digit by one of these; terminals draw tables with the last three.
_SIGNS = str.maketrans({"−": "-", "–": "-", "﹣": "-", "－": "-", "∞": "inf", "│": "|", "┃": "|", "║": "|"})
# 1.0e-03 * above the numbers, in MATLAB and torch output.
_SCALE = re.compile(r"(?<![\w.])1\.?0*e([+-]\d+)\s*\*\s*(?=[\[\n\r])")
# A table with an empty corner, or one that the Lab wrote: its other labels may be anything.
_TABLE = re.compile(r'(?:""|Unnamed: 0|index|query_pos|key_pos)?[,;\t](?=[^\n]{0,500}[^\W\d])')
_SPECIAL_TOKEN = re.compile(r"(?<!\w)\[[^\W\d]\w{0,30}\](?!\w)")  # [CLS]
_TUPLE = re.compile(r"\s{0,500}[({]\s*[({\d.+-][^=]*$")  # ((1, 0), (0, 1)), or {{1, 0}, {0, 1}} in Mathematica
_HEADS = re.compile(r"\s{0,99}\d{1,9} heads?:")  # the prefix of a stack in `format_matrix`
_TRUTH = re.compile(r"(?<![\w.])(?:(true)|false)(?![\w.])", re.IGNORECASE)  # a mask of truth values
_BROKEN = re.compile(r"(?<![\w.])[+-]?\d+\.\d*(?![\w.])")


def _size(reading: ParsedText | str) -> int:
    if isinstance(reading, str):
        return 1000
    counts = (len(rows) * len(rows[0]) for matrix in reading.choices.values() for rows in as_stack(matrix))
    return 1000 + sum(100 + 32 * count for count in counts)


# Cached readings and refusals: a page reads its matrices again at every change of a knob. The same tuples are returned each
# time; otherwise the tuples of every run would stay in memory until the next garbage collection.
_CACHE: LRUCache[bytes, ParsedText | str] = LRUCache(2**26, getsizeof=_size)
_LOCK = Lock()


def parse_text(text: str, name: str = "matrix") -> ParsedText:
    """The matrix in a pasted text, or a question with the matrices to choose from.

    Reads CSV, spreadsheet cells, lists, the output of NumPy, torch, JAX, TensorFlow, pandas and R, LaTeX, Markdown, and complete
    notebook cells with names and prompts. In several lines, `;` and tab separate numbers, which may then have decimal commas. In one
    line, `;` ends a row, as in `format_matrix` and MATLAB: "1,5;2,5" is two rows of two numbers.

    Raises:
        MatrixError: the text is not a matrix of finite numbers, or has more than 512 × 1024 of them.
    """
    if len(text) > _MAX_CHARACTERS:
        raise too_large_error(name, f"a text of {len(text):,} characters")
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    key = name.encode("utf-8", "surrogatepass") + digest  # a refusal names the matrix
    with _LOCK:
        reading: ParsedText | str | None = _CACHE.get(key)
    if reading is None:
        if "mask" in name:
            text = _TRUTH.sub(lambda word: str(int(word[1] is not None)), text)
        try:
            reading = _parse_text(text, name)
        except MatrixError as error:
            reading = str(error)
        with _LOCK:
            if _size(reading) <= _CACHE.maxsize:
                _CACHE[key] = reading
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
        return ParsedText({"": tuple(as_stack(_parse_head(head, name).choose(None, name))[0] for head in heads)})
    reading = _parse_head(text, name)
    note = rounding_note(next(iter(reading.choices.values())))
    return reading.with_notes(note) if note else reading


def _parse_head(text: str, name: str) -> ParsedText:
    if "\\begin{" in text:
        return _parse_latex(text, name)
    if _TABLE.match(text):
        return _parse_table(_lines(text, name), name)
    text = _strip_wrappers(_apply_scale(text, name))
    if "[" not in text and _TUPLE.match(text):
        text = text.translate({ord("("): "[", ord(")"): "]", ord("{"): "[", ord("}"): "]"})
    has_brackets = "[" in text and "[" in _SPECIAL_TOKEN.sub("", text)
    return _parse_brackets(text.strip(), name) if has_brackets else _parse_lines(text, name)


def _apply_scale(text: str, name: str) -> str:
    """The text with a scale such as `1.0e-03 *` applied to every number below it, without loss of digits."""
    scales = list(zip(_SCALE.finditer(text), range(2), strict=False)) if "e" in text and "*" in text else []
    if not scales:
        return text
    if len(scales) > 1:
        raise MatrixError(f"{name} has several scales such as {scales[0][0][0].strip()!r}: paste one matrix at a time.")
    scale = scales[0][0]
    return text[: scale.start()] + _BROKEN.sub(rf"\g<0>e{int(scale[1])}", text[scale.end() :])


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
    is_utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))  # UTF-16, the “Unicode text” of Excel
    text = data.decode("utf-16" if is_utf16 else "utf-8", errors="replace")
    if ending != ".txt" and "[" not in text and "\n" not in text.strip():
        return text.replace(";", "\t")  # in a single row, `;` separates numbers
    return text


_MAX_DEPTH = 6  # axes
_MAX_ROWS = 16 * MAX_SIDE  # in all matrices of a text
_TOKENS = re.compile(r"(?:\s*(?:'[^'\n]*'|\"[^\"\n]*\")\s*(?:,|$))+\s*")  # a list of tokens
_MAX_WORDS = 2000
_BRACKET = re.compile(r"[\[\]]")


class _BracketList(NamedTuple):
    """The rows of a top-level list of the text, with the text before it and the number of rows before it; the end of the text has no rows. A single row has the shape ()."""

    before: str
    row: int
    rows: list[str]
    shape: tuple[int, ...] = ()


def _parse_brackets(text: str, name: str) -> ParsedText:
    matrices: list[tuple[str, list[str], tuple[int, ...]]] = []
    ignored: list[str] = []
    is_separate_rows = False  # whether the last matrix consists of separate rows in brackets
    for found in _iter_lists(text, name):
        text_before, where = found.before, f"after row {found.row - 1}" if matrices else "before row 0"
        if matrices:
            if not text_before and found.rows:
                raise _surroundings_error(name, "[", where)  # an index after a matrix
            same_line, newline, next_lines = _strip_suffix(text_before).partition("\n")
            if same_line.strip(" \t\r,;)") and (newline or not found.rows):
                raise _surroundings_error(name, found.before, where)
            text_before = next_lines if newline else same_line
        prefix = _parse_prefix(text_before if found.rows else text_before + "\n")
        if prefix is None:
            raise _surroundings_error(name, text_before, where)
        label, ignored_lines = prefix
        ignored += ignored_lines
        if not found.rows:
            break
        is_row = found.shape == ()
        if is_row and _TOKENS.fullmatch(found.rows[0][:_MAX_WORDS]):
            ignored.append(f"{label} = [{found.rows[0].strip()}]")
            continue
        if is_row and is_separate_rows and not label:
            matrices[-1][1].extend(found.rows)
        else:
            matrices.append((label, found.rows, found.shape))
        is_separate_rows = is_row
        if len(matrices) > MAX_SIDE or (is_row and len(matrices[-1][1]) > MAX_SIDE):
            raise too_large_error(name, f"more than {MAX_SIDE:,} {'rows' if is_row else 'matrices'}")
    if not matrices:
        raise MatrixError(f"{name} needs at least one number; got only words in brackets: paste rows of numbers.")
    readings = [_read(rows, shape or (len(rows),), name, label) for label, rows, shape in matrices]
    reading = combine(readings, name)
    if not ignored:
        return reading
    more_lines = f" and {len(ignored) - 1} more line{'s' * (len(ignored) > 2)}" if len(ignored) > 1 else ""
    return reading.with_notes(f"The text around the numbers was ignored: {excerpt(ignored[0], 40)}{more_lines}.")


def _read(rows: list[str], shape: tuple[int, ...], name: str, label: str) -> ParsedText:
    # At most the pieces that show that a row is too long: a number may be followed by a separate comma.
    rows = [" ".join(row.split(None, 4 * MAX_PIECES)) for row in _strip_rows(rows)]
    rows_of_numbers = _parse_rows(rows, name)
    if len({len(row) for row in rows_of_numbers}) == 1 or len(shape) == 1:
        return batch_reading(rows_of_numbers, (*shape, len(rows_of_numbers[0])), name, label)
    width = len(rows_of_numbers[0])
    raise next(uneven_error(name, i, len(row), width) for i, row in enumerate(rows_of_numbers) if len(row) != width)


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
    return [
        tuple(parse_number(cell, comma, name, i, j) for j, cell in enumerate(row or [""])) for i, row in enumerate(rows)
    ]


def _iter_lists(text: str, name: str) -> Iterator[_BracketList]:
    """The top-level lists of a text in order, and finally one without rows with the text after them."""
    counts: list[int] = []  # the elements so far of each open list
    sizes: dict[int, int] = {}  # the elements of a closed list at each depth; 0 for a row
    rows: list[str] = []
    position = row = first_row = 0
    text_before = ""
    in_row = False
    for bracket in _BRACKET.finditer(text):
        between, position = text[position : bracket.start()], bracket.end()
        opens = bracket[0] == "["
        if counts and (opens or not in_row):
            _check_between(between, row, name, in_row)
        if opens:
            if not counts:
                text_before, first_row, rows, sizes = between, row, [], {}
            counts.append(0)
            if len(counts) > _MAX_DEPTH:
                raise MatrixError(
                    f"{name} needs two axes, rows and columns, optionally in a batch; got more than {_MAX_DEPTH} levels of brackets in row {row}, column 0: paste one matrix."
                )
        elif not counts:
            raise _unbalanced_error(name, "many", row)
        else:
            size, depth = counts.pop(), len(counts)
            if in_row:
                several = depth == 0 and ";" in between  # as in MATLAB
                new = between.rstrip().removesuffix(";").split(";", MAX_PIECES) if several else [between]
                rows += new
                row += len(new)
                size = len(new) if several else 0
                if row > _MAX_ROWS or size > MAX_SIDE:
                    raise too_large_error(name, f"more than {_MAX_ROWS if row > _MAX_ROWS else MAX_SIDE:,} rows")
            if sizes.setdefault(depth, size) != size:
                got, first = (length or "a row" for length in (size, sizes[depth]))
                raise MatrixError(
                    f"{name} needs lists of equal size within a list; list {counts[-1]} is {got}, list 0 is {first}: paste one of these matrices."
                )
            if counts:
                counts[-1] += 1
            else:
                yield _BracketList(text_before, first_row, rows, tuple(sizes[i] for i in sorted(sizes) if sizes[i]))
        in_row = opens
    if counts:
        raise _unbalanced_error(name, "few", row)
    yield _BracketList(text[position:], row, [])


def _check_between(between: str, row: int, name: str, inside: bool) -> None:
    """Checks that there are no numbers or words between two brackets."""
    stray = between.strip(" \t\r\n,;")
    if stray and (inside or len(between) > 200 or _strip_suffix(between)):
        raise cell_error(name, stray, row, 0, "a row in brackets")


def _unbalanced_error(name: str, too: str, row: int) -> MatrixError:
    return MatrixError(
        f"{name} needs a closing bracket for each opening one; got one too {too} at row {row}, column 0: copy the matrix from its first to its last bracket."
    )


def _surroundings_error(name: str, words: str, where: str) -> MatrixError:
    return MatrixError(
        f"{name} has {excerpt(words.strip())} {where}, where only a name, tensor(…) or array(…) is expected: paste only the brackets and their content."
    )


_LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")  # a lazy str.splitlines
_DASHES = "-=─━═"
_RULE = re.compile(r"[\s|+:=\-─━┼│├┤┌┐└┘┬┴╞╡╪═┃╔╗╚╝╠╣╦╩╬╤╧╟╢]+")
_SLICE = re.compile(r"\s*+\(\s*+((?:\d+\s*,\s*)+)\.\s*,\s*\.\s*\)\s*=\s*")  # (0 ,.,.) = of torch before 0.4
_LABEL = re.compile(r"\s*+(?=.*[^\W\d])(?:[\w\"'`*$(×].*)?[:=]\s*")
_LABELLED = re.compile(r"\s*+(?!Unnamed: )([^\W\d][\w ]{0,40}?)\s*[:=]\s*(?=[-+.\d])(.*)")
_COLUMNS = re.compile(r"\s*Columns? \d+(?: (?:to|through|and) \d+)?:?\s*|\s*\\\s*", re.IGNORECASE)
_IGNORED = re.compile(
    r"\s*+(?:(?:print|display) ?\(.*\)|[a-z]\w*\.[\w.]+\([a-zA-Z_][\w., ]*\)|import .*|from .* import .*|<.*>|\(\d+, ?\d*\)|.*\b(?:shape|dtype)\b.*)"
)
_MAX_LABEL_LINE = 300
_MOST_LINES = 16 * MAX_SIDE


@dataclass
class _Block:
    """The lines of one matrix, in sections that are placed side by side."""

    label: str = ""
    sections: list[list[str]] = field(default_factory=lambda: [[]])
    rules: list[int] = field(default_factory=list)  # the number of rows above each horizontal rule


def _parse_lines(text: str, name: str) -> ParsedText:
    if re.search(r"\\[ \t]*[\r\n]", text):  # pandas splits a wide table into parts separated by blank lines
        text = re.sub(r"\n[ \t]*\r?\n", "\n\\\\\n", text)
    lines = _lines(text, name)
    if not lines:
        raise MatrixError(
            f"{name} needs at least one number; got {'only blanks' if text else 'nothing'}: paste rows of numbers, such as 1, 0; 0, 1."
        )
    blocks = list(islice((block for block in _iter_blocks(lines) if any(block.sections)), MAX_SIDE + 1))
    if len(blocks) > MAX_SIDE:
        raise too_large_error(name, f"more than {MAX_SIDE:,} matrices")
    readings = [_parse_block(block, name) for block in blocks]
    if not readings:
        raise MatrixError(
            f"{name} needs at least one number; got only words, such as {excerpt(lines[0].strip())}: paste rows of numbers, such as 1, 0; 0, 1."
        )
    return combine(readings, name)


def _lines(text: str, name: str) -> list[str]:
    filled = (line[0] for line in _LINE.finditer(text) if not line[0].isspace())
    lines = list(islice(filled, _MOST_LINES + 1))
    if len(lines) > _MOST_LINES:
        raise too_large_error(name, f"more than {MAX_SIDE:,} rows")
    return lines


def _iter_blocks(lines: list[str]) -> Iterator[_Block]:
    block = _Block()
    for line in lines:
        labelled = _LABELLED.match(line)
        if len(line) > _MAX_LABEL_LINE and not labelled and not _is_rule(line):
            block.sections[-1].append(line)  # a label is short
            continue
        slice_header = _SLICE.fullmatch(line)
        if slice_header or labelled or _LABEL.fullmatch(line):
            yield block
            indices = slice_header[1].split(",")[:-1] if slice_header else []
            index = "".join(f"[{axis_index.strip()}]" for axis_index in indices)
            block = _Block(index or _label_in(labelled[1] if labelled else line) or "")
            if labelled:
                block.sections[0].append(labelled[2])
        elif _is_rule(line):
            block.rules.append(len(block.sections[-1]))
        elif _COLUMNS.fullmatch(line):
            block.sections.append([])
        elif _IGNORED.fullmatch(line):
            yield block
            block = _Block()
        else:
            block.sections[-1].append(line.rstrip().removesuffix("\\") if "\\" in line else line)
    yield block


def _is_rule(line: str) -> bool:
    return _RULE.fullmatch(line) is not None and any(dash in line for dash in _DASHES)


def _parse_block(block: _Block, name: str) -> ParsedText:
    sections = [section for section in block.sections if section]
    if len(sections) > 1:
        readings = [_parse_table(section, name, block.label) for section in sections]
        parts = [next(iter(reading.choices.values())) for reading in readings]
        for i, part in enumerate(parts):
            if len(part) != len(parts[0]) or readings[i].question:
                raise MatrixError(
                    f"{name} needs the same number of rows in all parts of a table; part {i} has {len(part)}, part 0 has {len(parts[0])}: paste the complete table."
                )
        rows = validate_matrix([sum(pieces, ()) for pieces in zip(*parts, strict=True)], name)
        return _single(rows, block.label, readings[0].notes)
    lines = sections[0]
    if len(lines) > 1:
        return _parse_table(lines, name, block.label, [rule for rule in block.rules if 0 < rule < len(lines)] == [1])
    # In a single line `;` ends a row, as in `format_matrix` and MATLAB.
    lines = lines[0].rstrip().removesuffix(";").split(";", MAX_PIECES)
    if len(lines) > MAX_SIDE:
        raise too_large_error(name, f"more than {MAX_SIDE:,} rows")
    lines = _strip_rows(lines)
    matrix = validate_matrix(_parse_rows(lines, name), name)
    if (column := _decimal_column(lines)) is not None:
        choices = {"one column, with decimal commas": column, "two columns": matrix}
        return ParsedText(choices, _IS_DECIMAL, (), block.label, (len(matrix), len(matrix[0])))
    may_be_decimals = len(lines) > 1 and len(matrix[0]) == 2 and all(row.lstrip("+-").startswith("0,") for row in lines)
    return _single(matrix, block.label, (_SEPARATORS,) * may_be_decimals)


def _single(matrix: Matrix, label: str, notes: tuple[str, ...] = ()) -> ParsedText:
    return ParsedText({label: matrix}, "", notes, label, (len(matrix), len(matrix[0])))


# The text around numbers: prompts, comments, names, what NumPy, torch, JAX and TensorFlow print. Arithmetic, such as `2 *` or `.T`, is refused.

_MODULES = r"np|numpy|torch(?:\.nn)?|nn|jnp|jax\.numpy|tf|mx\.n[pd]|n[pd]|keras\.ops|ops|d2l|mlx\.core|paddle|cp|cupy"
_CONSTRUCTORS = (
    r"(?:as)?(?:nd)?array|(?:Device)?Array|[Mm]atrix|(?:to_|convert_to_|_)?tensor|"
    r"(?:Float|Double|Long|Int|Half)?Tensor|EagerTensor|constant|Variable|Parameter"
)
_CALL = rf"(?<![\w.])(?:(?:{_MODULES})\.)?(?:{_CONSTRUCTORS})\s?"
_CALLS = regex.compile(rf"(?r)(?:{_CALL}\(\s*){{0,2}}{_CALL}")  # from its end
_OPENS = re.compile(r"\(\s*(?=\[)")
_SIZE = r"\(\d+,\s?(?:\d+(?:,\s?\d+)*,?)?\)"

# Stripped before the brackets are counted: (a substring that the text must contain, pattern, replacement).
_WRAPPERS: tuple[tuple[str, re.Pattern[str], str], ...] = tuple(
    (required, re.compile(pattern, re.MULTILINE), replacement)
    for required, pattern, replacement in (
        ("]:", r"^(?:In|Out) ?\[ ?\d* ?\]:", ""),  # Jupyter
        (">>>", r"^\.\.\. (?=.*\S)", ""),  # continuation line of a statement
        (
            ">>>",
            rf"^>>> ?(?:\w+ ?= ?)?(?!{_CALL}\()[\w.]+ ?\([^\n]*\[[^\n]*$",
            "",
        ),  # an expression whose output follows
        (">>>", r"^>>> ?([^\W\d]\w*)[ \t]*$", r"\1 ="),
        (">>>", r"^>>> ?", ""),
        ("#>", r"^#> ?", ""),  # the prefix of R output in knitr
        ("#", r"(?<![\w\"'#])#(?!#+\w)[^\n\r]*", ""),  # not ##ing, a subword
        ("←", r"←[^\n\r]*", ""),
        ("torch.Size", r"torch\.Size\(\[[\d, ]*\]\)", ""),
        ("[", r"(?<=\w)\[[\w:'\"+*-]{0,40}(?:, ?[\w:'\"+*-]{1,40}){0,5}\]", ""),  # K.shape[1], x[:, 0]
        (" of size ", r"\[torch\.\w+ of size [\dx]+(?: \(GPU \d+\))?\]", ""),  # torch before 0.4
        ("[,1]", r"^[ \t]*+(?:\[,\d+\][ \t]*+)++$", ""),  # R
        ("[1,]", r"^[ \t]*+\[\d+,\](?=[ \t]++[-+.\d])", ""),
        (" rows x ", r"\[\d+ rows x \d+ columns\]", ""),  # pandas
        ("[", rf"{_SIZE}[\s,]{{0,40}}(?={_CALL}\(|\[\[)", ""),  # ((3, 3), array(…
    )
)
_UNCOMMENTED = re.compile(r"^[ \t]*[^\s#]", re.MULTILINE)
# Output of code in a comment below it.
_COMMENTED = re.compile(r"^[ \t]*#[>']?[ \t]?(?:#[ \t])?", re.MULTILINE)
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
        if required[0] in text and required in text:  # the check of one character is ten times as fast
            text = pattern.sub(replacement, text)
    parts, position = [], 0
    for opening in islice(_OPENS.finditer(text), _MAX_BETWEEN):
        if calls := _CALLS.match(text, position, opening.start()):
            parts.append(text[position : opening.start() - len(calls[0])])
            position = opening.end()
    return "".join((*parts, text[position:]))


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
) -> tuple[dict[str, Matrix], str, tuple[str, ...]]:
    first_row, first_column = rows[0], [row[0] for row in rows]
    has_separator = separator is not None and len(rows) > 1
    has_points = any("." in cell for row in rows[1:] for cell in row[1:] or row)
    is_zero_column = separator is None and list(first_row) == ["0"] and len(rows) > 1
    column = None
    if separator == "," and not labels.has_heading and not labels.has_names:
        column = _parse_decimal_column(list(map(",".join, rows)))
    is_heading = not labels.has_heading and (
        (has_separator and (counts_from_zero(first_row) or ruled))
        or (is_zero_column and all("." in row[0] for row in rows[1:]))
    )
    may_be_index = not labels.has_names and has_separator and len(first_row) > 1
    is_index = may_be_index and counts_from_zero(first_column)
    choices: dict[str, Matrix] = {}
    notes = []
    if column is not None and column[1]:
        choices["one column, with decimal commas"] = column[0]
    elif column is not None:
        notes.append(_SEPARATORS)
    if is_heading and not (ruled or has_points or len(first_row) > 2):
        notes.append(f"Its first row, {_format_cells(first_row)}, is read as numbers, not as a heading.")
    elif is_heading:
        choices["the first row is a heading"] = matrix[1:]
        if may_be_index and len(rows) > 2 and counts_from_zero(first_column[1:]):
            choices["the first row and column are headings"] = tuple(row[1:] for row in matrix[1:])
    if is_index and not (has_points or len(rows) > 2):
        notes.append(f"Its first column, {_format_cells(first_column)}, is read as numbers, not as names of the rows.")
    elif is_index:
        choices["the first column numbers the rows"] = tuple(row[1:] for row in matrix)
    if not choices:
        return {"": matrix}, "", tuple(notes)
    is_column = list(choices) == ["one column, with decimal commas"]
    choices["two columns" if is_column else "all are numbers of the matrix"] = matrix
    meanings = {
        "the first row is a heading": f"the first row, {_format_cells(first_row)}, a heading",
        "the first column numbers the rows": f"the first column, {_format_cells(first_column)}, a numbering",
    }
    candidates = [meaning for choice, meaning in meanings.items() if choice in choices]
    question = f"Is {' or '.join(candidates)}, or are these numbers of the matrix?" if candidates else _IS_DECIMAL
    return choices, question, tuple(notes)


def _parse_decimal_column(rows: Sequence[str]) -> tuple[Matrix, bool] | None:
    """Rows such as 0,12 as one column of decimals, and whether that is likely; None if the rows have another form."""
    pieces = [_DECIMAL.fullmatch(row.strip()) for row in rows]
    if len(rows) < 2 or not all(pieces):
        return None
    integers, decimals = zip(*(piece.groups() for piece in pieces if piece), strict=True)
    is_likely = any(len(digits) > 1 for digits in decimals) or all(digits.lstrip("+-") == "0" for digits in integers)
    return tuple((float(row.strip().replace(",", ".")),) for row in rows), is_likely


def _decimal_column(rows: Sequence[str]) -> Matrix | None:
    """Rows such as 0,05 as one column, since a column of 05 beside one of 0 makes no sense."""
    column = _parse_decimal_column(rows)
    return column[0] if column and any(re.search(r",0\d", row) for row in rows) else None


def _format_cells(values: Sequence[str]) -> str:
    values = [excerpt(cell)[1:-1] for cell in values if cell]
    return ", ".join(values[:3]) + (", …" if len(values) > 3 else "")


# LaTeX, such as \begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}.

_BEGIN = re.compile(r"\\begin\{([bpBvV]?(?:small)?matrix\*?|array|tabular)\}(?:\[\w*\])?(?:\{[|lcrS@{} ]{0,200}\})?")
_ROW_END = re.compile(r"\\\\(?:\[[^\]]{0,20}\])?|\\tabularnewline")
_RULES = re.compile(r"\\(?:hline|toprule|midrule|bottomrule|cline\{[\d-]+\})")
_FORMATTING = re.compile(  # commands that change only the appearance of a number
    r"\\(?:mathbf|mathrm|mathit|textbf|boldsymbol|bm|text|color\{\w+\}|textcolor\{\w+\})(?=\{)|"
    r"\\[,;:! ]|\\(?:quad|qquad|displaystyle|phantom\{[^{}]{0,5}\})|[~$]"
)
_DOTS = re.compile(r"\\[lcvd]?dots[cbmio]?(?![a-zA-Z])")
_N = r"\d+(?:\.\d+)?"
_FRACTION = re.compile(
    rf"([+-]?)\s*(?:\\[dt]?frac\s*(?:\{{\s*([+-]?{_N})\s*\}}|(\d))\s*(?:\{{\s*({_N})\s*\}}|(\d))|({_N})\s*/\s*({_N}))"
)
_BEFORE_MATRIX = re.compile(r"(?:\\(?:left|[bB]ig+l?|quad|qquad|displaystyle|[,;! ])|\\?[\[(|.$]|&|\s)+$")
_AFTER_MATRIX = re.compile(r"(?:\\(?:right|[bB]ig+r?|quad|qquad|[,;! ])|\\?[\])|.$,;&]|\\\\|\\end\{\w+\*?\}|\s)*")


def _parse_latex(text: str, name: str) -> ParsedText:
    readings: list[ParsedText] = []
    position = 0
    is_short = text.count(r"\begin{", 0, 20 * _MAX_CONTEXT) < 3
    for begin in _BEGIN.finditer(text):
        if begin.start() < position:
            continue
        end_command = f"\\end{{{begin[1]}}}"
        end = text.find(end_command, begin.end())
        if end < 0:
            raise MatrixError(
                f"{name} has {begin[0]} without {end_command}: copy the formula from its \\begin to its \\end."
            )
        text_before = text[max(position, begin.start() - _MAX_CONTEXT) : begin.start()]
        text_after = text[end + len(end_command) : end + len(end_command) + _MAX_CONTEXT]
        position = end + len(end_command)
        if not re.search(r"\d", text[begin.end() : end]):
            continue  # an environment without numbers, such as arrows beside a matrix
        if re.match(r"\s*\^|\s*'", text_after):
            raise _arithmetic_error(name, text_after.strip()[:20])
        label = _label_in(
            _BEFORE_MATRIX.sub("", _FORMATTING.sub(" ", text_before).rpartition(r"\\")[2])
            .strip()
            .rpartition("\n")[2]
            .replace("\\", "")
        )
        has_others = len(readings) > 0 or _BEGIN.search(text, position) is not None
        if is_short and not has_others and (label is None or not _AFTER_MATRIX.fullmatch(text_after.split("\n\n")[0])):
            raise _arithmetic_error(name, (text_before if label is None else text_after).strip()[-40:])
        readings.append(_parse_environment(text[begin.end() : end], begin[1] == "tabular", name, label or ""))
        if len(readings) > MAX_SIDE:
            raise too_large_error(name, f"more than {MAX_SIDE:,} matrices")
    if not readings:
        raise MatrixError(
            f"{name} has LaTeX without a matrix in it: copy one from \\begin{{bmatrix}} to \\end{{bmatrix}}."
        )
    return combine(readings, name)


def _parse_environment(body: str, is_table: bool, name: str, label: str) -> ParsedText:
    if dots := _DOTS.search(body):
        raise MatrixError(f"{name} has {dots[0]} in place of numbers: write out all of them.")
    body = _RULES.sub("", body).replace("{,}", ".")
    rows = [" ".join(_FORMATTING.sub("", row).split(None, 4 * MAX_PIECES)) for row in _ROW_END.split(body, MAX_PIECES)]
    if len(rows) > MAX_PIECES:
        raise too_large_error(name, f"more than {MAX_SIDE:,} rows")
    cells = [[_plain_number(cell.strip()) for cell in row.split("&", MAX_PIECES)] for row in rows if row.strip()]
    if is_table:
        return _parse_table(["&".join(row) for row in cells], name, label)
    return _single(validate_matrix(_parse_numbers(cells, name), name), label)


def _plain_number(cell: str) -> str:
    r"""A number without braces, \frac{1}{2} as 0.5."""
    fraction = _FRACTION.fullmatch(cell.strip())
    if fraction:
        sign, numerator, numerator_digit, denominator, denominator_digit, top, bottom = fraction.groups()
        divisor = float(denominator or denominator_digit or bottom)
        if divisor:
            return repr(float(f"{sign}1") * float(numerator or numerator_digit or top) / divisor)
    return re.sub(r"[{}\s]", "", cell) if re.fullmatch(r"[{}\s\d.eE+,-]+", cell) else cell


def _arithmetic_error(name: str, words: str) -> MatrixError:
    return MatrixError(
        f"{name} has {excerpt(words, 40)} beside the matrix, where only a name such as W_Q = is expected: arithmetic is not evaluated, so paste the result."
    )
