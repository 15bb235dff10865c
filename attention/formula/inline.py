"""Source code of the package's functions as lines of a standalone program, so that copied programs compute the same.

Functions are tokenized, not parsed: in Python 3.11, `ast.parse` is not safe in two threads at once (gh-106905).
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

_ATOM = re.compile(
    r"[\w.]+(\([^()]*(\([^()]*\)[^()]*)*\)|\[[^\[\]]*\])*"
)  # an expression that needs no brackets as an operand
_SPACE = (tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT)


def inlined(function: Callable[..., Any], target: str, **arguments: str) -> list[str]:
    """The body of a function as lines, with `arguments` for parameters, and `target =` for its `return`.

    Docstring and imports are removed; comments stay. Other names stay as they are.

    Raises:
        ValueError: the function has blocks, or more than one return.
    """
    lines, tokens = _body(function)
    returns = [token for token in tokens if token.string == "return" and token.type == tokenize.NAME]
    if len(returns) != 1 or returns[0].start[1] or any(token.type == tokenize.INDENT for token in tokens):
        raise ValueError(
            f"a function to inline has no blocks, and returns once, at its end; got {function.__qualname__}: use `defined` instead."
        )
    return _replaced(lines, tokens, {**arguments, "return": f"{target} ="})


def expression(function: Callable[..., Any], **arguments: str) -> str:
    """The expression that a function of one line returns, with `arguments` for parameters."""
    (line,) = (line for line in inlined(function, "_", **arguments) if not line.startswith("#"))
    return line.removeprefix("_ = ")


def defined(function: Callable[..., Any], **names: str) -> list[str]:
    """The definition of a function as lines, without docstring, annotations and imports; `names` replaces names of its body."""
    parameters = [
        parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default!r}"
        for parameter in inspect.signature(function).parameters.values()
    ]
    lines, tokens = _body(function)
    body = _replaced(lines, tokens, names)
    return ["", f"def {function.__name__}({', '.join(parameters)}):", *(f"    {line}" for line in body), ""]


@cache
def _body(function: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[TokenInfo, ...]]:
    """The dedented lines of a function's body, and their tokens."""
    source = textwrap.dedent(inspect.getsource(function))
    tokens = _tokens(source)
    def_index = next(i for i, token in enumerate(tokens) if token.string == "def")
    depth = 0
    for colon in range(def_index, len(tokens)):
        depth += (tokens[colon].string in ("(", "[")) - (tokens[colon].string in (")", "]"))
        if tokens[colon].string == ":" and not depth:
            break
    first = tokens[colon + 1].start[0] + 1
    statements: list[tuple[int, int, str]] = []  # first line, last line, first word
    start, word = first, ""
    for token in tokens[colon + 2 :]:
        if not word and token.type not in _SPACE:
            word, start = token.string, token.start[0]
        if token.type == tokenize.NEWLINE:
            statements.append((start, token.end[0], word))
            word = ""
    skipped = {
        line
        for start, end, word in statements
        if word in ("import", "from") or (start == statements[0][0] and word.startswith(('"', 'r"')))
        for line in range(start, end + 1)
    }
    rows = source.splitlines()
    remaining = [rows[i - 1] for i in range(first, len(rows) + 1) if i not in skipped and rows[i - 1].strip()]
    body = textwrap.dedent("\n".join(remaining))
    return tuple(body.splitlines()), tuple(_tokens(body + "\n"))


def _tokens(text: str) -> list[TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


def _replaced(lines: tuple[str, ...], tokens: tuple[TokenInfo, ...], names: Mapping[str, str]) -> list[str]:
    """The lines with names replaced by texts, except attributes and names of keyword arguments."""
    result, depth = list(lines), 0
    edits = list[tuple[TokenInfo, str]]()
    for before, token, after in zip((None, *tokens), tokens, (*tokens[1:], None), strict=False):
        depth += (token.string in ("(", "[", "{")) - (token.string in (")", "]", "}"))
        is_attribute = before is not None and before.string == "."
        is_keyword = depth > 0 and after is not None and after.string == "="
        if token.type == tokenize.NAME and token.string in names and not is_attribute and not is_keyword:
            text = names[token.string]
            needs_no_brackets = token.string == "return" or _ATOM.fullmatch(text)
            edits.append((token, text if needs_no_brackets else f"({text})"))
    for token, text in reversed(edits):
        row, (start, end) = token.start[0] - 1, (token.start[1], token.end[1])
        result[row] = result[row][:start] + text + result[row][end:]
    return result
