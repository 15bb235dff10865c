"""What this feature adds to the library."""

from __future__ import annotations

from attention.features import Feature


def _html(displayed: object) -> str | None:
    """Most programs draw nothing, so what draws is imported here."""
    from attention.notebook.representations import html

    return html(displayed)


FEATURE = Feature(name="notebook", html=_html)
