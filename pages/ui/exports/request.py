"""An export, from its declaration and query to its bytes: the state, parsed by the same reader as a page's state, but strictly; and the file in production.

For a bad value a page uses the default and shows a note. A program that downloads a file would miss the note, so it gets an
error. A text that a page truncates (too many characters or tokens) is truncated here in the same way.

A small file is made in a thread, which takes turns like a script run (`scheduler`); every other file in a process of its own (`heavy`). A thread passes the pieces to
the event loop, which sends them. What the browser has not read yet is counted (`in_flight`); the thread waits for it beyond `UNREAD_MB`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from time import monotonic
from typing import Any, NamedTuple

from attention.base.errors import BusyError, SizeError
from attention.base.jobs import POLL_SECONDS
from attention.base.knobs import Knob, Range
from attention.base.progress import Watcher
from attention.formula.names import Cell
from attention.formula.steps import is_step
from attention.pictures import view
from attention.sources import Intervenable, Source, registry
from attention.sources.model import Model
from attention.sources.reader import Reader, Uploads
from attention.trace.trace import Trace
from pages.ui.exports.links import Tab
from pages.ui.server import heavy
from pages.ui.server.in_flight import Part
from pages.ui.server.limits import LARGEST_FILE_MB, LIMITS, UNREAD_MB
from pages.ui.server.scheduler import requesting
from pages.ui.server.traces import compute_head, trace_of
from pages.ui.state.knob_table import knobs_of

STEP = "{step}"
"""Stands for the name of any step in the name of an export."""
_SMALL_BYTES = 2**21  # of all steps of a text whose files the server itself makes
_PIECE = 2**17  # bytes that are sent at a time
_FIRST = 2**20  # bytes to produce before the answer begins; the headers of a smaller file have its length
_GRACE = 20.0  # seconds for which a slow download keeps its place while others wait


@dataclass(frozen=True)
class Request:
    """The state of a requested file.

    Attributes:
        texts: the query by key, including matrices that are too long for a link.
        tab: the requesting tab, if there is one.
        step: the step in the name of the file; empty without one.
        kind: the extension of the file.
    """

    texts: Mapping[str, str]
    tab: Tab | None = None
    step: str = ""
    kind: str = ""

    @cached_property
    def knobs(self) -> Reader:
        """The reader of the state's knobs. The uploads are those of the requesting tab."""
        uploads = Uploads(self.tab.file, self.tab.given) if self.tab else Uploads()
        return Reader(self.texts, LIMITS, uploads, strict=True)

    @cached_property
    def source(self) -> Source:
        """The source that the state describes.

        Raises:
            AttentionError: the state is invalid.
        """
        return registry.read_source(self.knobs)

    @property
    def trace(self) -> Trace:
        """The trace of the source. Do not store it: only `traces` caches it."""
        return trace_of(self.source)

    def prepare(self) -> None:
        """Loads or trains the model of the source, if it has one."""
        if isinstance(self.source, Intervenable):
            self.source.prepare()

    def value(self, knob: Knob, within: Range | None = None) -> Any:
        """The value of a knob in the query, with the range and default of the state's source."""
        knobs = knobs_of(self.texts.get("source", ""))
        return self.knobs.knob(knobs.get(knob.key, knob), within)

    def cell(self, trace: Trace) -> Cell:
        """The chosen cell of the trace, in the step of the file's name if it has one.

        Raises:
            AttentionError: the trace does not have this cell.
        """
        cell = view.read_cell(self.knobs.knob, trace)
        layer = trace.layers[cell.layer]
        if self.step:
            cell = view.clamp_cell(replace(cell, step=self.step), layer)
        compute_head(layer, cell.head)
        return cell


class ExportFile(NamedTuple):
    """A file: its name in the browser, and its content in pieces."""

    file_name: str
    pieces: Iterable[str | bytes]


@dataclass(frozen=True)
class Export:
    """A kind of file.

    Attributes:
        name: the name in the URL; `{step}` stands for the name of any step.
        about: the content in a few words.
        make: returns the file of a request.
        is_picture: whether it is drawn, which takes a second of processor whatever the text.
    """

    name: str
    media_type: str
    about: str
    make: Callable[[Request], ExportFile]
    is_picture: bool = False

    def is_small(self, request: Request) -> bool:
        """Whether the server itself makes this file: a table or a program of a short text, or of a tiny model, whose training is here."""
        source = request.source
        if isinstance(source, Intervenable):
            return not isinstance(source, Model)
        return source.memory_bytes() <= _SMALL_BYTES and not self.is_picture

    def step(self, name: str) -> str | None:
        """The step in a file name of this kind, empty if the kind has no step; None if the name is of another kind."""
        if STEP not in self.name:
            return "" if name == self.name else None
        before, after = self.name.split(STEP)
        step = name.removeprefix(before).removesuffix(after)
        return step if is_step(step) and name == f"{before}{step}{after}" else None

    @property
    def ending(self) -> str:
        """The extension of the name, without a dot."""
        return self.name.rpartition(".")[2]


