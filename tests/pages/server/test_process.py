"""How a server process ends."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT
from test_harm import finished

from benchmarks import downloads
from benchmarks.server import Server

BUSY = """
import sys, threading
import torch

def work():
    while True:
        torch.ones(300, 300) @ torch.ones(300, 300)
        begun.set()

begun = threading.Event()
for name in {names}:
    threading.Thread(target=work, name=name, daemon=True).start()
assert not {names} or begun.wait(60)
print("ends", flush=True)
sys.exit({code})
"""


def run_until_end(names: tuple[str, ...], code: int = 0) -> subprocess.CompletedProcess[str]:
    """A finished process that exited while threads with these names were still working."""
    command = [sys.executable, "-W", "ignore", "-c", BUSY.format(names=names, code=code)]
    return subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=600, check=False)


def test_endless_runs_neither_abort_nor_keep_the_process() -> None:
    run = run_until_end(("ScriptRunner.scriptThread", "ScriptRunner.scriptThread", "training"))
    assert (run.returncode, run.stdout) == (0, "ends\n")
    assert "terminate called" not in run.stderr


def test_process_without_runs_keeps_its_exit_code() -> None:
    assert run_until_end((), 3).returncode == 3


@pytest.mark.long  # waits as long as an operator would
def test_downloads_under_way_are_read_to_their_end() -> None:
    with Server(front=True) as server:
        assert finished(downloads.read_to_the_end(server, long=450, seconds=0)) == []
