"""A Dask scheduler and its workers as processes of this machine, and workers that stop or die at texts that say so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
from conftest import PATIENCE, ROOT

# What every worker imports when it starts: it writes down what it computes, waits at "wait", and kills itself at "kill".
PRELOAD = """
import os, signal, threading
from pathlib import Path
from attention.corpus import cluster

cluster.compute_chunk = getattr(cluster, "compute_chunk", cluster._compute)  # Dask runs this script twice
log = Path({log!r})

def _compute(*arguments):
    index, texts = arguments[-3], arguments[-1]
    with log.open("a") as file:
        file.write(f"{{index}} {{os.getpid()}}\\n")
    if any(text.startswith("kill") for text in texts):
        import torch  # a chunk takes a moment; Dask does not start a worker again that dies as it starts
        os.kill(os.getpid(), signal.SIGKILL)
    first = sum(line.startswith(f"{{index}} ") for line in log.read_text().splitlines()) == 1
    if first and any(text.startswith("wait") for text in texts):
        threading.Event().wait()
    return cluster.compute_chunk(*arguments)

cluster._compute = _compute
"""


class Journal:
    """The chunks that workers have begun, each with its process."""

    def __init__(self, folder: Path) -> None:
        self.path, self.script = folder / "journal", folder / "journal_preload.py"
        self.script.write_text(PRELOAD.format(log=str(self.path)))
        self.path.touch()

    def entries(self) -> list[tuple[int, int]]:
        """(chunk, process), in their order."""
        return [(int(index), int(pid)) for index, pid in map(str.split, self.path.read_text().splitlines())]

    def of(self, index: int) -> list[int]:
        """The processes that have begun a chunk."""
        return [pid for chunk, pid in self.entries() if chunk == index]


def wait_until(condition: Callable[[], object], what: str) -> None:
    for _ in range(PATIENCE // 10):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(f"{what} did not happen in three minutes")


def ended(pid: int) -> bool:
    """Whether a process is gone, or only waits for its parent to notice."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@contextmanager
def running(*command: str, cwd: Path = ROOT, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of this Python, in the folder that stands for /lab of the image, and with everything that it starts."""
    env = {**os.environ, **environment}
    process = subprocess.Popen(
        [sys.executable, *command], cwd=cwd, env=env, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        yield process
    finally:
        alive = process.poll() is None
        family = [child.pid for child in psutil.Process(process.pid).children(recursive=True)] if alive else []
        process.terminate()
        process.communicate(timeout=PATIENCE / 1000)
        wait_until(lambda: all(map(ended, family)), "the end of every process")


@contextmanager
def running_cluster(
    folder: Path, workers: int, journal: Journal, scheduler_in: Path = ROOT, **environment: str
) -> Iterator[str]:
    """The address of a scheduler with workers, which leave their files in `folder`."""
    file = folder / "scheduler.json"
    at = ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"]
    of_worker = ["--scheduler-file", str(file), "--host", "127.0.0.1", "--nthreads", "1", "--memory-limit", "0"]
    of_worker += ["--no-dashboard", "--local-directory", str(folder)]
    with ExitStack() as stack:
        at += ["--no-dashboard", "--scheduler-file", str(file)]
        stack.enter_context(running("-m", "dask", "scheduler", *at, cwd=scheduler_in, **environment))
        environment["DASK_DISTRIBUTED__WORKER__PRELOAD"] = str(journal.script)
        for _ in range(workers):
            stack.enter_context(running("-m", "dask", "worker", *of_worker, **environment))
        wait_until(
            lambda: file.exists() and file.read_text().endswith("\n}"), "the start of the scheduler"
        )  # Dask writes in pieces
        address: str = json.loads(file.read_text())["address"]
        yield address
