"""Uploads: the server accepts only those it asked for, and refuses others before it has read them."""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from weakref import WeakValueDictionary

import pytest
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Common_pb2 import FileUploaderState, FileURLs
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.uploaded_file_manager import UploadedFile, UploadedFileRec
from streamlit.testing.v1 import AppTest
from streamlit.web.server.starlette import starlette_routes
from test_harm import finished

from attention.base.errors import BusyError
from attention.files.reading_cost import UNKNOWN, ReadingCost
from benchmarks.session import Session
from benchmarks.wire import http, multipart
from pages.ui.server import in_flight, uploads
from pages.ui.server.in_flight import bounded_bodies
from pages.ui.server.uploads import bounded_uploads

MATRIX = b"1,0,0\n0,1,0\n"
LARGE = 2**20 + 1


def test_only_requested_uploads_are_accepted_and_once(server: str) -> None:
    async def try_it() -> None:
        async with Session(server, "source=matrices") as session:
            await session.open()

            async def put(url: str) -> int:
                body, kind = multipart("x.csv", MATRIX)
                return await asyncio.to_thread(http, "PUT", url, body, {"Content-Type": kind}, session.xsrf)

            place = await session.place("x.csv")
            assert await put(place.rpartition("/")[0] + "/invented") == 404
            assert [await put(place), await put(place)] == [204, 404]

    finished(try_it())


def test_expired_upload_gets_one_sentence(server: str) -> None:
    async def sentences(field: str) -> list[str]:
        async with Session(server, "source=matrices") as session:
            await session.open()
            state = FileUploaderState()
            state.uploaded_file_info.add(name="x.json", size=1, file_id="gone")
            run = await session.turn(**{field: state})
            assert not run.exceptions
            return run.sentences

    for field in ("open_state_0", "matrices_file_x"):
        assert any(uploads._GONE in sentence.replace("\\", "") for sentence in finished(sentences(field)))


def test_finished_upload_uses_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = MemoryUploadedFileManager("")
    for name in ("a", "b"):
        manager.add_file("s", UploadedFileRec(name, f"{name}.csv", "text/csv", MATRIX))
    context = SimpleNamespace(session_id="s", uploaded_file_mgr=manager)
    monkeypatch.setattr(uploads, "get_script_run_ctx", lambda: context)
    [first] = manager.get_files("s", ["a"])
    file = UploadedFile(first, FileURLs())
    assert uploads.content(file) == MATRIX
    assert not file.getvalue()
    assert manager._total_bytes == len(MATRIX)
    assert [file.file_id for file in manager.get_files("s", ["a", "b"])] == [
        "a",
        "b",
    ]  # or the next run finds it deleted


class Kept:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


def test_costly_file_is_read_in_a_process_and_counted_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = list[int]()

    def in_process(function: Callable[[bytes], int], content: bytes, words: str, advice: str) -> int:
        waiting.append(uploads._session_file_sizes()["s"])
        return function(content)

    monkeypatch.setattr(uploads, "get_script_run_ctx", lambda: SimpleNamespace(session_id="s", uploaded_file_mgr=None))
    monkeypatch.setattr(uploads, "_session_files", WeakValueDictionary())
    monkeypatch.setattr(uploads.heavy, "in_process", in_process)
    for cost, times in (
        (ReadingCost(0.05, 10), 0),
        (ReadingCost(0.2, 10), 1),
        (ReadingCost(0.05, 2**25), 2),
        (UNKNOWN, 3),
    ):
        assert uploads.read(len, MATRIX, cost=cost, words="Reading") == len(MATRIX)
        assert waiting == [len(MATRIX)] * times
    gc.collect()
    assert not uploads._session_file_sizes(), "what was read waits no more"


