"""The figure component: Plotly figures in, clicked cells out."""

from __future__ import annotations

from typing import Any

from attention.pictures.message import FRAME, SCRIPTS
from pages.ui.server import served


def component() -> Any:
    """The mounting command."""
    return served.component("lab_figure", "attention_figure", FRAME, (SCRIPTS / "figure.css").read_text())


def plotly() -> str:
    """The address of Plotly's script."""
    return served.script("plotly")


def warm() -> None:
    """Makes the browser fetch what draws figures now. A page does that first of all."""
    scripts = {"plotly": plotly(), "figure": served.script("lab_figure")}
    served.component("warm", "attention_warm", "<i hidden></i>", "")(key="warm", data=scripts, height="content")
