"""Our index page is sent wherever Streamlit sends its own, and nothing else is changed."""

from __future__ import annotations

import re
from functools import partial

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient
from streamlit.web.server.starlette.starlette_gzip_middleware import SelectiveGZipMiddleware
from streamlit.web.server.starlette.starlette_static_routes import create_streamlit_static_assets_routes

from pages.ui.server.assets import INDEX, _index_page, our_index_page

PLAIN = {"Accept-Encoding": "identity"}
PAGES = ["", "heads", "no/such/page", "?lock=1", "heads?text=a&embed=true"]


def client(base: str = "", root_path: str = "") -> TestClient:
    """Streamlit's own pages, below the base path, with our middleware around them."""
    middleware = [Middleware(partial(partial, our_index_page)), Middleware(SelectiveGZipMiddleware, base_url=base)]
    app = Starlette(routes=create_streamlit_static_assets_routes(base), middleware=middleware)
    return TestClient(app, root_path=root_path, headers=PLAIN, follow_redirects=False)


@pytest.mark.parametrize("base", ["", "teaching/lab"])
@pytest.mark.parametrize("page", PAGES)
def test_every_page_gets_our_index_and_is_revalidated(page: str, base: str) -> None:
    folder = f"/{base}/" if base else "/"
    answer = client(base).get(f"{folder}{page}")
    assert answer.text == _index_page(f"/{page}") != INDEX.read_text()
    assert answer.headers["Cache-Control"] == "no-cache"
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert int(answer.headers["Content-Length"]) == len(answer.content)
    assert "Content-Encoding" not in answer.headers
    assert "Last-Modified" not in answer.headers  # of Streamlit's own page


@pytest.mark.parametrize("page", PAGES)
def test_unchanged_page_is_not_sent_again(page: str) -> None:
    server = client()
    etag = server.get(f"/{page}").headers["ETag"]
    unchanged = server.get(f"/{page}", headers={"If-None-Match": etag})
    assert (unchanged.status_code, unchanged.content, unchanged.headers["ETag"]) == (304, b"", etag)
    assert unchanged.headers["Cache-Control"] == "no-cache"
    other = server.get("/?lock=1" if page != "?lock=1" else "/", headers={"If-None-Match": etag})
    assert other.status_code == (304 if "embed" in page else 200)
    dated = server.get(f"/{page}", headers={"If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"})
    assert (dated.status_code, dated.text) == (200, _index_page(f"/{page}"))


def test_head_request_matches_the_whole_page() -> None:
    server = client()
    page, head = server.get("/heads"), server.head("/heads")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers == page.headers


def test_all_other_files_are_streamlits() -> None:
    server, bare = client(), TestClient(Starlette(routes=create_streamlit_static_assets_routes("")), headers=PLAIN)
    [script] = re.findall(r'src="\.(/static/js/index[^"]+)"', INDEX.read_text())
    for path in (script, "/favicon.png", "/_stcore/health"):
        actual, expected = server.get(path), bare.get(path)
        assert (actual.status_code, actual.content, actual.headers) == (
            expected.status_code,
            expected.content,
            expected.headers,
        )
    assert server.get("/heads/?seed=7").headers["Location"] == "/heads?seed=7"
    assert server.post("/heads").status_code == 405


def test_range_request_gets_the_whole_page() -> None:
    answer = client().get("/heads", headers={"Range": "bytes=0-9"})
    assert (answer.status_code, answer.text) == (200, _index_page("/heads"))
