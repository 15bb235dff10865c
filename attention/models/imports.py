"""What the first model imports: three seconds of processor and 80 MB, which an idle server can spend before anybody waits."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module

_PARTS = (  # each takes at most a second
    "transformers",
    "sympy",
    "torch._dynamo",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "attention.models.loading",
    "attention.models.passing",
)
_LAST_LARGE = "transformers.modeling_utils"


def missing_bytes() -> int:
    """Bytes of memory that the imports still take."""
    return 0 if _LAST_LARGE in sys.modules else 80 * 2**20


def import_parts() -> Iterator[str]:
    """Imports what models need, part by part: the name of each is given before it is imported."""
    for name in _PARTS:
        yield name
        import_module(name)
