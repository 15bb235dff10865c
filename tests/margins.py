"""How tests compare floats, and by how much each comparison held.

    assert weights.sum(-1) == approx(1)                     # sums of at most 64 summands
    assert output == approx(expected, terms=4096)           # longer sums, or several in turn
    assert left == approx(40, within=1, why="whole pixels")

Rounding differs between processors and kernels, so a comparison that just holds here fails on the next machine. In a run with `--margins FOLDER` each one
writes which part of its tolerance it used; `python -m tests.margins` (`make margins`) changes everything that changes rounding, and wants three quarters left.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]

_TERMS = 64  # d_model, or a row, of the tests' small examples
_ROOM = 4
"""A tolerance is so many times the error that is to be expected, of which `make margins` allows one."""
_MOST_USED = 1 / _ROOM
_N_PRINTED = 20
_TYPES = ("bfloat16", "float16", "float32", "float64")  # from the fewest digits

_used: dict[tuple[str, str], tuple[float, float, float]] = {}
"""By place in the code and test: the largest part used of a tolerance, with the difference and the tolerance."""


class approx:  # noqa: N801  # it is read as a function, as pytest's is
    """Equals numbers that differ from the expected ones by rounding only: in their shape, and each within the tolerance.

    The error of a sum of n terms grows with √n, so the tolerance is 4 · ε · √terms · scale, where ε belongs to the coarsest type of both sides.

    Args:
        expected: a number, tensor or array, or a list, tuple or dict of them.
        terms: how many summands a number has; for several sums in turn, all of them. 64 if left out; 1 of half precision, whose sums are kept in float32 and
            rounded once.
        scale: the size of the summands; the largest expected number if left out. What should be zero has none.
        dtype: the type in which it was computed, as torch or its name; if left out that of the tensors and arrays, or float32, in which the Lab computes what
            tests read as Python's numbers.
        step: one side was rounded to multiples of it, as pixels are, and may differ by half of it besides.
        digits: one side was rounded to so many significant digits, and may differ by half of the last one besides.
        within: an absolute tolerance instead.
        why: its reason.
        nan: whether NaN equals NaN.
    """

    __array_ufunc__ = None  # lets an array leave the comparison to this class

    def __init__(
        self,
        expected: Any,
        *,
        terms: int | None = None,
        scale: float | None = None,
        dtype: Any = None,
        step: float = 0.0,
        digits: int | None = None,
        within: float | None = None,
        why: str = "",
        nan: bool = False,
    ) -> None:
        if (within is None) == bool(why):
            raise TypeError("A tolerance by a number needs a reason: approx(x, within=…, why=…).")
        self._expected, self._terms, self._scale, self._dtype = expected, terms, scale, dtype
        self._step, self._digits = step, digits
        self._within, self._why, self._nan = within, why, nan
        self._fault = ""

    def __eq__(self, actual: object) -> bool:
        used, difference, tolerance = self._compare(actual, self._expected)
        if used <= 1:
            _keep(used, difference, tolerance)
        return used <= 1

    def __ne__(self, actual: object) -> bool:
        """Whether they differ: a difference must be as far beyond the tolerance as a smaller one within it."""
        used, difference, tolerance = self._compare(actual, self._expected)
        _keep(used if used <= 1 else 1 / used, difference, tolerance)
        return used > 1

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        reason = f", within={self._within:g}, why={self._why!r}" if self._within is not None else ""
        return f"approx({self._expected!r}{reason}){f' — {self._fault}' if self._fault else ''}"

    def _compare(self, actual: Any, expected: Any) -> tuple[float, float, float]:
        """The part used of the tolerance, infinite for another structure; and the difference and the tolerance of that part."""
        if isinstance(expected, Mapping):
            if not isinstance(actual, Mapping) or actual.keys() != expected.keys():
                return self._differs(f"the keys are {list(actual) if isinstance(actual, Mapping) else actual!r}")
            return _worst(self._compare(actual[key], expected[key]) for key in expected)
        is_array = hasattr(actual, "dtype")
        if isinstance(expected, list | tuple) and not (is_array or _are_numbers(expected)):
            if not isinstance(actual, list | tuple) or len(actual) != len(expected):
                return self._differs(f"got {actual!r}")
            return _worst(map(self._compare, actual, expected))
        if expected is None or isinstance(expected, str):
            return (0.0, 0.0, 0.0) if actual == expected else self._differs(f"got {actual!r}")
        return self._compare_numbers(actual, expected)

    def _compare_numbers(self, actual: Any, expected: Any) -> tuple[float, float, float]:
        got, want = _numbers(actual), _numbers(expected)
        if want.ndim and got.shape != want.shape:
            return self._differs(f"the shape is {got.shape}, expected {want.shape}")
        want = np.broadcast_to(want, got.shape)
        unlike = ~(np.isfinite(got) & np.isfinite(want)) & (got != want)
        if self._nan:
            unlike &= ~(np.isnan(got) & np.isnan(want))
        if unlike.any():
            return self._differs(f"{got[unlike][0]} where {want[unlike][0]} is expected")
        finite = np.isfinite(want)
        if not finite.any():
            return 0.0, 0.0, 0.0
        differences = (np.abs(got[finite] - want[finite]) - self._rounded(want[finite])).clip(0)
        at = int(differences.argmax())
        difference, tolerance = float(differences[at]), self._tolerance(actual, expected, np.abs(want[finite]).max())
        if difference > tolerance:
            self._fault = (
                f"{got[finite][at]!r} is {difference:.3g} from {want[finite][at]!r}, {tolerance:.3g} is allowed"
            )
        return (difference / tolerance if tolerance else math.inf) if difference else 0.0, difference, tolerance

    def _rounded(self, expected: np.ndarray) -> np.ndarray:
        """By how much rounding to a step, or to significant digits, changes each number at most."""
        if self._digits is None:
            return np.full_like(expected, self._step / 2)
        first = np.floor(np.log10(np.abs(expected), where=expected != 0, out=np.full_like(expected, -np.inf)))
        return 10.0 ** (first + 1 - self._digits) / 2

    def _tolerance(self, actual: Any, expected: Any, largest: float) -> float:
        if self._within is not None:
            return self._within
        scale = largest if self._scale is None else self._scale
        dtype = _coarsest(actual, expected) if self._dtype is None else str(self._dtype).removeprefix("torch.")
        terms = self._terms if self._terms is not None else 1 if dtype.endswith("16") else _TERMS
        return _ROOM * _epsilon(dtype) * math.sqrt(terms) * float(scale)

    def _differs(self, fault: str) -> tuple[float, float, float]:
        self._fault = fault
        return math.inf, math.inf, 0.0


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int | float | np.number) for value in values)


def _worst(compared: Iterable[tuple[float, float, float]]) -> tuple[float, float, float]:
    return max(compared, default=(0.0, 0.0, 0.0))


def _numbers(values: Any) -> np.ndarray:
    if hasattr(values, "detach"):  # a tensor; NumPy has no bfloat16
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64)


def _coarsest(*values: Any) -> str:
    """The name of the type of tensors and arrays that has the fewest digits; Python's numbers have none of their own, and are float32 alone."""
    names = {str(value.dtype).removeprefix("torch.") for value in values if np.ndim(value) and hasattr(value, "dtype")}
    return next((name for name in _TYPES if name in names), "float64" if names else "float32")


