"""Work in processes of its own: the same numbers, and whatever ends a job ends nothing else."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import child_functions
import numpy as np
import psutil
import pytest
import torch
from conftest import ROOT
from dask_processes import wait_until
from tiny_models import TinyModels

from attention import AttentionConfig, Model, TypedText, metrics
from attention.base import cache, jobs, sandbox
from attention.base.errors import ConfigError
from attention.base.progress import Watcher, watching
from attention.models import library as library_module
from attention.models import loading
from attention.models.library import LIBRARY, in_job

MB = 2**20
TEXT = "the cat sat on the mat"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes fork on Linux alone")


def run(function: Callable[..., Any], *args: Any, **limits: Any) -> Any:
    (result,) = jobs.stream(child_functions.once, function, *args, **limits)
    return result


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_job_gives_the_same_numbers_and_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = TypedText(TEXT, AttentionConfig(n_heads=4)).trace()
    table = run(metrics.of, trace, keep=True)
    monkeypatch.setattr(metrics, "measure", lambda *_: pytest.fail("the job's numbers are kept here"))
    here = metrics.of(trace)
    np.testing.assert_array_equal(table.values, here.values)
    assert here.n_heads == table.n_heads


def test_modules_of_a_job_do_not_count_as_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_FORKER", jobs._Forker())  # one that has imported nothing
    (without,) = jobs.stream(child_functions.data_limit, n_bytes=8 * MB)
    (beyond,) = jobs.stream(child_functions.data_limit, n_bytes=8 * MB, modules=["sympy"])
    assert beyond - without > 8 * MB, "the limit is for what comes after the modules"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that forks jobs and has imported nothing."""
    monkeypatch.setattr(jobs, "_FORKER", jobs._Forker())
    yield
    jobs._FORKER._stop()


@pytest.mark.usefixtures("fresh")
def test_imports_of_a_running_job_do_not_count_as_its_memory() -> None:
    assert run(child_functions.imports_and_takes, "sympy", MB, n_bytes=8 * MB) == MB
    with pytest.raises(jobs.JobError, match="needs more than 8 MB"):
        run(child_functions.imports_and_takes, "sympy", 16 * MB, n_bytes=8 * MB)


@pytest.mark.usefixtures("fresh")
def test_job_that_fails_teaches_its_imports() -> None:
    with pytest.raises(ConfigError, match="after the import"):
        run(child_functions.imports_and_fails, "sympy")
    assert run(child_functions.imports, "sympy")


