"""Runs the browser tests three times on one core beside a busy process, and says how often each failed: `races.py [ARGUMENTS OF PYTEST]`.

An act that waits for its own condition succeeds however slow the machine is; one that relies on what was there a moment ago may not.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

ROUNDS = 3
# It also ends where this script was killed.
BUSY = """
import os
parent = os.getppid()
while os.getppid() == parent:
    pass
"""
FAILED = re.compile(r"(?:FAILED|ERROR) (.+?)(?: - .*)?$")


@contextmanager
def busy_process() -> Iterator[None]:
    """A process beside what runs meanwhile, which never waits."""
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def failures(arguments: list[str]) -> set[str]:
    """The tests that fail in one round, whose output is printed; a round that ends otherwise counts as a test."""
    command = [sys.executable, "-m", "pytest", "-v", "-m", "browser", *arguments]
    failed = set[str]()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        for line in run.stdout or ():
            print(line, end="", flush=True)
            if match := FAILED.match(line):
                failed.add(match[1])
    if run.returncode and not failed:
        failed.add(f"pytest (exit status {run.returncode})")
    return failed


def main() -> None:
    """Runs all rounds, also after one in which a test has failed."""
    if not hasattr(os, "sched_setaffinity"):
        sys.exit(f"{sys.platform} does not let a process choose its core: run this on Linux.")
    # Children inherit both. A busy process in real time would leave the core to nobody.
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    times = Counter[str]()
    with busy_process():
        for number in range(1, ROUNDS + 1):
            print(f"Round {number} of {ROUNDS}, on one core beside a busy process", flush=True)
            times.update(failures(sys.argv[1:]))
    for test, count in times.most_common():
        print(f"{test} failed in {count} of {ROUNDS} rounds")
    if times:
        sys.exit(1)
    print(f"No test failed in {ROUNDS} rounds.")


if __name__ == "__main__":
    main()
