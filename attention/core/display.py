"""How objects show themselves in a notebook: whoever can draw them registers here, since no package below the pictures can.

class Trace(Displayed): ...
trace._repr_html_()          # called by notebooks, answered by attention.notebook
"""

from __future__ import annotations

from collections.abc import Callable

_renderers: list[Callable[[object], str | None]] = []


def register(render: Callable[[object], str | None]) -> None:
    """Makes `render` give the HTML of every `Displayed` object; None leaves an object to its plain text."""
    _renderers[:] = [render]


class Displayed:
    """An object that a notebook shows as HTML."""

    def _repr_html_(self) -> str | None:
        return _renderers[0](self) if _renderers else None
