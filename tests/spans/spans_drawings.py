"""The figure of spans, from small numbers."""

from __future__ import annotations

from drawings import make_trace

from attention import spans
from attention.spans.figures import span_map_json

TRACE = make_trace(("the", "owl", "asked", "moon")).with_spans({"bird": range(1, 2), "moon": range(3, 4)})
TABLE = spans.table(TRACE, layer=1, head=2)

DRAWINGS = {
    "span_map_json": lambda: span_map_json(TABLE, "L1 H2, from part to part"),
    "span_map_json, chosen": lambda: span_map_json(TABLE, "L1 H2, from part to part", (1, 0)),
}
