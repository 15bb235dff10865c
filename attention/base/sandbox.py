"""Takes from this process, for good, the network and all files but those that it is to read: for a process that reads what a stranger wrote.

    sandbox.enter([path])

Linux alone has this, by two of its parts: Landlock forbids files, TCP and signals to other processes; a network of its own forbids the rest, where users may
have one. A system without them changes nothing, and `MISSING` says what stays possible.
Source: https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_C = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every processor
_ASK_VERSION, _BENEATH_PATH = 1, 1
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
# How many rights to files each version knows, and since which one it knows TCP, and signals and named sockets.
_N_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_MOST_FILE_RIGHTS = 16
_KNOWS_TCP, _KNOWS_SIGNALS = 4, 6
_BOTH = 3  # to bind and to connect; or signals and sockets
_NO_NEW_PRIVILEGES = 38
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000

VERSION = 0 if _C is None else max(0, _C.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION))
"""The version of Landlock here; 0 for none."""
MISSING = " and ".join(["files"] * (VERSION < 1) + ["the network"] * (VERSION < _KNOWS_TCP))
"""What this system cannot take away."""


def enter(files: Iterable[str]) -> None:
    """Leaves this process, which has one thread, the reading of these files and of Python's own."""
    if _C is None:
        return
    _C.unshare(_NEW_USER | _NEW_NETWORK)  # not every system allows it
    if not VERSION:
        return
    file_rights = (1 << _N_FILE_RIGHTS.get(VERSION, _MOST_FILE_RIGHTS)) - 1
    forbidden = struct.pack("<Q", file_rights)
    if VERSION >= _KNOWS_TCP:
        forbidden += struct.pack("<Q", _BOTH)
    if VERSION >= _KNOWS_SIGNALS:
        forbidden += struct.pack("<Q", _BOTH)
    rules = _C.syscall(_CREATE_RULESET, forbidden, len(forbidden), 0)
    code = str(Path(__file__).parents[1])
    for path in (*files, sys.prefix, sys.base_prefix, code):
        with suppress(FileNotFoundError):
            _allow(rules, Path(path))
    _C.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if _C.syscall(_RESTRICT_SELF, rules, 0):
        raise OSError(ctypes.get_errno(), "this process keeps its rights")
    os.close(rules)


def _allow(rules: int, path: Path) -> None:
    opened = os.open(path, os.O_PATH)
    rights = _READ_FILE | (_READ_FOLDER if path.is_dir() else 0)
    failed = _C is None or _C.syscall(_ADD_RULE, rules, _BENEATH_PATH, struct.pack("<Qi", rights, opened), 0)
    os.close(opened)
    if failed:
        raise OSError(ctypes.get_errno(), "this process keeps its rights")
