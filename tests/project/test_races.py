"""`make races`: three rounds on one core beside a busy process, which ends with them; failures are counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a process cannot choose its core here")

# What the tests in a round see: the processes that the script has started, and the cores of each.
TESTS = """
import os
from pathlib import Path
import pytest

SEEN = Path(__file__).with_name("seen")

@pytest.mark.browser
def test_notes_the_processes():
    children = Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
    cores = {core for child in children for core in os.sched_getaffinity(int(child))}
    with SEEN.open("a") as seen:
        print(len(cores), *children, file=seen)

@pytest.mark.browser
@pytest.mark.parametrize("name", ["one - two"])
def test_fails_in_the_second_round(name):
    assert len(SEEN.read_text().splitlines()) != ROUND

def test_is_no_browser_test():
    raise AssertionError
"""


def races(folder: Path, failing_round: int) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    """The run of the script on the tests above, and what they saw in each round."""
    file = folder / "test_rounds.py"
    file.write_text(TESTS.replace("ROUND", str(failing_round)))
    command = [sys.executable, ROOT / ".ci" / "races.py", "-p", "no:cacheprovider", "-W", "ignore", file]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    return run, [line.split() for line in (folder / "seen").read_text().splitlines()]


def test_every_round_runs_on_one_core_beside_a_process_that_ends_with_it(tmp_path: Path) -> None:
    run, rounds = races(tmp_path, failing_round=0)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines()[-1] == "No test failed in 3 rounds."
    assert len(rounds) == 3
    for cores, *processes in rounds:
        assert (cores, len(processes)) == ("1", 2)
        assert not any(Path("/proc", process).exists() for process in processes)


def test_failures_are_counted_after_all_rounds(tmp_path: Path) -> None:
    run, rounds = races(tmp_path, failing_round=2)
    assert run.returncode == 1
    assert len(rounds) == 3
    last = run.stdout.splitlines()[-1]
    assert last.startswith("test_rounds.py::test_fails_in_the_second_round[one")
    assert last.endswith(" failed in 1 of 3 rounds")


def test_round_without_tests_is_a_failure(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / ".ci" / "races.py", "-p", "no:cacheprovider", tmp_path]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 1
    assert run.stdout.splitlines()[-1] == "pytest (exit status 5) failed in 3 of 3 rounds"