def test_file_that_becomes_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(session_id="s", uploaded_file_mgr=MemoryUploadedFileManager(""))
    monkeypatch.setattr(uploads, "get_script_run_ctx", lambda: context)
    monkeypatch.setattr(uploads, "_session_files", WeakValueDictionary())
    monkeypatch.setattr(uploads, "_visitors", {"s": uploads._Visitor("school", deque())})
    small, large = Kept(10 * 2**20), Kept(90 * 2**20)
    uploads.count_file(small)
    with pytest.raises(BusyError, match="A page may have at most 80 MB of files"):
        uploads.count_file(large)
    assert uploads._session_file_sizes() == {"s": 10 * 2**20}, "the file before it is still there"
    uploads.count_file(other := Kept(75 * 2**20))
    assert uploads._session_file_sizes() == {"s": other.nbytes}, "one of the same place makes room first"


class Upload:
    """One upload, whose body comes when `more` is set."""

    def __init__(self, app: ASGIApp, place: str, content: bytes, address: str) -> None:
        self.app, self.place, self.content, self.address = app, place, content, address
        self.reads, self.more, self.status = asyncio.Event(), asyncio.Event(), 0

    async def run(self) -> int:
        body, kind = multipart("x.csv", self.content)
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        scope = {"type": "http", "method": "PUT", "path": self.place, "headers": headers, "query_string": b""}
        scope["client"] = (self.address, 1)

        async def receive() -> Message:
            self.reads.set()
            await self.more.wait()
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            self.status = message.get("status", self.status)

        await self.app({**scope, "root_path": "", "http_version": "1.1"}, receive, send)
        return self.status


def in_process(monkeypatch: pytest.MonkeyPatch, use: Callable[[Callable[..., Upload]], Awaitable[None]]) -> None:
    """Runs `use(upload)` with the routes of Streamlit's uploads behind ours, and looks that nothing is left of them."""
    manager = MemoryUploadedFileManager("/_stcore/upload_file")
    monkeypatch.setattr(uploads, "_visitors", {})
    runtime = SimpleNamespace(uploaded_file_mgr=manager, is_active_session=lambda _: True)
    monkeypatch.setattr("streamlit.runtime.get_instance", lambda: runtime)
    monkeypatch.setattr(starlette_routes, "is_xsrf_enabled", lambda: False)
    app = partial(
        bounded_bodies,
        partial(bounded_uploads, Starlette(routes=starlette_routes.create_upload_routes(runtime, manager, None))),
    )

    def upload(session: str, size: int = LARGE, content: bytes = b"", address: str = "") -> Upload:
        [place] = manager.get_upload_urls(session, ["x.csv"])
        uploads._register(session, place.file_id, address)
        return Upload(app, place.upload_url, content or b"1" * size, address)

    async def limited() -> None:
        async with asyncio.timeout(60):
            await use(upload)

    finished(limited())
    assert not in_flight.BUDGET.total


@pytest.mark.parametrize("content", [bytes(LARGE), b"\r\n--edg" * 2**18, b"\r\n" * 2**20])
def test_large_upload_arrives_complete_and_never_on_disk(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda *_, **__: pytest.fail("a file of Streamlit's"))

    async def use(upload: Callable[..., Upload]) -> None:
        sent = upload("s", content=content)
        sent.more.set()
        assert await sent.run() == 204
        session, file = sent.place.split("/")[-2:]
        [stored] = uploads._manager().get_files(session, [file])
        assert (stored.name, stored.type, stored.data == content) == ("x.csv", "application/octet-stream", True)
        assert not uploads._visitors[session].files

    in_process(monkeypatch, use)


def test_large_form_with_extra_fields_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(upload: Callable[..., Upload]) -> None:
        other = b"\r\n--edge\r\nContent-Disposition: form-data; name=x\r\n\r\n"
        for content in (bytes(LARGE) + other, bytes(LARGE) + b"\r\n--edge--", b"1" * 2**20 + b"\r\n--edgeless"):
            sent = upload("s", content=content)
            sent.more.set()
            assert await sent.run() == 400

    in_process(monkeypatch, use)


def test_page_gets_a_few_upload_places_at_a_time() -> None:
    asks = BackMsg()
    asks.file_urls_request.file_names.extend(["x.csv"] * 1000)
    few = BackMsg.FromString(uploads._with_few_names(asks.SerializeToString())).file_urls_request.file_names
    assert len(few) == uploads._MOST
    asks.rerun_script.query_string = "x"  # of several kinds the last counts
    for untouched in (asks.SerializeToString(), b"no message of Streamlit's"):
        assert uploads._with_few_names(untouched) is untouched


