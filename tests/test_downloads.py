"""What people take away arrives, however busy the others are; what nobody waits for is not made."""

from __future__ import annotations

import asyncio
import threading
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.types import Message
from streamlit.proto.BackMsg_pb2 import BackendOperationRequest
from streamlit.proto.ForwardMsg_pb2 import BackendOperationResponse
from streamlit.runtime.backend_operation_handler import DeferredFileHandler
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage
from streamlit.web.server.starlette import starlette_routes
from test_harm import finished

from attention import FileError
from benchmarks.downloads import CSV
from benchmarks.session import Session
from pages.ui.server import downloads, process
from pages.ui.server.limits import EXPORTS_WAITING

assert process  # it has wrapped Streamlit


def test_a_file_waits_for_its_browser_and_an_old_button_works_for_a_while(server: str) -> None:
    async def try_it() -> None:
        async with Session(server) as one, Session(server) as other:
            for session in (one, other):
                await session.open()
                await session.turn(sharing=True)
            shown = one.last.widgets[CSV]
            await one.turn(q=1)
            one.last.widgets[CSV] = shown  # the browser has not painted the new one
            await other.turn(q=1)
            await one.ask_for(CSV)
            url = one.base + await one.answer()
            for q in (2, 1, 2):
                await other.turn(q=q)
            with await asyncio.to_thread(urllib.request.urlopen, url) as answer:
                assert answer.read().startswith(b"query_pos,")

    finished(try_it())


def test_a_large_file_is_whole_though_it_goes_in_pieces(server: str) -> None:
    text = "+".join(f"w{i}" for i in range(300))

    async def try_it() -> None:
        async with Session(server, f"text={text}") as one:
            await one.open()
            await one.turn(sharing=True)
            await one.ask_for(CSV)
            asked = urllib.request.Request(one.base + await one.answer(), headers={"Range": "bytes=1-"})
            with await asyncio.to_thread(urllib.request.urlopen, asked) as answer:
                assert answer.status == 200  # a part would be a copy in memory
                rows = answer.read().decode().splitlines()
                assert int(answer.headers["Content-Length"]) > 2 * downloads._SENT
        assert len(rows) == 301
        assert {row.count(",") for row in rows} == {301}

    finished(try_it())


