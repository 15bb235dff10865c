"""Traces in a notebook: they show themselves as the last expression of a cell, and these functions show more.

from attention import TypedText
from attention.notebook import show, view
trace = TypedText("the cat sat on the mat").trace()
show(trace, layer=0, head=2)     # at a chosen cell
v = view(trace)                  # live: v.cell is what was clicked
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attention.notebook.output import bring_scripts
    from attention.notebook.representations import LabFile, Shown, open_in_lab, show
    from attention.notebook.widget import view

__all__ = ["LabFile", "Shown", "bring_scripts", "open_in_lab", "show", "view"]


def __getattr__(name: str) -> object:
    """A name of this page, imported at first use: a program that shows nothing waits for nothing that draws."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    modules = {"bring_scripts": "attention.notebook.output", "view": "attention.notebook.widget"}
    return getattr(import_module(modules.get(name, "attention.notebook.representations")), name)
