"""The imports of the first model: they take three seconds and 80 MB, which an idle server can spend in advance."""

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
    "attention.models.forward_pass",
)
_LAST_LARGE = "transformers.modeling_utils"


def missing_bytes() -> int:
    """The bytes of memory that the missing imports will take."""
    return 0 if _LAST_LARGE in sys.modules else 80 * 2**20


def import_parts() -> Iterator[str]:
    """Import the modules that models need, one by one; yields the name of each before its import."""
    for name in _PARTS:
        yield name
        import_module(name)
