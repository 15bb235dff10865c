"""A run on several processes: the same bytes as one process, whatever is killed, and one sentence for what goes wrong."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import dask.config
import distributed.versions
import pytest
from conftest import ROOT, free_port
from dask_processes import Journal, ended, running, running_cluster, wait_until
from distributed import Security
from tiny_models import TinyModels

from attention import ConfigError, FileError, ModelError
from attention.base.errors import SizeError
from attention.corpus import cluster, scan
from attention.corpus.cluster import _KILLS, scan_on_cluster
from attention.corpus.run_plan import RunPlan
from attention.corpus.scan import PartsFolder, part_name
from attention.models.library import LIBRARY

pytestmark = pytest.mark.long  # clusters: a dozen processes start and are killed

WORDS = ("the owl asked the moon", "she sells sea shells", "a quiet harbor", "keys and queries meet", "x")
TEXTS = tuple(f"{WORDS[i % len(WORDS)]} and {WORDS[i % 3]} {i}" for i in range(48))
SIZE = 2
WAITING = (6, 8)  # chunks at which a worker waits, until it is killed
STOPPED_TEXTS = tuple(f"wait {text}" if i // SIZE in WAITING else text for i, text in enumerate(TEXTS))


class Wanted(NamedTuple):
    """The result of one process."""

    model: str
    plan: RunPlan
    digest: str


def table_digest(url: str) -> str:
    scan.merge(url)
    return sha256(PartsFolder(url).read(scan.TABLE)).hexdigest()


def one_process(model: str, folder: Path, texts: tuple[str, ...]) -> Wanted:
    plan, _ = scan.make_plan(LIBRARY.get(model), texts, chunk_size=SIZE, top=3)
    scan.scan(plan, texts, str(folder))
    return Wanted(model, plan, table_digest(str(folder)))


@pytest.fixture(autouse=True)
def plain_main(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A new process imports the main module again, which a test of a page in the same process may have replaced with a page."""
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    return main


