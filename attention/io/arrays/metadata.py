"""The JSON metadata of a file beside its arrays; metadata of an unexpected form is ignored."""

from __future__ import annotations

import json
from typing import Any


def parse_about(text: object) -> dict[str, Any]:
    """The JSON object in which an export describes itself; empty if there is none."""
    value = parse_json_or_text(text) if isinstance(text, str) else {}
    return value if isinstance(value, dict) else {}


def parse_json_or_text(text: str) -> Any:
    """The value of a JSON text; any other text unchanged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
