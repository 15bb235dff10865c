"""A notebook shows a model with layers without attention."""

from __future__ import annotations

from test_hybrid import TEXT, library  # noqa: F401  # a fixture

from attention import Model
from attention.notebook import show


def test_notebook_shows_the_first_layer_with_attention() -> None:
    trace = Model("Jamba", TEXT).trace()
    assert show(trace).cell.layer == 1
    assert show(trace)._repr_html_()
