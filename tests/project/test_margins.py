"""What `approx` lets pass, and what `make margins` says of it."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import margins
import numpy as np
import pytest
import torch
from margins import approx

EPSILON = 2.0**-23


@pytest.fixture(autouse=True)
def _thin_on_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    """These comparisons are none whose margin is of interest."""
    monkeypatch.setattr(margins, "_used", {})


def test_numbers_tensors_and_containers_of_them_are_compared() -> None:
    assert 0.1 + 0.2 == approx(0.3)
    assert torch.ones(2, 3) == approx(1)
    assert torch.ones(2, 3) == approx(torch.ones(2, 3))
    assert np.ones(3) == approx([1, 1, 1])
    assert {"a": [1.0, None, "b"]} == approx({"a": [1, None, "b"]})
    assert math.inf == approx(math.inf)
    assert torch.tensor([math.nan, 1]) == approx([math.nan, 1], nan=True)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (torch.ones(3), torch.ones(2)),
        (torch.ones(1, 3), torch.ones(3)),
        ([1.0, 2.0], [1.0]),
        ({"a": 1.0}, {"b": 1.0}),
        ([1.0, None], [1.0, 2.0]),
        (math.nan, math.nan),
        (math.inf, -math.inf),
        (1.0, math.inf),
        (1e-9, 0.0),
    ],
    ids=str,
)
def test_another_shape_or_structure_is_not_near(actual: Any, expected: Any) -> None:
    assert actual != approx(expected)


def test_a_tolerance_follows_from_type_terms_and_scale() -> None:
    """Four times ε · √terms · scale."""
    for dtype, epsilon in (("float64", 2.0**-52), ("float32", EPSILON), ("float16", 2.0**-10), ("bfloat16", 2.0**-7)):
        for terms in (1, 64, 1024):
            allowed = 4 * epsilon * math.sqrt(terms)
            assert 100 + 90 * allowed == approx(100.0, terms=terms, dtype=dtype)
            assert 100 + 120 * allowed != approx(100.0, terms=terms, dtype=dtype)
    assert 4e-6 != approx(0, scale=1)
    assert 3e-6 == approx(0, scale=1)
    single = torch.ones(2)
    assert single.double() + 1e-6 == approx(single)  # the coarsest type of both
    assert single.double() + 1e-6 != approx(single.double())


def test_a_printed_number_may_differ_by_half_of_its_last_digit() -> None:
    assert 0.12345 == approx(0.123, step=0.001)
    assert 0.1236 != approx(0.123, step=0.001)
    assert [12345.0, 0.0012345] == approx([12350.0, 0.001235], digits=4)
    assert 12356.0 != approx(12350.0, digits=4)


def test_a_tolerance_by_a_number_needs_a_reason() -> None:
    assert 41 == approx(40, within=1, why="whole pixels")
    for options in ({"within": 1.0}, {"why": "whole pixels"}):
        with pytest.raises(TypeError, match="needs a reason"):
            approx(40, **options)


def test_what_failed_is_said() -> None:
    expected = approx(torch.tensor([1.0, 2.0]))
    assert torch.tensor([1.0, 2.5]) != expected
    assert "2.5) is 0.5 from np.float64(2.0)" in repr(expected)


def test_thin_margins_are_named_and_fail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run(used: float, _environment: object, folder: Path, _arguments: object) -> bool:
        monkeypatch.setattr(margins, "_used", {})
        assert used * 4 * EPSILON == approx(0, scale=1, terms=1)
        margins.write(folder)
        return True

    monkeypatch.setattr(sys, "argv", ["margins"])
    for used, code in ((0.24, 0), (0.26, 1)):
        monkeypatch.setattr(margins, "_run", lambda *arguments, used=used: run(used, *arguments))
        with pytest.raises(SystemExit) as ended:
            margins.main()
        assert ended.value.code == code
        printed = capsys.readouterr().out
        assert f"{4 * code if code else 0} use more than 25%" in printed
        assert printed.count(f"{used:.1%}  ") == len(margins.SETTINGS)
        assert all(f"({setting})" in printed for setting in margins.SETTINGS)


def test_each_process_writes_its_largest_parts(tmp_path: Path) -> None:
    for part in (0.1, 0.5, 0.2):
        assert part == approx(0, within=1, why="an example")
    margins.write(tmp_path)
    [(place, test, *numbers)] = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert place.startswith("test_margins.py:")
    assert "test_each_process" in test
    assert numbers == [0.5, 0.5, 1]
