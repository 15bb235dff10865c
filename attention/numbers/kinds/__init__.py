"""The kinds of arithmetic that make a cell, each with the function that works one out."""

from __future__ import annotations

from collections.abc import Callable

from attention.formula.steps import How
from attention.numbers.arithmetic import Explanation
from attention.numbers.kinds.cells import added, divided, elementwise, given, rotated
from attention.numbers.kinds.changed import kept
from attention.numbers.kinds.products import multiplied
from attention.numbers.kinds.weights import drawn, hidden, shared_out
from attention.numbers.working import Working

KINDS: dict[How, Callable[[Working], Explanation]] = {
    "given": given,
    "sum": added,
    "product": multiplied,
    "rotation": rotated,
    "division": divided,
    "elementwise": elementwise,
    "hidden": hidden,
    "shared out": shared_out,
    "drawn": drawn,
    "kept": kept,
}
"""By the name that a step's declaration has for its kind."""
