"""Work in a process of its own, within limits of memory and time, and ended when nobody waits for it.

    for progress in jobs.stream(sweep_heads, model): ...
    content = jobs.read_foreign(tensors_of, path, n_bytes=2**30, seconds=60)

On Linux, one idle process imports what jobs need, and each job is a fork of it: it begins after 20 ms, and what it takes is given back at its end. If the system
has no memory left, it ends a job and not this process. Elsewhere each job imports everything anew. A server with little memory is itself what the idle process
is forked from (`share`), so that what both import is in memory once.
What a job may take is for what it computes: its imports and the weights that it is lent are not counted.
A job's function is at the top of a module. What `read_foreign` returns is bytes, which nobody unpickles: its job may have been made to run foreign code.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import gc
import io
import json
import os
import pickle
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from multiprocessing.connection import wait
from pathlib import Path
from threading import Lock, Thread, Timer
from time import monotonic
from typing import Any, BinaryIO, NoReturn, TypeVar

from attention.base import cache, sandbox
from attention.base.errors import AttentionError, FileError
from attention.base.progress import current_callback, current_watcher, report_progress_to

if sys.platform != "win32":
    import resource

_Result = TypeVar("_Result")

N_BYTES, _SECONDS = 2**30, 600.0
"""What a job may take, unless it is told otherwise."""
POLL_SECONDS = 0.2
"""The time after which a waiting job asks again whether it is still wanted."""
_IDLE_SECONDS = 300.0  # after which the process that forks jobs ends
_VALUE, _PROGRESS, _MODULES, _ERROR, _END = b"vpme."
"""The kinds of frames that a job writes. Each has the length of its content, and the content."""
_HEAD = struct.Struct("<BQ")
_LONGEST_SENTENCE = 2000
_LONGEST_PROGRESS = 1000
_NO_MEMORY = 42  # exit code
# How torch and the system's linker say it; Python raises a MemoryError or an OSError with a number.
_NO_MEMORY_WORDS = re.compile("allocate memory|failed to map segment")
_MOST_PRINTED = 2**16  # bytes of one job in the log
_NICE = 10  # a server draws pages first
_CAN_FORK = sys.platform == "linux"
# -I: neither the current folder nor variables of Python decide what is imported, only the path of this process.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from attention.base import jobs; jobs._serve(sys.argv[2])"
)
_PIPE_BYTES = 2**20
_CODE = struct.Struct("<i")
REDUCERS: list[Callable[[Any], Any]] = []
"""Functions like `pickle.Pickler.reducer_override`, which name what is shared with jobs."""


class JobError(AttentionError):
    """A job without a result; the message is the end of a sentence about it, such as "takes more than 60 seconds"."""


def stream(
    function: Callable[..., Iterator[_Result]],
    *args: Any,
    n_bytes: int = N_BYTES,
    seconds: float = _SECONDS,
    keep: bool = False,
    modules: Sequence[str] = (),
) -> Iterator[_Result]:
    """What a function yields in a process of its own. Closing the iterator ends the process.

    What it reports of its progress is forwarded to the current callback, which is also called when nothing new is known; an exception of the callback ends the job.

    Args:
        function: at the top of a module.
        args: what pickle can copy. Tensors of a shared model are not copied.
        n_bytes: of memory that the function may take beyond its modules. Linux counts memory, others do not.
        seconds: of time, and of processor time on Linux and macOS.
        keep: whether the small values that the function adds to the cache are kept in the cache of this process.
        modules: that it imports later, besides its own. Those of all jobs so far are imported before it begins.

    Raises:
        JobError: the function took more, or its process ended without a result.
        Exception: the function raised it.
    """
    for kind, content in _frames(function, args, n_bytes, seconds, foreign=False, keep=keep, modules=modules):
        if kind == _ERROR:
            raise pickle.loads(content)
        value, kept = pickle.loads(content)
        cache.CACHE.adopt(dict(map(pickle.loads, kept)))
        yield value


def read_foreign(
    function: Callable[..., bytes], *args: str | float | bytes, n_bytes: int, seconds: float, files: Sequence[str] = ()
) -> bytes:
    """The bytes that a function makes of what a stranger wrote, in a process of its own, which has no network and no files but these.

    The other arguments are those of `stream`. Where the system cannot take the network or the files away, the log says so once.

    Raises:
        JobError: as for `stream`, or the result is larger than `n_bytes`.
        FileError: the function raised it.
    """
    _say_what_is_missing()
    ((kind, content),) = _frames(function, args, n_bytes, seconds, foreign=True, files=files)
    if kind != _ERROR:
        return content
    sentence = content[:_LONGEST_SENTENCE].decode(errors="replace")
    raise FileError("".join(character if character.isprintable() else "�" for character in sentence))


@functools.cache
def _say_what_is_missing() -> None:
    if sandbox.MISSING:
        print(
            f"This system cannot take {sandbox.MISSING} away from a process: those that read .pt files and results keep the rights of this user.",
            file=sys.stderr,
            flush=True,
        )


def pickled(value: Any) -> bytes:
    """A value as a job reads it. What is shared with jobs is named, not copied."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def begin(modules: Sequence[str]) -> None:
    """Starts the process that forks jobs, unless there is one or none can be; meanwhile it imports these modules, which take seconds.

    In a job it does nothing: a job that shows a model would import for the next one that never comes.
    """
    if _CAN_FORK and not _FORKER.is_in_job:
        _FORKER.begin(modules)


