"""The copied Python of a model that reads a series: it reads the same table and records the same numbers, with transformers alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from margins import approx
from tiny_series import SMALL, SMALL_TIMESFM, WALK, model_of

from attention import Cell, ConfigError, Model
from attention.export.program import python
from attention.models import running

STEPS = ("query", "key", "value", "scores", "weights", "head_output")
GERMAN = "\r\n".join(
    [
        "Datum;Last;Öl",
        *(
            f"{1 + day % 28:02d}.{1 + day // 28:02d}.2016;" + f"{a:.3f};{b:.3f}".replace(".", ",")
            for day, (a, b) in enumerate(WALK)
        ),
    ]
)
TYPESET = GERMAN.replace(";-", ";−")
CASES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "PatchTST": ("PatchTSTForPrediction", SMALL, WALK),
    "one column": ("PatchTSTModel", SMALL | {"num_input_channels": 1}, WALK[:, 0]),
    "missing": ("PatchTSTModel", SMALL, np.where(WALK > 4, np.nan, WALK)),
    "TimesFM": ("TimesFmModelForPrediction", SMALL_TIMESFM, WALK),
    "padded TimesFM": ("TimesFmModelForPrediction", SMALL_TIMESFM, WALK[:20]),
    "TimesFM without its head": ("TimesFmModel", SMALL_TIMESFM, WALK),
    "TimesFM 2.5": ("TimesFm2_5Model", SMALL_TIMESFM | {"num_key_value_heads": 2}, WALK[:, 0]),
    "German": ("PatchTSTModel", SMALL, GERMAN.encode("cp1252")),
    "a typeset minus": ("PatchTSTModel", SMALL, TYPESET.encode()),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES)
def test_program_records_the_same(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, values, series = CASES[case]
    model_of(name, **values).save_pretrained(tmp_path / "tiny")
    if isinstance(series, bytes):
        (tmp_path / "last.csv").write_bytes(series)
        series = tmp_path / "last.csv"
    source = Model(str(tmp_path / "tiny"), series=series)
    monkeypatch.chdir(tmp_path)
    running.silence_warnings()
    trace = source.trace()
    for index in (0, len(trace.layers) - 1):
        program = python(source, trace, Cell(index, "weights", 1, 2, 1))
        assert program.isascii()
        assert "import attention" not in program
        found: dict[str, Any] = {}
        exec(compile(program, "<snippet>", "exec"), found)
        layer = trace.layers[index]
        for step in STEPS:
            assert found[step] == approx(layer[step]), f"layer {index}, {step}"


def test_a_layer_across_columns_has_no_program_yet(tmp_path: Path) -> None:
    model_of("PatchTSTModel", **SMALL | {"channel_attention": True}).save_pretrained(tmp_path / "tiny")
    source = Model(str(tmp_path / "tiny"), series=WALK)
    trace = source.trace()
    with pytest.raises(ConfigError, match="save the trace as a file, and copy the program of that"):
        python(source, trace, Cell(2, "weights", 1, 2, 1))
