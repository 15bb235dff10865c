"""The models that a command may use: those of this machine, of any size, and never the network."""

from __future__ import annotations

import os
from pathlib import Path

_NO_BOUND = 2**40  # MB


def hold_local_models() -> None:
    """Let this process load any model of this machine: a folder, a name in LAB_MODELS (or `models`), or one in the cache of the hub."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    from attention.models.library import LIBRARY, Settings

    LIBRARY.hold(Settings(Path(os.environ.get("LAB_MODELS") or "models"), most_mb=_NO_BOUND, kept_mb=_NO_BOUND))
