"""Memory of the process: available on the machine, allowed by the control group, and in use.

Also configures glibc's allocator on Linux. On other systems that part does nothing.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from pathlib import Path

_GROWTH = 2**26  # bytes
_released = [0]  # resident bytes after the last release
SMALLEST_MB, LARGEST_MB = 128, 4096  # bounds of the automatic trace budget

_C = ctypes.CDLL(None) if os.name == "posix" else None
# M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h. One heap for all threads, since each heap retains its freed memory.
# Blocks larger than 1 MB are separate mappings, which the system gets back at once. With a threshold of 5 MB, freed matrices of 4 MB
# (1,024 × 1,024) stay in the heap until `trim` runs after a large run, and the peaks are 120 to 150 MB higher.
_ALLOCATOR = {-8: 1, -3: 2**20, -1: 2**25}


def trace_mb(available: int | None, cache_mb: int | None = None) -> int:
    """The budget of one trace in MB: a quarter of the available memory, since the cache is at least twice as large.

    Args:
        available: bytes; None if unknown.
        cache_mb: the size of the cache if the operator has set it.

    Returns:
        From `SMALLEST_MB`, also the value for unknown memory, to `LARGEST_MB`; at most half of `cache_mb`.
    """
    budget = SMALLEST_MB if available is None else min(max(available // 4 // 2**20, SMALLEST_MB), LARGEST_MB)
    return budget if cache_mb is None else max(1, min(budget, cache_mb // 2))


def available(root: Path = Path("/")) -> int | None:
    """The available bytes, at most the limit of the control group (v1 or v2); None if unknown.

    Args:
        root: the folder that contains proc/ and sys/.
    """
    sizes = [*_free(root), *_allowed(root)]
    return min(sizes, default=None)


def limit(root: Path = Path("/")) -> int | None:
    """The limit in bytes of the control group (v1 or v2) and its parents; None without a limit."""
    return min(_allowed(root), default=None)


def resident(root: Path = Path("/")) -> int | None:
    """The resident bytes of this process; None if unknown."""
    sizes = " ".join(_lines(root / "proc" / "self" / "statm")).split()
    return int(sizes[1]) * os.sysconf("SC_PAGE_SIZE") if len(sizes) > 1 else None


def configure_allocator() -> None:
    """Sets the thresholds of glibc's allocator. Call it before any large allocation."""
    if configure := getattr(_C, "mallopt", None):
        for parameter, value in _ALLOCATOR.items():
            configure(parameter, value)


def trim() -> None:
    """Returns free heap pages to the system. Takes less than a millisecond."""
    if release := getattr(_C, "malloc_trim", None):
        release(0)


def release() -> None:
    """Collects garbage and trims the heap if the process has grown by `_GROWTH` since the last time.

    Finished runs are reference cycles that may contain large figures, and Streamlit disables its own collection. A collection
    takes 10 ms, as long as a trace of 512 tokens, so it does not run before every trace.
    """
    size = resident()
    if size is None or size > _released[0] + _GROWTH:
        gc.collect()
        trim()
        _released[0] = resident() or 0
    else:
        _released[0] = min(_released[0], size)


def _free(root: Path) -> Iterator[int]:
    for line in _lines(root / "proc" / "meminfo"):
        name, _, size = line.partition(":")
        if name == "MemAvailable":
            yield int(size.split()[0]) * 2**10
            return
    try:  # macOS reports only the total memory: assume that other programs use half of it
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return


def _allowed(root: Path) -> Iterator[int]:
    """The limits of the control group and its parents."""
    groups = root / "sys" / "fs" / "cgroup"
    for line in _lines(root / "proc" / "self" / "cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0":
            folder, name = groups, "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        place = Path(path.lstrip("/"))
        for group in (place, *place.parents):  # the last one is the root, where a container sees its own group
            for limit in _lines(folder / group / name):
                if limit.isdigit():  # and not "max"
                    yield int(limit)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
