"""A series of ours and a tiny model that reads it, both made by code: a link that names the series opens without an upload."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from typing import Any

from attention.base.errors import FileError
from attention.models.ours import with_random_weights
from attention.series.table import Series

EXAMPLES = {"rhythm-and-trend": "96 hours of two columns, a load with a daily rhythm and a level that rises"}
"""What each series shows, by its name."""
ABOUT = "A tiny PatchTST with random weights, made by code: its attention shows how such a model reads a series, and nothing that it learned."
_HOURS = 96
_DAY = (31, 29, 28, 28, 30, 36, 48, 61, 66, 64, 62, 61, 60, 58, 57, 58, 62, 70, 75, 72, 64, 54, 44, 36)
"""The load of each hour of a day."""


@cache
def example_series(name: str) -> Series:
    """The series of this name, one of `EXAMPLES`, of whole numbers over ten: the same on every machine.

    Raises:
        FileError: there is no such series.
    """
    if name not in EXAMPLES:
        raise FileError(f"An example series is one of {', '.join(EXAMPLES)}; got {name[:40]!r}: choose one of them.")
    start, lines = datetime(2026, 1, 5), ["time,load,level"]
    for hour in range(_HOURS):
        uneven = (hour * 7919 + 13) % 31 - 15, (hour * 104_729 + 7) % 17 - 8
        load, level = 10 * _DAY[hour % 24] + uneven[0], 200 + 3 * hour + uneven[1]
        time = start + timedelta(hours=hour)
        lines.append(f"{time:%Y-%m-%d %H:%M},{load // 10}.{load % 10},{level // 10}.{level % 10}")
    return Series.open("\n".join(lines).encode())


def tiny_patchtst() -> list[Any]:
    """The model: two columns, 96 steps, patches of 16 steps of which one begins every 8. It needs no processor."""
    from transformers import PatchTSTConfig, PatchTSTForPrediction

    config = PatchTSTConfig(
        num_input_channels=2, context_length=_HOURS, patch_length=16, patch_stride=8, prediction_length=24, num_hidden_layers=3,
        d_model=32, num_attention_heads=4, ffn_dim=64,
    )  # fmt: skip
    return [with_random_weights(PatchTSTForPrediction(config))]