def test_upload_places_end_with_their_session(monkeypatch: pytest.MonkeyPatch) -> None:
    visitors = {name: uploads._Visitor("", deque(["a"])) for name in ("gone", "there", "may come back")}
    monkeypatch.setattr(uploads, "_visitors", visitors)
    manager = MemoryUploadedFileManager("")
    manager.add_file("may come back", UploadedFileRec("a", "x.csv", "text/csv", MATRIX))
    runtime = SimpleNamespace(is_active_session=lambda session: session == "there", uploaded_file_mgr=manager)
    monkeypatch.setattr("streamlit.runtime.get_instance", lambda: runtime)

    async def ends(*_: object) -> None:
        pass

    finished(partial(bounded_uploads, ends)({"type": "websocket"}, ends, ends))
    assert [*visitors] == ["there", "may come back"]


def test_slow_uploads_of_an_address_stop_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight.BUDGET, "_most_of_address", 3 * LARGE)

    async def use(upload: Callable[..., Upload]) -> None:
        slow = [upload(f"s{i}", address="198.51.100.7") for i in range(4)]
        running = [asyncio.create_task(sent.run()) for sent in slow]
        for sent in slow[:2]:
            await sent.reads.wait()
        others = [upload("s0", 10), upload("another", address="203.0.113.9"), upload("s0", address="203.0.113.10")]
        for sent in others:
            sent.more.set()
        assert [await sent.run() for sent in others] == [204] * 3
        for sent in slow:
            sent.more.set()
        assert sorted(await asyncio.gather(*running)) == [204, 204, 429, 429]

    in_process(monkeypatch, use)


def test_stalled_upload_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "SECONDS", 0.05)

    async def use(upload: Callable[..., Upload]) -> None:
        stalling = [upload(f"s{i % 3}") for i in range(8)]
        assert await asyncio.gather(*(sent.run() for sent in stalling)) == [408] * len(stalling)

    in_process(monkeypatch, use)


def test_too_long_upload_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(upload: Callable[..., Upload]) -> None:
        long = upload("s", 17 * 2**20)
        assert await long.run() == 413
        assert not long.reads.is_set()
        assert uploads._consume("s", long.place.rpartition("/")[2])

    in_process(monkeypatch, use)


@pytest.mark.parametrize(
    ("limit", "sessions", "status"),
    [("UPLOADED_MB", "abc", 429), ("UPLOADED_MB_OF_ADDRESS", "abc", 429), ("UPLOADED_MB_OF_ONE", "aaa", 413)],
)
def test_session_address_and_server_have_upload_budgets(
    monkeypatch: pytest.MonkeyPatch, limit: str, sessions: str, status: int
) -> None:
    monkeypatch.setattr(uploads, limit, 2)

    async def use(upload: Callable[..., Upload]) -> None:
        statuses = []
        for session in sessions:
            sent = upload(session, 900_000)
            sent.more.set()
            statuses.append(await sent.run())
        assert statuses == [204, 204, status]
        elsewhere = upload("d", 900_000, address="203.0.113.9")
        elsewhere.more.set()
        assert await elsewhere.run() == (429 if limit == "UPLOADED_MB" else 204)
        assert [sum(map(len, files)) for files in uploads._manager().file_storage.values()]

    in_process(monkeypatch, use)


def call_back_for_fields_that_are_gone() -> None:
    import streamlit as st

    from pages.ui.state import matrices
    from pages.ui.state.session import session

    for change in (
        matrices._paste,
        matrices._paste_again,
        matrices._upload,
        matrices._answer_question,
    ):
        change("x")
    st.text(repr(dict(session().state.texts)))


def test_change_of_a_field_that_is_gone_changes_nothing() -> None:
    """A browser whose server was lost sends such changes to the next server."""
    app = AppTest.from_function(call_back_for_fields_that_are_gone, default_timeout=60).run()
    assert not app.exception
    assert app.text[0].value == "{}"