def share(modules: Sequence[str]) -> None:
    """Imports these modules here, and forks the process that forks jobs from this one, where processes can fork.

    Call it when a server begins: other threads must not do more than wait, since a lock that one holds is never released in the fork. Those of
    Streamlit look at the files of its settings.
    """
    if _CAN_FORK:
        for module in modules:
            import_module(module)
        _FORKER.share(modules)


def import_for_jobs(modules: Sequence[str]) -> None:
    """Waits until the process that forks jobs has imported these modules, so that its memory is known before a job is granted any.

    Raises:
        JobError: that process ended.
    """
    if _CAN_FORK and not _FORKER.has_imported(modules):
        for _ in stream(iter, (), modules=modules):  # a job that does nothing begins when they are imported
            pass


def forker() -> int | None:
    """The number of the process that forks jobs; None if there is none."""
    return None if _FORKER.process is None else _FORKER.process.pid


def is_running() -> bool:
    """Whether there is a job."""
    return _FORKER.running > 0


# In the process that waits for a job.


def _frames(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    n_bytes: int,
    seconds: float,
    foreign: bool,
    keep: bool = False,
    modules: Sequence[str] = (),
    files: Sequence[str] = (),
) -> Iterator[tuple[int, bytes]]:
    end, is_wanted = monotonic() + seconds, current_watcher().is_connected
    modules = [function.__module__, *modules]
    with ExitStack() as stack:
        request = stack.enter_context(_memory_file() if _CAN_FORK else tempfile.TemporaryFile())  # noqa: SIM115  # it is entered
        _Pickler(request).dump((modules, n_bytes, seconds, foreign, keep, cache.first_uid_of_job(), files))
        _Pickler(request).dump((function, args))
        request.seek(0)
        begun = _FORKER.job(request, modules) if _CAN_FORK else _process(request)
        output, exit_code = stack.enter_context(begun)
        buffer, progress = bytearray(), b""
        while True:
            while (frame := _take(buffer)) is not None:
                kind, content = frame
                if kind == _PROGRESS:
                    progress = content
                    continue
                _forward(progress)  # of many, the last
                if kind == _END:
                    return
                if kind == _MODULES and not foreign:
                    _FORKER.import_modules(content)
                elif kind in (_VALUE, _ERROR):
                    yield kind, content
            if monotonic() > end:
                raise _too_long(seconds)
            if not is_wanted():
                raise JobError("is not wanted any more")
            _forward(progress)
            if not wait([output], POLL_SECONDS):
                continue
            read = output.recv(_PIPE_BYTES)
            buffer += read
            if foreign and len(buffer) > n_bytes + _HEAD.size:
                raise _too_large(n_bytes)
            if not read:
                break
        code = exit_code()
        if code == -signal.SIGXCPU:
            raise _too_long(seconds)
        if code in (_NO_MEMORY, -signal.SIGKILL):  # the second by the system
            raise _too_large(n_bytes)
        raise JobError(f"ended its process (exit code {code})")


def _too_large(n_bytes: int) -> JobError:
    return JobError(f"needs more than {n_bytes / 2**20:,.0f} MB of memory")


def _too_long(seconds: float) -> JobError:
    return JobError(f"takes more than {seconds:,.0f} seconds")


def _take(buffer: bytearray) -> tuple[int, bytes] | None:
    if len(buffer) < _HEAD.size:
        return None
    kind, length = _HEAD.unpack_from(buffer)
    if len(buffer) < _HEAD.size + length:
        return None
    content = bytes(memoryview(buffer)[_HEAD.size : _HEAD.size + length])
    del buffer[: _HEAD.size + length]
    return kind, content


