"""`Trace.save`: the file opens in the source "file", in Python and in the Lab, to the same bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import set_knobs
from margins import approx
from test_file import mixed_trace, same
from test_file_on_pages import uploaded
from test_pages import drawn, opened

from attention import AttentionConfig, File, FileError, MissingError, Trace, TypedText

pytestmark = pytest.mark.quick

CONFIG = AttentionConfig(positions="rope", n_kv_heads=2, mask="causal", temperature=0.7, cap=4.0)


def typed() -> Trace:
    return TypedText("the cat sat on\nthe mat", CONFIG).trace()


@pytest.mark.parametrize("name", ["trace.npz", "trace.SAFETENSORS"])
@pytest.mark.parametrize("make", [typed, mixed_trace])
def test_saved_trace_opens_to_the_bit(make: Callable[[], Trace], name: str, tmp_path: Path) -> None:
    trace = make()
    trace.save(tmp_path / name)
    opened_trace = File.open(tmp_path / name).trace()
    same(opened_trace, trace)
    assert opened_trace.notes == trace.notes
    assert [layer.formula for layer in opened_trace.layers] == [layer.formula for layer in trace.layers]


def test_saved_head_and_layers_keep_their_numbers(tmp_path: Path) -> None:
    trace = mixed_trace()
    trace.save(str(tmp_path / "part.npz"), head=1, layers=[1])
    (layer,) = File.open(tmp_path / "part.npz").trace().layers
    assert layer.weights[0] == approx(trace.layers[1].weights[1])


@pytest.mark.slow
def test_lab_paints_the_numbers_of_a_saved_trace(tmp_path: Path) -> None:
    trace = typed()
    path = tmp_path / "mine.npz"
    trace.save(path)
    app = uploaded(opened("app.py", source="file"), path.name, path.read_bytes())
    set_knobs(app, head=3)
    painted = {figure["layout"]["meta"]["step"]: figure["data"][0]["z"] for figure in drawn(app)}
    assert {"scores", "weights"} <= painted.keys()
    for step, numbers in painted.items():
        expected = trace.layers[0].matrix(step, 3).numpy()
        np.testing.assert_array_equal(numbers, np.where(np.isfinite(expected), expected, math.nan), step)


def test_save_refuses_other_files_heads_and_layers(tmp_path: Path) -> None:
    trace = typed()
    with pytest.raises(FileError, match=r"saved as \.npz or \.safetensors; got “trace\.txt”"):
        trace.save(tmp_path / "trace.txt")
    with pytest.raises(FileError, match=r"cannot be written \(No such file"):
        trace.save(tmp_path / "missing" / "trace.npz")
    with pytest.raises(MissingError, match="layers count from 0 to 0; got 1"):
        trace.save(tmp_path / "trace.npz", layers=[1])
    with pytest.raises(MissingError, match="heads count from 0 to"):
        trace.save(tmp_path / "trace.npz", head=64)
    assert list(tmp_path.iterdir()) == []
