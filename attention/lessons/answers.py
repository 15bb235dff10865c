"""Answers of lessons, computed from a live trace: an answer is an expression that calls one function of a fixed table."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, TypeAlias

from attention.base.errors import AttentionError, FileError, MissingError
from attention.base.tokens import label
from attention.features import features
from attention.formula.steps import STEPS
from attention.lessons.lesson import Answer

if TYPE_CHECKING:
    from torch import Tensor

    from attention.trace.trace import Trace

_Index: TypeAlias = "int | None"  # None: that of the state
_SAME = 1e-5  # the relative tolerance within which two numbers count as equal
_STEPS = {step.name for step in STEPS}
_LONGEST = 300  # characters of an expression


@dataclass(frozen=True)
class QuestionContext:
    """The context of a question: the trace before and after the lesson's one change, and the layer and head of the state."""

    before: Trace
    after: Trace
    layer: int = 0
    head: int = 0

    def matrix(self, step: str, layer: _Index, head: _Index, after_change: bool = True) -> Tensor:
        """A step of one head, after the change or (with `after_change` false) before it."""
        trace = self.after if after_change else self.before
        return trace.layer(self.layer if layer is None else layer).matrix(step, self.head if head is None else head)


def argmax_key(context: QuestionContext, step: str, q: int, layer: _Index = None, head: _Index = None) -> int:
    """The key with the largest value in a query's row."""
    return int(context.matrix(step, layer, head)[q].argmax())


def value(context: QuestionContext, step: str, q: int, k: int, layer: _Index = None, head: _Index = None) -> float:
    """The number in one cell."""
    return float(context.matrix(step, layer, head)[q, k])


def row(context: QuestionContext, step: str, q: int, layer: _Index = None, head: _Index = None) -> tuple[float, ...]:
    """All numbers of a query's row."""
    return tuple(map(float, context.matrix(step, layer, head)[q]))


def order(context: QuestionContext, step: str, q: int, layer: _Index = None, head: _Index = None) -> tuple[int, ...]:
    """The keys of a query by decreasing value."""
    return tuple(map(int, context.matrix(step, layer, head)[q].argsort(descending=True, stable=True)))


def compare(context: QuestionContext, step: str, q: int, k: int, layer: _Index = None, head: _Index = None) -> str:
    """How the change affects one number: "more", "less" or "the same"."""
    before, after = (float(context.matrix(step, layer, head, after_change)[q, k]) for after_change in (False, True))
    return _direction(before, after)


def compare_rows(
    context: QuestionContext, step: str, q: int, other: int, layer: _Index = None, head: _Index = None
) -> str:
    """Whether two queries have the same row: "the same" or "different"."""
    matrix = context.matrix(step, layer, head)
    return "the same" if float((matrix[q] - matrix[other]).abs().max()) < _SAME else "different"


def compare_said(context: QuestionContext, token: str) -> str:
    """How the change affects the model's probability of a token: "more", "less" or "the same"."""
    before, after = (_probability(trace, token) for trace in (context.before, context.after))
    return _direction(before, after)


def cell(context: QuestionContext, query: str, key: str, layer: _Index = None) -> tuple[int, int]:
    """The first cell with this query token and this key token."""
    target = context.after.layer(context.layer if layer is None else layer)
    return _position(target.tokens, query), _position(target.key_tokens, key)


def _argmax_cell(context: QuestionContext, step: str, layer: _Index = None, head: _Index = None) -> tuple[int, int]:
    """The cell with the largest value of the matrix."""
    matrix = context.matrix(step, layer, head)
    query, key = divmod(int(matrix.argmax()), matrix.shape[1])
    return query, key


def size(context: QuestionContext, step: str, layer: _Index = None, head: _Index = None) -> int:
    """The length of a row."""
    return int(context.matrix(step, layer, head).shape[1])


def visible(context: QuestionContext, q: int, layer: _Index = None) -> int:
    """The number of keys that are visible to a query."""
    target = context.after.layer(context.layer if layer is None else layer)
    return len(target.key_tokens) if target.mask is None else int(target.mask[q].sum())