def _epsilon(dtype: str) -> float:
    """The distance of 1 to the next number of a type."""
    return 2.0**-7 if dtype == "bfloat16" else float(np.finfo(dtype).eps)  # NumPy has no bfloat16


def _keep(used: float, difference: float, tolerance: float) -> None:
    frame = sys._getframe(2)
    place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    before = _used.get((place, test), (-1.0, 0.0, 0.0))
    _used[place, test] = max(before, (used, difference, tolerance))


def write(folder: Path) -> None:
    """Writes what this process has compared into a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [[place, test, *numbers] for (place, test), numbers in _used.items()]
    (folder / f"{os.getpid()}.json").write_text(json.dumps(rows), encoding="utf-8")


_HAS_AVX512 = "avx512f" in (Path("/proc/cpuinfo").read_text("utf-8") if Path("/proc/cpuinfo").exists() else "")

# What changes how numbers are rounded: who computes them, in which order. ATen's own kernels, MKL's products and oneDNN's convolutions
# are different libraries, so that two of them are changed in one run of some minutes.
SETTINGS: dict[str, dict[str, str]] = {
    "as it is, one thread": {"OMP_NUM_THREADS": "1"},
    "plain ATen, MKL as on any processor": {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"},
    "AVX2, without oneDNN": {"ATEN_CPU_CAPABILITY": "avx2", "LAB_TEST_ONEDNN": "off"},
    "three threads": {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3"}
    | ({"ATEN_CPU_CAPABILITY": "avx512"} if _HAS_AVX512 else {}),
}


# Each of these starts servers and measures; it compares no numbers and takes a quarter of an hour.
_OTHERS = ("--deselect", "tests/project/test_benchmarks.py::test_benchmark_ends_with_numbers_and_without_an_error")


def _run(environment: Mapping[str, str], folder: Path, arguments: list[str]) -> bool:
    """Runs the tests without a browser; whether all passed."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "not browser",
        "--margins",
        str(folder),
        *_OTHERS,
        *arguments,
    ]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False).returncode == 0


def main() -> None:
    """Runs the tests in every setting, prints the thinnest margins, and exits with 1 if one is too thin or a test fails."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("arguments", nargs="*", help="for pytest, after --")
    arguments = parser.parse_args().arguments
    rows, failed = [], []
    with tempfile.TemporaryDirectory() as folder:
        for i, (setting, environment) in enumerate(SETTINGS.items()):
            print(f"\n{setting}: {environment}", flush=True)
            if not _run(environment, Path(folder, str(i)), arguments):
                failed.append(setting)
            for file in Path(folder, str(i)).glob("*.json"):
                rows += [
                    (used, place, test, setting, *rest) for place, test, used, *rest in json.loads(file.read_text())
                ]
    rows.sort(reverse=True)
    too_thin = sum(used > _MOST_USED for used, *_ in rows)
    print(f"\n{len(rows):,} comparisons; {too_thin} use more than {_MOST_USED:.0%} of their tolerance. The thinnest:")
    for used, place, test, setting, difference, tolerance in rows[: max(_N_PRINTED, too_thin)]:
        print(f"{used:7.1%}  {difference:.2g} of {tolerance:.2g}  {place}  {test}  ({setting})")
    if failed:
        print(f"Tests failed: {'; '.join(failed)}")
    sys.exit(bool(failed or too_thin or not rows))


if __name__ == "__main__":
    main()
