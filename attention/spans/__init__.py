"""Which part of the context a head, or an answer, looks at, and whether it matters: sums over named stretches of tokens.

from attention import Model, spans
trace = Model("SmolLM2-135M-Instruct", messages=[{"role": "user", "content": "…"}], generate=8).trace()
trace.spans                          # Span("user", 24, 28), …, Span("answer", 31, 38); see `spans=` of `Model` for other names
spans.table(trace).frame()           # of every head: the weight that the queries of one span give to another, and its share by chance
spans.looked_at(trace).frame()       # the spans by the share of the weight that the answer gives them
spans.looked_at(trace, hide=True)    # and what the log-probability of the answer loses while each span is hidden
spans.sums(trace, trace.layers[3].weights[2])  # any map [query_pos key_pos], or numbers [key_pos], added up over spans
"""

from __future__ import annotations

from attention.spans.looked_at import LookedAt, looked_at
from attention.spans.span_table import SpanTable, metric, sums, table

__all__ = ["LookedAt", "SpanTable", "looked_at", "metric", "sums", "table"]
