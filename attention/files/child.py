"""A function in a process of its own, within limits of memory and time; only bytes come back.

    content = in_child(tensors_of, path, n_bytes=2**30, seconds=60)

A reader that could take all memory, or be made to run foreign code, cannot take this process with it. Nothing that the child writes is unpickled: its
result is a file of at most `n_bytes`, which the caller reads like any file from a stranger.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from time import monotonic

from attention.base.errors import AttentionError, FileError
from attention.base.progress import current_callback, report_progress_to

_RESULT, _REFUSED = b"=", b"!"
"""The first byte of what the child writes: the result follows, or the sentence of a `FileError`."""
_NO_MEMORY = 42  # exit code
_LONGEST_SENTENCE = 2000
_POLL_SECONDS = 0.05
_PIPE_BYTES = 2**16  # of reports that are read at a time
# -I: neither the current folder nor variables of Python decide what is imported, only the path of this process.
_START = "import json, sys; call = json.loads(sys.argv[1]); sys.path[:] = call['path']; from attention.files.child import _run; _run(call)"


class ChildError(AttentionError):
    """A child process without a result; the message is the end of a sentence about its work, such as "took more than 60 seconds"."""


def in_child(function: Callable[..., bytes], *args: str | float, n_bytes: int, seconds: float) -> bytes:
    """What a function returns in a process of its own.

    What it reports of its progress is forwarded to the current callback. An exception of the callback ends the child.

    Args:
        function: a function at the top of a module. What its module imports counts neither as memory nor as processor time of the function.
        args: texts and numbers.
        n_bytes: of memory that the function may take beyond its module and, on every system, of its result. Linux counts memory, others do not.
        seconds: of time, and of processor time on Linux and macOS.

    Raises:
        ChildError: the function took more, or its process ended without a result.
        FileError: the function raised it.
    """
    call = {
        "path": [str(Path(entry).absolute()) for entry in sys.path],
        "function": [function.__module__, function.__qualname__],
        "args": args,
        "limits": [n_bytes, seconds],
    }
    command = [sys.executable, "-I", "-c", _START, json.dumps(call)]
    # One thread: each one more would take memory for a stack, and wait for the same disk.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with (
        tempfile.TemporaryFile() as result,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=result, stderr=subprocess.PIPE, env=environment
        ) as process,
    ):
        try:
            code = _wait(process, seconds)
        finally:
            process.kill()
        result.seek(0)
        if code == 0 and (kind := result.read(1)) == _RESULT:
            return result.read(n_bytes)
        if code == 0 and kind == _REFUSED:
            sentence = result.read(_LONGEST_SENTENCE).decode(errors="replace")
            raise FileError("".join(character if character.isprintable() else "�" for character in sentence))
    if code == _NO_MEMORY:
        raise ChildError(f"needs more than {n_bytes / 2**20:,.0f} MB of memory")
    if code is None or code == -24:  # SIGXCPU
        raise ChildError(f"takes more than {seconds:,.0f} seconds")
    raise ChildError(f"ended its process (exit code {code})")


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The exit code; None if the time is over. Forwards the last report of each moment, and reads no more than a bounded part of a flood."""
    assert process.stderr is not None
    callback, end = current_callback(), monotonic() + seconds
    os.set_blocking(process.stderr.fileno(), False)
    while monotonic() < end:
        with suppress(subprocess.TimeoutExpired):  # it goes on: its progress is read
            return process.wait(_POLL_SECONDS)
        lines = (process.stderr.read(_PIPE_BYTES) or b"").decode(errors="replace").splitlines()
        for line in lines[-1:]:
            with suppress(ValueError, TypeError):  # a line that is no progress, such as a warning
                text, fraction = json.loads(line)
                if callback and isinstance(text, str) and 0 <= fraction <= 1:
                    callback(text[:200], fraction)
    return None


def _run(call: dict[str, list[str | float]]) -> None:
    """The child: calls the function within the limits, and writes its result."""
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no result
    module, name = map(str, call["function"])
    function = getattr(import_module(module), name)
    _set_limits(*map(float, call["limits"]))
    try:
        with report_progress_to(_report):
            parts = _RESULT, function(*call["args"])
    except FileError as error:
        parts = _REFUSED, str(error).encode()[:_LONGEST_SENTENCE]
    except MemoryError:
        os._exit(_NO_MEMORY)
    try:
        stream.writelines(parts)
        stream.flush()
    except OSError:  # larger than allowed, or than the disk
        os._exit(_NO_MEMORY)
    os._exit(0)  # no destructor of foreign objects runs


def _report(text: str, fraction: float) -> None:
    print(json.dumps([text, fraction]), file=sys.stderr, flush=True)


def _set_limits(n_bytes: float, seconds: float) -> None:
    """The limits of this process from now on, as far as the system has them."""
    try:
        import resource
    except ImportError:  # Windows
        return
    usage = resource.getrusage(resource.RUSAGE_SELF)
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: int(n_bytes) + 1,
        resource.RLIMIT_CPU: int(usage.ru_utime + usage.ru_stime + seconds) + 1,
    }
    with suppress(OSError):  # only Linux says what a process takes; elsewhere, time and the result are limited
        # Not RLIMIT_AS: torch reserves gigabytes of addresses that it never uses.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        limits[resource.RLIMIT_DATA] = int(status.split("VmData:")[1].split()[0]) * 2**10 + int(n_bytes)
    for limit, most in limits.items():
        allowed = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (most if allowed == resource.RLIM_INFINITY else min(most, allowed),) * 2)
