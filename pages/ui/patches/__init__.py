"""What the Lab replaces in Streamlit at run time, a file each.

A patch says at its top what it replaces, why, which test fails where a newer Streamlit has something else (its canary), and
which public thing would make it unnecessary. The Markdown file beside it is an issue for Streamlit, ready to be sent: the title,
an empty line, the body. `tests/test_patches.py` allows patches nowhere else; CONTRIBUTING.md lists them in a table.
"""

from __future__ import annotations

from pages.ui.patches import script_runner, whole_runs


def apply() -> None:
    """Applies the patches that are Python; `pages/ui/server/first_paint.py` puts the scripts into the page."""
    script_runner.apply()
    whole_runs.apply()
