"""A run over many texts on several processes of this machine, or on machines with Dask: a task is a chunk, and its part is all that remains of it."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import sys
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from attention.base import errors
from attention.base.errors import AttentionError, ConfigError, FileError, ModelError, SizeError
from attention.corpus import scan
from attention.corpus.run_plan import RunPlan
from attention.corpus.scan import PartsFolder, part_name

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from distributed import Client, Security

    from attention.corpus.chunk import Chunk


_CONNECTION_SECONDS = 30  # how long a scheduler may take to answer
_WORKER_SECONDS = 300  # how long a run waits for the first worker, or for another after the last one
_VISIBLE_SECONDS = 60
"""How long a new part may take to be seen on another machine: NFS keeps the list of a folder that long."""
_KILLS = 3
"""A chunk is given up after it has ended this number of workers on this machine; on a scheduler, four by default."""

_CONFIG = {"distributed.admin.large-graph-warning-threshold": "1 GiB"}  # texts are sent with their task
_SAME_EVERYWHERE = ("python", "dask", "distributed", "msgpack", "cloudpickle", "tornado")
_COMPUTING = Lock()
_STOPPED = "The scheduler has stopped: start it again, and run the command again. The parts that are there remain."
_NO_BOUND = 2**40  # MB
_Arguments = tuple[str, str, str, str]  # of `_compute`, which all chunks share: folder, plan, folder of models, device


def scan_on_cluster(
    plan: RunPlan,
    texts: Iterable[str],
    url: str,
    *,
    workers: int = 0,
    scheduler: str = "",
    shard: tuple[int, int] = (0, 1),
    report: Callable[[int], None] = lambda _: None,
    device: str = "",
) -> None:
    """Compute the missing parts of a run on several workers; the parts are the same as those of `scan.scan`.

    A worker that is killed is replaced, and its chunk is computed again. Chunks whose part exists are not sent to anyone.

    Args:
        url: the folder of the run, which every worker must see.
        workers: the number of processes that are started on this machine; they listen to nobody else.
        scheduler: instead of these, the address of a Dask scheduler, such as tcp://10.0.0.2:8786, and all its workers.

    Raises:
        ConfigError: there is no scheduler or worker, or it has other versions of Dask.
        FileError: as for `scan.scan`, or a worker does not see the folder.
        ModelError: as for `scan.scan_part`, or a worker has other packages than the plan.
        SizeError: some chunks have ended several workers, one after the other; all other parts are there.
    """
    from attention.models.library import LIBRARY

    if not (workers or scheduler):
        scan.scan(plan, texts, url, shard, report, device)
        return
    if workers and scheduler:
        raise ConfigError("Choose a number of workers of this machine or the address of a scheduler, not both.")
    folder = PartsFolder(url)
    scan.hold_plan(folder, plan)
    chunks = scan.missing_chunks(folder, plan, texts, shard, report)
    arguments = folder.absolute_url, plan.to_json(), str(LIBRARY.settings.folder.resolve()), device
    if workers:
        _compute_here(arguments, chunks, workers, report)
        return
    with _connected(scheduler) as client:
        _Run(client, folder, arguments, report).compute(chunks)


class _Outcome(NamedTuple):
    """What a task returns: errors are sentences, so that no worker logs a traceback for them."""

    host: str
    worker: str
    error: str = ""
    sentence: str = ""


class _Process:
    """A process of this machine that computes one chunk at a time. Its pipe is all that leads to it, and it ends when that is closed."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self.pipe, other_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(other_end,), daemon=True)
        self._process.start()
        other_end.close()

    def end(self) -> None:
        self.pipe.close()
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection) -> None:
    """Computes chunks until the pipe is closed, and sends their outcomes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all; the command ends its processes
    while True:
        try:
            arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(_compute(*arguments))
        except Exception as error:  # raised where the command runs
            pipe.send(error)


def _compute_here(arguments: _Arguments, chunks: Iterator[Chunk], workers: int, report: Callable[[int], None]) -> None:
    """Computes all chunks on processes of this machine, one at a time on each."""
    again: deque[Chunk] = deque()
    deadly: list[Chunk] = []
    kills = Counter[int]()  # by chunk
    busy: dict[Any, tuple[_Process, Chunk]] = {}  # by pipe
    idle: list[_Process] = []
    try:
        while True:
            while len(busy) < workers and (chunk := again.popleft() if again else next(chunks, None)):
                process = idle.pop() if idle else _Process()
                busy[process.pipe] = process, chunk
                with suppress(OSError):  # it has ended: the next wait says so
                    process.pipe.send((*arguments, chunk.index, chunk.first, chunk.texts))
            if not busy:
                break
            for pipe in wait(busy):
                process, chunk = busy.pop(pipe)
                try:
                    outcome = process.pipe.recv()
                except (EOFError, OSError):  # killed
                    process.end()
                    kills[chunk.index] += 1
                    (deadly if kills[chunk.index] == _KILLS else again).append(chunk)
                    continue
                idle.append(process)
                if isinstance(outcome, Exception):
                    raise outcome
                _check_outcome(outcome)
                report(len(chunk.texts))
    finally:
        for process in (*idle, *(process for process, _ in busy.values())):
            process.end()
    _check_deadly(deadly)


def _check_outcome(outcome: _Outcome) -> None:
    if outcome.error:
        raise getattr(errors, outcome.error)(f"The worker {outcome.worker}: {outcome.sentence}")


def _check_deadly(deadly: Iterable[Chunk]) -> None:
    """Raises an error that names the chunks that have ended their workers, if there are any."""
    names = [
        f"{chunk.index} (texts {chunk.first:,} to {chunk.first + len(chunk.texts) - 1:,})"
        for chunk in sorted(deadly, key=lambda chunk: chunk.index)
    ]
    if names:
        more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
        raise SizeError(
            f"Each of these chunks has ended several workers, one after the other: {', '.join(names[:5])}{more}. The other parts "
            "are there. Probably the memory is too small: give each worker more, start fewer, or set a smaller --max-tokens."
        )


class _Run:
    """The chunks of a run that Dask has now."""

    def __init__(
        self, client: Client, folder: PartsFolder, arguments: _Arguments, report: Callable[[int], None]
    ) -> None:
        from distributed import as_completed

        self.client, self.folder, self.arguments, self.report = client, folder, arguments, report
        self.completed = as_completed(loop=client.loop)
        self.sent: dict[str, Chunk] = {}  # by key of their future
        self.done: list[int] = []
        self.deadly: list[Chunk] = []
        self.hosts = set[str]()  # whose parts are seen here
        self.name = uuid4().hex[:8]  # tasks of another run are others

    def compute(self, chunks: Iterator[Chunk]) -> None:
        from distributed import CancelledError, KilledWorker

        self._send(chunks)
        for future in self._completed():
            chunk = self.sent.pop(future.key)
            try:
                self._receive(chunk, future.result())
            except KilledWorker:
                self.deadly.append(chunk)
            except CancelledError as error:
                raise ConfigError(_STOPPED) from error
            except (ImportError, RuntimeError) as error:
                if isinstance(error, RuntimeError) and "deserialization" not in str(error):
                    raise
                raise ConfigError(
                    f"The scheduler or a worker cannot import the task ({str(error).splitlines()[0]}): install attention-lab[cluster] "
                    "on all machines, or start them with `python -m dask` in the folder of the package."
                ) from error
            del future  # the scheduler forgets the chunk
            self._send(chunks)
        _check_deadly(self.deadly)
        self._check_visible(self.done, "")

    def _completed(self) -> Iterator[Any]:
        seen = checked = time.monotonic()
        while self.sent:
            if self.completed.has_ready():
                yield next(self.completed)
                seen = time.monotonic()
                continue
            # next() would wait for ever, since Dask does not start a worker again that dies as it starts
            time.sleep(0.01)
            if (now := time.monotonic()) - checked > 2:
                checked = now
                if self._count_workers():
                    seen = now
                elif now - seen > _WORKER_SECONDS:
                    raise ConfigError(
                        f"There has been no worker for {_WORKER_SECONDS} seconds: start some, and run the command again. "
                        "The parts that are there remain."
                    )

    def _count_workers(self) -> int:
        try:
            return len(self.client.nthreads())
        except (OSError, RuntimeError) as error:  # Dask's CommClosedError, or a client that has closed itself
            raise ConfigError(_STOPPED) from error

    def _send(self, chunks: Iterator[Chunk]) -> None:
        """Send a chunk for every worker, and no more: Dask suspects all chunks that a worker has when it dies."""
        wanted = max(1, self._count_workers())
        while len(self.sent) < wanted and (chunk := next(chunks, None)):
            key = f"chunk-{self.name}-{chunk.index}"
            future = self.client.submit(
                _compute_on_dask, *self.arguments, chunk.index, chunk.first, chunk.texts, key=key, pure=False
            )
            self.sent[key] = chunk
            self.completed.add(future)

    def _receive(self, chunk: Chunk, outcome: _Outcome) -> None:
        _check_outcome(outcome)
        self.done.append(chunk.index)
        if outcome.host not in self.hosts:  # one list of the folder for each machine, and one at the end
            self._check_visible([chunk.index], outcome.host)
            self.hosts.add(outcome.host)
        self.report(len(chunk.texts))

    def _check_visible(self, indices: list[int], host: str) -> None:
        until = time.monotonic() + _VISIBLE_SECONDS
        while missing := set(indices) - self.folder.present():
            if time.monotonic() >= until:
                who = f"The machine {host} has" if host else "The workers have"
                raise FileError(
                    f"{who} written {part_name(min(missing))}, and {self.folder.url} has no such file here: "
                    "choose a folder that all machines share under the same path, or a URL such as s3://bucket/heads."
                )
            time.sleep(0.2)


@contextmanager
def _connected(scheduler: str) -> Iterator[Client]:
    try:
        import dask.config
        from distributed import Client
        from distributed.versions import VersionMismatchWarning
    except ImportError as error:
        raise ConfigError(
            f"A scheduler needs Dask, which is not installed here ({error}): install attention-lab[cluster], or use --workers."
        ) from error
    with dask.config.set(_CONFIG), warnings.catch_warnings():
        warnings.simplefilter("ignore", VersionMismatchWarning)  # `_check_workers` says it in a sentence
        security = _security(scheduler)
        try:
            client = Client(scheduler, timeout=_CONNECTION_SECONDS, set_as_default=False, security=security)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"The scheduler {scheduler[:80]} does not answer: start `dask scheduler`, and check the address, the network and, "
                "with tls://, the certificates."
            ) from error
        with client:
            _check_workers(client, scheduler)
            yield client


def _security(scheduler: str) -> Security:
    """The certificates in Dask's settings, if they are what this address needs."""
    from distributed import Security

    address = re.fullmatch(r"(?:(tcp|tls|ws|wss)://)?[^/\s]+:\d{1,5}", scheduler)
    if not address:  # of which Dask would speak only after a minute
        raise ConfigError(
            f"A scheduler has an address such as tcp://10.0.0.2:8786; got {scheduler[:80]}: copy the one that `dask scheduler` prints."
        )
    try:
        security = Security()
        has_certificates = security.get_connection_args("client")["ssl_context"] is not None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The certificates in Dask's settings cannot be read ({error}): check the files that DASK_CONFIG names."
        ) from error
    if address[1] in ("tls", "wss") and not has_certificates:
        raise ConfigError(
            f"{scheduler[:80]} needs certificates, and Dask's settings name none: set DASK_CONFIG to a file such as deploy/corpus/dask.yaml."
        )
    if address[1] not in ("tls", "wss") and security.require_encryption:
        raise ConfigError(
            f"Dask's settings require encryption, and {scheduler[:80]} has none: write tls:// if the scheduler has certificates."
        )
    return security


