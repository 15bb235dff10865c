"""How much memory a server may plan with: what is available on its machine, what its control group allows, and what it takes itself.

On Linux with glibc its allocator is set up here too; elsewhere nothing changes, and nothing breaks.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from pathlib import Path

_GROWTH = 2**26  # bytes
_released = [0]  # bytes that the process took after the last release
SMALLEST_MB, LARGEST_MB = 128, 4096  # of a trace whose budget follows the memory

_C = ctypes.CDLL(None) if os.name == "posix" else None
# M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h. One heap for all threads: each would keep what was freed in it.
# What is larger than 1 MB is a mapping of its own and leaves at once. With 5 MB the matrices of 4 MB (1,024 × 1,024) that are freed
# stay in the heap: `trim` returns them, but only when a large run has ended, and the peaks are 120 to 150 MB higher.
_ALLOCATOR = {-8: 1, -3: 2**20, -1: 2**25}


def trace_mb(available: int | None, cache_mb: int | None = None) -> int:
    """The budget of one trace in MB: a quarter of the available bytes, since the cache is at least twice as large.

    Args:
        available: bytes; None where nobody knows.
        cache_mb: the size of the cache where an operator has set it.

    Returns:
        From `SMALLEST_MB`, which is also what a machine of unknown memory gets, to `LARGEST_MB`; at most half of `cache_mb`.
    """
    budget = SMALLEST_MB if available is None else min(max(available // 4 // 2**20, SMALLEST_MB), LARGEST_MB)
    return budget if cache_mb is None else max(1, min(budget, cache_mb // 2))


def available(root: Path = Path("/")) -> int | None:
    """Bytes that are available now, and no more than the limit of the control group (v1 or v2); None where nobody says.

    Args:
        root: the folder in which proc/ and sys/ lie.
    """
    sizes = [*_free(root), *_allowed(root)]
    return min(sizes, default=None)


def limit(root: Path = Path("/")) -> int | None:
    """Bytes that the control group (v1 or v2) and all groups around it allow; None where there is none."""
    return min(_allowed(root), default=None)


def resident(root: Path = Path("/")) -> int | None:
    """Bytes of memory that this process takes now; None where nobody says."""
    sizes = " ".join(_lines(root / "proc" / "self" / "statm")).split()
    return int(sizes[1]) * os.sysconf("SC_PAGE_SIZE") if len(sizes) > 1 else None


def configure_allocator() -> None:
    """Sets the thresholds of glibc's allocator, before anything large is made."""
    if configure := getattr(_C, "mallopt", None):
        for parameter, value in _ALLOCATOR.items():
            configure(parameter, value)


def trim() -> None:
    """Returns the free pages of the heap to the system; takes less than a millisecond."""
    if release := getattr(_C, "malloc_trim", None):
        release(0)


def release() -> None:
    """Collects what finished runs left and trims the heap, if the process has grown by `_GROWTH` since it last did so.

    Finished runs are cycles that may hold large figures, and Streamlit switches its own collection off. A collection takes
    10 ms, as much as a trace of 512 tokens, so not every trace begins with one.
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
    try:  # macOS says only how much is built in: other programs use half of it
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return


def _allowed(root: Path) -> Iterator[int]:
    """The limits of the control group and of all groups around it."""
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
        for group in (place, *place.parents):  # the last is the root; a container sees its own group there
            for limit in _lines(folder / group / name):
                if limit.isdigit():  # and not "max"
                    yield int(limit)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
