"""An export, from its query to its bytes: the state, parsed by the same reader as a page's state, but strictly; and the file in production.

For a bad value a page uses the default and shows a note. A program that downloads a file would miss the note, so it gets an
error. A text that a page truncates (too many characters or tokens) is truncated here in the same way.

A thread makes the file piece by piece, and the event loop sends the pieces. The thread never waits for the browser: unsent bytes are buffered here and
counted. If the browser reads as fast as the file is made, the buffer stays almost empty. The thread takes turns like a script run (`scheduler`), and gives
its turn away after each piece.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from attention.base.errors import BusyError, ConfigError, SizeError
from attention.base.knobs import MAX_QUOTED, EncodedText, Knob, NameOrText, Range, Text
from attention.base.progress import Watcher
from attention.files.picture import Picture
from attention.formula.names import Cell
from attention.pictures import view
from attention.sources import Source, link
from attention.sources.file import File
from attention.sources.file_source import missing_file_error
from attention.trace.trace import Trace
from pages.ui.exports.links import Tab
from pages.ui.server import scheduler
from pages.ui.server.limits import LARGEST_FILE_MB, LIMITS
from pages.ui.server.scheduler import requesting
from pages.ui.server.traces import compute_head, make_room, trace_of
from pages.ui.state.knob_table import knobs_of

PIECE = 2**17  # bytes that are sent at a time
FIRST = 2**20  # bytes to produce before the answer begins; the headers of a smaller file have its length
_LARGE = 16 * 2**20  # bytes of memory above which `make_room` is called


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
    def knobs(self) -> _StrictReader:
        """The reader of the state's knobs."""
        return _StrictReader(self.texts, self.tab)

    @cached_property
    def source(self) -> Source:
        """The source that the state describes.

        Raises:
            AttentionError: the state is invalid.
        """
        return link.read_source(self.knobs)

    @property
    def trace(self) -> Trace:
        """The trace of the source. Do not store it: only `traces` caches it."""
        return trace_of(self.source)

    def prepare(self) -> None:
        """Computes and caches the trace."""
        _ = self.trace

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


class _StrictReader(link.LinkReader):
    """A knob reader that raises an error for bad values of a query. The uploaded file is that of the requesting tab."""

    def __init__(self, texts: Mapping[str, str], tab: Tab | None = None) -> None:
        super().__init__(texts, LIMITS)
        self._tab = tab

    def knob(self, knob: Knob, within: Range | None = None, fixed: str = "") -> Any:
        """The value of a knob in the query, or its default.

        Raises:
            ConfigError: the value is not allowed.
        """
        within = within or link.page_range(knob, self.limits)
        text = self._texts.get(knob.key)
        is_truncated = isinstance(within, Text) and not isinstance(within, EncodedText | NameOrText)
        if text is not None and not is_truncated:
            try:
                within.read(text)
            except ValueError:
                shown = text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…"
                raise ConfigError(
                    f"{knob.key} is {within.expected}; got “{shown}”: change it in the address."
                ) from None
        return super().knob(knob, within, fixed)

    def sequence(self, names: Sequence[str]) -> int:
        """The index of the requested sequence.

        Raises:
            ConfigError: the sequence does not exist.
        """
        index = super().sequence(names)
        if len(names) < 2 and (requested := self._texts.get("sequence", "0")) != "0":
            raise ConfigError(
                f"sequence must be 0, the only sequence; got “{requested[:MAX_QUOTED]}”: change it in the address."
            )
        return index

    def file(self, knob: Knob) -> File:
        """The uploaded file that the query names.

        Raises:
            AwaitedError: the tab does not have that file.
        """
        requested = self.knob(knob)
        file = self._tab.file if self._tab else None
        if file is None or requested != f"{file.name}:{file.digest}":
            raise missing_file_error(requested)
        return file

    def known_picture(self, name: str) -> Picture | None:
        """The picture of ours, or the tab's uploaded one, of this name."""
        uploaded = self._tab.pictures.get(name) if self._tab else None
        return uploaded or super().known_picture(name)


class ExportFile(NamedTuple):
    """A file: its name in the browser, its content in pieces, and the estimated memory in bytes to make it."""

    file_name: str
    pieces: Iterable[str | bytes]
    nbytes: int = 0


class ClientLeftError(Exception):
    """The client no longer waits for the file."""