def _check_workers(client: Client, scheduler: str) -> None:
    """Wait for a worker, and check the versions of all."""
    try:
        client.wait_for_workers(1, timeout=_WORKER_SECONDS)
    except TimeoutError as error:
        raise ConfigError(
            f"The scheduler {scheduler[:80]} has no workers: start some with `dask worker {scheduler[:80]} --nthreads 1`."
        ) from error
    versions: Any = client.get_versions()
    ours = versions["client"]["packages"]
    for name, theirs in (("The scheduler", versions["scheduler"]), *versions["workers"].items()):
        for package in _SAME_EVERYWHERE:
            version, expected = (str(packages.get(package)) for packages in (theirs["packages"], ours))
            if package == "python":
                version, expected = (".".join(text.split(".")[:2]) for text in (version, expected))
            if version != expected:
                who = name if name == "The scheduler" else f"The worker {name}"
                raise ConfigError(
                    f"{who} has {package} {version}, and this process has {expected}: install the same versions everywhere, "
                    "as the image does."
                )


def _compute_on_dask(*arguments: Any) -> _Outcome:
    from distributed import get_worker

    return _compute(*arguments)._replace(worker=str(get_worker().address))


def _compute(
    url: str, plan_json: str, models: str, device: str, index: int, first: int, texts: tuple[str, ...]
) -> _Outcome:
    """Compute a chunk on a worker. Everything is a plain value, so that the scheduler need not import torch."""
    host, worker = socket.gethostname(), str(os.getpid())
    try:
        plan = RunPlan.from_json(plan_json)
        _check_packages(plan)
        with _COMPUTING:  # torch's number of threads is one for the process
            _prepare_worker(models)  # before anything is imported that reads HF_HUB_OFFLINE
            from attention.corpus.chunk import Chunk

            scan.scan_part(url, plan, Chunk(index, first, texts), device)
    except AttentionError as error:
        return _Outcome(host, worker, type(error).__name__, str(error))
    return _Outcome(host, worker)