@pytest.fixture(scope="module")
def wanted(tiny: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Wanted:
    return one_process(str(tiny("GPT-2")), tmp_path_factory.mktemp("one"), TEXTS)


@pytest.fixture
def journal(tmp_path: Path, plain_main: ModuleType) -> Iterator[Journal]:
    """The journal of local workers; none of them is left at the end."""
    journal = Journal(tmp_path)
    plain_main.__file__ = str(journal.script)  # what a new process imports first
    yield journal
    assert [pid for _, pid in journal.entries() if not ended(pid)] == []


class Scheduler(NamedTuple):
    address: str
    journal: Journal


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    """A scheduler with two workers, each a process of its own."""
    folder = tmp_path_factory.mktemp("cluster")
    journal = Journal(folder)
    with running_cluster(folder, 2, journal) as address:
        yield Scheduler(address, journal)


def test_killed_workers_are_restarted_and_change_no_byte(wanted: Wanted, journal: Journal, tmp_path: Path) -> None:
    alone = one_process(wanted.model, tmp_path / "one", STOPPED_TEXTS)
    done: list[int] = []
    read = 0

    def texts() -> Iterator[str]:
        nonlocal read
        for text in STOPPED_TEXTS:
            read += 1
            assert read - sum(done) <= SIZE * (2 + 1), "few texts are in memory"
            yield text

    def kill_both() -> None:
        wait_until(lambda: all(map(journal.of, WAITING)), "a task on both workers")
        for index in WAITING:
            os.kill(journal.of(index)[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_both)
    killer.start()
    scan_on_cluster(alone.plan, texts(), str(tmp_path / "two"), workers=2, report=done.append)
    killer.join()
    assert sum(done) == len(TEXTS)
    assert table_digest(str(tmp_path / "two")) == alone.digest
    killed = {journal.of(index)[0] for index in WAITING}
    assert len(killed) == 2
    assert killed.isdisjoint(journal.of(index)[1] for index in WAITING), "both were computed by a new process"
    assert len({pid for _, pid in journal.entries()}) in (3, 4)


def test_chunk_that_kills_its_workers_is_named(wanted: Wanted, journal: Journal, tmp_path: Path) -> None:
    texts = ("kill", *TEXTS[1:8])
    plan, _ = scan.make_plan(LIBRARY.get(wanted.model), texts, chunk_size=SIZE)
    with pytest.raises(SizeError, match=r"several workers.*: 0 \(texts 0 to 1\)\. The other parts"):
        scan_on_cluster(plan, texts, str(tmp_path / "heads"), workers=1)
    assert PartsFolder(str(tmp_path / "heads")).present() == {1, 2, 3}
    assert len(set(journal.of(0))) == _KILLS


def test_killed_client_is_resumed_on_the_same_scheduler(wanted: Wanted, scheduler: Scheduler, tmp_path: Path) -> None:
    heads = tmp_path / "heads"
    code = f"""
from attention.corpus.cluster import scan_on_cluster
from attention.corpus.run_plan import RunPlan
plan = RunPlan.from_json({wanted.plan.to_json()!r})
scan_on_cluster(plan, {TEXTS!r}, {str(heads)!r}, scheduler={scheduler.address!r})
"""
    folder = PartsFolder(str(heads))
    with running("-c", code) as client:
        wait_until(lambda: len(folder.present()) >= 2, "the first parts")
        client.kill()
        client.wait()
        before = {index: (heads / part_name(index)).stat().st_mtime_ns for index in folder.present()}
    done: list[int] = []
    scan_on_cluster(wanted.plan, TEXTS, str(heads), scheduler=scheduler.address, report=done.append)
    assert sum(done) == len(TEXTS)
    assert table_digest(str(heads)) == wanted.digest
    assert {index: (heads / part_name(index)).stat().st_mtime_ns for index in before} == before, "never written again"
    begun = len(scheduler.journal.entries())
    scan_on_cluster(wanted.plan, TEXTS, str(heads), scheduler=scheduler.address)
    assert len(scheduler.journal.entries()) == begun, "no task for a part that is there"


def test_shards_of_two_clients_make_one_folder(wanted: Wanted, scheduler: Scheduler, tmp_path: Path) -> None:
    heads = str(tmp_path / "heads")
    scan_on_cluster(wanted.plan, TEXTS, heads, scheduler=scheduler.address, shard=(1, 3))
    assert PartsFolder(heads).present() == set(range(1, wanted.plan.n_chunks, 3))
    for shard in ((0, 3), (2, 3)):
        scan_on_cluster(wanted.plan, TEXTS, heads, scheduler=scheduler.address, shard=shard)
    assert table_digest(heads) == wanted.digest


def test_object_store_gets_the_same_table(wanted: Wanted, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in (
            ("AWS_ENDPOINT_URL", f"http://{host}:{port}"),
            ("AWS_ACCESS_KEY_ID", "nobody"),
            ("AWS_SECRET_ACCESS_KEY", "nothing"),
            ("AWS_DEFAULT_REGION", "us-east-1"),
        ):
            monkeypatch.setenv(name, value)
        fsspec.filesystem("s3", skip_instance_cache=True).mkdir("bucket")
        folder = PartsFolder("s3://bucket/heads")
        assert not folder.exists(scan.PLAN)
        assert folder.present() == frozenset()
        scan_on_cluster(wanted.plan, TEXTS, folder.url, workers=1)
        assert folder.present() == set(range(wanted.plan.n_chunks))
        assert table_digest(folder.url) == wanted.digest
    finally:
        server.stop()


def test_folder_that_workers_do_not_share_is_a_sentence(
    wanted: Wanted, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_VISIBLE_SECONDS", 0)
    with pytest.raises(FileError, match=r"has written parts/0000\d\d\.npz, and memory://heads has no such file here"):
        scan_on_cluster(wanted.plan, TEXTS, "memory://heads", scheduler=scheduler.address)


def test_error_of_a_worker_is_its_sentence(wanted: Wanted, scheduler: Scheduler, tmp_path: Path) -> None:
    for fields, match in (
        ({"model": "elsewhere"}, r"worker tcp://\S+: A model is .*there is no elsewhere"),
        ({"model_digest": "0" * 64}, r"worker tcp://\S+: The files of .* are not those of the plan"),
        ({"versions": {"torch": "0.4"}}, r"worker tcp://\S+: It has torch .*, and the plan 0\.4: install the same"),
    ):
        plan = replace(wanted.plan, **fields)
        with pytest.raises(ModelError, match=match):
            scan_on_cluster(plan, TEXTS, str(tmp_path / plan.model_digest[:4] / plan.model[-4:]), scheduler=scheduler.address)  # fmt: skip
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(FileError, match="cannot be"):
        scan_on_cluster(wanted.plan, TEXTS, str(tmp_path / "file"), scheduler=scheduler.address)


def test_other_version_of_dask_is_a_sentence(
    wanted: Wanted, scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = distributed.versions._version_cached
    monkeypatch.setattr(
        distributed.versions, "_version_cached", lambda name: "1.0" if name == "dask" else version(name)
    )
    with pytest.raises(ConfigError, match=r"The scheduler has dask 20\S+, and this process has 1\.0: install the same"):
        scan_on_cluster(wanted.plan, TEXTS, str(tmp_path), scheduler=scheduler.address)


def test_missing_scheduler_worker_or_package_is_a_sentence(
    wanted: Wanted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(match: str, **options: object) -> None:
        with pytest.raises(ConfigError, match=match):
            scan_on_cluster(wanted.plan, TEXTS, str(tmp_path / "heads"), **options)

    monkeypatch.setattr(cluster, "_CONNECTION_SECONDS", 1)
    monkeypatch.setattr(cluster, "_WORKER_SECONDS", 0.1)
    refused("does not answer: start `dask scheduler`", scheduler=f"tcp://127.0.0.1:{free_port()}")
    for address in (
        "nonsense://",
        "127.0.0.1",
        "tls://127.0.0.1:x",
        "http://127.0.0.1:8786",
    ):  # Dask would need a minute
        refused("copy the one that `dask scheduler` prints", scheduler=address)
    refused("not both", scheduler="tcp://127.0.0.1:8786", workers=2)
    with running_cluster(tmp_path, 0, Journal(tmp_path)) as address:
        refused("has no workers: start some with `dask worker", scheduler=address)
    monkeypatch.setattr(cluster, "_WORKER_SECONDS", 60)
    (tmp_path / "other").mkdir()
    with running_cluster(tmp_path / "other", 1, Journal(tmp_path), scheduler_in=tmp_path) as address:
        refused(r"cannot import the task .*: install attention-lab\[cluster\] on all", scheduler=address)
    monkeypatch.setitem(sys.modules, "distributed", None)
    refused(r"install attention-lab\[cluster\]", scheduler="tcp://127.0.0.1:8786")


def certificates(folder: Path) -> str:
    """A file like deploy/corpus/dask.yaml, with the certificate and the key that it names."""
    made = Security.temporary()
    folder.mkdir()
    (folder / "dask.crt").write_text(made.tls_ca_file)
    (folder / "dask.key").write_text(made.tls_client_key)
    settings = (ROOT / "deploy" / "corpus" / "dask.yaml").read_text()
    (folder / "dask.yaml").write_text(settings.replace("/tls/", f"{folder}/"))
    return str(folder / "dask.yaml")


def test_scheduler_answers_only_who_has_its_certificate(
    wanted: Wanted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = certificates(tmp_path / "ours"), certificates(tmp_path / "theirs")
    heads = str(tmp_path / "heads")
    monkeypatch.setattr(cluster, "_CONNECTION_SECONDS", 1)

    def settings(file: str) -> dask.config.set:
        return dask.config.set(dask.config.merge(dask.config.config, dask.config.collect([file], {})))

    def refused(match: str, scheduler: str) -> None:
        with pytest.raises(ConfigError, match=match):
            scan_on_cluster(wanted.plan, TEXTS, heads, scheduler=scheduler)

    (tmp_path / "cluster").mkdir()
    with running_cluster(tmp_path / "cluster", 1, Journal(tmp_path), DASK_CONFIG=ours) as address:
        assert address.startswith("tls://")
        refused("needs certificates, and Dask's settings name none: set DASK_CONFIG", address)
        refused("does not answer.*, with tls://, the certificates", address.replace("tls", "tcp"))
        with settings(theirs):
            refused("does not answer.*, with tls://, the certificates", address)
        with settings(ours):
            refused("settings require encryption, and tcp://.* has none", address.replace("tls", "tcp"))
            monkeypatch.setattr(cluster, "_CONNECTION_SECONDS", 60)
            scan_on_cluster(wanted.plan, TEXTS, heads, scheduler=address)
    assert table_digest(heads) == wanted.digest
    with settings(ours):
        Path(ours).with_name("dask.key").write_text("a key")
        refused("certificates in Dask's settings cannot be read", address)


def test_no_worker_and_no_scheduler_is_this_process(wanted: Wanted, tmp_path: Path) -> None:
    scan_on_cluster(wanted.plan, TEXTS, str(tmp_path))
    assert table_digest(str(tmp_path)) == wanted.digest