def _forward(progress: bytes) -> None:
    """Gives the callback of this thread what a job reported last."""
    if (callback := current_callback()) is None or not progress:
        return
    try:
        text, fraction = json.loads(progress[:_LONGEST_PROGRESS])
        is_progress = isinstance(text, str) and 0 <= fraction <= 1
    except (ValueError, TypeError):  # of a foreign job
        return
    if is_progress:
        callback(text[:200], fraction)


class _Pickler(pickle.Pickler):
    """Pickles what a job needs. What is shared with jobs is named, not copied."""

    def reducer_override(self, value: Any) -> Any:
        return next((named for reduce in REDUCERS if (named := reduce(value)) is not NotImplemented), NotImplemented)


_Job = tuple[socket.socket, Callable[[], int | None]]
"""A running job: what it writes, and its exit code when that has ended."""


def _memory_file() -> BinaryIO:
    return os.fdopen(os.memfd_create("job"), "w+b")


def _command(*parts: str) -> list[str]:
    return [sys.executable, "-I", "-c", _START, json.dumps([str(Path(entry).absolute()) for entry in sys.path]), *parts]


def _environment() -> dict[str, str]:
    # One thread: each one more would take memory for a stack, and a fork has only one. pyarrow's own allocators reserve a gigabyte.
    return os.environ | {"OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


@contextmanager
def _process(request: BinaryIO) -> Iterator[_Job]:
    """A job in a process that imports everything anew, where processes cannot fork."""
    output, theirs = socket.socketpair()
    with (
        output,
        subprocess.Popen(_command("once"), stdin=request, stdout=subprocess.PIPE, env=_environment()) as process,
    ):

        def copy() -> None:
            with theirs, theirs.makefile("wb") as file, suppress(OSError, ValueError):
                shutil.copyfileobj(process.stdout, file)  # type: ignore[arg-type]  # it is a pipe

        Thread(target=copy, daemon=True).start()  # a pipe cannot be waited for on Windows
        try:
            yield output, process.wait
        finally:
            process.kill()


class _Forked:
    """A fork of this process, with the methods of `subprocess.Popen` that are used here."""

    def __init__(self, pid: int) -> None:
        self.pid, self._has_ended = pid, False

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int | None:
        return self._wait(0)

    def kill(self) -> None:
        if self.poll() is None:  # its number may be another process's otherwise
            os.kill(self.pid, signal.SIGKILL)

    def _wait(self, options: int) -> int | None:
        if not self._has_ended:
            self._has_ended = bool(os.waitpid(self.pid, options)[0])
        return 0 if self._has_ended else None


class _Forker:
    def __init__(self) -> None:
        self._lock, self.is_in_job = Lock(), False
        self.process: subprocess.Popen[bytes] | _Forked | None = None
        self._control: socket.socket | None = None
        self.running = 0
        self._timer: Timer | None = None
        self._imported: set[str] = set()  # what the process has imported for a job that has begun

    @contextmanager
    def job(self, request: BinaryIO, modules: Sequence[str]) -> Iterator[_Job]:
        """A new job. It is killed at the end of the block."""
        (output, of_job), (line, of_forker) = socket.socketpair(), socket.socketpair()

        def exit_code() -> int | None:
            code = line.recv(_CODE.size)  # empty: the process that forks has ended, too
            return int(_CODE.unpack(code)[0]) if code else None

        with output, line:
            with of_job, of_forker:
                self._send(modules, [request.fileno(), of_job.fileno(), of_forker.fileno()])
            try:
                yield output, exit_code
                self._imported.update(modules)
            finally:
                self._end_one()

    def share(self, modules: Sequence[str]) -> None:
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        gc.collect()
        gc.freeze()  # a later collection would write to what both share
        if not (pid := os.fork()):
            _begin_forking(theirs.fileno())
        theirs.close()
        self._control, self.process = control, _Forked(pid)
        self._imported.update(modules)

    def has_imported(self, modules: Sequence[str]) -> bool:
        with self._lock:
            return self.process is not None and self.process.poll() is None and self._imported.issuperset(modules)

    def begin(self, modules: Sequence[str]) -> None:
        with self._lock, suppress(OSError):
            if self.process is None:
                self._begun().send(json.dumps(list(modules)).encode())
                self._end_later()

    def import_modules(self, names: bytes) -> None:
        with self._lock, suppress(OSError):
            if self._control is not None:
                self._control.send(names)

    def _send(self, modules: Sequence[str], fds: list[int]) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            for may_have_ended in (True, False):
                with suppress(*[OSError] * may_have_ended):  # by the system, or by somebody
                    socket.send_fds(self._begun(), [json.dumps(modules).encode()], fds)
                    self.running += 1
                    return

    def _begun(self) -> socket.socket:
        """The line to the process, which begins if there is none."""
        if self._control is None or self.process is None or self.process.poll() is not None:
            self._stop()
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                command, env = _command("fork"), _environment()
                self.process = subprocess.Popen(
                    command, stdin=theirs.fileno(), stdout=2, env=env, start_new_session=True
                )
        return self._control

    def _end_one(self) -> None:
        with self._lock:
            self.running -= 1
            if not self.running:
                self._end_later()

    def _end_later(self) -> None:
        # The end of a fork would give little memory back, and the next process would share nothing.
        if isinstance(self.process, _Forked):
            return
        self._timer = Timer(_IDLE_SECONDS, self._end_if_idle)
        self._timer.daemon = True
        self._timer.start()

    def _end_if_idle(self) -> None:
        with self._lock:
            if not self.running:
                self._stop()

    def _stop(self) -> None:
        if self.process is not None and self._control is not None:
            self._control.close()
            self.process.kill()  # and the system kills its jobs
            self.process.wait()
        self.process = self._control = None
        self._imported.clear()


_FORKER = _Forker()


# In the process that forks jobs, and in those of the jobs.


def _begin_forking(control: int) -> NoReturn:
    """What the fork of a server runs: as in a process of its own, but with what the server has imported."""
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(control, 0)
        os.dup2(2, 1)
        os.closerange(3, 2**16)
        os.environ.update(_environment())
        _serve("fork")
    except BaseException:  # as in `_begin`
        traceback.print_exc()
    finally:
        os._exit(0)


def _serve(kind: str) -> None:
    """What `_START` runs: forks jobs until the other process ends; or runs one."""
    if kind == "once":
        with open(0, "rb", closefd=False) as request, os.fdopen(os.dup(1), "wb") as output:
            os.dup2(2, 1)  # what a library prints is no result
            _run(request, output)
    control = socket.socket(fileno=0)
    # The process of a job and its line, by the pipe into which that process alone prints.
    lines: dict[int, tuple[int, socket.socket]] = {}
    unprinted: dict[int, int] = {}
    while True:
        ready = wait([control, *lines, *(line for _, line in lines.values())])
        for descriptor, (pid, line) in list(lines.items()):
            if descriptor in ready and (printed := os.read(descriptor, _MOST_PRINTED)):
                unprinted[descriptor] = _print(printed, unprinted[descriptor])
            elif descriptor in ready:  # it has ended
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with suppress(OSError):  # nobody waits for it
                    line.send(_CODE.pack(code), socket.MSG_DONTWAIT)
                os.close(descriptor)
                line.close()
                del lines[descriptor]
            elif line in ready:  # closed: nobody waits any more
                os.kill(pid, signal.SIGKILL)
        if control in ready:
            modules, fds, _, _ = socket.recv_fds(control, _PIPE_BYTES, 3)
            if not modules:
                break
            for module in json.loads(modules):
                with suppress(Exception):  # the job raises it
                    import_module(module)
            if not fds:
                continue
            *of_job, of_line = fds
            lives, prints = os.pipe()  # not every container has descriptors of processes
            of_job.append(prints)
            if not (pid := os.fork()):
                _begin(*of_job)
            for file in of_job:
                os.close(file)
            lines[lives] = pid, socket.socket(fileno=of_line)
            unprinted[lives] = _MOST_PRINTED
    for pid, _ in lines.values():
        os.kill(pid, signal.SIGKILL)


def _print(printed: bytes, most: int) -> int:
    """Writes into the log what a job prints, unless that is more than its share; returns how many bytes are left of it."""
    if most:
        end = b"" if len(printed) < most else b"\n(and more, which is left out)\n"
        sys.stderr.buffer.write(printed[:most] + end)
        sys.stderr.flush()
    return max(0, most - len(printed))


def _begin(request: int, output: int, prints: int) -> NoReturn:
    try:
        os.dup2(prints, 1)
        os.dup2(prints, 2)
        low, high = sorted((request, output))
        for first, end in ((3, low), (low + 1, high), (high + 1, 2**16)):  # not those of other jobs
            os.closerange(first, end)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        _end_with_parent()
        os.nice(_NICE)
        with suppress(OSError):  # not every container allows it
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")  # ended first if memory is short
        _run(os.fdopen(request, "rb"), os.fdopen(output, "wb"))
    except BaseException:  # a process that forked must not go on as the other one
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)