def _check_packages(plan: RunPlan) -> None:
    for name, version in scan.versions().items():
        if plan.versions.get(name, version) != version:
            raise ModelError(
                f"It has {name} {version}, and the plan {plan.versions[name]}: install the same versions everywhere, as the image does."
            )


@cache
def _prepare_worker(models: str) -> None:
    """Let this worker load what the command may load, from the folder of the client where this machine has it; otherwise from its own."""
    folder = Path(models)
    hold_local_models(folder if folder.is_dir() else None)
    # Dask's nanny sets MALLOC_TRIM_THRESHOLD_=65536 for its workers: each tensor is then new memory of the system, and a text takes nearly
    # twice as long. So glibc keeps freed memory as it does by itself after a while.
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(mmap_threshold, 2**25)  # the largest that glibc chooses
        mallopt(trim_threshold, 2**26)


def hold_local_models(folder: Path | None = None) -> None:
    """Let this process load any model of this machine: a folder, a name in the folder of models, or one in the cache of the hub.

    Args:
        folder: of the models; None: LAB_MODELS, or `models` in the current folder.
    """
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    from attention.models.library import LIBRARY, Settings

    wanted = Settings(folder or Path(os.environ.get("LAB_MODELS") or "models"), most_mb=_NO_BOUND, kept_mb=_NO_BOUND)
    if LIBRARY.settings != wanted:  # new settings drop the models that are loaded
        LIBRARY.hold(wanted)