class Files:
    """Streamlit's manager of files and its handler, without a server; `there` are the sessions that are open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.manager = MediaFileManager(MemoryMediaFileStorage("/media"))
        self.handler = DeferredFileHandler(lambda: self.manager)
        self.there = {"a", "b"}
        runtime = SimpleNamespace(is_active_session=self.there.__contains__)
        monkeypatch.setattr("streamlit.runtime.exists", lambda: True)
        monkeypatch.setattr("streamlit.runtime.get_instance", lambda: runtime)

    def offer(self, make: Callable[[], Any], place: str = "1") -> str:
        return self.manager.add_deferred(make, "text/csv", place, "x.csv")

    async def ask(self, file_id: str, session: str = "a") -> BackendOperationResponse:
        request = BackendOperationRequest(request_id="1")
        request.deferred_file.file_id = file_id
        return await self.handler.handle(request, session)

    def kept(self, answer: BackendOperationResponse) -> bool:
        return self.manager.read_file(downloads._id(answer.deferred_file.url)) is not None


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    yield Files(monkeypatch)
    assert not downloads._waiting
    assert not downloads._going
    assert not downloads._one.locked()
    downloads._unused.clear()


def in_time(work: Awaitable[None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await work

    finished(limited())


def test_one_file_is_made_at_a_time_and_few_wait(files: Files) -> None:
    began, may_end, made = threading.Event(), threading.Event(), []

    def make(content: str) -> str:
        made.append(content)
        began.set()
        assert may_end.wait(60)
        return content

    async def use() -> None:
        first = files.offer(lambda: make("first"), "first")
        asked = [asyncio.create_task(files.ask(first))]
        await asyncio.to_thread(began.wait, 60)
        more = [files.offer(lambda i=i: make(f"a{i}"), f"a{i}") for i in range(EXPORTS_WAITING + 1)]
        asked += [asyncio.create_task(files.ask(one)) for one in more]
        gone = asyncio.create_task(files.ask(files.offer(lambda: make("gone"), "gone"), "b"))
        assert "wait" in (await asked[-1]).error_msg
        files.there.remove("b")
        assert made == ["first"]
        may_end.set()
        answers = await asyncio.gather(*asked[:-1])
        assert all(answer.deferred_file.url for answer in answers)
        assert "gone" in (await gone).error_msg
        assert made == ["first", *(f"a{i}" for i in range(EXPORTS_WAITING))]

    in_time(use())


def test_a_file_is_not_made_to_its_end_when_the_page_is_gone(files: Files) -> None:
    pieces = []

    def rows() -> Iterator[str]:
        for i in range(1000):
            pieces.append(i)
            if i == 3:
                files.there.clear()
            yield "1,2\n"

    async def use() -> None:
        assert "gone" in (await files.ask(files.offer(downloads.in_pieces(rows)))).error_msg
        assert pieces == [0, 1, 2, 3]

    in_time(use())


def test_what_goes_wrong_is_a_sentence(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong() -> str:
        raise FileError("This text is too long: shorten it.")

    monkeypatch.setattr(downloads, "LARGEST_FILE_MB", 1)

    async def use() -> None:
        assert (await files.ask(files.offer(wrong))).error_msg == "This text is too long: shorten it."
        assert "1 MB" in (await files.ask(files.offer(downloads.in_pieces(lambda: ["x" * 2**20, "y"])))).error_msg
        assert "click again" in (await files.ask("unknown")).error_msg
        assert (await files.ask(files.offer(lambda: 1 / 0))).error_msg == "The file could not be made."

    in_time(use())


def test_files_are_kept_for_a_while_and_within_a_budget(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "DOWNLOADS_MB", 2)

    async def use() -> None:
        made = [await files.ask(files.offer(lambda i=i: f"{i}" * 900_000, f"{i}")) for i in range(3)]
        assert [files.kept(one) for one in made] == [False, True, True]
        for _ in range(3):
            files.manager.remove_orphaned_files()
        assert [files.kept(one) for one in made] == [False, True, True]
        large = await files.ask(files.offer(lambda: "x" * 3_000_000))
        assert [files.kept(one) for one in (*made, large)] == [False, False, False, True]
        async with asyncio.timeout(60) as reads:
            since = asyncio.get_running_loop().time()
            downloads._going[reads] = downloads._id(large.deferred_file.url), since
            assert "on their way" in (await files.ask(files.offer(lambda: "y"))).error_msg
            monkeypatch.setattr(downloads, "KEPT", -1)
            files.manager.remove_orphaned_files()
            assert files.kept(large)
            downloads._going[reads] = downloads._id(large.deferred_file.url), since - downloads.GRACE
            with suppress(asyncio.CancelledError):
                assert not (await files.ask(files.offer(lambda: "y"))).error_msg
                await asyncio.Event().wait()
        assert reads.expired()
        monkeypatch.setattr(downloads, "KEPT", -1)
        files.manager.remove_orphaned_files()
        assert not files.kept(large)

    in_time(use())


def test_old_buttons_are_few_and_forgotten_in_time(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    files.there.add("dontcare")  # as Streamlit calls the session of a script without one
    ids = [files.offer(lambda: "x") for _ in range(downloads._BUTTONS + 3)]  # each in the place of the one before
    files.manager.remove_orphaned_files()
    assert list(files.manager._deferred_callables) == ids[2:]
    monkeypatch.setattr(downloads, "KEPT", -1)
    files.manager.remove_orphaned_files()
    assert list(files.manager._deferred_callables) == ids[-1:]


def test_who_reads_nothing_is_not_waited_for(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PATIENCE", 0.05)
    routes = starlette_routes.create_media_routes(files.manager._storage, None)  # type: ignore[arg-type]  # without a base path
    sent: list[Message] = []

    async def use() -> None:
        url = (await files.ask(files.offer(lambda: "x" * 10 * downloads._SENT))).deferred_file.url

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            sent.append(message)
            if len(sent) == 4:
                await asyncio.Event().wait()

        scope = {"type": "http", "method": "GET", "path": url, "headers": [], "query_string": b"", "root_path": ""}
        await Starlette(routes=routes)({**scope, "http_version": "1.1"}, receive, send)

    in_time(use())
    assert [len(message["body"]) for message in sent[1:]] == [downloads._SENT] * 3
