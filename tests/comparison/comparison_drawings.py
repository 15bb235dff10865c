"""The figures of two states, each from small numbers."""

from __future__ import annotations

from dataclasses import replace

from drawings import make_picture_trace, make_trace

from attention import Cell, Layer
from attention.comparison import figures
from attention.comparison.comparison import HeadIndex, compare
from attention.pictures.steps_view import OverPicture

A, B = make_trace(("the", "owl", "the", "moon")), make_trace(("the", "the", "moon", "star"))
CELL, OTHER = Cell(1, "weights", 2, 3, 2), HeadIndex(0, 1)
WEIGHTS_ALONE = replace(B, layers=(Layer(recorded={"weights": B.layers[0]["weights"]}),))
PICTURE = make_picture_trace()
OTHER_PICTURE = replace(PICTURE, layers=PICTURE.layers[::-1])

DRAWINGS = {
    "comparison_maps": lambda: figures.comparison_maps(A, B, CELL, OTHER)[::2],
    "comparison_maps, fitted": lambda: figures.comparison_maps(A, B, replace(CELL, step="scores"), OTHER, "stretched", True)[::2],
    "comparison_maps, of weights alone": lambda: figures.comparison_maps(A, WEIGHTS_ALONE, replace(CELL, step="query", column=0), OTHER)[::2],
    "difference_maps": lambda: figures.difference_maps(compare(A, A, "weights", HeadIndex(0, 0), OTHER)),
    "map_of_a": lambda: figures.map_of_a(A, CELL, "log"),
    "compared_pictures": lambda: figures.compared_pictures(
        PICTURE, OTHER_PICTURE, Cell(0, "weights", 0, 0, 3), compare(PICTURE, OTHER_PICTURE, "weights"), "fixed", OverPicture()
    ),
}  # fmt: skip
