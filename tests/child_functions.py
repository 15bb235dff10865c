"""What the tests run in a child process."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
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
