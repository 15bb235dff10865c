"""The figures over a picture, each from small numbers."""

from __future__ import annotations

from drawings import make_picture_trace

from attention.explanation.derived import NORMS
from attention.pictures.mosaic import HeadOrder
from attention.pictures.over_picture import MapLine, over_picture_json
from attention.vision.heads_over_picture import heads_over_picture_json

TRACE = make_picture_trace()

DRAWINGS = {
    "over_picture_json": lambda: over_picture_json(MapLine.of(TRACE, "weights", 1, 2, query=0), chosen=3),
    "over_picture_json, column": lambda: over_picture_json(MapLine.of(TRACE, "masked_scores", 1, 2, key=1), colors="fitted", opacity=0.3, chosen=5, exact=False),
    "over_picture_json, derived": lambda: over_picture_json(MapLine.of(TRACE, NORMS, 0, 0, query=4), colors="log"),
    "heads_over_picture_json": lambda: heads_over_picture_json(MapLine.of(TRACE, "weights", 1, 2)),
    "heads_over_picture_json, sorted": lambda: heads_over_picture_json(MapLine.of(TRACE, "masked_scores", 1, key=2), colors="fitted", order=HeadOrder(dict.fromkeys([(1, 2), (0, 1), (1, 0), (0, 0), (0, 2), (1, 1)], 0.5), "entropy"), cells=40),
    "heads_over_picture_json, one layer": lambda: heads_over_picture_json(MapLine.of(TRACE, "weights", 1, query=2), all_layers=False, colors="log"),
}  # fmt: skip
