r"""Matrices in LaTeX: \begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}."""

from __future__ import annotations

import re

from attention.errors import MatrixError
from attention.io.text.headed_table import parse_table
from attention.io.text.matrix import MAX_SIDE, excerpt, too_large_error, validate_matrix
from attention.io.text.number_cells import MAX_PIECES, parse_numbers, split_cells, strip_rows
from attention.io.text.parsed import ParsedText, combine
from attention.io.text.printed_formats import label_in

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
_MAX_CONTEXT = 500


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
    rows = ["&".join(map(_plain_number, split_cells(row, "&"))) for row in rows if row.strip()]
    if is_table:
        return parse_table(rows, name, label)
    rows_of_numbers = parse_numbers(strip_rows(rows), name, "&", any("," in row for row in rows))
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
