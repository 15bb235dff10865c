"""One server process of the app on a free loopback port, with its address, memory and end."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[1]
CGROUPS = Path("/sys/fs/cgroup")
_NUMBERS = itertools.count()


class Server:
    """The running app, used with `with`; with `guard` nothing gets out, with `limit` it has that many MB of memory.

    With `front` it stands behind nginx and is started as the image starts it, with as many `descriptors` as a process may have. Another `script` of this folder runs with Streamlit's own settings, not with ours; `of` is another checkout of the
    Lab. What else is given are environment variables of its own.
    """

    def __init__(
        self,
        guard: bool = False,
        limit: int = 0,
        script: str = "",
        of: Path = ROOT,
        front: bool = False,
        descriptors: int = 0,
        **environment: str,
    ) -> None:
        self.guard, self.limit, self.script, self.of, self.environment = guard, limit, script, of, environment
        self.front, self.descriptors = front, descriptors
        self.group: Path | None = None
        self.waited = 0.0  # seconds, the longest of a visitor who is part of an attack

    def __enter__(self) -> Self:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.base = f"http://127.0.0.1:{port}"
        self._folder = tempfile.TemporaryDirectory(prefix="attention-lab-")
        self._errors, self._refused = (Path(self._folder.name, name) for name in ("errors", "refused"))
        start = [sys.executable, "-m", *(["benchmarks.guard", str(self._refused)] if self.guard else ["streamlit"])]
        script = ROOT / "benchmarks" / self.script if self.script else "app.py"
        options = ["run", str(script), f"--server.port={port}", "--server.address=127.0.0.1", "--server.headless=true"]
        options += ["--server.fileWatcherType=none", "--global.developmentMode=false"]
        options += ["--browser.gatherUsageStats=false"] if self.script else []
        if self.front:
            start, options = [sys.executable, "deploy/front.py"], []
            self.environment |= {"STREAMLIT_SERVER_PORT": str(port), "STREAMLIT_SERVER_HEADLESS": "true"}
        if self.descriptors:
            start = ["sh", "-c", f'ulimit -n {self.descriptors} && exec "$@"', "sh", *start]
        if self.limit and (group := _group(self.limit)):
            self.group = group
            start = ["sh", "-c", f'echo $$ >"{group}/cgroup.procs" && exec "$@"', "sh", *start]
        began = time.monotonic()
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*start, *options],
                cwd=self._folder.name if self.script else self.of,  # where Streamlit looks for its settings
                env={**os.environ, **self.environment},
                stdout=errors,
                stderr=subprocess.STDOUT,
            )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while True:
            try:
                if opener.open(f"{self.base}/_stcore/health", timeout=1).read() == b"ok":
                    break
            except OSError:
                time.sleep(0.05)
            if self.process.poll() is not None or time.monotonic() - began > 180:  # a busy machine
                self.__exit__()
                raise RuntimeError(f"the server did not start (exit {self.process.poll()}): {self.errors()[-2000:]}")
        self.seconds_to_healthy = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()
        self.said = self.errors()
        self._folder.cleanup()
        if self.group:
            while processes := (self.group / "cgroup.procs").read_text().split():  # its jobs, which end with it
                for process in processes:
                    with suppress(ProcessLookupError):
                        os.kill(int(process), signal.SIGKILL)
                time.sleep(0.01)
            self.group.rmdir()

    def memory(self, field: str = "VmRSS") -> float:
        """A line of /proc/PID/status in MB: VmRSS now, VmHWM at its highest, RssAnon what no file backs; of nginx too."""
        files = [Path(f"/proc/{process}/status") for process in self._processes()]
        lines = [line for file in files for line in file.read_text().splitlines() if line.startswith(f"{field}:")]
        if not lines:
            raise StopIteration(field)
        return sum(int(line.split()[1]) / 1024 for line in lines)

    def processor(self) -> float:
        """The processor seconds used so far."""
        files = [Path(f"/proc/{process}/stat") for process in self._processes()]
        fields = [file.read_text().rpartition(")")[2].split() for file in files]
        return sum(int(user) + int(system) for *_, user, system in (line[:13] for line in fields)) / os.sysconf(
            "SC_CLK_TCK"
        )

    def _processes(self) -> list[int]:
        """The process of the app; with `front` also nginx's, and what has started both."""
        own = self.process.pid
        if not self.front:
            return [own]
        started = _children(own)
        workers = [child for each in started if "nginx" in _name(each) for child in _children(each)]
        return [own, *started, *workers]

    def kills(self) -> int:
        """How many processes its control group has killed for lack of memory."""
        names = ("memory.events", "memory.oom_control") if self.group else ()
        lines = [
            line
            for name in names
            if (file := Path(self.group or "", name)).exists()
            for line in file.read_text().splitlines()
        ]
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def errors(self) -> str:
        """The output of the server so far."""
        return self._errors.read_text(errors="replace") if self._errors.exists() else self.said

    def refused(self) -> list[str]:
        """The refusals of the guard so far."""
        return self._refused.read_text().splitlines() if self._refused.exists() else []

    def terminate(self, patience: float = 60) -> tuple[int, float]:
        """Ends the server with SIGTERM, as an orchestrator does; returns the exit code and the seconds."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=patience)
        return code, time.monotonic() - began


def _children(process: int) -> list[int]:
    file = Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in file.read_text().split()] if file.exists() else []


def _name(process: int) -> str:
    file = Path(f"/proc/{process}/comm")
    return file.read_text() if file.exists() else ""


def _group(limit: int) -> Path | None:
    """A control group with this many MB of memory and no swap, or None where none can be made."""
    for root, name, swap in (
        (CGROUPS, "memory.max", "memory.swap.max"),
        (CGROUPS / "memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    ):
        group = root / f"attention-lab-{os.getpid()}-{next(_NUMBERS)}"  # a process may have several servers
        if not (root / "cgroup.procs").exists():  # a plain folder
            continue
        try:
            group.mkdir()
            Path(group, name).write_text(str(limit * 2**20))
            if Path(group, swap).exists():  # the first counts swap alone, the second both together
                Path(group, swap).write_text("0" if swap.endswith("max") else str(limit * 2**20))
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        return group
    return None
