"""The one thread in which all models here learn: one after the other, each a piece at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import TypeVar

import torch

T = TypeVar("T")


def _alone() -> None:
    """`torch.set_num_threads` is of the thread that calls it, and of every thread that begins later; a thread of its own takes the second back."""
    others = torch.get_num_threads()
    torch.set_num_threads(1)
    back = Thread(target=torch.set_num_threads, args=(others,))
    back.start()
    back.join()


_WORKER = ThreadPoolExecutor(1, "training", _alone)


def in_turn(work: Callable[[], T]) -> T:
    """What `work` gives, done with one thread of torch when those who came before have theirs.

    Several threads collapse where a machine is busy, and add up in another order; what others do has as many as before.
    """
    return _WORKER.submit(work).result()
