"""Traces in a notebook: they show themselves as the last expression of a cell, and these functions show more.

from attention import TypedText
from attention.notebook import show, open_in_lab
trace = TypedText("the cat sat on the mat").trace()
show(trace, layer=0, head=2)
"""

from __future__ import annotations

from attention.notebook.output import bring_scripts
from attention.notebook.showing import Shown, show

__all__ = ["Shown", "bring_scripts", "show"]