def _end_with_parent() -> None:
    if _CAN_FORK:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _run(request: BinaryIO, output: BinaryIO) -> NoReturn:
    """Runs the job of a request and ends this process. No destructor of foreign objects runs."""
    modules, n_bytes, seconds, foreign, keep, first_uid, files = pickle.load(request)
    _FORKER.is_in_job = True

    def write(kind: int, content: bytes) -> None:
        output.write(_HEAD.pack(kind, len(content)))
        output.write(content)
        output.flush()

    def teach() -> None:
        """Says which modules the next job is to begin with."""
        if new := sys.modules.keys() - known:
            write(_MODULES, json.dumps([name for name in sys.modules if name in new]).encode())
            known.update(new)

    known = set(sys.modules)
    try:
        for module in modules:
            import_module(module)
        known = set(sys.modules)
        cache.start_uids(first_uid)
        _set_limits(n_bytes, seconds, foreign)
        if foreign:
            sandbox.enter(files)
            _end_with_parent()  # other rights than before end that
        function, args = pickle.load(request)
        with report_progress_to(lambda text, fraction: write(_PROGRESS, json.dumps([text, fraction]).encode())):
            if foreign:
                write(_VALUE, function(*args))
            else:
                sent: set[Hashable] = set()
                for value in function(*args):
                    new = cache.CACHE.small_entries(sent) if keep else {}
                    sent |= new.keys()
                    kept = [content for entry in new.items() if (content := _pickled_or_none(entry)) is not None]
                    write(_VALUE, pickle.dumps((value, kept)))
                    teach()
        write(_END, b"")
    except BrokenPipeError:  # nobody waits any more
        os._exit(0)
    except Exception as error:  # it is raised where the job is waited for
        with uncounted(), suppress(MemoryError):
            teach()
        if _is_of_memory(error):
            os._exit(_NO_MEMORY)
        if foreign:
            if not isinstance(error, FileError):
                raise
            write(_ERROR, str(error).encode()[:_LONGEST_SENTENCE])
        else:
            write(_ERROR, _pickled_error(error))
        write(_END, b"")
    os._exit(0)


