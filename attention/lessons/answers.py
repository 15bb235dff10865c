"""Answers that are worked out from a live trace: expressions of the functions in one table, and of nothing else."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attention.errors import AttentionError, FileError, MissingError
from attention.formula.name_aliases import current_name
from attention.formula.steps import STEPS
from attention.lessons.kinds import Guess
from attention.tokens import label

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.trace import Trace

_SAME = 1e-5  # of two numbers, what single precision may have lost
_STEPS = {one.name for one in STEPS}
_LONGEST = 300  # characters of an expression


@dataclass(frozen=True)
class Seen:
    """What a question is about: the trace, and the same with the one knob turned; `layer` and `head` are the state's."""

    before: Trace
    after: Trace
    layer: int = 0
    head: int = 0

    def matrix(self, step: str, layer: int | None, head: int | None, turned: bool = True) -> Tensor:
        """A step of one head."""
        trace = self.after if turned else self.before
        return trace.layer(self.layer if layer is None else layer).matrix(step, self.head if head is None else head)


def argmax_key(seen: Seen, step: str, q: int, layer: int | None = None, head: int | None = None) -> int:
    """The key with the largest number of a query."""
    return int(seen.matrix(step, layer, head)[q].argmax())


def value(seen: Seen, step: str, q: int, k: int, layer: int | None = None, head: int | None = None) -> float:
    """One number."""
    return float(seen.matrix(step, layer, head)[q, k])


def row(seen: Seen, step: str, q: int, layer: int | None = None, head: int | None = None) -> tuple[float, ...]:
    """All numbers of a query."""
    return tuple(map(float, seen.matrix(step, layer, head)[q]))


def order(seen: Seen, step: str, q: int, layer: int | None = None, head: int | None = None) -> tuple[int, ...]:
    """The keys of a query, the largest number first."""
    return tuple(map(int, seen.matrix(step, layer, head)[q].argsort(descending=True, stable=True)))


def compare(seen: Seen, step: str, q: int, k: int, layer: int | None = None, head: int | None = None) -> str:
    """Whether one number becomes more or less when the knob is turned, or stays the same."""
    before, after = (float(seen.matrix(step, layer, head, turned)[q, k]) for turned in (False, True))
    return _compared(before, after)


def compare_rows(seen: Seen, step: str, q: int, other: int, layer: int | None = None, head: int | None = None) -> str:
    """Whether two queries have the same numbers: "the same" or "different"."""
    matrix = seen.matrix(step, layer, head)
    return "the same" if float((matrix[q] - matrix[other]).abs().max()) < _SAME else "different"


def compare_said(seen: Seen, token: str) -> str:
    """Whether a model says a token with more or less probability when the knob is turned."""
    before, after = (_said(trace, token) for trace in (seen.before, seen.after))
    return _compared(before, after)


def cell(seen: Seen, query: str, key: str, layer: int | None = None) -> tuple[int, int]:
    """The first cell of a query's word and a key's word."""
    chosen = seen.after.layer(seen.layer if layer is None else layer)
    return _place(chosen.tokens, query), _place(chosen.key_tokens, key)


def argmax_cell(seen: Seen, step: str, layer: int | None = None, head: int | None = None) -> tuple[int, int]:
    """The cell with the largest number of all."""
    matrix = seen.matrix(step, layer, head)
    query, key = divmod(int(matrix.argmax()), matrix.shape[1])
    return query, key


def size(seen: Seen, step: str, layer: int | None = None, head: int | None = None) -> int:
    """How many numbers a row has."""
    return int(seen.matrix(step, layer, head).shape[1])


def visible(seen: Seen, q: int, layer: int | None = None) -> int:
    """How many keys a query sees."""
    chosen = seen.after.layer(seen.layer if layer is None else layer)
    return len(chosen.key_tokens) if chosen.mask is None else int(chosen.mask[q].sum())


def given(seen: Seen, first: Any, *more: Any) -> Guess:
    """What is right because somebody says so: an option, a number, or the numbers of a cell, an order or a row."""
    return (first, *more) if more else first


FUNCTIONS: Mapping[str, Callable[..., Guess]] = {
    one.__name__: one
    for one in (
        argmax_key, argmax_cell, value, row, order, compare, compare_rows, compare_said, cell, size, visible, given,
    )
}  # fmt: skip
"""Every function that an answer may name."""


def worked_out(expression: str, seen: Seen) -> Guess:
    """What an expression such as `argmax_key(weights, q=3)` gives.

    Raises:
        FileError: it is something else.
        AttentionError: the trace has no such step, layer, head or cell.
    """
    call = read(expression)
    try:
        return call(seen)
    except AttentionError:
        raise
    except (
        TypeError,
        IndexError,
        AttributeError,
        ValueError,
        OverflowError,
        RuntimeError,
    ):  # other arguments than it has
        raise _refused(expression) from None


def read(expression: str) -> Callable[[Seen], Guess]:
    """What an expression asks for: one function of the table, with steps, numbers and texts. Nothing of it is run.

    Raises:
        FileError: it is something else.
    """
    refused = _refused(expression)
    try:
        call = ast.parse(expression, mode="eval").body if len(expression) <= _LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise refused from None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in FUNCTIONS):
        raise refused
    name = call.func.id
    values = [_argument(one, refused, name == given.__name__) for one in call.args]
    named = {one.arg: _argument(one.value, refused) for one in call.keywords if one.arg}
    if len(named) < len(call.keywords):
        raise refused
    return lambda seen: FUNCTIONS[name](seen, *values, **named)


def _refused(expression: str) -> FileError:
    return FileError(
        f"An answer is one of {', '.join(FUNCTIONS)} with its arguments, such as argmax_key(weights, q=3); got "
        f"{expression[:80]!r}: write one like that."
    )


def _argument(node: ast.expr, refused: FileError, below_zero: bool = False) -> Any:
    """A number, a text or a step; places count from zero, so only some numbers may lie below it."""
    if below_zero and isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _argument(node.operand, refused)
        if isinstance(value, int | float):
            return -value
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
        return node.value
    if isinstance(node, ast.Name) and current_name(node.id) in _STEPS:
        return current_name(node.id)
    raise refused


def _compared(before: float, after: float) -> str:
    if math.isclose(before, after, rel_tol=_SAME, abs_tol=_SAME):
        return "the same"
    return "more" if after > before else "less"


def _place(tokens: tuple[str, ...], word: str) -> int:
    found = [place for place, token in enumerate(tokens) if token.strip("·Ġ ").lower() == word.lower()]
    if not found:
        raise MissingError(f"The text has no word {word!r}; it has {_some(tokens)}: name one of these.")
    return found[0]


def _some(tokens: Sequence[str]) -> str:
    return ", ".join(label(token, 20, escape=False) for token in tokens[:12])


def _said(trace: Trace, token: str) -> float:
    if not trace.predictions:
        raise MissingError("Nobody asked the model what it says: put predict= into the state.")
    said = trace.predictions[-1]
    known = [one.strip("·Ġ ") for one in said.tokens]
    if token not in known:
        raise MissingError(f"{token!r} is none of the likeliest tokens, {_some(known)}: name one of these.")
    return float(said.log_row.exp()[said.ids[known.index(token)]])
