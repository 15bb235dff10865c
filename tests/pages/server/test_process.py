"""How a server process ends."""

import os
import socket
import subprocess
import sys

import pytest
from conftest import ROOT
from test_harm import finished

from benchmarks import downloads
from benchmarks.server import Server
from pages.ui import process

BUSY = """
import sys, threading
from pages.ui import process
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
    with Server() as server:
        assert finished(downloads.read_to_the_end(server, long=450, seconds=0)) == []


@pytest.mark.quick
@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's tables of sockets")
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_closed_connection_counts_until_it_is_read(family: socket.AddressFamily, host: str) -> None:
    with socket.socket(family) as listening, socket.socket(family) as reader:
        listening.bind((host, 0))
        listening.listen()
        port = listening.getsockname()[1]
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**12)
        reader.connect((host, port))
        served, _ = listening.accept()
        assert process._unread_bytes(port) == 0
        served.setblocking(False)
        sent = served.send(bytes(2**16))
        served.close()
        assert process._unread_bytes(port) > 0
        assert len(reader.makefile("rb").read()) == sent
        while process._unread_bytes(port):  # the end of the connection travels, too
            pass
