"""Queries, keys and values: recorded projections of the input."""

from __future__ import annotations

from dataclasses import dataclass

from attention.core import names
from attention.core.explainer import E_co
from attention.core.step import Factor, Step, StepContext, called, columns_of, rows_of
from attention.core.steps.products import Product


@dataclass(frozen=True, repr=False)
class Projection(Product):
    """The input times a matrix of each head."""

    def explain_incomplete(self, work: StepContext[E_co], factors: list[tuple[Factor, str]]) -> E_co:
        """The explanation of a cell without a known projection; a step that equals the input is explained as a copy."""
        row, column = work.cell.row, work.cell.column
        source = factors[0][1] if factors else ""
        if not source or not isinstance(declared := work.find_declared(source), Step):
            return work.as_recorded()
        x = work.layer[source]
        if column >= x.shape[1] or float(x[row, column]) != work.value:
            return work.as_recorded(f"The {self.name} as the source recorded it; its projection is not known.")
        words = f"No projection: {self.symbol} is {declared.symbol} itself."
        return work.from_copy(source, row, column, words, f"{declared.symbol} itself, no projection")


# fmt: off
QUERY = Projection(
    names.QUERY, "Q", "Q", ("head", "query_pos", "d_k"), "X W_Q", "signed", equation="Q = X W_Q",
    words="Row {row} of {left} times column {column} of this head's W_Q.",
    unknown="The query as provided: it is not computed.",
    of=(rows_of(names.INPUT), columns_of("w_q")), bias="b_q",
    elsewhere=called(lens="hook_q", transformers="query_states", torch="q", bertviz="queries", n1="Q, M_Q", n2="q", n3="Q", n4="Q", n5="q"))
KEY = Projection(
    names.KEY, "K", "K", ("kv_head", "key_pos", "d_k"), "X W_K", "signed", equation="K = X W_K",
    words="Row {row} of {left} times column {column} of this head's W_K.",
    unknown="The key as provided: it is not computed.",
    of=(rows_of(names.MEMORY, names.INPUT), columns_of("w_k")), bias="b_k",
    elsewhere=called(lens="hook_k", transformers="key_states", torch="k", bertviz="keys", n1="K, M_K", n2="k", n3="K", n4="K", n5="k"))
VALUE = Projection(
    names.VALUE, "V", "V", ("kv_head", "key_pos", "d_v"), "X W_V", "signed", equation="V = X W_V",
    words="Row {row} of {left} times column {column} of this head's W_V.",
    unknown="The value as provided: it is not computed.",
    of=(rows_of(names.MEMORY, names.INPUT), columns_of("w_v")), bias="b_v",
    elsewhere=called(lens="hook_v", transformers="value_states", torch="v", n1="V, M_V", n2="v", n3="V", n4="V", n5="v"))
# fmt: on