def given(_: QuestionContext, first: Any, *more: Any) -> Answer:
    """An answer fixed by the author: an option, a number, or the numbers of a cell, an order or a row."""
    return (first, *more) if more else first


def _of_trace(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """A function of a trace as one of a question: it reads the trace before the change."""

    @wraps(function)
    def answer(context: QuestionContext, *values: Any, **keywords: Any) -> Answer:
        return function(context.before, *values, **keywords)

    return answer


_OWN: tuple[Callable[..., Answer], ...] = (
    argmax_key, _argmax_cell, value, row, order, compare, compare_rows, compare_said, cell, size, visible, given,
)  # fmt: skip


@cache
def functions() -> dict[str, Callable[..., Answer]]:
    """The functions that an answer may call, by name: these, and those of features."""
    added = (_of_trace(function) for feature in features() for function in feature.answers)
    return {function.__name__: function for function in (*_OWN, *added)}


def evaluate(expression: str, context: QuestionContext) -> Answer:
    """The value of an expression such as `argmax_key(weights, q=3)`.

    Raises:
        FileError: the expression is not allowed.
        AttentionError: the trace has no such step, layer, head or cell.
    """
    evaluate = parse(expression)
    try:
        return evaluate(context)
    except AttentionError:
        raise
    except (TypeError, IndexError, AttributeError, ValueError, OverflowError, RuntimeError):  # wrong arguments
        raise _not_allowed(expression) from None


def parse(expression: str) -> Callable[[QuestionContext], Answer]:
    """The function that evaluates an expression: one call of the table, with steps, numbers and texts. Nothing else is executed.

    Raises:
        FileError: the expression is not allowed.
    """
    not_allowed = _not_allowed(expression)
    try:
        call = ast.parse(expression, mode="eval").body if len(expression) <= _LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise not_allowed from None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in functions()):
        raise not_allowed
    name = call.func.id
    values = [_argument(node, not_allowed, name == given.__name__) for node in call.args]
    keywords = {keyword.arg: _argument(keyword.value, not_allowed) for keyword in call.keywords if keyword.arg}
    if len(keywords) < len(call.keywords):
        raise not_allowed
    return lambda context: functions()[name](context, *values, **keywords)


def _not_allowed(expression: str) -> FileError:
    return FileError(
        f"An answer calls one of {', '.join(functions())}, such as argmax_key(weights, q=3); got "
        f"{expression[:80]!r}: write such a call."
    )


def _argument(node: ast.expr, not_allowed: FileError, allow_negative: bool = False) -> Any:
    """A number, a text or the name of a step. Positions count from 0, so only the numbers of `given` may be negative."""
    if allow_negative and isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _argument(node.operand, not_allowed)
        if isinstance(value, int | float):
            return -value
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
        return node.value
    if isinstance(node, ast.Name) and node.id in _STEPS:
        return node.id
    raise not_allowed


def _direction(before: float, after: float) -> str:
    if math.isclose(before, after, rel_tol=_SAME, abs_tol=_SAME):
        return "the same"
    return "more" if after > before else "less"


def _position(tokens: tuple[str, ...], word: str) -> int:
    positions = [position for position, token in enumerate(tokens) if token.strip("·Ġ ").lower() == word.lower()]
    if not positions:
        raise MissingError(f"The text has no word {word!r}; it has {_some(tokens)}: name one of these.")
    return positions[0]


def _some(tokens: Sequence[str]) -> str:
    return ", ".join(label(token, 20, escape=False) for token in tokens[:12])


def _probability(trace: Trace, token: str) -> float:
    if not trace.predictions:
        raise MissingError("The state asks the model for no prediction: put predict= into the state.")
    prediction = trace.predictions[-1]
    likeliest = [candidate.strip("·Ġ ") for candidate in prediction.tokens]
    if token not in likeliest:
        raise MissingError(f"{token!r} is not among the likeliest tokens, {_some(likeliest)}: name one of these.")
    return float(prediction.all_log_probabilities.exp()[prediction.ids[likeliest.index(token)]])
