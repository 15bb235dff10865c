"""The budget of a trace follows the memory of a local machine; a server keeps its limits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from pages.ui.server import limits

GB = 2**30


@pytest.mark.quick
@pytest.mark.parametrize(
    ("available", "cache", "budget"),
    [
        (None, None, 128),
        (100 * 2**20, None, 128),
        (2 * GB, None, 512),
        (6 * GB, None, 1536),
        (200 * GB, None, 4096),
        (6 * GB, 256, 128),
        (6 * GB, 8, 4),
        (None, 2, 1),
    ],
)
def test_one_trace_may_use_a_quarter_of_the_memory(available: int | None, cache: int | None, budget: int) -> None:
    assert limits.trace_mb(available, cache) == budget


def machine(root: Path, files: dict[str, str]) -> Path:
    """A folder with the files of a Linux machine of 8 GB."""
    for name, text in {"proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.quick
@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({}, 8 * GB),
        # version 2: the group itself, or one around it
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": f"{GB}\n"}, GB),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, 8 * GB),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": f"{2 * GB}\n",
                "sys/fs/cgroup/a/memory.max": f"{GB}\n",
            },
            GB,
        ),
        # inside a container the group is the root
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{GB}\n"}, GB),
        # version 1, with version 2 beside it
        (
            {
                "proc/self/cgroup": "5:cpu,memory:/a\n3:cpuset:/\n0::/\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{3 * GB}\n",
            },
            3 * GB,
        ),
        # version 1 writes a huge number where there is no limit
        ({"proc/self/cgroup": "5:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"}, 8 * GB),
    ],
)  # fmt: skip
def test_available_memory_respects_the_control_group(files: dict[str, str], available: int, tmp_path: Path) -> None:
    assert limits._available(machine(tmp_path, files)) == available


@pytest.mark.quick
def test_half_of_the_installed_memory_counts_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"SC_PHYS_PAGES": 2**20, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(limits.os, "sysconf", sizes.__getitem__, raising=False)
    assert limits._available(tmp_path) == 2 * GB
    monkeypatch.delattr(limits.os, "sysconf")  # as on Windows
    assert limits._available(tmp_path) is None


def starts(**environment: str) -> str:
    """The MB of a trace and of the cache that a server starts with, or its error."""
    code = "from pages.ui.server import limits; print(limits.MAX_TRACE_MB, limits.TRACE_CACHE_MB)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stderr if run.returncode else run.stdout.strip()


def test_auto_limits_follow_memory_and_servers_keep_explicit_limits() -> None:
    assert starts() == "128 256"
    assert starts(LAB_MAX_TRACE_MB="300") == "300 600"
    trace, cache = map(int, starts(LAB_MAX_TRACE_MB="auto").split())
    assert 128 <= trace <= 4096
    assert cache == 2 * trace
    assert starts(LAB_MAX_TRACE_MB="auto", LAB_TRACE_CACHE_MB="100") == "50 100"
    assert "LAB_MAX_TRACE_MB must be auto, or a whole number" in starts(LAB_MAX_TRACE_MB="all")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["run"], ["LAB_MAX_TRACE_MB-auto}", "LAB_ALLOW_LOCAL_MODELS-yes}"]),
        (["dev"], ["LAB_MAX_TRACE_MB-auto}", "--server.fileWatcherType=poll"]),
        (["run", "ADDRESS=0.0.0.0"], ["LAB_MAX_TRACE_MB-128}", "LAB_ALLOW_LOCAL_MODELS-no}"]),
    ],
)
def test_make_raises_limits_only_for_a_local_server(command: list[str], expected: list[str]) -> None:
    run = subprocess.run(["make", "--dry-run", *command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(option in run.stdout for option in expected)
    assert ("fileWatcherType" in run.stdout) == (command == ["dev"])
