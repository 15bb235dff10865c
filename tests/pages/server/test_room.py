"""Memory for large objects: evictions from the cache, refusals, and the estimate for a model before its weights are read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import ROOT
from test_memory import machine
from test_pages import drawn, opened, said
from tiny_models import FAMILIES, TinyModels

from attention import AttentionConfig, ConfigError, ModelError, TypedText
from attention.base import jobs
from attention.base.cache import CACHE
from attention.models import library as preload
from attention.models.folder import Folder, check_folder
from attention.models.library import Library, Settings
from pages.ui import process
from pages.ui.server import limits, scheduler, traces

MB, GB = 2**20, 2**30

NO_LIMIT = "No memory limit: this server takes up to 12,288 MB, three quarters of the machine's; start the container with --memory 1g,"
GROUP = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{GB}\n"}
FIRST_VERSION = "sys/fs/cgroup/memory/a/memory.limit_in_bytes"


@pytest.mark.parametrize(
    ("files", "mb", "limit", "sentence"),
    [
        ({}, 0, 12 * GB, NO_LIMIT),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 0, 12 * GB, NO_LIMIT),
        # version 1 writes a huge number where there is no limit
        ({"proc/self/cgroup": "4:memory:/a\n", FIRST_VERSION: f"{2**63 - 4096}\n"}, 0, 12 * GB, NO_LIMIT),
        ({"proc/self/cgroup": "4:memory:/a\n", FIRST_VERSION: f"{GB}\n"}, 0, GB, "1,024 MB (of the control group)."),
        (GROUP, 0, GB, "Memory limit: 1,024 MB (of the control group)."),
        (GROUP, 900, 900 * MB, "Memory limit: 900 MB (LAB_MEMORY_MB)."),
        (GROUP, 2000, GB, "Memory limit: 1,024 MB (of the control group)."),
        ({}, 2000, 2000 * MB, "Memory limit: 2,000 MB (LAB_MEMORY_MB)."),
        ({"proc/meminfo": ""}, 2000, 2000 * MB, "Memory limit: 2,000 MB (LAB_MEMORY_MB)."),
        ({"proc/meminfo": ""}, 0, None, "No memory limit: start the container with --memory 1g, or set LAB_MEMORY_MB."),
        ({"proc/meminfo": ""} | GROUP, 0, GB, "Memory limit: 1,024 MB (of the control group)."),
    ],
)
def test_memory_limit_is_the_lowest_and_is_said(
    files: dict[str, str], mb: int, limit: int | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(limits.os, "sysconf")  # as on Windows
    found, sentence_found = limits.process_memory(mb, machine(tmp_path, files))
    assert found == limit
    assert sentence in sentence_found


def test_pages_of_files_are_no_memory_of_a_process(tmp_path: Path) -> None:
    assert limits.resident_bytes(tmp_path) is None
    status = "Name:\tlab\nVmRSS:\t900 kB\nRssAnon:\t300 kB\nRssFile:\t500 kB\nRssShmem:\t100 kB\n"
    assert limits.resident_bytes(machine(tmp_path, {"proc/self/status": status})) == 400 * 2**10
    assert limits.resident_bytes(machine(tmp_path, {"proc/7/status": status}), 7) == 400 * 2**10


def test_what_a_process_shares_is_none_of_its_own_memory(tmp_path: Path) -> None:
    assert limits.own_bytes(7, tmp_path) is None
    rollup = "55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss: 900 kB\nShared_Dirty: 500 kB\nPrivate_Dirty: 300 kB\n"
    assert limits.own_bytes(7, machine(tmp_path, {"proc/7/smaps_rollup": rollup})) == 300 * 2**10


def test_process_that_forks_jobs_counts_with_what_it_does_not_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_LIMIT", GB)
    monkeypatch.setattr(traces, "resident_bytes", lambda: 300 * MB)
    monkeypatch.setattr(jobs, "forker", lambda: 7)
    monkeypatch.setattr(jobs, "is_running", lambda: False)
    monkeypatch.setattr(limits, "own_bytes", lambda _: 30 * MB)
    room = GB - 330 * MB - traces._RESERVE
    assert traces.room() == room
    monkeypatch.setattr(jobs, "is_running", lambda: True)
    monkeypatch.setattr(limits, "own_bytes", lambda _: 10 * MB)  # a job shares the rest
    assert traces.room() == room


def test_missing_glibc_sets_nothing_and_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in (None, SimpleNamespace()):
        monkeypatch.setattr(limits, "_C", library)
        limits.configure_allocator()
        limits.trim()


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of the process from /proc")
def test_freed_matrices_leave_the_process() -> None:
    code = (
        "from pages.ui.server import limits as memory; memory.configure_allocator(); import torch\n"
        "before = memory.resident_bytes(); many = [torch.ones(1024, 1024) for _ in range(64)]; last = torch.ones(8)\n"
        "full = memory.resident_bytes(); del many; memory.trim(); print(full - before, memory.resident_bytes() - before)"
    )
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    full, remaining = map(int, run.stdout.split())
    assert full > 200 * MB
    if hasattr(limits._C, "malloc_trim"):
        assert remaining < 16 * MB  # without the trim nearly all of it stays in the heap of glibc


@pytest.fixture
def weighing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Makes the process appear to use this many bytes beside the cache, within 1 GB."""

    def weigh(nbytes: int) -> None:
        monkeypatch.setattr(traces, "_LIMIT", GB)
        monkeypatch.setattr(traces, "resident_bytes", lambda: nbytes + int(CACHE.cache.currsize))
        monkeypatch.setattr(jobs, "forker", lambda: None)

    CACHE.reset(limits.TRACE_CACHE_MB * MB)
    yield weigh
    CACHE.reset(limits.TRACE_CACHE_MB * MB)


