"""What the tests run in a child process."""

from __future__ import annotations

import os
import sys
import time

from attention.base.errors import FileError
from attention.base.progress import current_callback


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
