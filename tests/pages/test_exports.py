"""Exports are made from the state in their address, over HTTP and without a session, and equal the library's files byte by byte."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import re
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import ROOT
from dask_processes import wait_until
from starlette.applications import Starlette
from starlette.testclient import TestClient
from starlette.types import Message
from test_harm import finished
from test_pages import PAGES, opened

from attention import AttentionConfig, Cell, File, FileError, Matrices, Trace, TypedText, metrics
from attention.base.jobs import POLL_SECONDS
from attention.explanation import tables
from attention.explanation.derived import NORMS
from attention.export import program
from attention.features import NAMES, is_here
from attention.files import array_writer
from attention.metrics import aggregates
from attention.metrics.table import frame
from benchmarks.hostile import inputs
from benchmarks.session import Session
from benchmarks.wire import http
from pages.ui import process
from pages.ui.exports import catalog, links, route
from pages.ui.exports import request as production
from pages.ui.exports.catalog import _exports
from pages.ui.exports.links import Offer, Tab
from pages.ui.exports.request import Export, ExportFile, Production
from pages.ui.features import panels
from pages.ui.server import heavy
from pages.ui.server.in_flight import BUDGET
from pages.ui.server.limits import JOBS_WAITING

assert process  # imported as in the server

TEXT = "the cat sat on the mat"
STATE = {"text": TEXT, "mask": "causal", "heads": "2", "head": "1", "q": "2", "k": "1"}
SOURCE = TypedText(TEXT, AttentionConfig(mask="causal", n_heads=2))
CELL = Cell(0, "weights", 1, 2, 1)
HTML = {"Accept-Encoding": "gzip, br"}  # as a browser sends it


@pytest.fixture(scope="module")
def trace() -> Trace:
    return SOURCE.trace()


def test_exported_step_equals_the_table_of_the_library(client: TestClient, trace: Trace) -> None:
    layer = trace.layers[0]
    for step in layer.steps:
        answer = client.get(f"/export/{step.name}.csv", params=STATE)
        assert answer.status_code == 200
        assert answer.text == "".join(tables.csv(trace, step.name, 0, 1)), step.name
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        assert answer.headers["content-disposition"].startswith(f'attachment; filename="{step.name}-L0-H1.csv"')
        assert int(answer.headers["content-length"]) == len(answer.content)


def check_files(client: TestClient, files: dict[str, str | bytes], declared: Iterable[Export]) -> None:
    """Asserts that `files` has each of the declared files by name, and that each is sent like this, twice."""
    known = {(export.name, export.ending) for export in declared}
    assert {(catalog.find(name)[0].name, name.rpartition(".")[2]) for name in files} == known
    state = STATE | {"compare": "temperature=0.5", "colors": "stretched", "view": "factors"}
    for name, content in files.items():
        answer = client.get(f"/export/{name}", params=state)
        assert answer.status_code == 200, answer.text
        assert answer.content == (content if isinstance(content, bytes) else content.encode()), name
        assert client.get(f"/export/{name}", params=state).content == answer.content, name
        assert "attachment" in answer.headers["content-disposition"]


def test_every_file_equals_the_library_and_is_reproducible(client: TestClient, trace: Trace) -> None:
    table = metrics.of(trace)
    files = {
        "weights-heads.csv": tables.long_frame(trace, ["weights"], 0, range(2)).to_csv(index=False),
        "heads-metrics.csv": frame(trace, table, table.heads, counts=True).to_csv(index=False),
        **{
            f"{derived.name}.csv": "".join(tables.derived_csv(trace, derived, 0, 1))
            for derived in (*aggregates.AGGREGATES, NORMS)
        },
        "attention.npz": array_writer.npz(trace),
        "attention.safetensors": array_writer.safetensors(trace),
        "attention_steps.py": program.python(SOURCE, trace, CELL),
        "attention_steps.ipynb": program.ipynb(SOURCE, trace, CELL),
    }
    of_features = {export.name for feature in panels() for export in feature.exports}
    others = (export for export in _exports() if export.name not in of_features | {"{step}.csv"})
    check_files(client, files, others)


def test_file_may_contain_one_layer(client: TestClient) -> None:
    state = {"source": "notebook", "part": "layer"}
    assert client.get("/export/attention.npz", params=state).status_code == 200
    assert "part is one of trace, layer" in client.get("/export/attention.npz", params=state | {"part": "x"}).text


REFUSED = {
    "no such name": ("foo.csv", {}, 404, "A file name is a step (embedding, "),
    "no such kind": ("weights.exe", {}, 404, "got “weights.exe”: choose one of these."),
    "a step of another source": ("memory.csv", {}, 404, "memory"),
    "no such step in the state": ("weights.csv", {"step": "foo"}, 400, "step is one of"),
    "a value that cannot be": ("weights.csv", {"temperature": "hot"}, 400, "temperature is a number from 0"),
    "a head that is not there": ("weights.csv", {"head": "7"}, 400, "head is a whole number from 0 to 1; got “7”: change it in the address."),
    "heads that do not divide": ("weights.csv", {"heads": "7"}, 400, "heads is one of"),
    "another sequence": ("weights.csv", {"sequence": "3"}, 400, "sequence is 0, the only value; got “3”"),
    "too large": ("weights.csv", {"text": " ".join("word" for _ in range(3500)), "d_model": "1024"}, 413, "All steps need at most"),
    "a file that is not here": ("weights.csv", {"source": "file", "file": "x.npz:abc"}, 404, "The link shows the file “x.npz”"),
    "a matrix that is not here": ("weights.csv", {"source": "matrices", "uploaded": "x:90x90"}, 400, "X (90 × 90) is too long for a link"),
    "no numbers": ("weights.csv", {"source": "matrices", "x": "a"}, 400, "X"),
    "a model that is not here": ("weights.csv", {"source": "model", "model": "/etc"}, 400, "/etc"),
    "a closed page": ("state.json", {"offer": "1", "token": "x"}, 410, "This file belonged to a closed page"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "more", "status", "sentence"), REFUSED.values(), ids=REFUSED)
def test_exports_refuse_bad_requests_in_one_sentence(
    client: TestClient, name: str, more: dict[str, str], status: int, sentence: str
) -> None:
    answer = client.get(f"/export/{name}", params=STATE | more)
    assert answer.status_code == status, answer.text
    assert sentence in answer.text
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert "content-disposition" not in answer.headers
    assert "\n" not in answer.text


def test_hostile_addresses_end_in_a_file_or_a_sentence(client: TestClient) -> None:
    queries = [attack.query.encode("utf-8", "replace") for attack in inputs(60) if attack.query]
    assert len(queries) >= 20
    for query in queries:
        answer = client.post("/export/weights.csv", content=query)
        assert answer.status_code in (200, 400, 404, 413), query
        assert answer.headers["content-type"].startswith("text/csv" if answer.status_code == 200 else "text/plain")


def test_too_long_text_is_cut_as_on_a_page(client: TestClient) -> None:
    text = "a " * 15_000
    rows = client.get("/export/query.csv", params={"text": text, "d_model": "4", "heads": "1"}).text.splitlines()
    assert len(rows) == 1 + 2048


def test_download_resumes_after_an_interruption(client: TestClient) -> None:
    complete = client.get("/export/weights.csv", params=STATE)
    tag = complete.headers["etag"]
    assert complete.headers["accept-ranges"] == "bytes"
    half = len(complete.content) // 2
    for first, last in ((half, ""), (0, half), (3, 3), (half, 10**9)):
        part = client.get(
            "/export/weights.csv", params=STATE, headers={"Range": f"bytes={first}-{last}", "If-Range": tag}
        )
        end = len(complete.content) if last == "" else min(int(last) + 1, len(complete.content))
        assert (part.status_code, part.content) == (206, complete.content[first:end])
        assert part.headers["content-range"] == f"bytes {first}-{end - 1}/{len(complete.content)}"
        assert part.headers["content-length"] == str(end - first)
    beyond = client.get("/export/weights.csv", params=STATE, headers={"Range": f"bytes={len(complete.content)}-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(complete.content)}")
    for odd in (
        {"Range": "bytes=5-", "If-Range": '"other"'},
        {"Range": "bytes=-5"},
        {"Range": "bytes=9-3"},
        {"Range": "x"},
    ):
        ignored = client.get("/export/weights.csv", params=STATE, headers=odd)
        assert (ignored.status_code, ignored.content) == (200, complete.content)
    unchanged = client.get("/export/weights.csv", params=STATE, headers={"If-None-Match": f'W/"x", {tag}'})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    other = client.get("/export/weights.csv", params=STATE | {"temperature": "0.5"})
    assert other.headers["etag"] != tag
    assert client.get("/export/weights.csv", params=dict(reversed(STATE.items()))).headers["etag"] == tag


def test_release_with_other_code_confirms_no_older_file(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    tag = client.get("/export/weights.csv", params=STATE).headers["etag"]
    monkeypatch.setattr(route, "_code", lambda: "another release")
    renewed = client.get("/export/weights.csv", params=STATE, headers={"If-None-Match": tag})
    assert (renewed.status_code, renewed.headers["etag"] != tag) == (200, True)


@pytest.mark.parametrize(
    "state", [STATE, {"source": "trained", "task": "reverse", "steps": "40", "seed": "4712"}], ids=["typed", "trained"]
)
def test_export_without_a_thread_is_a_sentence(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, state: dict[str, str]
) -> None:
    def begin(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Production, "begin", begin)
    answer = client.get("/export/weights.csv", params=state)
    assert (answer.status_code, answer.text) == (500, "The server could not make the file.")
    assert not heavy.FILES._running


def test_head_request_makes_nothing_and_long_states_may_be_posted(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = client.get("/export/weights.csv", params=STATE)
    assert client.post("/export/weights.csv", data=STATE).content == complete.content
    large = client.post("/export/weights.csv", content=b"x" * (route._LONGEST_QUERY + 1))
    assert (large.status_code, "A state may have" in large.text) == (413, True)
    junk = client.post("/export/weights.csv", content=b"a=1&" * 200_000)
    assert (junk.status_code, "parameters; got 200,001" in junk.text) == (413, True)
    monkeypatch.setattr(TypedText, "trace", lambda _: pytest.fail("a HEAD request must not compute a trace"))
    head = client.head("/export/weights.csv", params=STATE | {"seed": "99"})
    assert (head.status_code, head.content, "etag" in head.headers) == (200, b"", True)
    assert client.head("/export/weights.csv", params={"heads": "7"}).status_code == 400


def run(work: Any) -> Any:
    """The result of a coroutine, within a minute."""

    async def limited() -> Any:
        async with asyncio.timeout(60):
            return await work

    return finished(limited())


class Client:
    """A client of the route without a network, which may disconnect or stop reading."""

    def __init__(self, name: str, token: str = "", address: str = "203.0.113.1") -> None:
        query = {"offer": "1", "token": token} if token else STATE
        self.status, self.sent, self.gone, self.reads = 0, b"", asyncio.Event(), asyncio.Event()
        self.reads.set()
        self.ended = False
        scope = {
            "type": "http", "method": "GET", "path": f"/export/{name}", "headers": [], "query_string": urlencode(query).encode(),
            "root_path": "", "client": (address, 1), "http_version": "1.1",
        }  # fmt: skip
        app = Starlette(routes=route.routes())
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        await self.reads.wait()
        self.sent += message.get("body", b"")
        self.ended |= not message.get("more_body", False)


class Making:
    """Files that a tab offers, whose production the test controls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()
        self.made: list[str] = []
        self._tabs: list[Tab] = []
        self.line = heavy._Line(1, lambda _: 1)
        monkeypatch.setattr(heavy, "FILES", self.line)

    def offer(self, token: str, *pieces: str | bytes | Callable[[], bytes]) -> str:
        """Offers a file with this content, or one that waits for `may_end`; returns its token."""

        def make() -> bytes:
            self.made.append(token)
            self.began.set()
            if not pieces:
                assert self.may_end.wait(60)
            return b"".join(
                piece() if callable(piece) else piece.encode() if isinstance(piece, str) else piece for piece in pieces
            )

        tab = Tab(session=token, token=token, offers={"x.csv": Offer("text/csv", "x.csv", make)})
        links._TABS[token] = tab
        self._tabs.append(tab)
        return token


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> Iterator[Making]:
    made = Making(monkeypatch)
    yield made
    wait_until(lambda: not (made.line._running or made.line._waiting), "the end of every production")
    assert not BUDGET.total