@pytest.mark.long  # a server with little memory
def test_old_traces_leave_the_cache_when_memory_is_short(weighing: Callable[[int], None]) -> None:
    for number in range(4):
        CACHE.get_or_compute(("old", number), lambda: torch.zeros(5 * MB))  # 20 MB
    weighing(800 * MB)
    assert traces.make_room(80 * MB) == 0
    assert [number for number in range(4) if CACHE.get(("old", number)) is not None] == [2, 3]
    assert traces.make_room(0) == 0
    assert CACHE.get(("old", 2)) is not None, "a fitting request evicts nothing"
    assert traces.make_room(200 * MB) == 800 * MB + int(CACHE.cache.currsize) + (200 + 96 - 1024) * MB
    assert CACHE.get(("old", 2)) is not None, "a request too large for an empty cache evicts nothing either"


def test_large_trace_without_room_is_refused_and_small_one_drawn(
    weighing: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    weighing(920 * MB)
    large = TypedText("w " * 1000, AttentionConfig(n_heads=1), max_tokens=2048)
    monkeypatch.setattr(TypedText, "_input", lambda *_: pytest.fail("a refused trace must not draw rows"))
    with pytest.raises(ConfigError, match=r"These steps need \d+ MB of memory, and this server has 8 MB left: choose"):
        traces.trace_of(large)
    monkeypatch.undo()
    weighing(2000 * MB)
    assert traces.trace_of(TypedText("a b c")).tokens == ("a", "b", "c")
    app = opened("app.py", text="w " * 1000, heads="1")
    assert not app.exception
    assert not drawn(app)
    assert "this server has 0 MB left" in said(app)


def library(path: Path, missing: Callable[[int], int]) -> Library:
    return Library(Settings(path, paths=False, make_room=missing))


def test_model_without_room_is_refused_before_reading_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    TinyModels(tmp_path).save(tmp_path / "tiny", *FAMILIES["BERT"])
    requests: list[int] = []

    def missing(needs: int) -> int:
        requests.append(needs)
        return 5 * MB

    monkeypatch.setattr("attention.models.loading.load", lambda *_: pytest.fail("a refused model must not be loaded"))
    with pytest.raises(ModelError, match=r"^tiny needs \d+ MB of memory, and this server has \d+ MB left: choose a"):
        library(tmp_path, missing).get("tiny")
    needs = check_folder(tmp_path / "tiny", "tiny", 4096).needs
    assert requests == [needs + preload.missing_bytes()]


def test_loaded_models_give_way_to_a_requested_one(tmp_path: Path) -> None:
    for name in ("one", "two"):
        TinyModels(tmp_path).save(tmp_path / name, *FAMILIES["BERT"])
    models = library(tmp_path, lambda needs: 0)
    models.get("one")
    models.settings = replace(models.settings, make_room=lambda needs: 10 * GB)
    with pytest.raises(ModelError, match="two needs"):
        models.get("two")
    assert list(models._loaded) == ["one"], "a model too large on its own evicts nothing"
    models.settings = replace(models.settings, make_room=lambda needs: len(models._loaded))
    models.get("two")
    assert list(models._loaded) == ["two"]


def test_model_memory_is_its_weights_and_its_vocabulary() -> None:
    assert Folder(Path(), {}, 100 * MB).needs == 100 * MB
    assert Folder(Path(), {}, 100 * MB, other_bytes=2 * MB).needs == 120 * MB


def test_imports_are_counted_until_they_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, preload._LAST_LARGE, raising=False)
    assert preload.missing_bytes() == 80 * MB
    monkeypatch.setitem(sys.modules, preload._LAST_LARGE, SimpleNamespace())
    assert preload.missing_bytes() == 0


