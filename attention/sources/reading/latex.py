r"""Matrices as LaTeX writes them: \begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}."""

from __future__ import annotations

import re

from attention.errors import MatrixError
from attention.sources.reading.around import called
from attention.sources.reading.cells import ENOUGH, cells, numbers, tidied
from attention.sources.reading.matrix import MAX_SIDE, checked, shown, too_large
from attention.sources.reading.reading import Reading, several
from attention.sources.reading.table import tabled

_BEGIN = re.compile(r"\\begin\{([bpBvV]?(?:small)?matrix\*?|array|tabular)\}(?:\[\w*\])?(?:\{[|lcrS@{} ]{0,200}\})?")
_ROW_END = re.compile(r"\\\\(?:\[[^\]]{0,20}\])?|\\tabularnewline")
_RULES = re.compile(r"\\(?:hline|toprule|midrule|bottomrule|cline\{[\d-]+\})")
_DRESS = re.compile(  # what changes the look of a number and not the number
    r"\\(?:mathbf|mathrm|mathit|textbf|boldsymbol|bm|text|color\{\w+\}|textcolor\{\w+\})(?=\{)|"
    r"\\[,;:! ]|\\(?:quad|qquad|displaystyle|phantom\{[^{}]{0,5}\})|[~$]"
)
_DOTS = re.compile(r"\\[lcvd]?dots[cbmio]?(?![a-zA-Z])")
_N = r"\d+(?:\.\d+)?"
_FRACTION = re.compile(
    rf"([+-]?)\s*(?:\\[dt]?frac\s*(?:\{{\s*([+-]?{_N})\s*\}}|(\d))\s*(?:\{{\s*({_N})\s*\}}|(\d))|({_N})\s*/\s*({_N}))"
)
_OPENED = re.compile(r"(?:\\(?:left|[bB]ig+l?|quad|qquad|displaystyle|[,;! ])|\\?[\[(|.$]|&|\s)+$")
_CLOSED = re.compile(r"(?:\\(?:right|[bB]ig+r?|quad|qquad|[,;! ])|\\?[\])|.$,;&]|\\\\|\\end\{\w+\*?\}|\s)*")
_LONGEST = 500


def latex(text: str, name: str) -> Reading:
    r"""The matrices of a LaTeX formula; which is meant is open where there are several.

    Raises:
        MatrixError: an environment without its end, something that calculates beside the only matrix, or no numbers in it.
    """
    found: list[Reading] = []
    at = 0
    alone = text.count(r"\begin{", 0, 20 * _LONGEST) < 3
    for begin in _BEGIN.finditer(text):
        if begin.start() < at:
            continue
        close = f"\\end{{{begin[1]}}}"
        end = text.find(close, begin.end())
        if end < 0:
            raise MatrixError(f"{name} has {begin[0]} without {close}: copy the formula from its \\begin to its \\end.")
        words = text[max(at, begin.start() - _LONGEST) : begin.start()]
        behind = text[end + len(close) : end + len(close) + _LONGEST]
        at = end + len(close)
        if not re.search(r"\d", text[begin.end() : end]):
            continue  # arrows and words beside a matrix
        if re.match(r"\s*\^|\s*'", behind):
            raise _calculates(name, behind.strip()[:20])
        label = called(
            _OPENED.sub("", _DRESS.sub(" ", words).rpartition(r"\\")[2]).strip().rpartition("\n")[2].replace("\\", "")
        )
        others = len(found) > 0 or _BEGIN.search(text, at) is not None
        if alone and not others and (label is None or not _CLOSED.fullmatch(behind.split("\n\n")[0])):
            raise _calculates(name, (words if label is None else behind).strip()[-40:])
        found.append(_environment(text[begin.end() : end], begin[1] == "tabular", name, label or ""))
        if len(found) > MAX_SIDE:
            raise too_large(name, f"more than {MAX_SIDE:,} matrices")
    if not found:
        raise MatrixError(
            f"{name} has LaTeX without a matrix in it: copy one from \\begin{{bmatrix}} to \\end{{bmatrix}}."
        )
    return several(found, name)


def _environment(body: str, table: bool, name: str, label: str) -> Reading:
    if dots := _DOTS.search(body):
        raise MatrixError(f"{name} has {dots[0]} where numbers are missing: write all of them out.")
    body = _RULES.sub("", body).replace("{,}", ".")
    rows = [" ".join(_DRESS.sub("", row).split(None, 4 * ENOUGH)) for row in _ROW_END.split(body, ENOUGH)]
    if len(rows) > ENOUGH:
        raise too_large(name, f"more than {MAX_SIDE:,} rows")
    rows = ["&".join(map(_plain, cells(row, "&"))) for row in rows if row.strip()]
    if table:
        return tabled(rows, name, label)
    read = numbers(tidied(rows), name, "&", any("," in row for row in rows))
    return Reading({label: checked(read, name)}, "", (), label, (len(read), len(read[0]) if read else 0))


def _plain(cell: str) -> str:
    r"""A number without braces, \frac{1}{2} as 0.5."""
    fraction = _FRACTION.fullmatch(cell.strip())
    if fraction:
        sign, over, o, under, u, top, bottom = fraction.groups()
        divisor = float(under or u or bottom)
        if divisor:
            return repr(float(f"{sign}1") * float(over or o or top) / divisor)
    return re.sub(r"[{}\s]", "", cell) if re.fullmatch(r"[{}\s\d.eE+,-]+", cell) else cell


def _calculates(name: str, words: str) -> MatrixError:
    return MatrixError(
        f"{name} has {shown(words, 40)} beside the matrix, where only a name such as W_Q = is expected: nothing is worked out, so paste the matrix that it gives."
    )
