"""What a file says in JSON beside its arrays; it is small, and of another shape than expected it says nothing."""

from __future__ import annotations

import json
from typing import Any


def about(text: object) -> dict[str, Any]:
    """What an export says of itself: a JSON object, empty where there is none."""
    found = listed(text) if isinstance(text, str) else {}
    return found if isinstance(found, dict) else {}


def listed(text: str) -> Any:
    """A text of JSON as what it says, any other text as it is."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