class Idle:
    """A process that is idle after a number of checks."""

    def __init__(self, busy: int) -> None:
        self.busy = busy

    def __call__(self) -> float:
        self.busy -= 1
        return 0.0 if self.busy > 0 else 60.0


@pytest.fixture(autouse=True)
def process_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test may have ended a server in this process."""
    monkeypatch.setattr(process, "_ending", process.threading.Event())


def importing(monkeypatch: pytest.MonkeyPatch, **settings: object) -> list[str]:
    """The modules that an idle process imports for models."""
    imported: list[str] = []
    from attention.models import library as module

    monkeypatch.setattr(preload, "import_module", imported.append)
    monkeypatch.setattr(module, "LIBRARY", Library(replace(Settings(Path("/no/models"), paths=False), **settings)))
    monkeypatch.setattr(process.gc, "freeze", lambda: None)
    monkeypatch.setattr(process, "_first_picture_drawn", ready := process.threading.Event())
    monkeypatch.setattr(process, "_QUIET", 0.001)
    ready.set()
    process._import_for_models()
    return imported


def test_idle_process_imports_what_models_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "idle_seconds", idle := Idle(busy=5))
    assert importing(monkeypatch, hub=True) == list(preload.PARTS)
    assert idle.busy < 0


def test_process_without_models_or_memory_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert importing(monkeypatch) == []
    monkeypatch.setattr(preload, "missing_bytes", lambda: 80 * MB)
    monkeypatch.setattr(traces, "resident_bytes", lambda **_: GB)
    monkeypatch.setattr(traces, "_LIMIT", GB)
    assert importing(monkeypatch, hub=True) == []


def test_process_that_ends_stops_importing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_ending", ending := process.threading.Event())
    ending.set()
    monkeypatch.setattr(scheduler, "idle_seconds", lambda: 0.0)
    assert importing(monkeypatch, hub=True) == []


def test_import_that_fails_at_the_end_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    def parts(ends: bool) -> Iterator[str]:
        yield "torch._dynamo"
        if ends:
            process._ending.set()
        raise AttributeError("'_OpNamespace' 'prims' object has no attribute 'view_of'")

    monkeypatch.setattr(scheduler, "idle_seconds", lambda: GB)
    monkeypatch.setattr(preload, "import_parts", lambda: parts(ends=False))
    with pytest.raises(AttributeError, match="prims"):
        importing(monkeypatch, hub=True)
    monkeypatch.setattr(preload, "import_parts", lambda: parts(ends=True))
    assert importing(monkeypatch, hub=True) == []


def test_process_is_not_idle_while_a_script_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "monotonic", lambda: 1000.0)
    with scheduler.turn():
        assert scheduler.idle_seconds() == 0
    monkeypatch.setattr(scheduler, "monotonic", lambda: 1007.0)
    assert scheduler.idle_seconds() == 7


def test_freed_memory_of_a_large_run_is_returned_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    trims: list[bool] = []
    monkeypatch.setattr(limits, "trim", lambda: trims.append(scheduler._large.locked()))
    with scheduler.turn():
        with scheduler.exclusive(), scheduler.exclusive():
            pass
        assert not trims
    assert trims == [True], "memory is returned once, before the next large run begins"
