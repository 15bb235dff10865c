"""What the tests run in a child process."""

from __future__ import annotations

import mmap
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attention import Model
from attention.base import cache, jobs
from attention.base.errors import ConfigError, FileError
from attention.base.progress import current_callback
from attention.models.library import LIBRARY


def once(function: Callable[..., Any], *args: Any) -> Iterator[Any]:
    yield function(*args)


def repeated(text: str, times: int) -> bytes:
    print("a library prints this")
    return text.encode() * times


def refused(sentence: str) -> bytes:
    raise FileError(sentence)


def takes(n_bytes: int) -> bytes:
    return str(len(bytearray(n_bytes))).encode()


def waits(seconds: float) -> bytes:
    time.sleep(seconds)
    return b""


def computes() -> bytes:
    while True:
        pass


def aborts() -> bytes:
    os.abort()


def reports(lines: int) -> bytes:
    callback = current_callback()
    assert callback is not None
    sys.stderr.write("noise\n[1]\nnull\n[{}, 2]\n" * lines)
    callback("half", 0.5)
    time.sleep(1)
    return b"done"


def three_ids() -> list[int]:
    return [cache.new_uid() for _ in range(3)]


def refuses(sentence: str) -> None:
    raise ConfigError(sentence)


def divides() -> float:
    return 1 / 0


def raises_what_no_pickle_holds() -> None:
    class Unpicklable(Exception):  # noqa: N818  # its name is what the test looks for
        pass

    raise Unpicklable("no pickle")


def kills_itself(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def goes_on() -> Iterator[int]:
    while True:
        yield os.getpid()
        time.sleep(0.05)


def priorities() -> tuple[int, int]:
    return int(Path("/proc/self/oom_score_adj").read_text()), os.nice(0)


def weights_of(source: Model) -> Iterator[list[Tensor]]:
    yield [layer["weights"] for layer in source.trace().layers]


def erases(name: str) -> Iterator[float]:
    model = LIBRARY.get(name).model
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    yield float(sum(weight.abs().sum() for weight in model.parameters()))


def all_of(function: Callable[..., Any], *args: Any) -> Iterator[Any]:
    yield function(*args)


def begins() -> int | None:
    jobs.begin(["json"])
    return jobs.forker()


def data_limit() -> Iterator[int]:
    yield resource.getrlimit(resource.RLIMIT_DATA)[0]


def imports(name: str) -> bool:
    """Whether a module was there before this import."""
    was_there = name in sys.modules
    import_module(name)
    return was_there


def imports_and_takes(name: str, n_bytes: int) -> int:
    import_module(name)
    return len(bytearray(n_bytes))


def imports_and_fails(name: str) -> None:
    import_module(name)
    raise ConfigError("after the import")


def maps_without_memory() -> None:
    mmap.mmap(-1, 2**30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def causes_an_error_of_memory() -> None:
    try:
        maps_without_memory()
    except OSError as error:
        raise ConfigError("a file cannot be read") from error


def is_lent(n_bytes: int) -> int:
    with jobs.uncounted():
        lent = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return len(lent)


def makes_memory_with_a_descriptor(n_bytes: int) -> None:
    os.ftruncate(os.memfd_create("much"), n_bytes)


def prints(n_lines: int) -> None:
    for _ in range(n_lines):
        print("noise")
        print("noise", file=sys.stderr)


def reads(path: str) -> bytes:
    return Path(path).read_bytes()


def what_is_forbidden(other: str, port: int) -> bytes:
    """The names of what a stranger's code may not do."""
    attempts: dict[str, Callable[[], object]] = {
        "read": lambda: Path(other).read_bytes(),
        "list": lambda: list(Path(other).parent.iterdir()),
        "write": lambda: Path(other).write_bytes(b"x"),
        "connect": lambda: socket.create_connection(("127.0.0.1", port), 60),
        "signal": lambda: os.kill(os.getppid(), 0),
        "memory": lambda: os.ftruncate(os.memfd_create("much"), 1),
    }
    forbidden = []
    for name, attempt in attempts.items():
        try:
            attempt()
        except OSError:
            forbidden.append(name)
    return " ".join(forbidden).encode()