class Production:
    """The production of one file, of which the bytes from `start` up to but not including `stop` are requested.

    Attributes:
        file_name: the name of the file in the browser.
        total: the number of bytes made so far; the size of the file once it has `ended`.
        waiting: the number of bytes made but not yet taken.
        ended: whether the production has ended.
        cancelled: set when no client waits for the file.
    """

    def __init__(self, start: int = 0, stop: int | None = None) -> None:
        self.file_name, self.total, self.waiting, self.ended = "", 0, 0, False
        self.cancelled = threading.Event()
        self._start, self._stop = start, stop
        self._error: Exception | None = None
        self._made = 0
        self._pieces: deque[memoryview] = deque()
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def begin(self, work: Callable[[], ExportFile | None], visitor: Watcher, after: Callable[[], None]) -> None:
        """Starts a thread that runs `work` for a visitor and makes the returned file. The event loop then calls `after`."""

        def run() -> None:
            error: Exception | None = None
            try:
                with requesting(visitor), scheduler.turn():
                    self._check()
                    if (made := work()) is not None:
                        self._make(made)
                    del made
            except Exception as problem:  # raised again in the event loop
                error = problem
            with suppress(RuntimeError):  # the event loop is closed at shutdown
                self._loop.call_soon_threadsafe(self._end, error, after)

        threading.Thread(target=run, name="export", daemon=True).start()

    async def until_ready(self) -> None:
        """Waits until enough bytes are made for the headers of the answer.

        Raises:
            Exception: the exception of the work, or `ClientLeftError`.
        """
        await self._until(lambda: self.total >= FIRST and self._made > 1)

    async def until_finished(self) -> None:
        """Waits until the whole file is made.

        Raises:
            Exception: as for `until_ready`.
        """
        await self._until(lambda: False)

    async def take(self) -> bytes:
        """The next bytes to send; empty at the end.

        Raises:
            Exception: as for `until_ready`.
        """
        await self._until(lambda: bool(self._pieces))
        if not self._pieces:
            return b""
        first = self._pieces.popleft()
        if len(first) > PIECE:
            self._pieces.appendleft(first[PIECE:])
        piece = bytes(first[:PIECE])
        self.waiting -= len(piece)
        return piece

    def cancel(self, error: Exception | None = None) -> None:
        """Cancels the production. Waiting callers get `error`, by default a `ClientLeftError`."""
        self.cancelled.set()
        self._pieces.clear()
        self.waiting = 0
        self._end(error or ClientLeftError())

    async def _until(self, done: Callable[[], bool]) -> None:
        while not (self.ended or done()):
            self._changed.clear()
            await self._changed.wait()
        if self._error is not None:
            raise self._error

    def _make(self, made: ExportFile) -> None:
        """Makes the file, in the thread."""
        if made.nbytes > _LARGE and make_room(made.nbytes):
            raise BusyError(
                f"This file needs {made.nbytes / 2**20:,.0f} MB of memory while it is made, and this server has less left: try again in a "
                "minute, or choose a shorter text."
            )
        self._loop.call_soon_threadsafe(setattr, self, "file_name", made.file_name)
        size = 0
        for piece in made.pieces:
            self._check()
            content = piece.encode() if isinstance(piece, str) else piece
            size += len(content)
            if size > LARGEST_FILE_MB * 2**20:
                raise SizeError(
                    f"A file may have at most {LARGEST_FILE_MB} MB; this one has more: choose a shorter text, or only one layer."
                )
            self._loop.call_soon_threadsafe(self._put, content)
            with scheduler.without_turn():
                del piece, content

    def _check(self) -> None:
        if self.cancelled.is_set():
            raise ClientLeftError

    def _put(self, content: bytes) -> None:
        """Buffers the requested part of the next bytes."""
        before, self.total, self._made = self.total, self.total + len(content), self._made + 1
        wanted = memoryview(content)[max(0, self._start - before) :]
        if self._stop is not None:
            wanted = wanted[: max(0, self._stop - max(before, self._start))]
        if wanted and not self.cancelled.is_set():
            self._pieces.append(wanted)
            self.waiting += len(wanted)
        self._changed.set()

    def _end(self, error: Exception | None, after: Callable[[], None] | None = None) -> None:
        if not self.ended:
            self._error, self.ended = error, True
        self._changed.set()
        if after:
            after()
