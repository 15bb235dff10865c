r"""What the readers of `matrix_text` strip around published matrices, and their readers of tables and LaTeX.

First the text around numbers: prompts, comments, names, the output of NumPy, torch, JAX and TensorFlow; arithmetic,
such as `2 *` or `.T`, is refused. Then tables with headings (CSV, spreadsheet cells, Markdown, the output of pandas)
and the questions that they leave open; and LaTeX, such as \begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import regex

from attention.base.errors import MatrixError
from attention.files.cells import (
    MAX_PIECES,
    Labels,
    as_tokens,
    counts_from_zero,
    find_labels,
    parse_numbers,
    split,
    strip_rows,
)
from attention.files.matrix import (
    MAX_SIDE,
    Matrix,
    ParsedText,
    check_size,
    combine,
    excerpt,
    too_large_error,
    validate_matrix,
)

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


class Prefix(NamedTuple):
    """The text before a bracket: the name of the matrix, and the lines that are left out."""

    label: str
    ignored_lines: tuple[str, ...]


def strip_wrappers(text: str) -> str:
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


def strip_suffix(between: str) -> str:
    """The rest of the text after a bracket, without dtype=…, grad_fn=… and closing parentheses."""
    match = _SUFFIX.match(between[:_MAX_CONTEXT])
    return between[match.end() :] if match else between


def parse_prefix(text: str) -> Prefix | None:
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
        label = label_in(last_line)
        return None if label is None else Prefix(label, tuple(above))
    if not above:
        return Prefix("", ())
    *other_lines, nearest_line = above
    label = label_in(nearest_line) if nearest_line.endswith((":", "=", "→", "≈")) else None
    if label is not None:
        return Prefix(label, tuple(other_lines))
    if nearest_line.endswith((":", "=")) or _OPERATOR_AT_END.search(nearest_line):
        return None
    name = re.fullmatch(r"[^\W\d][\w.]*", nearest_line)  # an expression whose output follows
    return Prefix(nearest_line if name else "", tuple(other_lines if name else above))


def label_in(line: str) -> str | None:
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


_DECIMAL = re.compile(r"([+-]?\d+),(\d+)", re.ASCII)


def parse_table(lines: Sequence[str], name: str, label: str = "", ruled: bool = False) -> ParsedText:
    """The numbers of a table. Whether a first row or column of 0, 1, 2, … is an index or belongs to the matrix may be a question.

    Args:
        ruled: whether there is a rule below the first row, as below a heading in Markdown.

    Raises:
        MatrixError: anything but numbers below the headings.
    """
    if len(lines) > MAX_SIDE:
        raise too_large_error(name, f"more than {MAX_SIDE:,} rows")
    lines = strip_rows(lines)
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
    numbers = parse_numbers(body, name, comma)
    check_size(len(numbers), len(numbers[0]), name)
    matrix = validate_matrix(numbers, name)
    notes = [f"The first row, {_format_cells(rows[0])}, is read as a heading."] if labels.has_heading else []
    notes += [f"The first column, {_format_cells(names)}, is read as names of the rows."] if labels.has_names else []
    notes += ["Its commas are read as decimal commas."] if comma else []
    choices, question, more_notes = _open_choices(body, matrix, separator, ruled, labels)
    labelled_choices = {", ".join(filter(None, (label, key))): matrix for key, matrix in choices.items()}
    tokens, columns = as_tokens(names), as_tokens(labels.columns)
    return ParsedText(
        labelled_choices, question, (*notes, *more_notes), label, (len(matrix), len(matrix[0])), tokens, columns
    )


def _open_choices(
    rows: Sequence[Sequence[str]], matrix: Matrix, separator: str | None, ruled: bool, labels: Labels
) -> tuple[dict[str, Matrix], str, tuple[str, ...]]:
    """The possible matrices, the question that selects one, and notes."""
    first_row, first_column = rows[0], [row[0] for row in rows]
    has_separator = separator is not None and len(rows) > 1
    has_points = any("." in cell for row in rows[1:] for cell in row[1:] or row)
    is_zero_column = separator is None and list(first_row) == ["0"] and len(rows) > 1
    column = (
        None
        if separator != "," or labels.has_heading or labels.has_names
        else _parse_decimal_column(list(map(",".join, rows)))
    )
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
        notes.append("Its commas are read as column separators; write decimals with a point.")
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
    choices[
        "two columns" if list(choices) == ["one column, with decimal commas"] else "all are numbers of the matrix"
    ] = matrix
    meanings = {
        "the first row is a heading": f"the first row, {_format_cells(first_row)}, a heading",
        "the first column numbers the rows": f"the first column, {_format_cells(first_column)}, a numbering",
    }
    candidates = [meaning for choice, meaning in meanings.items() if choice in choices]
    question = (
        f"Is {' or '.join(candidates)}, or are these numbers of the matrix?"
        if candidates
        else "Are its commas decimal commas?"
    )
    return choices, question, tuple(notes)


def _parse_decimal_column(rows: Sequence[str]) -> tuple[Matrix, bool] | None:
    """Rows such as 0,12 as one column of decimals, and whether that is likely; None if the rows have another form."""
    pieces = [_DECIMAL.fullmatch(row.strip()) for row in rows]
    if len(rows) < 2 or not all(pieces):
        return None
    integers, decimals = zip(*(piece.groups() for piece in pieces if piece), strict=True)
    is_likely = any(len(digits) > 1 for digits in decimals) or all(digits.lstrip("+-") == "0" for digits in integers)
    return tuple((float(row.strip().replace(",", ".")),) for row in rows), is_likely


def decimal_column(rows: Sequence[str]) -> Matrix | None:
    """Rows such as 0,05 as one column, since a column of 05 beside one of 0 makes no sense."""
    column = _parse_decimal_column(rows)
    return column[0] if column and any(re.search(r",0\d", row) for row in rows) else None


def _format_cells(values: Sequence[str]) -> str:
    values = [excerpt(cell)[1:-1] for cell in values if cell]
    return ", ".join(values[:3]) + (", …" if len(values) > 3 else "")


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


def parse_latex(text: str, name: str) -> ParsedText:
    r"""The matrices of a LaTeX formula; a question if there are several.

    Raises:
        MatrixError: an environment without its end, arithmetic beside the only matrix, or no numbers.
    """
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
        label = label_in(
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
        return parse_table(["&".join(row) for row in cells], name, label)
    rows_of_numbers = parse_numbers(cells, name, any("," in cell for row in cells for cell in row))
    return ParsedText(
        {label: validate_matrix(rows_of_numbers, name)},
        "",
        (),
        label,
        (len(rows_of_numbers), len(rows_of_numbers[0]) if rows_of_numbers else 0),
    )


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
