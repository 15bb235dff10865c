"""The progress of a run on the standard error stream: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

_SECONDS = 30
"""Between two lines, where there is no terminal."""


@contextmanager
def progress(n_texts: int, stream: TextIO) -> Iterator[Callable[[int], None]]:
    """A context with a function that receives the number of texts of each chunk that is done."""
    if stream.isatty():
        from tqdm import tqdm

        with tqdm(total=n_texts, unit=" texts", file=stream, dynamic_ncols=True) as bar:
            yield lambda n: bar.update(n) and None
        return
    yield ProgressLines(n_texts, stream).add


class ProgressLines:
    """Lines that say how many texts are done, at most one in `_SECONDS` seconds, and one at the end."""

    def __init__(self, n_texts: int, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.n_texts, self.n_done = n_texts, 0
        self._stream, self._clock = stream, clock
        self._start = self._last = clock()
        self._last_done = 0

    def add(self, n_texts: int) -> None:
        """Counts some texts as done."""
        self.n_done += n_texts
        now = self._clock()
        if now - self._last < _SECONDS and self.n_done < self.n_texts:
            return
        left = (now - self._last) / (self.n_done - self._last_done) * (self.n_texts - self.n_done)
        self._last, self._last_done = now, self.n_done
        rest = f", about {duration(left)} left" if self.n_done < self.n_texts else f" in {duration(now - self._start)}"
        print(f"{self.n_done:,} of {self.n_texts:,} texts{rest}", file=self._stream, flush=True)


def duration(seconds: float) -> str:
    """A duration in words, with two digits at most."""
    for size, noun in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        count = seconds / size
        if count >= 1 or noun == "second":
            rounded = max(1, round(count)) if count >= 3 or noun == "second" else round(count, 1)
            return f"{rounded:g} {noun}{'' if rounded == 1 else 's'}"
    raise AssertionError