@pytest.mark.usefixtures("fresh")
def test_modules_are_imported_before_memory_is_granted() -> None:
    jobs.import_for_jobs(["sympy"])
    assert run(child_functions.imports, "sympy")
    assert jobs._FORKER.has_imported(["sympy"])
    os.kill(jobs.forker() or 0, signal.SIGKILL)
    wait_until(lambda: not jobs._FORKER.has_imported(["sympy"]), "the end of the process that had them")


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (child_functions.maps_without_memory, ()),
        (child_functions.causes_an_error_of_memory, ()),
        (child_functions.makes_memory_with_a_descriptor, (2**30,)),
    ],
)
def test_every_lack_of_memory_is_the_same_sentence(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    with pytest.raises(jobs.JobError, match="needs more than 64 MB of memory"):
        run(function, *args, n_bytes=64 * MB)


def test_lent_memory_does_not_count() -> None:
    assert run(child_functions.is_lent, 256 * MB, n_bytes=16 * MB) == 256 * MB


def test_job_prints_a_bounded_part_into_the_log(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jobs, "_FORKER", jobs._Forker())  # whose log is that of this test
    run(child_functions.prints, 2**17)
    printed = ""

    def has_ended() -> bool:
        nonlocal printed
        printed += capfd.readouterr().err
        return "left out" in printed

    wait_until(has_ended, "what the job prints")
    run(child_functions.prints, 1)
    wait_until(lambda: "noise" in capfd.readouterr().err, "what the next job prints")
    assert "noise" in printed
    assert len(printed) < 2 * jobs._MOST_PRINTED
    jobs._FORKER._stop()


def test_server_shares_its_imports_with_jobs() -> None:
    code = (
        "import os, signal; from attention.base import jobs; from pages.ui.server import limits; import child_functions\n"
        "def run(*args): return [*jobs.stream(child_functions.once, *args)][0]\n"
        "jobs.share(['sympy']); forker = jobs.forker()\n"
        "print(run(child_functions.imports, 'sympy'), limits.own_bytes(forker) < limits.resident_bytes(process=forker) / 2)\n"
        "os.kill(forker, signal.SIGKILL); os.waitid(os.P_PID, forker, os.WEXITED | os.WNOWAIT)\n"
        "print(run(child_functions.imports, 'sympy'), jobs.forker() != forker)"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.split() == ["True", "True", "False", "True"], ran.stderr


@pytest.mark.skipif(bool(sandbox.MISSING), reason="this system has no Landlock, or one that knows no TCP")
def test_foreign_job_has_no_network_and_no_file_but_its_own(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.write_bytes(b"numbers")
    other.write_bytes(b"secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        args = str(other), port
        words = jobs.read_foreign(
            child_functions.what_is_forbidden, *args, n_bytes=64 * MB, seconds=60, files=[str(own)]
        )
    assert words.split() == [b"read", b"list", b"write", b"connect", b"signal", b"memory"]
    assert other.read_bytes() == b"secret"
    content = jobs.read_foreign(child_functions.reads, str(own), n_bytes=64 * MB, seconds=60, files=[str(own)])
    assert content == b"numbers"


def test_system_without_limits_of_rights_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sandbox, "MISSING", "the network")
    jobs._say_what_is_missing.cache_clear()
    for _ in range(2):
        jobs._say_what_is_missing()
    jobs._say_what_is_missing.cache_clear()
    assert capfd.readouterr().err.count("cannot take the network away from a process") == 1


def test_ids_of_jobs_differ_from_each_other_and_from_ours() -> None:
    own = {cache.new_uid() for _ in range(3)}
    given = [set(run(child_functions.three_ids)) for _ in range(2)]
    assert len(own | given[0] | given[1]) == 9


def test_errors_of_a_job_are_raised_here() -> None:
    with pytest.raises(ConfigError, match="a sentence"):
        run(child_functions.refuses, "a sentence")
    with pytest.raises(ZeroDivisionError):
        run(child_functions.divides)
    with pytest.raises(jobs.JobError, match="failed with Unpicklable: no pickle"):
        run(child_functions.raises_what_no_pickle_holds)


@pytest.mark.parametrize(
    ("number", "why"), [(signal.SIGKILL, "needs more than 64 MB of memory"), (signal.SIGSEGV, "ended its process")]
)
def test_job_that_the_system_ends_is_one_sentence(number: int, why: str) -> None:
    with closing(jobs.stream(child_functions.goes_on)) as other:
        pid = next(other)
        with pytest.raises(jobs.JobError, match=why):
            run(child_functions.kills_itself, int(number), n_bytes=64 * MB)
        assert next(other) == pid
    assert run(child_functions.three_ids)


def test_memory_that_torch_cannot_have_is_a_sentence() -> None:
    with pytest.raises(jobs.JobError, match="needs more than 64 MB of memory"):
        run(torch.ones, 2**27, n_bytes=64 * MB)


def test_process_that_forks_begins_again_after_its_end() -> None:
    assert run(child_functions.three_ids)
    forker = jobs.forker()
    assert forker is not None
    with closing(jobs.stream(child_functions.goes_on)) as running:
        pid = next(running)
        os.kill(forker, signal.SIGKILL)
        with pytest.raises(jobs.JobError, match="ended its process"):
            list(running)
    wait_until(lambda: not is_alive(pid), "the end of its job")
    assert run(child_functions.three_ids)
    assert jobs.forker() != forker


def test_job_ends_when_nobody_waits_any_more() -> None:
    with closing(jobs.stream(child_functions.goes_on)) as running:
        pid = next(running)
    wait_until(lambda: not is_alive(pid), "the end of a job that was closed")
    is_here = True
    with watching(Watcher("key", "group", lambda: is_here)):
        running = jobs.stream(child_functions.goes_on)
        pid = next(running)
        is_here = False
        with pytest.raises(jobs.JobError, match="not wanted any more"):
            list(running)
    wait_until(lambda: not is_alive(pid), "the end of a job whose visitor left")


def test_job_begins_no_process_for_jobs_of_its_own() -> None:
    assert run(child_functions.begins) is None


def test_job_is_ended_before_this_process_if_memory_is_short() -> None:
    score, nice = run(child_functions.priorities)
    assert score == 1000
    assert nice >= jobs._NICE


# -- models ------------------------------------------------------------------------------------


@pytest.fixture
def folder(tiny: TinyModels, tmp_path: Path) -> Path:
    """A copy of a small model."""
    return Path(shutil.copytree(tiny("GPT-2"), tmp_path / "model"))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = LIBRARY.settings
    LIBRARY.hold(replace(before, shared=True))
    yield
    LIBRARY.hold(before)


def in_a_job(function: Any, *args: Any) -> Any:
    return list(jobs.stream(in_job, LIBRARY.settings.for_jobs(), LIBRARY.for_jobs()[0], function, *args))[-1]


@pytest.mark.usefixtures("library")
def test_model_lives_once_and_is_read_by_jobs(folder: Path) -> None:
    source = Model(str(folder), TEXT)
    here = [layer["weights"] for layer in source.trace().layers]
    loaded = LIBRARY.get(str(folder))
    assert all(loading._reduce(weight) is not NotImplemented for weight in loaded.model.parameters())
    assert len(LIBRARY.for_jobs()[0][str(folder)]) < loaded.nbytes
    shutil.rmtree(folder)  # a job that read the folder would fail
    there = in_a_job(child_functions.weights_of, source)
    assert all(map(torch.equal, here, there))


@pytest.mark.usefixtures("library")
def test_what_a_job_writes_into_weights_stays_there(folder: Path) -> None:
    loaded = LIBRARY.get(str(folder))
    before = [weight.clone() for weight in loaded.model.parameters()]
    assert in_a_job(child_functions.erases, str(folder)) == 0
    assert all(map(torch.equal, before, loaded.model.parameters()))


@pytest.mark.usefixtures("library")
def test_overwritten_weights_end_nothing(folder: Path) -> None:
    source = Model(str(folder), TEXT)
    expected = source.trace().layers[0]["weights"]
    for file in folder.glob("*.safetensors"):
        file.write_bytes(b"")  # a process that maps it would get SIGBUS at its next look
    LIBRARY.get(str(folder)).model(torch.tensor([[1, 2, 3]]))
    assert torch.equal(source.trace().layers[0]["weights"], expected)


@pytest.mark.usefixtures("library")
def test_memory_of_an_idle_model_is_given_to_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LIBRARY.get(str(folder))
    assert not LIBRARY.drop_idle(), "it was used just now"
    monkeypatch.setattr(library_module, "_IDLE_SECONDS", -1)
    paths = {path for path, *_ in loading._STORAGES.values()}
    assert LIBRARY.drop_idle()
    wait_until(lambda: not paths & {path for path, *_ in loading._STORAGES.values()}, "the end of its memory")


@pytest.mark.usefixtures("library")
def test_model_that_was_dropped_is_read_from_its_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Model(str(folder), TEXT)
    expected = source.trace().layers[0]["weights"]
    lent, alive = LIBRARY.for_jobs()
    assert [model.name for model in alive] == list(lent)
    del alive
    monkeypatch.setattr(library_module, "_IDLE_SECONDS", -1)
    assert LIBRARY.drop_idle()
    assert not LIBRARY.for_jobs()[0]
    assert torch.equal(source.trace().layers[0]["weights"], expected), "and not from memory that has gone"
