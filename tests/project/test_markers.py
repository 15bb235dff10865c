"""The markers `sample` and `quick` leave out and name what pyproject.toml says; and workers begin with different tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, ByWhatTheyShare

TESTS = """
import time
import pytest

@pytest.mark.sample(3)
@pytest.mark.parametrize("case", range(10))
def test_of_many_cases(case):
    pass

@pytest.mark.sample(3)
@pytest.mark.parametrize("case", range(2))
def test_of_two_cases(case):
    pass

@pytest.mark.quick
def test_that_computes():
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass

@pytest.mark.quick
def test_that_is_quick():
    pass

@pytest.mark.quick
@pytest.mark.slow
def test_that_says_so():
    test_that_computes()
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest says of these tests, with a bound of a tenth of a second, on a worker as in `make quick`."""
    folder: Path = tmp_path_factory.mktemp("tests")
    (folder / "test_marked.py").write_text(TESTS)
    (folder / "conftest.py").write_text("import markers\nmarkers.QUICK = 0.1\n")
    command = [sys.executable, "-m", "pytest", "-v", "-n", "1", "-m", "not long", "-p", "markers"]
    options = ["-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider", "-W", "ignore"]
    run = subprocess.run(
        [*command, *options, str(folder)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_some_cases_of_a_sample_run_at_equal_distances(output: str) -> None:
    cases = re.findall(r"PASSED \S+::test_of_many_cases\[(\d)\]", output)
    assert cases == ["0", "4", "7"]
    assert len(re.findall(r"PASSED \S+::test_of_two_cases", output)) == 2


def test_a_test_that_is_not_as_quick_as_it_says_is_named(output: str) -> None:
    named = re.findall(r"::(\w+): [\d.]+ s of processor time", output)
    assert named == ["test_that_computes"]


class Worker:
    """A worker of xdist that notes what it is sent."""

    shutting_down = False
    gateway = SimpleNamespace(id="gw")

    def __init__(self) -> None:
        self.sent: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_every_other_worker_begins_with_the_browsers_tests() -> None:
    option = SimpleNamespace(loadscopereorder=True)
    scheduler: Any = ByWhatTheyShare(SimpleNamespace(getvalue=lambda _: ["2*popen"], option=option))
    workers = [Worker(), Worker()]
    files = [f"tests/test_{name}.py::test_{part}" for name in "ab" for part in range(4)]
    tests = [*files, *(f"tests/test_browser_page.py::test_{part}" for part in range(5))]
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, tests)
    scheduler.schedule()
    first, second = workers
    assert all("test_browser" in tests[index] for index in first.sent)
    assert [tests[index] for index in second.sent] == files[:4]
    for worker in (second, first):  # each goes on until nothing is left for it
        for index in worker.sent:
            scheduler.mark_test_complete(worker, index)
    assert sorted(first.sent + second.sent) == [*range(len(tests))]
