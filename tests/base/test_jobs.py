"""Work in processes of its own: the same numbers, and whatever ends a job ends nothing else."""

from __future__ import annotations

import os
import shutil
import signal
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
from dask_processes import wait_until
from tiny_models import TinyModels

from attention import AttentionConfig, Model, TypedText, metrics
from attention.base import cache, jobs
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
