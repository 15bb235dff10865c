"""Patches of Streamlit at run time, one per file.

The docstring of a patch states what it replaces, why, which test fails when Streamlit changes that part (the canary), and
which public API would make the patch unnecessary. The Markdown file with the same name is an issue for Streamlit, ready to be sent:
the title, an empty line, the body. `tests/project/test_patches.py` allows patches nowhere else.
"""

from __future__ import annotations

from pages.ui.patches import counted_socket, fragment_queue, script_runner


def apply() -> None:
    """Applies the patches that are Python; `pages/ui/server/assets.py` puts the scripts into the page."""
    script_runner.apply()
    fragment_queue.apply()
    counted_socket.apply()