def _is_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or the one that caused it, says that there is no memory left."""
    while error is not None:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) in (errno.ENOMEM, errno.EFBIG):
            return True
        if _NO_MEMORY_WORDS.search(str(error)):
            return True
        error = error.__cause__
    return False


def _pickled_or_none(entry: object) -> bytes | None:
    """A value of the cache with its key; None for a value that only the process that made it can hold, such as a run with its gradients."""
    try:
        return pickle.dumps(entry)
    except Exception:  # of any class
        return None


def _pickled_error(error: Exception) -> bytes:
    if not isinstance(error, AttentionError):
        traceback.print_exception(error)  # for the log: a pickle has no traceback
    try:
        content = pickle.dumps(error)
        pickle.loads(content)
    except Exception:  # of any library
        return pickle.dumps(JobError(f"failed with {type(error).__name__}: {error}"))
    return content


def _set_limits(n_bytes: float, seconds: float, foreign: bool) -> None:
    if sys.platform == "win32":
        return
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_CPU, int(usage.ru_utime + usage.ru_stime + seconds) + 1)
    if _CAN_FORK:  # only Linux says what a process takes; elsewhere, time and the result are limited
        # Of a file, and so of memory that has a descriptor, which no other limit counts. What reads foreign files writes none.
        _limit(resource.RLIMIT_FSIZE, 0 if foreign else int(n_bytes))
        # Not RLIMIT_AS: torch reserves gigabytes of addresses that it never uses.
        _limit(resource.RLIMIT_DATA, _data_bytes() + int(n_bytes), is_final=foreign)
        if not foreign:
            for loader, method in ((SourceFileLoader, "exec_module"), (ExtensionFileLoader, "create_module")):
                setattr(loader, method, uncounted()(getattr(loader, method)))


def _limit(kind: int, most: int, is_final: bool = True) -> None:
    allowed = resource.getrlimit(kind)[1]
    most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
    resource.setrlimit(kind, (most, most if is_final else allowed))


def _data_bytes() -> int:
    """The memory that this process may write to and shares with nobody, as the limit counts it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmData:")[1].split()[0]) * 2**10


@contextmanager
def uncounted() -> Iterator[None]:
    """Memory that this block takes in a job, such as lent weights or an import, is not counted as what the job computes.

    An import that lacks memory would break modules, or wait without end, as OpenBLAS does. Elsewhere, and in a foreign job, the block changes nothing.
    """
    if not _CAN_FORK:
        yield
        return
    most, allowed = resource.getrlimit(resource.RLIMIT_DATA)
    if most == allowed:  # no job, a foreign one, or a block inside of another
        yield
        return
    before = _data_bytes()
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
    try:
        yield
    finally:
        taken = max(0, _data_bytes() - before)
        resource.setrlimit(resource.RLIMIT_DATA, (most + taken, allowed))