def test_exports_make_one_file_at_a_time_and_few_wait(making: Making) -> None:
    async def queued(token: str) -> Client:
        """Another client of a tab, whose request waits in the line."""
        count = len(making.line._waiting)
        client = Client("x.csv", token)
        while len(making.line._waiting) == count:
            await asyncio.sleep(0)
        return client

    async def use() -> None:
        first = Client("x.csv", making.offer("a"))
        await asyncio.to_thread(making.began.wait, 60)
        others = [await queued("a") for _ in range(JOBS_WAITING)]
        refused = Client("x.csv", "a")
        await refused.task
        assert (refused.status, b"of your files may wait" in refused.sent) == (429, True)
        leaving, other = await queued(making.offer("b", "b")), await queued(making.offer("c", "c"))
        leaving.gone.set()
        await leaving.task
        assert making.made == ["a"]
        making.may_end.set()
        await asyncio.gather(first.task, other.task, *(client.task for client in others))
        assert [client.status for client in (first, other, *others)] == [200] * 4
        assert leaving.status == 0
        assert making.made == ["a", "c", "a", "a"]  # tabs are served in turn

    run(use())


@pytest.mark.quick
def test_programs_of_an_address_wait_and_others_pass(making: Making) -> None:
    async def use() -> None:
        first = Client("x.csv", making.offer("a"))
        await asyncio.to_thread(making.began.wait, 60)
        clients = [Client("weights.csv") for _ in range(JOBS_WAITING + 1)]
        other = Client("weights.csv", address="203.0.113.2")
        while not any(client.status for client in clients):
            await asyncio.sleep(0)
        making.may_end.set()
        await asyncio.gather(first.task, other.task, *(client.task for client in clients))
        assert sorted(client.status for client in clients) == [200] * JOBS_WAITING + [429]
        assert other.status == 200

    run(use())


