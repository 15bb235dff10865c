"""A compose file without an engine: each service's command and environment as a process of this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import psutil
import yaml
from conftest import ROOT
from dask_processes import running, wait_until

Process = subprocess.Popen[bytes]


class ComposeProcesses:
    """The services of a compose file; a context manager that ends all of them.

    Attributes:
        services: the services of the file.
        replaced: what stands for the names, ports and volumes of the file on this machine, by pattern.
        variables: of the file, such as MODEL.
        environment: for every process, beside that of the file.
    """

    def __init__(
        self, file: Path, replaced: Mapping[str, str], variables: Mapping[str, str], environment: Mapping[str, str]
    ) -> None:
        self.services: dict[str, Any] = yaml.safe_load(file.read_text())["services"]
        self.replaced, self.variables, self.environment = replaced, variables, environment
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def start(self, name: str, **replaced: str) -> Process:
        """Start one container of a service, when what it depends on is healthy."""
        service = self.services[name]
        for other, condition in service.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            self.wait_for_health(other)
        python, *arguments = self.command(service["command"], replaced)
        environment = {key: value for key, value in service["environment"].items() if value is not None}
        assert python == "python"
        return self._stack.enter_context(running(*arguments, **environment, **self.environment))

    def wait_for_health(self, name: str, **replaced: str) -> None:
        """Wait until the health check of a service succeeds."""
        kind, python, *arguments = self.command(self.services[name]["healthcheck"]["test"], replaced)
        assert (kind, python) == ("CMD", "python")
        check = [sys.executable, *arguments]
        wait_until(
            lambda: subprocess.run(check, cwd=ROOT, capture_output=True, check=False).returncode == 0,
            f"the health of {name}",
        )

    def command(self, words: list[str], replaced: Mapping[str, str]) -> list[str]:
        """A command of the file with the values of variables, and with what stands for its names on this machine."""
        result = []
        for word in words:
            changed = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda match: self.variables.get(match[1], match[2]), word)
            for pattern, value in {**self.replaced, **replaced}.items():
                changed = re.sub(pattern, value, changed)
            result.append(changed)
        return result


def kill_container(process: Process) -> None:
    """End a process with everything that it has started, at once, as the kernel ends a container."""
    family = [process, *psutil.Process(process.pid).children(recursive=True)]
    for member in family:
        os.kill(member.pid, signal.SIGKILL)
    process.communicate()
