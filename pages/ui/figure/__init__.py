"""The figure component: draws Plotly figures and reports clicked cells."""

from __future__ import annotations

from typing import Any

from attention.pictures.message import CONTAINERS_HTML, SCRIPTS_DIR
from pages.ui.server import assets


def component() -> Any:
    """Returns the function that mounts the component."""
    return assets.component(
        "lab_figure",
        "attention_figure",
        CONTAINERS_HTML,
        "".join(file.read_text() for file in (SCRIPTS_DIR / "figure.css", SCRIPTS_DIR / "screen.css")),
    )


def preload() -> None:
    """Makes the browser fetch the figure scripts early; a page calls this first."""
    assets.component("preload", "attention_preload", "<i hidden></i>", "")(key="preload", height="content")
