"""The map of one head from span to span, and the arithmetic of one of its numbers."""

from __future__ import annotations

import math
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING

from attention.base.errors import check_index
from attention.base.printed import Arithmetic, Printed, Summands, bracketed, format_number, number, quotient, sum_of
from attention.explanation.explanation import Explanation, ExplanationBuilder
from attention.formula.names import WEIGHTS, Cell
from attention.formula.steps import Step
from attention.pictures import scales
from attention.pictures.heatmap import cell_outlines
from attention.pictures.marks import Panel, Spec, axis, cells, draw, frame
from attention.spans.span_table import Groups

if TYPE_CHECKING:
    from attention.spans.span_table import SpanTable
    from attention.trace.trace import Trace

_STEP = Step("span weight", "A over spans", r"\bar A", ("query_span", "key_span"), "A summed over the keys of a span, averaged over the queries of a span", "probability")  # fmt: skip
_ROW_HEIGHT = 40  # pixels


def span_map_json(table: SpanTable, title: str, chosen: tuple[int, int] | None = None) -> Spec:
    """Returns the map [query_span key_span] of the first layer and head of a table, with the chosen cell outlined."""
    values = table.values[0, 0]
    n, largest = len(table.names), float(values.max(initial=0.0)) or 1.0
    row, column = divmod(int(values.argmax()), n)
    facts = f"{table.step}, summed over the keys of a span, mean over the queries of a span"
    alt = (
        f"Heatmap of {facts}: {n} spans by {n} spans, the largest is what “{table.names[row]}” gives to “{table.names[column]}”, "
        f"{format_number(values[row, column])}."
    )
    names = dict(enumerate(table.names))
    meta = {"step": _STEP.name, "panels": [asdict(Panel(0, 0, 0, n, n))], "axes": ["query span", "key span"], "file": ["spans"]}  # fmt: skip
    widest = 7 * max(map(len, table.names)) + 20
    return draw(
        frame(
            title, facts, alt,
            axis("key span (attended to)", (-0.5, n - 0.5), names, grid=False),
            axis("query span (attends from)", (n - 0.5, -0.5), names, grid=False),
            max(220, 140 + _ROW_HEIGHT * n), meta=meta, uirevision=f"spans {n}", margin={"l": min(160, 30 + widest), "b": 60},
        ),
        cells(
            values, "queries of %{y}<br>keys of %{x}<br>sum <b>%{z:.4g}</b><br>by chance %{customdata:.4g}",
            scales.between(0.0, largest, scales.PROBABILITY, scales.color_bar()), 1, customdata=table.uniform[0, 0].tolist(),
        ),
        *cell_outlines(n, n, *(chosen or (None, None))),
    )  # fmt: skip


def explain(trace: Trace, layer: int, head: int, query_span: int, key_span: int) -> Explanation:
    """The arithmetic of one number of a head's map from span to span: the sums of the queries, and their mean.

    Args:
        query_span: the number of the span of the queries, in the order of `SpanTable.names`; `key_span` that of the keys.

    Raises:
        MissingError: the trace has no spans, or no such layer, head or span.
    """
    groups, of_layer = Groups.of(trace), trace.layer(layer)
    for index in (query_span, key_span):
        check_index("spans", index, len(groups.names))
    queries, keys = (groups.members[:, index].nonzero()[:, 0].tolist() for index in (query_span, key_span))
    weights = of_layer.matrix(WEIGHTS, head).double()
    sums = weights[queries][:, keys].sum(-1).tolist()
    total, n_queries = math.fsum(sums), len(queries)
    parts, count = Summands(sums), Printed(f"{n_queries}", f"{n_queries}", Decimal(n_queries))

    def full(digits: int) -> Printed:
        added = sum_of(parts.printed(lambda i: bracketed(sums[i], digits), digits))
        return Printed(rf"\big({added.tex}\big) \;\big/\; {n_queries}", "", added.value / count.value, (added, count))

    def short(digits: int) -> Printed:
        return quotient(number(total, digits), count)

    first = max(range(n_queries), key=lambda i: sums[i])
    row = weights[queries[first]][keys].tolist()
    largest = ", ".join(f"{format_number(row[i])} on key {keys[i]}" for i in sorted(range(len(keys)), key=lambda i: -row[i])[:3])  # fmt: skip
    words = (
        (
            f"The mean over the {n_queries} {'query' if n_queries == 1 else 'queries'} of “{groups.names[query_span]}” of what each gives to the {len(keys)} "
            f"{'key' if len(keys) == 1 else 'keys'} of “{groups.names[key_span]}” together. The most comes from query {queries[first]}, {format_number(sums[first])}: {largest}"
            f"{' and so on' if len(keys) > 3 else ''}."
        )
        .replace("{", "{{")
        .replace("}", "}}")
    )
    tex = r"\frac{1}{n} \sum_{i \in \text{queries}} \; \sum_{j \in \text{keys}} A_{ij}"
    value = total / n_queries
    work = ExplanationBuilder(of_layer, _STEP, Cell(layer, _STEP.name, head, query_span, key_span), value)
    arithmetic = Arithmetic(tex, [full, short] if n_queries > 1 else [short], [short], words, [total, float(n_queries)], "quotient")  # fmt: skip
    return work.from_arithmetic(arithmetic)
