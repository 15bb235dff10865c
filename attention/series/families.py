"""The families of models that read a series, by `model_type`, and the names of what they read."""

from __future__ import annotations

from typing import Any

VALUES, OBSERVED, PADDING, FREQUENCY = "past_values", "past_observed_mask", "past_values_padding", "freq"
"""Arguments of models: the numbers of a series, which of them are known, which are padding, and how often a year has a step."""
PATCHTST, TIMESFM, TIMESFM_2_5 = "patchtst", "timesfm", "timesfm2_5"
FAMILIES = (PATCHTST, TIMESFM, TIMESFM_2_5)
CHANNELS = "channels"
"""What the layers of a PatchTST are called in which a patch sees the same steps of all columns."""


def is_patchtst(config: Any) -> bool:
    """Whether a config is of a PatchTST, which reads as many columns and steps as it was made for; a TimesFM reads any, each column for itself."""
    return bool(config.model_type == PATCHTST)