class ClientLeftError(Exception):
    """The client no longer waits for the file."""


class Production:
    """The production of one file for an address, of which the bytes from `start` up to but not including `stop` are requested.

    Attributes:
        file_name: the name of the file in the browser.
        total: the number of bytes made so far; the size of the file once it has `ended`.
        cancelled: set when no client waits for the file.
    """

    def __init__(self, address: str = "", start: int = 0, stop: int | None = None) -> None:
        self.file_name, self.total, self.ended = "", 0, False
        self.cancelled = threading.Event()
        self._start, self._stop = start, stop
        self._error: Exception | None = None
        self._made, self._is_read = 0, False
        self._pieces: deque[memoryview] = deque()
        self._changed, self._read = asyncio.Event(), threading.Event()
        self._part, self._task = Part(address, self.drop), asyncio.current_task()
        self._loop = asyncio.get_running_loop()

    def begin(self, make: Callable[[Watcher], Generator[str | bytes]], visitor: Watcher) -> None:
        """Starts a thread that makes a file for a visitor: `make` yields its name and then its pieces."""

        def run() -> None:
            error: Exception | None = None
            try:
                with requesting(visitor), closing(make(visitor)) as pieces:
                    self._make(pieces)
            except Exception as problem:  # raised again in the event loop
                error = problem
            with suppress(RuntimeError):  # the event loop is closed at shutdown
                self._loop.call_soon_threadsafe(self._end, error)

        threading.Thread(target=run, name="export", daemon=True).start()

    @property
    def waiting(self) -> int:
        """The number of bytes made but not yet taken."""
        return self._part.size

    async def until_ready(self) -> None:
        """Waits until enough bytes are made for the headers of the answer.

        Raises:
            Exception: the exception of the work, or `ClientLeftError`.
        """
        await self._until(lambda: self.total >= _FIRST and self._made > 1)

    async def until_finished(self) -> None:
        """The same until the whole file is made."""
        await self._until(lambda: False)

    async def take(self) -> bytes:
        """The next bytes to send, when they are made; empty at the end. Raises what `until_ready` does."""
        self._is_read = True
        await self._until(lambda: bool(self._pieces))
        if not self._pieces:
            return b""
        first = self._pieces.popleft()
        if len(first) > _PIECE:
            self._pieces.appendleft(first[_PIECE:])
        piece = bytes(first[:_PIECE])
        self._part.resize(self.waiting - len(piece))
        self._read.set()
        return piece

    def cancel(self) -> None:
        """Cancels the production. Waiting callers get a `ClientLeftError`."""
        self.cancelled.set()
        self._pieces.clear()
        self._part.resize(0)
        self._end(ClientLeftError())

    def drop(self) -> None:
        """Ends the file and its sending."""
        self.cancel()
        if self._task is not None:
            self._task.cancel()

    async def _until(self, done: Callable[[], bool]) -> None:
        while not (self.ended or done()):
            self._changed.clear()
            await self._changed.wait()
        if self._error is not None:
            raise self._error

    def _make(self, pieces: Iterator[str | bytes]) -> None:
        self._loop.call_soon_threadsafe(setattr, self, "file_name", next(pieces))
        size = 0
        for piece in pieces:
            content = piece.encode() if isinstance(piece, str) else piece
            size += len(content)
            if size > LARGEST_FILE_MB * 2**20:
                raise SizeError(
                    f"A file may have at most {LARGEST_FILE_MB} MB; this one has more: choose a shorter text, or only one layer."
                )
            self._check()
            self._loop.call_soon_threadsafe(self._put, content)
            self._wait_for_browser(size)

    def _wait_for_browser(self, made: int) -> None:
        """Waits while too much of the bytes made so far is unread, unless others wait for the place of this file."""
        began = monotonic()
        # A range is read when all is made.
        while self._is_read and self.waiting + made - self.total > UNREAD_MB * 2**20:
            self._read.wait(POLL_SECONDS)
            self._read.clear()
            self._check()
            if heavy.LINE.is_wanted and monotonic() > began + _GRACE:
                raise BusyError("Others wait for their files, and this download is too slow: try again in a moment.")

    def _check(self) -> None:
        if self.cancelled.is_set():
            raise ClientLeftError

    def _put(self, content: bytes) -> None:
        before, self.total, self._made = self.total, self.total + len(content), self._made + 1
        wanted = memoryview(content)[max(0, self._start - before) :]
        if self._stop is not None:
            wanted = wanted[: max(0, self._stop - max(before, self._start))]
        if wanted and not self.cancelled.is_set():
            self._pieces.append(wanted)
            self._part.resize(self.waiting + len(wanted))
        self._changed.set()

    def _end(self, error: Exception | None) -> None:
        if not self.ended:
            self._error, self.ended = error, True
        self._changed.set()