@pytest.mark.quick
def test_file_of_a_gone_client_is_not_finished(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces, may_go_on = [], threading.Event()

    def endless(request: Any) -> ExportFile:
        def rows() -> Iterator[str]:
            for i in range(10**9):
                pieces.append(i)
                if i == 3:
                    making.began.set()
                    assert may_go_on.wait(60)
                yield "1,2\n"

        return ExportFile("x.csv", rows())

    export, step = catalog.find("weights.csv")
    monkeypatch.setattr(catalog, "find", lambda _: (catalog.Export(export.name, "text/csv", "", endless), step))

    async def use() -> None:
        client = Client("weights.csv")
        await asyncio.to_thread(making.began.wait, 60)
        client.gone.set()
        await client.task
        may_go_on.set()
        await asyncio.to_thread(wait_until, lambda: not making.line._running, "the end of the thread")
        assert pieces == [0, 1, 2, 3]

    run(use())


@pytest.mark.quick
def test_failed_export_is_one_sentence_and_never_half_a_file(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> bytes:
        raise FileError("This text is too long: shorten it.")

    def broken() -> bytes:
        return bytes(1 // 0)

    monkeypatch.setattr(production, "LARGEST_FILE_MB", 1)

    async def use() -> None:
        cases = {"wrong": (refuse, 400), "broken": (broken, 500), "large": (lambda: bytes(2**20 + 1), 413)}
        for token, (make, status) in cases.items():
            client = Client("x.csv", making.offer(token, make))
            await client.task
            assert client.status == status, client.sent
        assert client.sent.startswith(b"A file may have at most 1 MB")

    run(use())


@pytest.mark.quick
def test_file_that_outgrows_its_limit_is_not_completed(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(production, "LARGEST_FILE_MB", 3)
    export, step = catalog.find("weights.csv")
    has_begun = threading.Event()

    def rows() -> Iterator[str]:
        yield from ["x" * 2**20] * 2
        assert has_begun.wait(60)
        yield from ["x" * 2**20] * 3

    growing = catalog.Export(export.name, "text/csv", "", lambda _: ExportFile("x.csv", rows()))
    monkeypatch.setattr(catalog, "find", lambda _: (growing, step))

    async def use() -> None:
        client = Client("weights.csv")
        while not client.status:
            await asyncio.sleep(0)
        has_begun.set()
        await client.task
        assert (client.status, client.ended) == (200, False)

    run(use())


@pytest.mark.quick
def test_large_file_is_streamed_and_keeps_only_the_range() -> None:
    async def use() -> None:
        file = Production(start=2**20 + 3, stop=2**21)
        pieces = [bytes([i]) * 700_000 for i in range(4)]
        file.begin(lambda _: (each for each in ("x", *pieces)), route.Watcher())
        await file.until_finished()
        content = b"".join(pieces)
        assert (file.total, file.waiting, file.file_name) == (len(content), 2**21 - 2**20 - 3, "x")
        received = []
        while piece := await file.take():
            received.append(piece)
        assert b"".join(received) == content[2**20 + 3 : 2**21]
        assert max(map(len, received)) == production._PIECE
        assert file.waiting == 0

    run(use())


@pytest.mark.quick
def test_client_that_reads_nothing_is_dropped(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "_PATIENCE", 0.05)

    async def use() -> None:
        client = Client("x.csv", making.offer("a", "x" * 10 * production._PIECE))
        client.reads.clear()
        await client.task
        assert (client.status, client.ended, client.sent) == (200, False, b"")

    run(use())


@pytest.mark.quick
def test_slowest_client_gives_way_when_others_need_room(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BUDGET, "_most", 3 * 2**20)

    async def use() -> None:
        slow = Client("x.csv", making.offer("a", "x" * 2**21))
        slow.reads.clear()
        while not slow.status:
            await asyncio.sleep(0)
        served = Client("x.csv", making.offer("b", "y" * (2**20 + 2**19)))
        await asyncio.gather(served.task, slow.task)
        assert (served.status, len(served.sent), slow.ended) == (200, 2**20 + 2**19, False)

    run(use())


@pytest.mark.quick
def test_file_is_made_no_faster_than_it_is_read(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(production, "UNREAD_MB", 1)
    made: list[int] = []

    def pieces(_: Any) -> Iterator[str | bytes]:
        yield "x"
        for i in range(16):
            made.append(i)
            yield bytes(2**19)

    async def use() -> None:
        file = Production()
        file.begin(pieces, route.Watcher())
        await file.until_ready()
        size = len(await file.take())
        begun = len(made)
        await asyncio.sleep(2 * POLL_SECONDS)
        assert len(made) <= begun + 4
        while piece := await file.take():
            size += len(piece)
        assert size == 2**23
        whole = Production(start=2**20)  # a range waits for the end of its file, and one large piece for its length
        whole.begin(lambda _: (each for each in ("x", bytes(2**22))), route.Watcher())
        await whole.until_finished()
        whole.cancel()

    run(use())


def test_token_resolves_to_an_upload_while_its_tab_is_open(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    is_open = True
    monkeypatch.setattr(Tab, "open", property(lambda _: is_open))
    buffer = io.BytesIO()
    weights = np.eye(3, dtype=np.float32)[None]
    np.savez(buffer, weights=weights)
    file = File.of("x.npz", buffer.getvalue())
    matrix = "\n".join(",".join(f"{i + j}.5" for j in range(2)) for i in range(200))
    tab = Tab("session", "secret", file, {"x": matrix})
    links._TABS["secret"] = tab
    state = {"source": "file", "file": f"x.npz:{file.digest}", "token": "secret"}
    table = pd.read_csv(io.StringIO(client.get("/export/weights.csv", params=state).text), index_col=0)
    np.testing.assert_array_equal(table.to_numpy()[:, :3], weights[0])
    uploaded = {"source": "matrices", "matrix_kind": "X alone", "uploaded": "x:200x2", "token": "secret"}
    expected = Matrices(x=tuple((i + 0.5, i + 1.5) for i in range(200))).trace()
    assert client.get("/export/input.csv", params=uploaded).text == "".join(tables.csv(expected, "input"))

    other = state | {"file": "x.npz:" + "0" * 32}  # another upload has replaced it
    assert client.get("/export/weights.csv", params=other).status_code == 404
    is_open = False
    assert client.get("/export/weights.csv", params=state).status_code == 410
    assert "closed page" in client.get("/export/input.csv", params=uploaded).text
    assert (
        client.get("/export/weights.csv", params=STATE | {"token": "secret"}).status_code == 200
    )  # the address contains everything
    is_open = True
    assert client.get("/export/weights.csv", params=state).status_code == 200
    del tab
    gc.collect()
    assert client.get("/export/weights.csv", params=state).status_code == 410


@pytest.mark.long  # a server and a program of its own
def test_program_reads_the_weights_from_a_running_server(server: str, trace: Trace, tmp_path: Path) -> None:
    address = f"{server}/export/weights.csv?{urlencode(STATE)}"
    table = pd.read_csv(address, index_col="query_pos")
    np.testing.assert_array_equal(table.to_numpy(np.float32)[:, :6], trace.layers[0].weights[1].numpy())
    with urllib.request.urlopen(f"{server}/export/attention.npz?{urlencode(STATE)}") as answer:
        (tmp_path / "attention.npz").write_bytes(answer.read())
        assert not answer.headers["Access-Control-Allow-Origin"]
        assert "frame-ancestors" in answer.headers["Content-Security-Policy"]
    reopened = File.open(tmp_path / "attention.npz").trace()
    assert torch.equal(reopened.layers[0].weights, trace.layers[0].weights)


def test_large_file_resumes_identically_with_and_without_compression(server: str) -> None:
    address = f"{server}/export/weights.csv?text={'+'.join(f'w{i}' for i in range(300))}"
    with urllib.request.urlopen(urllib.request.Request(address, headers={"Accept-Encoding": "gzip"})) as answer:
        content, tag = answer.read(), answer.headers["ETag"]
    assert len(content.splitlines()) == 301
    resumed = urllib.request.Request(
        address, headers={"Range": "bytes=200000-", "If-Range": tag, "Accept-Encoding": "gzip"}
    )
    with urllib.request.urlopen(resumed) as answer:
        assert answer.status == 206
        assert content[:200_000] + answer.read() == content


def test_page_token_expires_with_its_tab(server: str) -> None:
    file = io.BytesIO()
    np.savez(file, weights=np.eye(4, dtype=np.float32)[None])

    async def use() -> None:
        async with Session(server, "source=file") as tab:
            await tab.open()
            status, _ = await tab.upload("file_upload", "x.npz", file.getvalue())
            assert status < 300
            link = tab.export("weights.csv")
            assert await asyncio.to_thread(http, "GET", link) == 200
            assert await asyncio.to_thread(http, "GET", link.partition("&token")[0]) == 404
        async with asyncio.timeout(60):
            while await asyncio.to_thread(http, "GET", link) != 410:
                await asyncio.sleep(0.05)

    finished(use())


@pytest.mark.quick
def test_documents_list_every_kind_of_file() -> None:
    document = (ROOT / "docs" / "formats-and-links.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\| file \| content \|\n(.*?)\n\n", document, re.DOTALL)
    names: set[str] = set()
    for row in table.splitlines():
        stem = ""
        for name in re.findall(r"`([^`=]+)`", row.split("|")[1]):
            stem = stem if name.startswith(".") else name.rpartition(".")[0]
            names.add(stem + name if name.startswith(".") else name)
    assert names >= {export.name for export in _exports()}
    is_whole = all(is_here(f"attention.{name}") for name in NAMES)
    assert names == {export.name for export in _exports()} or not is_whole


@pytest.mark.parametrize("page", PAGES)
def test_every_export_link_of_a_page_names_a_file_kind(page: str) -> None:
    app = opened(page, aggregate="mean", compare="temperature=0.5", text=TEXT)
    app.session_state["sharing"] = True
    app.run()
    components = [
        component.proto
        for component in app.get("bidi_component")
        if component.proto.component_name == "attention_exports"
    ]
    drawn = [link for component in components for link in json.loads(component.json)["links"]]
    assert any(offered for *_, offered in drawn)  # the state file is offered by a token
    for _, name, more, offered in drawn:
        assert offered or catalog.find(name)
        assert set(more) <= {"part"}
