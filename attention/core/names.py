"""The names of the steps, as in `layer.weights`, in links and in exported files.

This module imports nothing, so that any module can import it. `attention.core.steps` declares the steps.
"""

from __future__ import annotations

from typing import Final

EMBEDDING: Final = "embedding"
POSITION: Final = "position"
INPUT: Final = "input"
QUERY: Final = "query"
MEMORY: Final = "memory"
KEY: Final = "key"
VALUE: Final = "value"
ROTATED_QUERY: Final = "rotated_query"
ROTATED_KEY: Final = "rotated_key"
SCORES: Final = "scores"
SCALED_SCORES: Final = "scaled_scores"
CAPPED_SCORES: Final = "capped_scores"
BIASED_SCORES: Final = "biased_scores"
MASKED_SCORES: Final = "masked_scores"
WEIGHTS: Final = "weights"
DROPPED_WEIGHTS: Final = "dropped_weights"
HEAD_OUTPUT: Final = "head_output"
PATCHED_OUTPUT: Final = "patched_output"
OUTPUT: Final = "output"
