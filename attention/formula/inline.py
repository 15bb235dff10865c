"""Functions of ours as lines of a program that stands alone: what a copied program computes is what is computed here.

The text of a function is cut into tokens, not parsed: two threads of Python 3.11 may ask at once (gh-106905).
"""

from __future__ import annotations

import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Callable, Mapping
from functools import cache
from tokenize import TokenInfo
from typing import Any

_ATOM = re.compile(r"[\w.]+(\([^()]*(\([^()]*\)[^()]*)*\)|\[[^\[\]]*\])*")  # needs no brackets as an operand
_SPACE = (tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT)


def inlined(function: Callable[..., Any], target: str, **arguments: str) -> list[str]:
    """The body of a function as lines: `arguments` in the place of names, and `target =` in the place of its `return`.

    The docstring and imports are left out; comments stay. Whatever is not an argument keeps its name.

    Raises:
        ValueError: the function returns anywhere but at its end.
    """
    lines, tokens = _body(function)
    returns = [one for one in tokens if one.string == "return" and one.type == tokenize.NAME]
    if len(returns) != 1 or returns[0].start[1] or any(one.type == tokenize.INDENT for one in tokens):
        raise ValueError(
            f"a function is inlined that returns once, at its end; got {function.__qualname__}: define it."
        )
    return _replaced(lines, tokens, {**arguments, "return": f"{target} ="})


def expression(function: Callable[..., Any], **arguments: str) -> str:
    """What a function of one line returns, with `arguments` in the place of names."""
    (line,) = (one for one in inlined(function, "_", **arguments) if not one.startswith("#"))
    return line.removeprefix("_ = ")


def defined(function: Callable[..., Any], **names: str) -> list[str]:
    """A function as lines that define it, without docstring, annotations and imports; other `names` in the place of some."""
    parameters = [
        one.name if one.default is one.empty else f"{one.name}={one.default!r}"
        for one in inspect.signature(function).parameters.values()
    ]
    lines, tokens = _body(function)
    body = _replaced(lines, tokens, names)
    return ["", f"def {function.__name__}({', '.join(parameters)}):", *(f"    {line}" for line in body), ""]


@cache
def _body(function: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[TokenInfo, ...]]:
    """The lines of a function's body, from the margin, and their tokens."""
    source = textwrap.dedent(inspect.getsource(function))
    tokens = _tokens(source)
    begin = next(i for i, one in enumerate(tokens) if one.string == "def")
    depth = 0
    for i in range(begin, len(tokens)):
        depth += (tokens[i].string in ("(", "[")) - (tokens[i].string in (")", "]"))
        if tokens[i].string == ":" and not depth:
            break
    first = tokens[i + 1].start[0] + 1
    statements: list[tuple[int, int, str]] = []  # first line, last line, first word
    at, word = first, ""
    for one in tokens[i + 2 :]:
        if not word and one.type not in _SPACE:
            word, at = one.string, one.start[0]
        if one.type == tokenize.NEWLINE:
            statements.append((at, one.end[0], word))
            word = ""
    skipped = {
        line
        for start, end, word in statements
        if word in ("import", "from") or (start == statements[0][0] and word.startswith(('"', 'r"')))
        for line in range(start, end + 1)
    }
    rows = source.splitlines()
    kept = [rows[i - 1] for i in range(first, len(rows) + 1) if i not in skipped and rows[i - 1].strip()]
    body = textwrap.dedent("\n".join(kept))
    return tuple(body.splitlines()), tuple(_tokens(body + "\n"))


def _tokens(text: str) -> list[TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


def _replaced(lines: tuple[str, ...], tokens: tuple[TokenInfo, ...], names: Mapping[str, str]) -> list[str]:
    """The lines with other texts in the place of names; not of attributes, nor of the names of keyword arguments."""
    found, depth = list(lines), 0
    edits = list[tuple[TokenInfo, str]]()
    for before, one, after in zip((None, *tokens), tokens, (*tokens[1:], None), strict=False):
        depth += (one.string in ("(", "[", "{")) - (one.string in (")", "]", "}"))
        attribute = before is not None and before.string == "."
        keyword = depth > 0 and after is not None and after.string == "="
        if one.type == tokenize.NAME and one.string in names and not attribute and not keyword:
            text = names[one.string]
            alone = one.string == "return" or _ATOM.fullmatch(text)
            edits.append((one, text if alone else f"({text})"))
    for one, text in reversed(edits):
        row, (start, end) = one.start[0] - 1, (one.start[1], one.end[1])
        found[row] = found[row][:start] + text + found[row][end:]
    return found
