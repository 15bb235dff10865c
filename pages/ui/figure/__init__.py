"""The figure component: Plotly figures in, clicked cells out."""

from __future__ import annotations

from typing import Any

from attention.pictures.message import FRAME, SCRIPTS
from pages.ui.server import served


def component() -> Any:
    """The function that mounts the component."""
    return served.component("lab_figure", "attention_figure", FRAME, (SCRIPTS / "figure.css").read_text())


def warm() -> None:
    """Makes the browser load the drawing scripts early. Every page begins with it."""
    served.component("warm", "attention_warm", "<i hidden></i>", "")(key="warm", height="content")
