"""The results of runs over many texts: those in the operator's folder by name, others by path or by their bytes; parsed ones share the cache of traces."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attention.core.cache import CACHE
from attention.errors import FileError
from attention.io.arrays import quote
from pages.ui.server import scheduler
from pages.ui.server.limits import ALLOW_LOCAL_MODELS, MAX_TRACE_MB, RESULTS

if TYPE_CHECKING:
    from attention.corpus.heads_result import HeadsResult

TABLE = "heads.parquet"
MAX_BYTES = MAX_TRACE_MB * 2**20
"""Of one result: as many as a trace may have."""
MOST_NAMES = 500
_LARGE = 16 * 2**20  # bytes


@dataclass(frozen=True, eq=False)
class _Parsed:
    """A result in the cache."""

    result: HeadsResult
    nbytes: int


def names() -> tuple[str, ...]:
    """The names of the results that the operator offers."""
    if not RESULTS.is_dir():
        return ()
    entries = (entry for entry in RESULTS.iterdir() if not entry.name.startswith("."))
    found = [
        entry.name.removesuffix(".parquet")
        for entry in entries
        if entry.suffix == ".parquet" or (entry / TABLE).is_file()
    ]
    return tuple(sorted(set(found))[:MOST_NAMES])


def of_name(name: str) -> HeadsResult:
    """The result of a name on offer, or, where local paths are allowed, of a path.

    Raises:
        FileError: there is none, or it cannot be read.
    """
    if name in names():
        folder = RESULTS / name
        return _of_path(folder if folder.is_dir() else RESULTS / f"{name}.parquet", name)
    if ALLOW_LOCAL_MODELS:
        return _of_path(Path(name), Path(name).name)
    offered = ", ".join(names()[:20])
    advice = f"choose one of {offered}, or upload it" if offered else f"upload its {TABLE}"
    raise FileError(f"A result has a name on offer here; got {quote(name)}: {advice}.")


def of_bytes(name: str, digest: str, content: bytes) -> HeadsResult:
    """The result in uploaded bytes.

    Raises:
        FileError: they are not one.
    """
    from attention.corpus.heads_result import HeadsResult

    return _cached(("result", digest), len(content), lambda: HeadsResult.of(name, content, MAX_BYTES))


def _of_path(path: Path, name: str) -> HeadsResult:
    from attention.corpus.heads_result import HeadsResult

    try:
        status = (path / TABLE if path.is_dir() else path).stat()
    except (OSError, ValueError) as error:  # a null character
        raise FileError(
            f"A result is a {TABLE}, or a folder that has one; {quote(name)} cannot be opened: check its name."
        ) from error
    key = ("result", str(path.absolute()), status.st_size, status.st_mtime_ns)
    return _cached(key, status.st_size, lambda: HeadsResult.open(path, MAX_BYTES))


def _cached(key: tuple[object, ...], size: int, parse: Callable[[], HeadsResult]) -> HeadsResult:
    cached: _Parsed | None = CACHE.get(key)
    if cached is not None:
        return cached.result

    def make() -> _Parsed:
        CACHE.make_room(min(size, MAX_BYTES) * 2)
        result = parse()
        return _Parsed(result, result.memory_bytes() + size)  # its examples are decoded later

    with scheduler.exclusive() if size > _LARGE else nullcontext(), scheduler.without_turn():
        return CACHE.get_or_compute(key, make).result
